"""Write small HTML elements. All text from a file goes through text()."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from gputune.core.logs import printable


def text(value: object) -> str:
    """Return a value as text of a page or of an attribute; what cannot be shown becomes a space or a question mark."""
    return escape(printable(value))


@dataclass(frozen=True)
class Column:
    """A column of a table. kind: "" for text, "number"; wide: left out on narrow screens."""

    head: str
    kind: str = ""
    wide: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Cell:
    """HTML and what it is sorted by: a number or text, None at the end."""

    html: str
    key: float | str | None = None


@dataclass(frozen=True)
class Fold:
    """A row that opens. anchor: where links lead; name: the text of its first cell; below: HTML under that; cells: all
    others; details: HTML."""

    anchor: str
    name: str
    below: str
    cells: Sequence[Cell]
    details: str


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], style: str = "") -> str:
    """Return a table whose columns the page's script sorts."""
    body = "".join(f"<tr>{_cells(columns, row)}</tr>" for row in rows)
    return _table(columns, f"<tbody>{body}</tbody>", style)


def folding_table(columns: Sequence[Column], rows: Iterable[Fold], style: str = "") -> str:
    """Return a table whose rows open where a script folds them; without one all are open."""
    return _table(columns, "".join(_fold(columns, row) for row in rows), f"foldable {style}")


def tile(name: str, value: str, more: str = "") -> str:
    """Return a number that a reader looks for first; value and more are HTML."""
    return f'<div class="tile"><dt>{text(name)}</dt><dd>{value}</dd><p>{more}</p></div>'


def figure(title: str, picture: str, note: str = "") -> str:
    """Return a chart with its title and a sentence, which is HTML; nothing without a picture."""
    if not picture:
        return ""
    caption = f"<p>{note}</p>" if note else ""
    return f"<figure><figcaption>{text(title)}</figcaption>{picture}{caption}</figure>"


def listing(items: Iterable[str]) -> str:
    """Return lines of text."""
    return "<ul>" + "".join(f"<li>{text(item)}</li>" for item in items) + "</ul>"


def settings(configuration: Mapping[str, int]) -> str:
    """Return a configuration in one line that wraps between its parameters."""
    return " ".join(f"<code>{text(name)}={text(value)}</code>" for name, value in sorted(configuration.items()))


def _table(columns: Sequence[Column], bodies: str, style: str) -> str:
    heads = "".join(f'<th{_style(column)} scope="col"{_hint(column)}>{text(column.head)}</th>' for column in columns)
    return f'<div class="scroll"><table class="sortable {style}"><thead><tr>{heads}</tr></thead>{bodies}</table></div>'


def _fold(columns: Sequence[Column], row: Fold) -> str:
    name = Cell(f'<button type="button" class="fold">{text(row.name)}</button>{row.below}', row.name)
    cells = _cells(columns, [name, *row.cells])
    more = f'<tr class="more"><td colspan="{len(columns)}">{row.details}</td></tr>'
    return f'<tbody id="{text(row.anchor)}"><tr class="main">{cells}</tr>{more}</tbody>'


def _cells(columns: Sequence[Column], row: Sequence[Cell]) -> str:
    return "".join(_cell(column, cell) for column, cell in zip(columns, row, strict=True))


def _cell(column: Column, cell: Cell) -> str:
    key = "" if cell.key is None else text(f"{cell.key:.9g}" if isinstance(cell.key, float | int) else cell.key)
    return f'<td{_style(column)} data-key="{key}">{cell.html}</td>'


def _style(column: Column) -> str:
    names = " ".join(filter(None, (column.kind, "wide" if column.wide else "")))
    return f' class="{names}"' if names else ""


def _hint(column: Column) -> str:
    return f' title="{text(column.hint)}"' if column.hint else ""
