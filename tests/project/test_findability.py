"""Test that files have the names people search for: the usual words of a task lead to the right file by its path."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("cache", "client", "core", "kernels", "runtime", "server")
PATHS = sorted(
    path.relative_to(ROOT).as_posix()
    for room in ROOMS
    for path in (ROOT / room).rglob("*.py")
    if "__pycache__" not in path.parts
)
HITS = 3
OTHERS = ("examples", "scripts", "tests")
HISTORY = ("CHANGELOG.md",)

# From the words that describe a task before the code is known, to the files where work on it begins; a folder stands
# for all of its files.
TASKS = {
    "kernel op family": ("kernels/ops/", "kernels/family.py"),
    "kernel search space": ("kernels/space.py",),
    "tuning search strategy": ("client/tuning/search/strategies/",),
    "protocol message": ("server/protocol/messages.py",),
    "runtime backend": ("runtime/backends/base.py", "runtime/backends/__init__.py"),
    "report html section": ("client/report/html/",),
    "wrong cache hit": ("client/tuning/search/cache_hit.py",),
    "inference profiling": ("runtime/profiling/",),
    "target reconnect": ("client/target/reconnecting.py",),
    "worker hang watchdog": ("server/workers/watchdog.py",),
    "crash worker": ("server/workers/crash_recovery.py",),
    "context memory plan": ("client/context/memory/memory_planner.py",),
    "context binary format": ("runtime/context/format.py",),
}


def singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def score(words: str, path: str) -> int:
    """How many of the words begin a part of the path, in singular: "reconnect" finds reconnecting.py."""
    parts = {singular(part) for part in re.split(r"[/_.]", path.lower()) if part}
    return sum(any(part.startswith(singular(word)) for part in parts) for word in words.split())


def found(words: str) -> list[str]:
    """The first hits: most words first, the shorter path where that is equal."""
    return sorted(PATHS, key=lambda path: (-score(words, path), len(path), path))[:HITS]


@pytest.mark.parametrize("words", TASKS)
def test_the_words_of_a_task_lead_to_its_file(words: str) -> None:
    hits = found(words)
    assert any(hit.startswith(TASKS[words]) for hit in hits), f"{words!r} leads to {', '.join(hits)}"


def test_the_files_of_tasks_are_there() -> None:
    assert [file for files in TASKS.values() for file in files if not (ROOT / file).exists()] == []


def test_modules_that_texts_name_are_there() -> None:
    """What a docstring, a comment or a page of documentation calls a module has not been moved since."""
    texts = [ROOT / path for path in PATHS] + sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md"))
    known = [*PATHS, *(path.relative_to(ROOT).as_posix() for room in OTHERS for path in (ROOT / room).rglob("*.py"))]
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts
        if path.name not in HISTORY
        for name in re.findall(r"(?<![\w./-])(?:[a-z_]+/)*[a-z_]+\.py\b", path.read_text(encoding="utf-8"))
        if not any(f"/{one}".endswith(f"/{name}") for one in known)
    ]
    assert missing == []
