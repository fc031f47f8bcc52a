"""The help of every command: it fits a terminal of 80 columns, and each command has a version."""

from collections.abc import Iterator
from importlib.metadata import version

import click
import pytest
from click.testing import CliRunner

from gputune.client.cli.main import cli


def commands(command: click.Command, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words that call a command and every command below it."""
    yield names
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*names, name))


COMMANDS = [*commands(cli)]


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
