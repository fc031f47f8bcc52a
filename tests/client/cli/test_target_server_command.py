"""Test `gputune target-server`: the server's options are shown and checked like all commands' options."""

import os
import sys
from typing import Any

import pytest

from gputune.client.cli.main import main
from gputune.server.options import parser
from tests.client.commands import Gputune


def test_the_help_has_every_option_of_the_server(gputune: Gputune) -> None:
    ran = gputune("target-server", "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Usage: gputune target-server [OPTIONS]\n\n  Serve this machine's device")
    options = [name for action in parser()._actions for name in action.option_strings]
    assert [name for name in options if f"  {name}" not in ran.out and f", {name}" not in ran.out] == []


def test_what_was_written_goes_to_the_server_as_it_was(gputune: Gputune, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def start(program: str, arguments: list[str]) -> None:
        started.append((program, arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "execv", start)
    words = ["--port=0", "--device", "null", "--log_level", "info", "--exit_with_parent"]
    gputune("target-server", *words)
    assert started == [(sys.executable, [sys.executable, "-m", "gputune.server", *words])]


def test_a_server_starts_without_a_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: started.append(arguments))
    monkeypatch.setattr(sys, "stdout", None)  # as where it was closed before
    with pytest.raises(SystemExit) as ended:
        main(["target-server", "--device", "null"])
    assert (ended.value.code, started[0][1:]) == (0, ["-m", "gputune.server", "--device", "null"])


def test_the_server_itself_tells_a_wrong_call_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["--por", "0"])  # no abbreviation, as of all commands
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: gputune target-server: unrecognized arguments: --por 0; see `gputune target-server --help`\n"
    )
