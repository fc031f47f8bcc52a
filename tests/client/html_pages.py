"""Read pages for tests as strictly as no browser does, and look at them in one."""

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

from pages.headless import Browser

VOID = {"meta", "link", "br", "input"}


class Page(HTMLParser):
    """What a page is made of. Fails on a tag that is not closed in its turn, and on scripts in attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags = Counter[str]()
        self.forms: set[tuple[str, tuple[str, ...]]] = set()
        """Tags with the names of their attributes."""
        self.links: list[str] = []
        self.data: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert not any(name.startswith("on") for name in found)
        self.tags[tag] += 1
        self.forms.add((tag, tuple(name for name, _ in attrs)))
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        if tag not in VOID:
            self.open.append("data" if found.get("type") == "application/json" else tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().replace("data", "script") == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "data":
            self.data.append(data)
        elif self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


def written(path: Path, html: str) -> str:
    """Return the address of a page in a file."""
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


def check_silent_and_narrow(browser: Browser, address: str, opens: str = "", holds: str = "true") -> None:
    """Check that a page fits a phone, complains of nothing and loads nothing else. opens: a script that unfolds what is
    folded; holds: what must be true then."""
    for width, dark in ((1180, False), (360, True), (320, False)):
        browser.look(width, dark=dark)
        browser.load(address)
        browser.value(opens or "0")
        assert browser.value("document.documentElement.scrollWidth") <= width
        assert browser.value(holds)
        assert browser.complaints() == []
        assert browser.requests() == [address]
