"""Define `gputune target-server`: read the server's options, then replace this process with the server."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import click

from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.completion import devices, perf_profiles
from gputune.client.options.files import INPUT, OUTPUT, DeviceName
from gputune.client.options.kinds import FLAG, choice
from gputune.client.options.option import Kind, Option
from gputune.server.options import parser

_OWN: Mapping[str, Mapping[str, Any]] = {
    "device": {"type": DeviceName(), "shell_complete": devices},
    "perf_profile": {"shell_complete": perf_profiles},
    "unix": {"type": OUTPUT},
}
"""By option, what click takes besides. The server makes the file of --unix, and reads all others."""


class _Server(Grouped):
    """Checks the options, and hands them on as they were written."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = tuple(args)
        return super().parse_args(ctx, args)


def _option(action: argparse.Action) -> Option:
    """Return an option of the server as one of this command, which checks values as the server's own parser does."""

    def read(value: Any, name: str) -> Any:
        try:
            return action.type(value) if callable(action.type) else value
        except argparse.ArgumentTypeError as error:
            raise click.BadParameter(str(error)) from None

    taken = {"metavar": action.metavar, "type": INPUT if action.type is Path else str, **_OWN.get(action.dest, {})}
    kind = choice(*action.choices) if action.choices else Kind(read, click=taken)
    return Option(action.dest, FLAG if action.nargs == 0 else kind, action.help or "")


@click.command(
    "target-server",
    cls=_Server,
    help=f"{parser().description}\n\n\b\ngputune target-server --port 22598 --token_file token",
)
@with_options(*(_option(action) for action in parser()._actions if action.dest not in ("help", "version")))
def command(**options: Any) -> NoReturn:
    """Run the server in the place of this process."""
    if sys.stdout is not None:  # None where it was closed before
        sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "gputune.server", *click.get_current_context().obj])
