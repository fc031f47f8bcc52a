"""Test that all commands use the same option name for the same thing."""

import click

from gputune.client.cli.main import cli
from gputune.client.options.files import CONTEXT_BINARY

NAMES = {name for name in CONTEXT_BINARY if name.startswith("--")}


def test_every_command_takes_a_context_by_both_names_of_the_original_tools() -> None:
    taking = {}
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for parameter in command.params:
            if NAMES & set(parameter.opts):
                taking[name] = set(parameter.opts)
    assert len(taking) == 6, taking
    assert all(names == NAMES for names in taking.values()), taking
