"""Test the report of a tuning: what is gathered, what the page holds, and the page in a browser."""

import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from gputune.cache import PerformanceCache, TrialRecord, WinnerRecord
from gputune.client.report import write_report
from gputune.client.report.data import Report
from gputune.client.report.gather import Peak
from gputune.client.report.uses import uses_of
from gputune.client.report.writer import read_report
from gputune.runtime.context.format import read_header
from pages.headless import Browser
from stress import made_up_cache
from tests.client.pages.reading import Page, every, of_kind, titled, words, written
from tests.client.report.views import by_hand, view

CONV, WIDE, *_ = made_up_cache.TASKS


# What is gathered.


def test_measurements_that_compare_are_shown_together(report: Report) -> None:
    first, second = report.places
    own = len(made_up_cache.TASKS) + 1
    assert [(len(place.tasks), len(place.others)) for place in (first, second)] == [(own, 2), (1, 0)]
    assert second.facts["driver"] == "6.9 <beta>"
    assert (first.set_aside, first.missing, second.missing) == (1, 1, len(made_up_cache.TASKS))


def test_times_are_weighed_by_the_operations_of_the_context(report: Report) -> None:
    place = report.places[0]
    known = [task for task in place.tasks if task.default and task.tuned and task.weight]
    before = sum((task.weight or 0) * task.default.median_ns for task in known if task.default)
    after = sum((task.weight or 0) * task.tuned.median_ns for task in known if task.tuned)
    assert place.before_ns == pytest.approx(before)
    assert place.after_ns == pytest.approx(after)
    assert (place.summed, place.operations) == (18, 20)
    assert view(place, CONV).weight == 4
    assert view(place, CONV).operations == ("/layer0/<0>", "/layer1/<1>", "/layer2/<2>")


def test_a_run_of_several_launches_counts_once(made: tuple[Path, Path], report: Report) -> None:
    """Winograd's algorithm takes three launches, and its time is that of all of them."""
    (graph,) = read_header(made[1]).graphs
    assert sum(launch.task == CONV.key.digest for launch in graph.launches) == CONV.weight * CONV.launches == 8
    place = report.places[0]
    assert [run.operation for run in place.runs] == [f"/layer{n}/<{n}>" for n in range(19)]
    task = view(place, CONV)
    assert task.weight == 4
    assert task.tuned is not None and place.after_ns is not None
    rest = sum((one.weight or 0) * one.tuned.median_ns for one in place.tasks if one.tuned and one is not task)
    assert place.after_ns == pytest.approx(4 * task.tuned.median_ns + rest)


@pytest.mark.parametrize("launches", [1, 2, 3])
def test_persistent_kernels_and_launches_change_no_run(made: tuple[Path, Path], launches: int) -> None:
    header = read_header(made[1])
    (graph,) = header.graphs
    apart = replace(graph, persistent=(), counter_bytes=0)
    several = replace(graph, launches=tuple(one for one in graph.launches for _ in range(launches)))
    expected = uses_of(header, "c").runs
    assert len(expected) == 20 and graph.persistent
    for other in (apart, several):
        assert uses_of(replace(header, graphs=(other,)), "c").runs == expected
    both = (graph, replace(graph, name="larger"))
    assert uses_of(replace(header, graphs=both), "c").weights[CONV.key.digest] == 2 * CONV.weight


def test_the_context_comes_first_and_other_models_behind_a_fold(report: Report, html: str) -> None:
    place = report.places[0]
    assert {task.digest for task in place.tasks if not task.weight} == {made_up_cache.ALTERNATIVE.key.digest}
    assert made_up_cache.OTHER.key.digest in {task.digest for task in place.others}
    section = titled(Page(html).blocks, place.device)
    folded = titled([section], "Tasks of other models")
    ids = [block["id"] for block in every(section["blocks"]) if "id" in block]
    own, others = ([f"t0-{task.digest[:16]}" for task in tasks] for tasks in (place.tasks, place.others))
    assert ids == own + others
    assert [block["id"] for block in every(folded["blocks"]) if "id" in block] == others
    trials = [sum(len(task.attempts) for task in tasks) for tasks in (place.tasks, place.others)]
    assert f"Trials {trials[0]:,} " in words(of_kind([section], "tiles"))
    assert f"2 tasks in this cache, {trials[1]:,} trials" in words(folded["title"])


