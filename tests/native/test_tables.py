"""Test that the C runtime reads files by the fields that Python's dataclasses have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import pytest

import c_tables
import tool
from gputune.core.bounds import Amount, CText, Stored, Within, in_files
from tests.native.compiling import compiled


def test_the_tables_are_those_of_the_dataclasses() -> None:
    written = {
        c_tables.PATH: c_tables.text(),
        c_tables.AGENT_PATH: c_tables.agent_messages(),
        c_tables.AGENT_HEADER_PATH: c_tables.agent_header(),
    }
    for path, text in written.items():
        assert (tool.ROOT / path).read_text(encoding="utf-8") == text, "run scripts/docs"


class Pair(NamedTuple):
    first: Amount
    second: Annotated[str, Stored(bytes, bytes.hex)]


@in_files("later", closed=True)
@dataclass(frozen=True)
class Record:
    name: CText
    sizes: Annotated[tuple[Amount, ...], Within(0, 16)]
    pairs: tuple[Pair, ...]
    choice: Literal["one", "three"]
    later: bool = False


def lines_of(record: type, monkeypatch: pytest.MonkeyPatch, **members: str) -> str:
    forms = (c_tables.Form("PAIR", Pair, "pair", "pair"), c_tables.Form("RECORD", record, "row", "record", members))
    monkeypatch.setattr(c_tables, "FORMS", forms)
    return c_tables.text()


def test_a_record_becomes_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    text = lines_of(Record, monkeypatch, sizes="shape rank", name="info.name")
    assert 'static const char *const CHOICES[] = {"one", "three", NULL};' in text
    least = 1 + (5 + 1) + (6 + 1) + (6 + 1) + (7 + 4)
    assert text.endswith(
        f"""\
static const form RECORD = {{
    .what = "record", .row_bytes = sizeof(row), .least_bytes = {least},
    .is_closed = true, .count = 5, .fields = (const field[]){{
        {{"name", A_TEXT, IN(row, info.name)}},
        {{"sizes", DIMENSIONS, FEW(row, shape, rank, 16)}},
        {{"pairs", ROWS, MANY(row, pairs, pair_count), .form = &PAIR}},
        {{"choice", A_NAME, IN(row, choice), .names = CHOICES}},
        {{"later", A_FLAG, IN(row, later), .optional = true}},
    }}}};
"""
    )
    assert f".least_bytes = {1 + 1 + 34},\n    .is_list = true, .count = 2" in text


def test_a_type_that_c_cannot_read_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    @in_files()
    @dataclass(frozen=True)
    class Real:
        number: float

    with pytest.raises(KeyError):
        lines_of(Real, monkeypatch)


@pytest.mark.parametrize(
    ("was", "becomes", "words"),
    [
        ("shown.rank, 16)", "shown.rank, 17)", "negative"),
        ("STATUS_BYTES == 64", "STATUS_BYTES == 32", "numbers_are_equal"),
        ("[RAW]", "[COOKED]", "COOKED"),
    ],
    ids=["an array of another length", "another number", "a choice that C lacks"],
)
def test_tables_that_do_not_fit_c_do_not_compile(
    c_compiler: str, tmp_path: Path, was: str, becomes: str, words: str
) -> None:
    text = c_tables.text()
    assert was in text
    path = tmp_path / "tables.c"
    path.write_text(text.replace(was, becomes), encoding="utf-8")
    with pytest.raises(AssertionError, match=words):
        compiled("tables.o", (path,), ("-c",))
