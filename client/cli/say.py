"""Print text for people. All output of commands passes through here, because most of it quotes foreign text."""

import textwrap
from typing import Any

import click

from gputune.core.json_text import json_text
from gputune.core.logs import printable

INTERRUPTED = 130
"""Exit code of what Ctrl-C has stopped."""

WIDTH = 80
"""Columns of a terminal that is as narrow as terminals are."""


def say(text: object, err: bool = False) -> None:
    """Print one line to standard output, or to standard error."""
    click.echo(printable(text), err=err)


def say_wrapped(text: object, indent: str = "") -> None:
    """Print a text to standard output in lines of at most WIDTH characters, each behind `indent`; the second and later
    ones two blanks further in. Nothing of an empty text."""
    lines = textwrap.wrap(
        printable(text), WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    )
    for line in lines:
        click.echo(line)


def print_json(value: Any) -> None:
    """Print plain values to standard output, for tools."""
    click.echo(json_text(value, indent=1))