def test_the_place_of_the_context_comes_before_a_later_one(made: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    path.write_bytes(made[0].read_bytes())
    later = replace(made_up_cache.VALIDITY, driver_version="9")
    with PerformanceCache.open(path) as cache:
        cache.store_trials(made_up_cache.OTHER.key, later, [TrialRecord({"A": 1}, "ok", [1e3])])
    with_context, without = read_report(path, made[1]), read_report(path)
    assert without.places[0].facts["driver"] == with_context.places[-1].facts["driver"] == "9"
    assert with_context.places[-1].tasks == ()


def test_the_longest_in_the_context_comes_first(report: Report) -> None:
    tasks = [task for task in report.places[0].tasks if task.tuned]
    times = [(task.weight or 0) * task.tuned.median_ns for task in tasks if task.tuned]
    assert times == sorted(times, reverse=True)
    assert tasks[-1].digest == made_up_cache.ALTERNATIVE.key.digest


def test_default_and_tuned_are_those_that_were_raced_last(report: Report) -> None:
    task = view(report.places[0], CONV)
    assert task.default is not None
    assert task.tuned is not None
    assert len(task.default.samples_ns) == len(task.tuned.samples_ns) == 16
    assert task.gain_interval is not None
    pairs = zip(task.default.samples_ns, task.tuned.samples_ns, strict=True)
    gain = statistics.median(before / after for before, after in pairs)
    assert task.gain == pytest.approx(gain)
    assert task.gain_interval.low < gain < task.gain_interval.high


def test_a_gain_is_taken_on_one_level_of_the_device(tmp_path: Path) -> None:
    trials = [
        TrialRecord({"A": 1}, "ok", [1000.0] * 7, measured={"drift": 2.0}),
        TrialRecord({"A": 2}, "ok", [400.0] * 7, measured={"drift": 1.0}),
        TrialRecord({"A": 3}, "ok", [390.0] * 7, measured={"drift": 0.5}),
    ]
    task = by_hand(tmp_path / "c.sqlite", trials, WinnerRecord({"A": 2}, 400.0, 1000.0, "quick"))
    assert task.gain == pytest.approx(1000 / 2 / 400)
    assert [timed.configuration["A"] for timed in task.best] == [2, 1, 3]
    assert [timed.median_ns for timed in task.best] == [400, 500, 780]
    assert [attempt.cost_ns for attempt in task.attempts] == [500, 400, 780]
    assert task.default is not None and task.default.median_ns == 500


def test_the_default_is_found_by_its_configuration(tmp_path: Path) -> None:
    """The winner's record has its time on the winner's level, which is the median of none of its trials."""
    trials = [
        TrialRecord({"A": 1}, "ok", [900.0] * 7, measured={"batch": 0}),
        TrialRecord({"A": 2}, "ok", [410.0] * 7, measured={"batch": 0}),
        TrialRecord({"A": 1}, "ok", [1000.0] * 7, measured={"batch": 1}),
        TrialRecord({"A": 2}, "ok", [400.0] * 7, measured={"batch": 1}),
        TrialRecord({"A": 1}, "ok", [950.0] * 7, measured={"batch": 2}),
    ]
    task = by_hand(tmp_path / "c.sqlite", trials, WinnerRecord({"A": 2}, 400.0, 987.0, "quick"))
    assert task.default is not None
    assert (task.default.configuration, task.default.median_ns) == ({"A": 1}, 1000), "as it was beside the winner"
    assert task.gain == 2.5
    assert task.gain_interval is not None


def test_a_task_that_is_not_concluded_shows_its_fastest(report: Report) -> None:
    task = view(report.places[0], made_up_cache.TASKS[5])
    assert task.effort is None
    assert task.tuned == task.best[0]


def test_a_winner_without_its_trials_is_shown_without_intervals(tmp_path: Path) -> None:
    winner = WinnerRecord({"A": 2}, 400.0, 1000.0, "quick")
    task = by_hand(tmp_path / "c.sqlite", [TrialRecord({"A": 9}, "compile", message="no")], winner)
    assert (task.gain, task.gain_interval) == (2.5, None)


def test_failures_keep_their_names_and_an_example(report: Report) -> None:
    task = view(report.places[0], WIDE)
    assert task.failed == sum(attempt.status != "ok" for attempt in task.attempts) > 5
    assert all(failure.message == made_up_cache.MESSAGES[failure.status] for failure in task.failures)
    assert sum(failure.count for failure in task.failures) == task.failed


def test_the_host_time_is_summed_by_phase(made: tuple[Path, Path], report: Report) -> None:
    task = view(report.places[0], CONV)
    with PerformanceCache.open_readonly(made[0]) as cache:
        trials = cache.trials_of(CONV.key, made_up_cache.VALIDITY)
    build = sum(trial.measured["spent_ns"]["build"] for trial in trials)
    assert task.spent_ns["build"] == pytest.approx(build)
    assert task.untold == 0
    assert {attempt.batch for attempt in task.attempts} == set(range(15)) - {13}


def test_records_of_an_older_gputune_are_shown(report: Report) -> None:
    task = view(report.places[0], made_up_cache.TASKS[4])
    assert (task.spent_ns, task.untold) == ({}, len(task.attempts))
    assert task.gain is not None
    assert "protocol 1" in task.how[0]


def test_a_record_says_how_it_was_measured(report: Report) -> None:
    how = view(report.places[0], CONV).how
    assert how[0].startswith("event time, 1 to 16 samples of at least 1 ms, after 200 ms of warm-up, caches warm")
    assert any(line.endswith("settled the order") for line in how)
    assert any("same code as another" in line for line in how)


def test_the_best_task_is_on_the_roof_and_none_above(report: Report) -> None:
    place = report.places[0]
    shares = [task.roofline.share for task in place.tasks if task.roofline]
    assert max(shares) == pytest.approx(1)
    assert place.roof is not None
    assert place.roof.gflops == pytest.approx(max(t.roofline.gflops for t in place.tasks if t.roofline))


def test_a_peak_that_is_given_is_the_roof(made: tuple[Path, Path], report: Report) -> None:
    place = read_report(*made, Peak(gflops=1e5)).places[0]
    before, now = (view(one, CONV).roofline for one in (report.places[0], place))
    assert before is not None
    assert now is not None
    assert place.roof is not None
    ideal_ns = max(now.flops / 1e5, now.bytes / place.roof.gb_per_s)
    assert now.share == pytest.approx(ideal_ns / (now.flops / now.gflops))
    assert now.share < before.share


def test_times_that_cannot_be_true_are_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    by_hand(path, [TrialRecord({"A": 1}, "ok", [5e-320]), TrialRecord({"A": 2}, "ok", [1e300])], None)
    assert read_report(path).notes == ("2 rows of the cache have impossible values and are not shown",)
    write_report(path, tmp_path / "report.html")


# The page.


def test_every_number_in_a_picture_is_one(html: str) -> None:
    pictures = of_kind(Page(html).blocks, "drawing")
    assert len(pictures) > 20
    for picture in pictures:
        assert not re.search(r"nan|inf|None", words([path["d"] for path in picture["paths"]]))


def test_an_empty_cache_says_so(tmp_path: Path) -> None:
    PerformanceCache.open(tmp_path / "c.sqlite").close()
    write_report(tmp_path / "c.sqlite", tmp_path / "report.html")
    assert "has no measurements" in (tmp_path / "report.html").read_text(encoding="utf-8")


# In a browser.


def shown(browser: Browser) -> list[str]:
    """The titles of the rows of the first table of tasks, in their order."""
    rows = "document.querySelector('.filter').nextElementSibling.querySelectorAll('tbody')"
    titles: list[str] = browser.value(f"[...{rows}].filter(r => !r.hidden).map(r => r.querySelector('a').textContent)")
    return titles


def test_columns_sort_and_the_filter_filters(browser: Browser, html: str, report: Report, tmp_path: Path) -> None:
    browser.look(1180)
    browser.load(written(tmp_path / "report.html", html))
    tasks = report.places[0].tasks
    assert shown(browser) == [task.title for task in tasks]
    heads = "document.querySelector('.filter').nextElementSibling.querySelectorAll('th button')"
    press = f"[...{heads}].find(b => b.textContent === 'Trials').click()"
    browser.value(press)
    assert shown(browser)[0] == max(tasks, key=lambda task: len(task.attempts)).title
    browser.value(press)
    assert shown(browser)[0] == min(tasks, key=lambda task: len(task.attempts)).title
    browser.value(
        "(i => { i.value = 'depthwise'; i.dispatchEvent(new Event('input')); })(document.querySelector('.filter'))"
    )
    found = [task.title for task in tasks if task.op == "DepthwiseConv"]
    assert shown(browser) == found
    folds = "[...document.querySelectorAll('.tasks')[0].querySelectorAll('details')].filter(one => !one.hidden)"
    assert browser.value(f"{folds}.map(one => one.querySelector('.strong').textContent)") == found
    browser.value("document.querySelector('tbody:not([hidden]) a').click()")
    assert browser.value("new Promise(done => setTimeout(() => done(document.querySelector('details:target').open)))")


def test_a_link_opens_what_is_folded_in_something_folded(
    browser: Browser, report: Report, html: str, tmp_path: Path
) -> None:
    browser.look(1180)
    place = f"t0-{report.places[0].others[0].digest[:16]}"
    browser.load(f"{written(tmp_path / 'report.html', html)}#{place}")
    opened = "document.querySelector('details:target')"
    assert browser.value(f"{opened}.open && {opened}.parentElement.closest('details').open")
    assert browser.value(f"{opened}.querySelectorAll('svg').length") > 0
