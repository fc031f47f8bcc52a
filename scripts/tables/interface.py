"""Write the golden files of options: the help of all commands, and the signatures of the Python interface."""

import inspect
from collections.abc import Iterator

import click
from click.testing import CliRunner

import gputune
from gputune.client.cli.main import cli

HELP = "tests/client/cli/help.txt"
SIGNATURES = "tests/client/api/signatures.txt"
FUNCTIONS = ("tune", "check")
WIDTH = 118


def help_text() -> str:
    """Return what --help prints of every command, each under the words that call it."""
    runner = CliRunner()
    shown = (
        f"=== gputune {' '.join(words)}".rstrip()
        + "\n"
        + runner.invoke(cli, [*words, "--help"], terminal_width=WIDTH).output
        for words in _commands(cli)
    )
    return "\n".join("\n".join(line.rstrip() for line in text.splitlines()) + "\n" for text in shown)


def _commands(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, *words, name)


def signatures() -> str:
    """Return each function with its parameters, a line for each."""
    return "\n".join("\n".join(_signature(name)) + "\n" for name in FUNCTIONS)


def _signature(name: str) -> Iterator[str]:
    found = inspect.signature(getattr(gputune, name))
    yield f"gputune.{name}(): {_plain(found.return_annotation)}"
    for one in found.parameters.values():
        default = "" if one.default is one.empty else f" = {one.default!r}"
        yield f"    {one.kind.name.lower()} {one.name}: {_plain(one.annotation)}{default}"


def _plain(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
