"""Test every gputune command in README and docs/; scripts/try-wheel runs the same with an installed wheel."""

import re
import sys
from pathlib import Path

import pytest

import documented

PAGES = documented.pages()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_work(page: Path) -> None:
    failures = documented.run_page(page, Path(sys.executable).parent)
    assert not failures, "\n\n".join(f"{one.command}\n{one.said}" for one in failures)


def test_commands_are_taken_from_all_of_a_page_and_without_comments(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\ngputune a \\\n  --b\npip install x\n```\n```\ngputune c\n```\n```sh\ngputune d   # why\n```\n"
    )
    assert [line.split() for line in documented.commands(page)] == [["gputune", "a", "--b"], ["gputune", "d"]]


@pytest.mark.slow
def test_what_fails_is_told_with_its_output(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\ngputune power presets\ngputune net-run --retrieve_context no.bin --input_list inputs.txt\n```\n"
    )
    (failure,) = documented.run_page(page, Path(sys.executable).parent)
    assert failure.command.startswith("gputune net-run") and "no.bin" in failure.said


def test_no_block_of_commands_is_left_out_because_its_language_is_not_said() -> None:
    for page in PAGES:
        blocks = re.findall(r"^```(.*)\n((?:.|\n)*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert not [text for name, text in blocks if name != "sh" and re.search(r"^gputune ", text, re.MULTILINE)]
