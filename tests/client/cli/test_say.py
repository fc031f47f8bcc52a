"""Test that texts from a target, a file or a kernel cannot control a terminal, wherever they are printed."""

import io
import logging
import re
from pathlib import Path

import pytest
from rich.table import Table

from gputune.client.cli import main
from gputune.client.cli.say import say
from gputune.client.cli.tables import add_row, print_table
from gputune.client.errors import TargetError
from gputune.client.progress import reporting

EVIL = "\r\x1b[2K\x1b[1;31mwarning: forged\x1b[0m\n[/red] \x9b2J"
SHOWN = " ?[2K?[1;31mwarning: forged?[0m [/red] ?2J"
CLI = Path(main.__file__).parent


def test_a_line_is_one_line_without_orders(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"device {EVIL}")
    say(f"error: {EVIL}", err=True)
    out, err = capsys.readouterr()
    assert (out, err) == (f"device {SHOWN}\n", f"error: {SHOWN}\n")


def test_an_error_of_a_target_is_printed_as_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise TargetError("internal_error", EVIL)

    monkeypatch.setattr(main.cli, "main", fail)
    with pytest.raises(SystemExit):
        main.main([])
    assert SHOWN in capsys.readouterr().err


@pytest.mark.parametrize("level", [logging.CRITICAL, logging.WARNING, logging.INFO, logging.DEBUG])
def test_messages_are_texts_on_terminals_too(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    stream = io.StringIO()
    with reporting(stream, "verbose"):
        logging.getLogger("gputune.test").log(level, f"target {EVIL}")
    assert stream.getvalue().endswith(f"target {SHOWN}\n")


def test_what_is_worked_on_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    stream = io.StringIO()
    with reporting(stream) as progress, progress.running("tuning", 2):
        progress.advance(1, EVIL)
    assert "forged" in stream.getvalue()
    assert "\x1b[2K\x1b[1;31mwarning" not in stream.getvalue()
    assert "\x9b" not in stream.getvalue()


def test_cells_of_tables_are_texts(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("message")
    add_row(table, (EVIL,))
    print_table(table)
    assert SHOWN in capsys.readouterr().out


def test_every_command_prints_through_here() -> None:
    for path in CLI.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        direct = re.findall(r"click\.s?echo\(|(?<![\w.])print\(|\.add_row\(|Console\(", text)
        assert not direct or path.name in ("say.py", "tables.py"), path.name


@pytest.mark.parametrize(("columns", "narrow"), [("80", True), (None, False)])
def test_tables_in_a_pipe_are_as_wide_as_columns_says(
    columns: str | None, narrow: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    table = Table("first", "second")
    add_row(table, ("word " * 15, "other " * 15))
    print_table(table)
    assert (max(map(len, capsys.readouterr().out.splitlines())) <= 80) == narrow


def test_a_narrow_table_folds_and_cuts_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = Table("name", "first", "second")
    add_row(table, ("sustained_high", "performance" * 3, "hysteresis" * 3))
    print_table(table)
    rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    whole = ["".join(part.strip() for part in column) for column in zip(*rows, strict=True)]
    assert whole == ["sustained_high", "performance" * 3, "hysteresis" * 3]
    assert rows[0][0].strip() == "sustained_high", "what names a row is not folded"
