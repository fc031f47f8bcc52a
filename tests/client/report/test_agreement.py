"""Test that the best-so-far line, the fastest configurations and the roofline say the same of a task."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.cache import PerformanceCache, TaskSummary, TrialRecord, WinnerRecord, tier_of
from gputune.client.pages.scales import digits, time_text
from gputune.client.report.data import Report
from gputune.client.report.sections.report import report_sections
from gputune.client.report.task_view import task_view
from gputune.client.report.writer import read_report
from stress import made_up_cache
from tests.client.pages.reading import Page, cells, every, of_kind, titled, words
from tests.client.report.views import HAND, by_hand


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.floats(1e2, 1e6), st.floats(0.2, 5.0), st.integers(0, 2)),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 11),
)
def test_line_table_level_and_roofline_agree(told: list[tuple[int, float, float, int]], number: int) -> None:
    """Whatever was measured again and however fast the device was then: a configuration has one time. The table is in
    the order of its times, the line of the best so far ends at its first, and the default's and the winner's times are
    those of their rows, which the roofline and the chips of the parameters take, too."""
    trials = [
        TrialRecord({"A": n}, "ok", [time_ns] * 3, measured={"drift": drift, "batch": batch})
        for n, time_ns, drift, batch in told
    ]
    won = trials[number % len(trials)]
    winner = WinnerRecord(won.configuration, won.median_ns or 1.0, trials[0].median_ns, "quick")
    summary = TaskSummary(
        HAND, made_up_cache.VALIDITY, tier_of("GPU", 8, "", ""), {"ok": len(trials)}, winner, datetime.now(UTC)
    )
    task = task_view(summary, trials, None, ())
    assert task.default is not None and task.tuned is not None
    times = [timed.median_ns for timed in task.best]
    assert times == sorted(times)
    rows = {timed.configuration["A"]: timed for timed in task.best}
    assert len(rows) == len(task.best) == len({n for n, *_ in told})
    assert [attempt.cost_ns for attempt in task.attempts] == [rows[n].median_ns for n, *_ in told]
    assert rows[won.configuration["A"]] == task.tuned and task.tuned.median_ns == won.median_ns
    assert rows[trials[0].configuration["A"]] == task.default
    assert [value.best_ns for value in task.parameters.get("A", ())] in ([], [rows[n].median_ns for n in sorted(rows)])
    if told[0][3] == won.measured["batch"]:
        beside = [one for one in trials if one.configuration == trials[0].configuration]
        assert task.default.median_ns in [one.median_ns for one in beside], "side by side, as the summary has it"


def test_the_page_gives_one_number_for_the_fastest_and_one_for_the_tuned(report: Report, html: str) -> None:
    blocks = Page(html).blocks
    for task in report.places[0].tasks:
        if not task.best or task.tuned is None:
            continue
        (section,) = (each for each in every(blocks) if each.get("id") == f"t0-{task.digest[:16]}")
        (fastest,) = re.findall(r"The fastest trial takes (.*?)\. 95", words(section))
        rows = cells(of_kind([titled([section], "Fastest configurations")], "table")[0])
        least = min(one.cost_ns for one in task.attempts if one.cost_ns)
        assert rows[0][0] == fastest == time_text(least).replace("\u00a0", " ")
        marked = [row[0] for row in rows if "tuned " in f"{row[-1]} "]
        assert marked == [time_text(task.tuned.median_ns).replace("\u00a0", " ")]
        if task.roofline is not None:
            said = f"Tuned, in {marked[0]}: {digits(task.roofline.flops / task.tuned.median_ns)} GFLOP/s"
            assert said in words(section)


def test_rows_above_the_tuned_one_are_accounted_for(tmp_path: Path) -> None:
    trials = [
        TrialRecord({"A": 1}, "ok", [1000.0] * 7, measured={"batch": 1}),
        TrialRecord({"A": 2}, "ok", [400.0] * 7, measured={"batch": 1}),
        TrialRecord({"A": 3}, "ok", [395.0], measured={"batch": 0}),
    ]
    path = tmp_path / "c.sqlite"
    by_hand(path, trials, WinnerRecord({"A": 2}, 400.0, 1000.0, "quick"))
    said = "have a lower median, but were not faster"
    assert said in words(report_sections(read_report(path)))
    with PerformanceCache.open(path) as cache:
        again = [TrialRecord({"A": 3}, "ok", [405.0] * 7, measured={"batch": 1})]
        cache.store_trials(HAND, made_up_cache.VALIDITY, again)
    assert said not in words(report_sections(read_report(path)))
