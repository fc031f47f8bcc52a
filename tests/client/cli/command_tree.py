"""List every command of the program."""

from collections.abc import Iterator

import click

from gputune.client.cli.main import cli


def commands(command: click.Command = cli, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command with the words that call it, a group before the commands below it."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, *words, name)
