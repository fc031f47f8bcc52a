"""Test what is said while a target is chosen, and where it is said."""

import io
import logging
from typing import Any

import pytest

from gputune.client.advice import ADVICE, line_of
from gputune.client.cli import main
from gputune.client.errors import TargetError
from gputune.client.progress import reporting
from gputune.client.target import connecting
from gputune.client.target.adb.python import TERMUX
from gputune.client.target.connecting import AdbRequest, choose_target
from gputune.client.target.transport.credentials import Credentials
from gputune.core.logs import LEVELS

TOKEN = "correct horse battery staple"


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_person_must_do_is_shown_at_every_level_as_it_is(level: str) -> None:
    stream = io.StringIO()
    line = f"    GPUTUNE_TOKEN=[b]x[/b] python {'long/' * 60}server.pyz"
    with reporting(stream, level):
        logging.getLogger("gputune.test").critical(line)
    assert stream.getvalue() == f"{line}\n"


@pytest.mark.parametrize(("token", "words"), [(None, "is used without a token: any user"), (TOKEN, "")])
def test_a_server_that_nobody_asked_for_and_that_proves_nothing_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, token: str | None, words: str
) -> None:
    monkeypatch.setattr(connecting, "probe", lambda *arguments: "gputune 7")
    stream = io.StringIO()
    environment = {} if token is None else {"GPUTUNE_TOKEN": token}
    with reporting(stream, "warn"):
        chosen = choose_target(None, environment)
    assert chosen.credentials.token == token
    assert (words in stream.getvalue()) if words else not stream.getvalue()


def test_a_token_that_cannot_be_one_does_not_stop_a_server_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    class Started(Exception):
        pass

    def start(*arguments: Any) -> None:
        started.append(arguments)
        raise Started

    monkeypatch.setattr("gputune.client.target.connecting.EmbeddedServer.start", start)
    with pytest.raises(Started):
        choose_target(None, {"GPUTUNE_TOKEN": "short"})
    assert started == [(None, ())]


@pytest.mark.parametrize(
    ("python", "option", "token"),
    [(TERMUX, TOKEN, TOKEN), (TERMUX, None, "that of the variable"), (None, None, None)],
)
def test_a_server_that_a_person_starts_may_have_a_known_token(
    monkeypatch: pytest.MonkeyPatch, python: str | None, option: str | None, token: str | None
) -> None:
    asked: list[Any] = []

    class Phone:
        host, port, token, explanation = "127.0.0.1", 1, "its own", ()

        @classmethod
        def start(cls, *arguments: Any) -> "Phone":
            asked.append(arguments[4])
            return cls()

    monkeypatch.setattr("gputune.client.target.adb.target.AdbTarget", Phone)
    credentials = Credentials(option, options=("--token_file",) if option else ())
    environment = {"GPUTUNE_TOKEN": "that of the variable"}
    chosen = choose_target(None, environment, credentials=credentials, adb=AdbRequest(None, python))
    assert asked == [token]
    assert ("GPUTUNE_TOKEN does not apply: --adb is given" in chosen.explanation) is (python is None)


def test_tls_is_not_for_a_phone() -> None:
    credentials = Credentials(TOKEN, options=("--token_file", "--tls_ca"))
    with pytest.raises(TargetError, match=r"^--tls_ca: .*\[contradiction\]$"):
        choose_target(None, {}, credentials=credentials, adb=AdbRequest(None, TERMUX))


def test_an_error_is_told_with_its_advice_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**options: object) -> None:
        raise TargetError("lost_again", "lost twice")

    monkeypatch.setattr(main.cli, "main", fail)
    with pytest.raises(SystemExit) as ended:
        main.main([])
    assert ended.value.code == 4
    assert capsys.readouterr().err == f"error: lost twice; {ADVICE['lost_again']} [lost_again]\n"
    assert line_of(TargetError("token_required", "give it")) == "give it [token_required]"
    assert line_of(TargetError("of tomorrow", "what")) == "what [of tomorrow]"
