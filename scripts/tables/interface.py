"""Write what users see of options: the help of all commands, and the signatures of the Python interface."""

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

import gputune
from gputune.client.cli.main import cli
from gputune.client.options.config import KEYS
from gputune.client.options.python import TUNE, told_of

HELP = "tests/client/cli/help.txt"
SIGNATURES = "client/api/interface.pyi"
FUNCTIONS = ("tune", "check")
WIDTH = 118
HEAD = '''\
"""The signatures of interface.py. scripts/docs writes this file from the options of client/options: change those."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gputune.client.api.checking import ModelCheck
from gputune.client.api.shapes import InputValues, Shapes
from gputune.client.api.tuning import AnyPath, Tuned, TuningProgress
'''


def help_text() -> str:
    """Return what --help prints of every command, each under the words that call it. A command keeps the names of its
    own --help from the first call in a process, which may have been another one, so this is a process of its own."""
    command = [sys.executable, "-m", "tables.interface"]
    return subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True).stdout


def _help_text() -> str:
    runner = CliRunner()
    shown = (
        f"=== gputune {' '.join(words)}".rstrip()
        + "\n"
        + runner.invoke(cli, [*words, "--help"], terminal_width=WIDTH).output
        for words, _ in commands()
    )
    return "\n".join("\n".join(line.rstrip() for line in text.splitlines()) + "\n" for text in shown)


def commands(command: click.Command = cli, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command with the words that call it, a group before the commands below it."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, *words, name)


def config_keys() -> str:
    """Return the table of the keys that a config file may have beside sections."""
    known = (one for one in KEYS.options if one.key and "file" in one.sections)
    rows = [f"| `{one.key}` | {one.kind.value} | {one.told_key} |" for one in known]
    return "\n".join(["| key | value | meaning |", "|---|---|---|", *rows]) + "\n"


def arguments() -> str:
    """Return the table of the arguments of `gputune.tune` that are options."""
    names = [name for name in inspect.signature(gputune.tune).parameters if name in TUNE]
    return (
        "\n".join(["| argument | meaning |", "|---|---|", *(f"| `{name}` | {told_of(TUNE[name])} |" for name in names)])
        + "\n"
    )


def signatures() -> str:
    """Return the stub of client/api/interface.py, by which type checkers and editors know the arguments."""
    return HEAD + "\n" + "".join(map(_stub, FUNCTIONS))


def _stub(name: str) -> str:
    shown, parts, named = inspect.signature(getattr(gputune, name)), [], False
    for one in shown.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not named:
            parts.append("*")
            named = True
        default = "" if one.default is one.empty else f" = {one.default!r}"
        parts.append(f"{one.name}: {one.annotation}{default}")
    lines = "".join(f"    {part},\n" for part in parts)
    return f"def {name}(\n{lines}) -> {shown.return_annotation}: ...\n"


if __name__ == "__main__":
    sys.stdout.write(_help_text())
