"""What commands print for people: all of it goes through here, because most of it quotes something from elsewhere."""

import click

from gputune.core.printable import printable


def say(text: object, err: bool = False) -> None:
    """Prints one line to standard output, or to standard error."""
    click.echo(printable(text), err=err)
