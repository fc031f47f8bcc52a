"""What commands print for people: all of it goes through here, because most of it quotes something from elsewhere."""

from typing import Any

import click

from gputune.core.json_text import json_text
from gputune.core.logs import printable


def say(text: object, err: bool = False) -> None:
    """Prints one line to standard output, or to standard error."""
    click.echo(printable(text), err=err)


def print_json(value: Any) -> None:
    """Prints plain values to standard output, for tools."""
    click.echo(json_text(value, indent=1))
