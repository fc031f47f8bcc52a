"""gputune target-server"""

import os
import sys

import click


@click.command(
    "target-server",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Serve this machine's device to hosts: the same as `python -m gputune.server`."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "gputune.server", *arguments])
