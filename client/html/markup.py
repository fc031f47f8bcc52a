"""Small pieces of HTML. Whatever comes from a file goes through text()."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape


def text(value: object) -> str:
    """A value as text of a page or of an attribute; what cannot be shown becomes a space or a question mark."""
    return escape("".join(c if c.isprintable() else " " if c.isspace() else "?" for c in str(value)))


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


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], style: str = "") -> str:
    """A table whose columns the page's script sorts."""
    heads = "".join(f'<th{_style(column)} scope="col"{_hint(column)}>{text(column.head)}</th>' for column in columns)
    body = "".join(
        f"<tr>{''.join(_cell(column, cell) for column, cell in zip(columns, row, strict=True))}</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table class="sortable {style}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def tile(name: str, value: str, more: str = "") -> str:
    """A number that a reader looks for first; value and more are HTML."""
    return f'<div class="tile"><dt>{text(name)}</dt><dd>{value}</dd><p>{more}</p></div>'


def figure(title: str, picture: str, note: str = "") -> str:
    """A chart with its title and a sentence, which is HTML; nothing without a picture."""
    if not picture:
        return ""
    caption = f"<p>{note}</p>" if note else ""
    return f"<figure><figcaption>{text(title)}</figcaption>{picture}{caption}</figure>"


def listing(items: Iterable[str]) -> str:
    """Lines of text."""
    return "<ul>" + "".join(f"<li>{text(item)}</li>" for item in items) + "</ul>"


def settings(configuration: Mapping[str, int]) -> str:
    """A configuration in one line that wraps between its parameters."""
    return " ".join(f"<code>{text(name)}={text(value)}</code>" for name, value in sorted(configuration.items()))


def _cell(column: Column, cell: Cell) -> str:
    key = "" if cell.key is None else text(f"{cell.key:.9g}" if isinstance(cell.key, float | int) else cell.key)
    return f'<td{_style(column)} data-key="{key}">{cell.html}</td>'


def _style(column: Column) -> str:
    names = " ".join(filter(None, (column.kind, "wide" if column.wide else "")))
    return f' class="{names}"' if names else ""


def _hint(column: Column) -> str:
    return f' title="{text(column.hint)}"' if column.hint else ""
