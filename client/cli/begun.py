"""Remember when a command has begun: what it imports counts as its time, and takes seconds on a busy machine."""

import time

import click


def note_begun(context: click.Context) -> None:
    """Note that the command begins now, unless it was noted before."""
    context.meta.setdefault(__name__, time.monotonic())


def begun() -> float:
    """Return when the command that runs has begun, by time.monotonic."""
    context = click.get_current_context()
    note_begun(context)
    moment: float = context.meta[__name__]
    return moment
