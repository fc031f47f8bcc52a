"""Print tables on standard output."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from gputune.client.pages.blocks import plain
from gputune.core.logs import printable

WIDE = 120
"""Characters in a line from which on a terminal has room for all columns."""


def add_row(table: Table, cells: Iterable[object]) -> None:
    """Add a row of plain texts to a table."""
    table.add_row(*map(printable, cells))


def print_table(table: Table) -> None:
    """Print a table to standard output. In a narrow terminal texts are folded, not cut, and the first column, which
    names the rows, stays whole."""
    for column in table.columns:
        column.overflow = "fold"
    table.columns[0].no_wrap = True
    _console().print(table)


def print_block(block: Mapping[str, Any], **style: Any) -> None:
    """Print a table that a page shows; a narrow terminal leaves out what a narrow page does. style: as rich has it."""
    narrow = _console().width < WIDE
    columns = {place: one for place, one in enumerate(block["columns"]) if not (narrow and one.get("wide"))}
    table = Table(**style)
    for one in columns.values():
        table.add_column(one["head"], justify="right" if one.get("number") else "left")
    for row in block["rows"]:
        add_row(table, (plain(row[place][0]) for place in columns))
    print_table(table)


def _console() -> Console:
    console = Console(markup=False)  # a text in brackets is a text
    if not console.is_terminal and "COLUMNS" not in os.environ:  # a pipe has no width of its own to fold to
        console.width = max(console.width, 240)
    return console
