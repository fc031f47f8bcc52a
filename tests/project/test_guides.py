"""Test the pages of docs/contributing: their code runs, and the files that they name exist."""

import re
from pathlib import Path
from typing import Any

import pytest

from gputune.client.tuning.search.strategies import catalogue

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "contributing").glob("*.md"))
MOST_LINES = 115

each = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
with_code = pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem != "testing"], ids=lambda page: page.stem
)


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@with_code
def test_the_code_of_a_page_runs_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "STRATEGIES", dict(catalogue.STRATEGIES))  # a page may register its own
    code = blocks("python", page.read_text(encoding="utf-8"))
    assert code
    namespace: dict[str, Any] = {"__name__": page.stem}
    for number, block in enumerate(code):
        exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)


@each
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([\w.-]+/[\w./-]+|\w+\.(?:md|toml))`", text))
    assert named
    assert sorted(name for name in named if not name.startswith("build/") and not (ROOT / name).exists()) == []


@each
def test_the_lines_that_a_diff_takes_away_are_in_the_file(page: Path) -> None:
    for diff in blocks("diff", page.read_text(encoding="utf-8")):
        (path,) = re.findall(r"^--- a/(.*)$", diff, re.MULTILINE)
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        kept = [line[1:] for line in diff.splitlines()[2:] if line[0] in " -"]
        assert [line for line in kept if line not in lines] == []


@each
def test_what_a_page_shows_of_a_file_is_in_it(page: Path) -> None:
    for block in blocks("py", page.read_text(encoding="utf-8")):
        named, _, shown = block.partition("\n")
        assert shown in (ROOT / named.removeprefix("# ")).read_text(encoding="utf-8")


@each
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
