"""Test what is said while a target is chosen, and where it is said."""

import io
import logging
import ssl
from typing import Any

import pytest

from gputune.client.advice import ADVICE, line_of
from gputune.client.cli import main
from gputune.client.errors import ConfigError, TargetError
from gputune.client.progress import reporting
from gputune.client.target import connecting
from gputune.client.target.adb.python import TERMUX
from gputune.client.target.connecting import DEVICE_VARIABLE, VARIABLE, AdbRequest, choose_target
from gputune.client.target.several import choose_targets
from gputune.client.target.transport.credentials import Credentials
from gputune.core.logs import LEVELS
from gputune.runtime.devices.discovery import AGENT_TOKEN_VARIABLE

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


class Embedded:
    """An embedded server that only says how it was started."""

    host, port, token, explanation = "127.0.0.1", 1, "its own", ("using the agent's",)
    started: list[Any]

    @classmethod
    def start(cls, *arguments: Any, variables: Any = None) -> "Embedded":
        cls.started.append((*arguments, variables))
        return cls()

    def stop(self) -> None:
        pass


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the arguments with which embedded servers are started."""
    Embedded.started = []
    monkeypatch.setattr(connecting, "EmbeddedServer", Embedded)
    return Embedded.started


def test_a_token_that_cannot_be_one_does_not_stop_a_server_of_our_own(started: list[Any]) -> None:
    choose_target(None, {"GPUTUNE_TOKEN": "short"})
    assert started == [(None, (), None)]


@pytest.mark.parametrize(
    "address", ["agent:board", "agent:board:22598#1", "agent:[::1]:1", "agent:[fe80::1]", "agent:/run/agent.sock#0"]
)
def test_an_agent_is_a_target_by_a_server_of_our_own(started: list[Any], address: str) -> None:
    variables = {AGENT_TOKEN_VARIABLE: TOKEN, DEVICE_VARIABLE: "null"}
    for option, environment, origin in (
        (address, variables, "--target"),
        (None, {**variables, VARIABLE: f" {address} "}, VARIABLE),
    ):
        chosen = choose_target(option, environment, log_level="info")
        assert started.pop() == (address, ("--log_level", "info"), {AGENT_TOKEN_VARIABLE: TOKEN})
        assert chosen.credentials.token == "its own"
        assert chosen.explanation == (
            f"embedded target server 127.0.0.1:1 for {address} (from {origin})",
            "using the agent's",
            f"{DEVICE_VARIABLE} does not apply: {origin} names a device",
        )


def test_the_token_of_an_agent_is_that_of_the_option_its_own_variable_or_that_of_servers(started: list[Any]) -> None:
    option, own, servers = (f"a token of {whose}, long enough" for whose in ("the option", "agents", "servers"))
    both = {AGENT_TOKEN_VARIABLE: own, "GPUTUNE_TOKEN": servers}
    given = Credentials(option, options=("--token_file",))
    for credentials, environment, token in (
        (given, both, option),
        (Credentials(), both, own),
        (Credentials(), {"GPUTUNE_TOKEN": servers}, servers),
    ):
        choose_target("agent:board", environment, credentials=credentials)
        assert started.pop()[-1] == {AGENT_TOKEN_VARIABLE: token}
    with pytest.raises(TargetError, match="agent:board needs its token: give it with --token_file") as raised:
        choose_target("agent:board", {})
    assert raised.value.name == "token_required"
    with pytest.raises(ConfigError, match=AGENT_TOKEN_VARIABLE):
        choose_target("agent:board", {AGENT_TOKEN_VARIABLE: "short"})


@pytest.mark.parametrize(
    "address", ["agent:", "agent:#0", "agent:board:0", "agent:board:99999", "agent:board#", "agent:a b", "agent:::1"]
)
def test_what_is_no_address_of_an_agent_is_refused(started: list[Any], address: str) -> None:
    with pytest.raises(TargetError, match="is not agent:HOST:PORT") as raised:
        choose_target(address, {AGENT_TOKEN_VARIABLE: TOKEN})
    assert raised.value.name == "bad_address" and started == []


def test_a_device_and_tls_contradict_an_agent(started: list[Any]) -> None:
    encrypted = Credentials(TOKEN, ssl.create_default_context(), ("--tls_ca",))
    for options, words in (
        ({"device": "0"}, "--target names the device agent:board; drop --device or --target"),
        ({"credentials": encrypted}, "TLS is for target servers; drop --tls_ca"),
    ):
        with pytest.raises(TargetError, match=words) as raised:
            choose_target("agent:board", {AGENT_TOKEN_VARIABLE: TOKEN}, **options)
        assert raised.value.name == "contradiction" and started == []


def test_several_agents_are_named_once_each(started: list[Any]) -> None:
    environment = {AGENT_TOKEN_VARIABLE: TOKEN}
    choose_targets("agent:board#0, agent:board#1,agent:other", environment).close()
    assert [each[0] for each in started] == ["agent:board#0", "agent:board#1", "agent:other"]
    with pytest.raises(ConfigError, match="twice"):
        choose_targets("agent:board,agent:board", environment)


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
