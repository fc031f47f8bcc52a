"""Test that code, scripts and docs avoid private words for what the field has a word for, and persons for processes.

A person in place of a client or a variant is refused, too.
"""

import re
import shutil
import statistics
import subprocess
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from gputune.client.cli.main import cli
from tests.client.cli.command_tree import commands

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
        "scripts/README.md",  # data races, there and in the two below
        "scripts/gpu/drivers/",
        "scripts/gpu/race",
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


OFTEN = {
    r"\bones?\b": 35,
    r"\bwhere\b": 20,
    r"\bbeside\b": 3,
    r"\bbehind\b": 3,
    r"\b(?:tells?|told|telling)\b": 4,
    r"\b(?:what|that of|those of)\b": 40,
}
"""How often, in 10 000 words of pages and help, patterns of a foreign voice may stand."""

PAGES = ("README.md", "GLOSSARY.md", "ARCHITECTURE.md", "CHANGELOG.md")
SUBJECTS_SINCE = "2026-11-28T00:00:00Z"
FEW = 2
"""So many subjects with a pattern are chance: they cannot be written again."""
SENTENCE, PARAGRAPH = 25, 60
"""The most words of the mean sentence and paragraph of a page."""


def prose(text: str) -> str:
    """Return a page without code, tags and addresses of links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "X", re.sub(r"\]\([^)]*\)|<[^>]+>", " ", text))


@cache
def pages() -> dict[str, str]:
    """Return the prose of README, of all other pages, and of the help of all commands, by name."""
    files = [*(ROOT / name for name in PAGES), *sorted((ROOT / "docs").rglob("*.md"))]
    files += [ROOT / room / "README.md" for room in ("kernels", "scripts")]
    texts = {path.relative_to(ROOT).as_posix(): prose(path.read_text(encoding="utf-8")) for path in files}
    helps = [CliRunner().invoke(cli, [*words, "--help"]).output for words, _ in commands()]
    return texts | {"help of all commands": "\n".join(helps)}


@cache
def subjects() -> str:
    """Return the subjects of all commits since they are counted; none where there is no history, as in an archive."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return ""
    log = ["git", "-C", str(ROOT), "log", "--format=%s", f"--since={SUBJECTS_SINCE}"]
    return subprocess.run(log, capture_output=True, text=True, check=False).stdout


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text, re.IGNORECASE))


@pytest.mark.parametrize("pattern", OFTEN)
def test_a_pattern_is_rare(pattern: str) -> None:
    words = sum(count(r"[a-z']+", text) for text in pages().values())
    found = {page: count(pattern, text) for page, text in pages().items()}
    assert sum(found.values()) * 10_000 / words <= OFTEN[pattern], {page: n for page, n in found.items() if n}


@pytest.mark.parametrize("pattern", OFTEN)
def test_a_pattern_is_rare_in_subjects_of_commits(pattern: str) -> None:
    found = [subject for subject in subjects().splitlines() if count(pattern, subject)]
    assert len(found) <= max(FEW, len(subjects().splitlines()) // 20), found


@pytest.mark.parametrize("page", sorted({*pages()} - {"help of all commands"}))
def test_sentences_and_paragraphs_are_short(page: str) -> None:
    parts = [part for part in re.split(r"\n\s*\n", pages()[page]) if not re.match(r"\s*(?:[#|*]|- |\d+\.)", part)]
    paragraphs = [len(part.split()) for part in parts if len(part.split()) > 5]
    sentences = [len(sentence.split()) for part in parts for sentence in re.split(r"(?<=[.!?:])\s", part)]
    assert statistics.mean([n for n in sentences if n > 2] or [0]) <= SENTENCE
    assert statistics.mean(paragraphs or [0]) <= PARAGRAPH
