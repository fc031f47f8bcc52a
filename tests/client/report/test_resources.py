"""Test that the fastest configurations of a task say what their kernels take, as far as that is known."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gputune.cache import TrialRecord, WinnerRecord
from gputune.client.report.sections.report import report_sections
from gputune.client.report.writer import read_report
from gputune.core.resources import UNKNOWN, Resources, measured_of
from tests.client.pages.reading import cells, heads, titled
from tests.client.report.views import by_hand

HEADS = ("Registers", "Spilled", "Private", "Local")


def shown(path: Path, kernels: Sequence[Any]) -> tuple[list[Resources], list[str], list[list[str]]]:
    """What the view, the heads and the rows of the table say of configurations with these kernels, fastest first."""
    trials = [TrialRecord({"A": place}, "ok", [100.0 + place] * 3, measured=each) for place, each in enumerate(kernels)]
    task = by_hand(path, trials, WinnerRecord({"A": 0}, 100.0, 100.0, "quick"))
    table = titled(report_sections(read_report(path)), "Fastest configurations")["blocks"][-1]
    places = [heads(table).index(head) for head in HEADS if head in heads(table)]
    rows = cells(table)
    resources = [timed.resources for timed in task.best]
    return resources, [heads(table)[place] for place in places], [[row[place] for place in places] for row in rows]


def test_the_most_of_any_kernel_is_shown_and_nothing_where_nothing_is_known(tmp_path: Path) -> None:
    stages = measured_of([Resources(registers=64, spilled_bytes=0), Resources(40, 8, 16, 0)])
    resources, named, rows = shown(tmp_path / "c.sqlite", [stages, measured_of([Resources(registers=24)]), {}])
    assert resources == [Resources(64, 8, 16, 0), Resources(registers=24), UNKNOWN]
    assert named == ["Registers", "Spilled", "Private"], "none takes local memory"
    assert rows == [["64", "8", "16"], ["24", "", ""], ["", "", ""]]


def test_records_that_make_no_sense_show_nothing(tmp_path: Path) -> None:
    odd = [{"resources": value} for value in ("<b>", [{"registers": "<b>"}], {"registers": 4}, [])]
    resources, named, _ = shown(tmp_path / "c.sqlite", odd)
    assert resources == [UNKNOWN] * len(odd)
    assert named == []
