"""Test the help of every command: it fits a terminal of 80 columns, and each command has a version."""

from importlib.metadata import version

import pytest
from click.testing import CliRunner

from gputune.client.cli.main import cli
from tests.client.cli.command_tree import commands

COMMANDS = [words for words, _ in commands()]


def test_nested_commands_are_among_them() -> None:
    assert {(), ("net-run",), ("performance-cache", "explain"), ("farm", "tune"), ("power", "check")} <= {*COMMANDS}


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_help_fits_80_columns(names: tuple[str, ...]) -> None:
    ran = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*names, "--help"])
    assert ran.exit_code == 0
    assert [line for line in ran.output.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_every_command_has_a_version(names: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(cli, [*names, "--version"])
    assert (ran.exit_code, ran.output) == (0, f"gputune {version('gputune')}\n")
