"""Words that code, scripts and docs do without: private names for things that have one in the field, and persons where
a process, a client or a variant is meant."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("cache", "client", "core", "docs", "examples", "kernels", "runtime", "scripts", "server")

SUFFIXES = {"", ".py", ".cl", ".md", ".toml"}
TEXTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(path for place in PLACES for path in (ROOT / place).rglob("*")))
    if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts
)
ANYWHERE = ("",)

BANNED = {
    "agenda": ANYWHERE,
    "speaker": ANYWHERE,
    "workbench": ANYWHERE,
    "entrance": ANYWHERE,
    "steering input": ANYWHERE,
    "patience": ANYWHERE,
    "nobody": ANYWHERE,
    "somebody": ANYWHERE,
    "everybody": ANYWHERE,
    "whoever": ANYWHERE,
    "who (?:has|is|asks|waits|dies|wants|fails|compiles|names|wins|needs|comes)": ANYWHERE,
    "lane": ("client/", "server/"),
    "guard": ("server/clients/",),
    "walk": ("client/", "kernels/"),
    "jump": ("client/model/", "kernels/"),
    "rac(?:e|ed|ing)": ("ARCHITECTURE.md", "client/", "core/", "kernels/", "runtime/", "scripts/", "server/"),
    "prove[nr]": ("runtime/",),
    "part(?:y|ie)": ("server/",),
    "g(?:i|a)v(?:e|es|ing|en) way": ANYWHERE,
}
"""A pattern, in singular, and the folders in which it is banned."""

ALLOWED = {
    "patience": ("client/tuning/",),  # the field's word for how many trials in a row may bring nothing
    "nobody": ("cache/schema.py",),
    "rac(?:e|ed|ing)": (
        "client/context/choice.py",  # a key of stored choices, there and in comparison.py
        "client/context/comparison.py",
        "runtime/measuring/building.py",  # a data race
    ),
}
"""By pattern, the files and folders that may use it all the same. The text of cache/schema.py decides digests."""


def uses(pattern: str, path: str) -> list[str]:
    """The lines of a file with a word, parts of identifiers included."""
    words = re.compile(rf"(?<![a-z]){pattern}s?(?![a-z])", re.IGNORECASE)
    return [f"{path}:{number}: {line.strip()}" for number, line in enumerate(lines(path), 1) if words.search(line)]


@cache
def lines(path: str) -> list[str]:
    """The lines of a file, the words of an identifier apart."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", (ROOT / path).read_text(encoding="utf-8")).splitlines()


@pytest.mark.parametrize("pattern", BANNED)
def test_a_word_is_not_used(pattern: str) -> None:
    banned = [path for path in TEXTS if path.startswith(BANNED[pattern])]
    checked = [path for path in banned if not path.startswith(ALLOWED.get(pattern, ()))]
    assert [line for path in checked for line in uses(pattern, path)] == []


def test_what_is_allowed_is_needed() -> None:
    files = [(pattern, place) for pattern, places in ALLOWED.items() for place in places if not place.endswith("/")]
    assert [(pattern, file) for pattern, file in files if (ROOT / file).exists() and not uses(pattern, file)] == []
