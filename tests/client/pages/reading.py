"""Read pages for tests as strictly as no browser does, find blocks in them, and look at them in a browser."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from gputune.client.pages.blocks import plain

VOID = {"meta", "link", "br", "input"}
UNFOLD = """
document.querySelectorAll('details').forEach(fold => { fold.open = true; });
dispatchEvent(new Event('beforeprint'));
document.querySelectorAll('.folding tbody').forEach(row => row.classList.add('open'));
new Promise(done => setTimeout(done, 50))
"""
"""Opens all that is folded in a page."""


class Page(HTMLParser):
    """What a page is made of. Fails on a tag that is not closed in its turn, and on scripts in attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags = Counter[str]()
        self.links: list[str] = []
        self.blocks: list[Any] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert not any(name.startswith("on") for name in found)
        self.tags[tag] += 1
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        if tag not in VOID:
            self.open.append("data" if found.get("type") == "application/json" else tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().replace("data", "script") == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "data":
            assert not set(data) & set("<>&")
            self.blocks = json.loads(data)
        elif self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


def every(blocks: Sequence[Any]) -> Iterator[Any]:
    """Yield blocks and all that are within them, in the order of the page."""
    for block in blocks:
        if block is not None:
            yield block
            yield from every(block.get("blocks", ()))
            for details in block.get("details", ()):
                yield from every(details)


def titled(blocks: Sequence[Any], title: str) -> Any:
    """Return the first group or fold whose title begins so."""
    return next(each for each in every(blocks) if plain(each.get("title", "")).startswith(title))


def of_kind(blocks: Sequence[Any], kind: str) -> list[Any]:
    return [each for each in every(blocks) if each["kind"] == kind]


def words(value: Any) -> str:
    """Return all texts of blocks in one line, as a reader sees them."""
    if isinstance(value, dict) and value.get("kind") == "table":
        value = [heads(value), cells(value), value.get("details", ())]
    if isinstance(value, dict):
        value = [each for name, each in value.items() if name not in ("kind", "style", "id", "link", "d", "words")]
    if isinstance(value, list | tuple):
        return " ".join(filter(None, map(words, value)))
    return " ".join(value.split()) if isinstance(value, str) else ""


def cells(table: Any) -> list[list[str]]:
    """Return the texts of a table's rows."""
    return [[words(text) for text, _ in row] for row in table["rows"]]


def heads(table: Any) -> list[str]:
    return [column["head"] for column in table["columns"]]


def written(path: Path, html: str) -> str:
    """Return the address of a page in a file."""
    path.write_text(html, encoding="utf-8")
    return path.as_uri()
