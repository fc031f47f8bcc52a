"""Test how lines of code are counted and compared with a base commit."""

import subprocess
from pathlib import Path

import pytest

from tests import code_lines, coverage_by_room


@pytest.mark.parametrize(
    ("text", "suffix", "lines"),
    [
        ('"""Say why."""\n\n# no\nx = 1  # yes\n\n\ndef f():\n    """Do it.\n\n    So."""\n    return "a"\n', ".py", 3),
        ("/* What it\n * is. */\nint x; // yes\n\n// no\nint y; /* yes */\n", ".c", 2),
    ],
)
def test_blanks_comments_and_docstrings_are_no_code(text: str, suffix: str, lines: int) -> None:
    assert code_lines.code_lines(text, suffix) == lines


@pytest.mark.slow
def test_rooms_are_compared_with_a_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True)

    git("init", "-q")
    for room in ("cache", "core"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "a.py").write_text("x = 1\ny = 2\n")
    git("add", "-A")
    git("commit", "-qm", "one")
    (tmp_path / "cache" / "a.py").unlink()
    (tmp_path / "core" / "a.py").write_text("x = 1\n# y\nz = 3\n")
    (tmp_path / "core" / "b.c").write_text("int x;\n")
    assert code_lines.changes(tmp_path, "HEAD") == {"cache": -2, "core": 0, "core (C)": 1}


def test_coverage_is_added_by_room() -> None:
    table = coverage_by_room.report({"core/a.py": (30, 10), "core/api/b.py": (10, 10), "cache/c.py": (0, 0)})
    assert [line.split()[1:-1] for line in table.splitlines()[2:]] == [
        ["cache", "|", "0", "|", "0.0", "%"],
        ["core", "|", "40", "|", "50.0", "%"],
        ["all", "|", "40", "|", "50.0", "%"],
    ]
