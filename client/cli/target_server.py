"""Define `gputune target-server`: read the server's options, then replace this process with the server."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from gputune.client.options.completion import devices, perf_profiles
from gputune.client.options.files import INPUT, OUTPUT, DeviceName
from gputune.server.options import parser

_OUTPUTS = {"unix"}
"""Options that name a file which the server makes; it reads all others."""
_COMPLETE = {"device": devices, "perf_profile": perf_profiles}


class _Server(click.Command):
    """Checks the options, and hands them on as they were written."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = tuple(args)
        return super().parse_args(ctx, args)


def _option(action: argparse.Action) -> click.Option:
    """Return an option of the server as one of this command."""
    if action.nargs == 0:
        return click.Option(action.option_strings, is_flag=True, help=action.help)
    return click.Option(
        action.option_strings,
        type=_type(action),
        metavar=None if action.choices else str(action.metavar),
        help=action.help,
        callback=_check(action),
        shell_complete=_COMPLETE.get(action.dest),
    )


def _type(action: argparse.Action) -> Any:
    if action.choices:
        return click.Choice(tuple(action.choices))
    if action.dest == "device":
        return DeviceName()
    if action.type is Path:
        return OUTPUT if action.dest in _OUTPUTS else INPUT
    return str


def _check(action: argparse.Action) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that checks a value as the server's own parser does."""

    def check(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return action.type(value) if value is not None and callable(action.type) else value
        except argparse.ArgumentTypeError as error:
            raise click.BadParameter(str(error)) from None

    return check


def _run(**options: Any) -> NoReturn:
    if sys.stdout is not None:  # None where it was closed before
        sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "gputune.server", *click.get_current_context().obj])


command = _Server(
    "target-server",
    callback=_run,
    params=[_option(action) for action in parser()._actions if action.dest not in ("help", "version")],
    help=f"{parser().description}\n\n\b\ngputune target-server --port 22598 --token_file token",
)
