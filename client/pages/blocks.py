"""Define what a page consists of: blocks, which are JSON values that page.js puts into elements.

A text is a string or a list of runs. A run is a string, a mapping made by `run`, or a bar made by `bar`. Texts may hold
anything: page.js makes text nodes of them. A block has one of these kinds:

| kind | what it holds |
|---|---|
| text | a paragraph; style: note, sub or headline |
| list | items, each a text |
| tiles | numbers that a reader looks for first: name, value, more |
| facts | names and values, each a text |
| table | columns, and rows of cells that sort; rows may open, be filtered, and have an id |
| shares | a bar in pieces, and its legend |
| drawing | a picture of paths with ticks and labels, as drawing.py makes it |
| timeline | an inference of a profile with its slices |
| fold | blocks behind a line that opens them |
| filter | a field that hides rows and folds of its section that lack its words |
| group | blocks together; style: section, card, pair, charts or figure |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gputune.client.pages.scales import bytes_text, micros, percent, tenths, time_text

Block: TypeAlias = dict[str, Any]
Run: TypeAlias = str | dict[str, Any]
Text: TypeAlias = str | Sequence[Run]

FORMS: Mapping[str, Callable[[Any], Text]] = {
    "time": time_text,
    "micros": micros,
    "bytes": bytes_text,
    "count": "{:,}".format,
    "whole": "{:,.0f}".format,
    "tenth": "{:,.1f}".format,
    "share": tenths,
    "percent": percent,
}
"""Write the numbers of a column."""


@dataclass(frozen=True)
class Column:
    """Define a column of a table. value: what it shows of an item: a number where the column has a form, else a text; a
    Cell says both. form: of its numbers, one of FORMS; wide: left out on narrow screens; number: whether cells stand at
    the right, as they do with a form."""

    head: str
    value: Callable[[Any], Any]
    form: str = ""
    wide: bool = False
    hint: str = ""
    number: bool = False


@dataclass(frozen=True)
class Cell:
    """A text and what it is sorted by: a number or a string, None at the end."""

    text: Text
    key: float | str | None = None


def run(text: Text, style: str = "", link: str = "", hint: str = "") -> dict[str, Any]:
    """Return a part of a text. style: classes of page.css; link: the id that it leads to."""
    return _known(text=text, style=style, link=link, hint=hint)


def key(colour: str) -> dict[str, Any]:
    """Return a square in a colour, as legends have it."""
    return run("", f"key {colour}")


def bar(share: float, style: str = "", low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """Return a bar within a text. share, low, high: of its room, from 0 to 1; the interval is a line."""
    ends = {} if low is None or high is None else {"low": _within(low), "high": _within(high)}
    return {"bar": _within(share), **_known(style=style), **ends}


def text(words: Text, style: str = "") -> Block:
    """Return a paragraph."""
    return {"kind": "text", "text": words, **_known(style=style)}


def listing(items: Iterable[Text]) -> Block:
    """Return a list of texts."""
    return {"kind": "list", "items": list(items)}


def tiles(*items: tuple[str, str, str]) -> Block:
    """Return numbers that a reader looks for first, each with its name and a sentence."""
    return {"kind": "tiles", "items": items}


def facts(rows: Mapping[str, Text], style: str = "") -> Block:
    """Return names with values; those without a value are left out."""
    return {"kind": "facts", "rows": [[name, value] for name, value in rows.items() if value], **_known(style=style)}


def table(
    columns: Sequence[Column],
    items: Iterable[Any],
    *,
    ids: Callable[[Any], str] | None = None,
    details: Callable[[Any], Sequence[Block]] | None = None,
    foot: Sequence[Any] = (),
    filtered: bool = False,
) -> Block:
    """Return a table with a row for each item. ids: of its row; details: what its row shows once it is open; foot: the
    values of a last row, which does not sort."""
    kept = list(items)
    heads = [{"head": one.head, **_known(number=_is_number(one), wide=one.wide, hint=one.hint)} for one in columns]
    rows = [[_cell(column, column.value(item)) for column in columns] for item in kept]
    more: dict[str, Any] = {"ids": [ids(item) for item in kept]} if ids else {}
    more |= {"details": [details(item) for item in kept]} if details else {}
    last = [_cell(column, value) for column, value in zip(columns, foot, strict=True)] if foot else []
    return {"kind": "table", "columns": heads, "rows": rows, **more, **_known(filtered=filtered, foot=last)}


def shares(pieces: Iterable[tuple[float, str, str, str]], legend: Iterable[tuple[str, str]] = ()) -> Block:
    """Return a bar in pieces. pieces: share of the whole, colour, hint and the id that it leads to; legend: colour and
    name."""
    kept = [list(piece) for piece in pieces if piece[0] > 0]
    return {"kind": "shares", "pieces": kept, "legend": [list(entry) for entry in legend]}


def fold(
    title: Text, blocks: Iterable[Block | None], identifier: str = "", words: str = "", opened: bool = False
) -> Block:
    """Return blocks behind a line. words: what a filter finds it by."""
    return {"kind": "fold", "title": title, "blocks": _there(blocks), **_known(id=identifier, words=words, open=opened)}


def filter_field(hint: str) -> Block:
    """Return a field for words that rows and folds of its section must have."""
    return {"kind": "filter", "hint": hint}


def group(style: str, *blocks: Block | None, title: str = "") -> Block | None:
    """Return blocks together; None where there are none."""
    kept = _there(blocks)
    return {"kind": "group", "style": style, "title": title, "blocks": kept} if kept else None


def card(title: str, *blocks: Block | None) -> Block | None:
    """Return blocks in a frame with a title; None where there are none."""
    return group("card", *blocks, title=title)


def figure(title: str, picture: Block | None, note: Text = "") -> Block | None:
    """Return a picture with its title and a sentence; None without a picture."""
    return group("figure", picture, text(note, "sub") if note else None, title=title) if picture else None


def plain(text: Any) -> str:
    """Return a text without what its runs look like."""
    if isinstance(text, list | tuple):
        return "".join(map(plain, text))
    return plain(text.get("text", "")) if isinstance(text, Mapping) else str(text)


def _known(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _there(blocks: Iterable[Block | None]) -> list[Block]:
    return [block for block in blocks if block is not None]


def _within(share: float) -> float:
    return round(min(1.0, max(0.0, share)), 5)


def _is_number(column: Column) -> bool:
    return column.number or bool(column.form)


def _cell(column: Column, value: Any) -> list[Any]:
    """Return the text of a cell and its key."""
    if isinstance(value, Cell):
        return [value.text, value.key]
    if value is None:
        return ["–", None]
    return [FORMS[column.form](value), float(value)] if column.form else [value, plain(value)]
