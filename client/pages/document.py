"""Put blocks into a page, one file that needs nothing else: its policy forbids any request."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from gputune.client.pages.blocks import Block, plain
from gputune.client.pages.scales import JOINED
from gputune.core.json_text import json_text
from gputune.core.logs import printable


def page(
    title: str,
    heading: str,
    facts: str,
    blocks: Sequence[Block | None],
    explained: str,
    *,
    refresh_seconds: float = 0,
) -> str:
    """Return a whole document. facts: below the heading; explained: what explains the page, at its end.
    refresh_seconds: so often a browser reads it again; 0 for never."""
    shown = _printable([block for block in blocks if block is not None])
    style, script = _file("page.css"), _file("timeline.js") + _file("page.js")
    policy = f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}"
    refresh = f'<meta http-equiv="refresh" content="{refresh_seconds:g}">\n' if refresh_seconds else ""
    texts = {"title": title, "heading": heading, "facts": facts, "explained": explained}
    return Template(_file("page.html")).substitute(
        {name: escape(printable(text)) for name, text in texts.items()},
        policy=policy,
        refresh=refresh,
        style=style,
        script=script,
        figures="".join(_row(row) for row in _figures(shown)),
        data=json_text(shown).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
    )


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _printable(value: Any) -> Any:
    """Return a value whose texts hold only what can be shown, and blanks that join."""
    if isinstance(value, str):
        return value if value.isprintable() else JOINED.join(map(printable, value.split(JOINED)))
    if isinstance(value, dict):
        return {name: _printable(each) for name, each in value.items()}
    return [_printable(each) for each in value] if isinstance(value, list | tuple) else value


def _figures(blocks: Sequence[Block]) -> Iterator[Sequence[str]]:
    """Yield the rows of the main figures: titles of sections, headlines, and tiles."""
    for block in blocks:
        if block["kind"] == "tiles":
            yield from block["items"]
        elif block.get("style") == "headline":
            yield [plain(block["text"])]
        elif block["kind"] == "group":
            if block["style"] == "section" and block["title"]:
                yield [block["title"]]
            yield from _figures(block["blocks"])


def _row(cells: Sequence[str]) -> str:
    span = f' colspan="{4 - len(cells)}"' if len(cells) < 3 else ""
    return "<tr>" + "".join(f"<td{span}>{escape(cell)}</td>" for cell in cells) + "</tr>"
