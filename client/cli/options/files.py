"""Options that take files: how that of a context binary is called, and several files in one text."""

from pathlib import Path

import click

from gputune.client.lists import comma_separated as comma_separated

CONTEXT_BINARY = ("--context_binary", "--retrieve_context", "context_binary")
"""The names of the option for a context. The original tools have one in one tool and the other in another; here each
command takes both."""


def files(context: click.Context, parameter: click.Parameter, value: str) -> list[Path]:
    """Callback of an option: its files. What is the path of one file as a whole is that file, commas or not."""
    parts = _parts(value)
    if not all(parts):
        raise click.BadParameter(f"{value!r} has a path that is empty")
    return [Path(part) for part in parts]


def files_or_none(context: click.Context, parameter: click.Parameter, value: str | None) -> list[Path | None] | None:
    """The same where a file may be left out, as in "a.txt,,c.txt": it is None in the list. None without the option."""
    return None if value is None else [Path(part) if part else None for part in _parts(value)]


def _parts(value: str) -> list[str]:
    try:
        return [value] if not value or _is_there(value) else comma_separated(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long for a name, or with a character that none may have
        return False
