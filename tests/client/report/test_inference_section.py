"""Test how a report opens: bars of whole contexts, then of each operation, and the way from default to tuned."""

import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import PerformanceCache
from gputune.client.options.tuning import RULE
from gputune.client.pages.blocks import plain
from gputune.client.pages.scales import time_text
from gputune.client.report.data import Report
from gputune.client.report.gather import Peak, gather
from gputune.client.report.sections.inferences import layers
from gputune.client.report.sections.report import report_sections
from gputune.client.report.uses import uses_of
from gputune.client.tuning.measuring.end_to_end import OPEN, EndToEnd
from gputune.client.tuning.measuring.sequential import Gain
from gputune.runtime.context.format import read_header
from stress import made_up_cache
from tests.client.pages.reading import Page, every, of_kind, titled, words

CONV = made_up_cache.TASKS[0]
GOOD = made_up_cache.END_TO_END


def first_bar(cell: Any) -> Any:
    """The first bar of a cell."""
    return next(run for run in cell[0] if "bar" in run)


def measured_bars(blocks: Any) -> list[tuple[str, float, tuple[float, float] | None]]:
    """The names of the bars that a page opens with, their shares, and where their intervals begin and end."""
    rows = of_kind([next(filter(None, blocks))], "table")[0]["rows"]
    bars = [(plain(name[0][0]), first_bar(cell)) for name, cell in rows]
    return [(name, bar["bar"], (bar["low"], bar["high"]) if "low" in bar else None) for name, bar in bars]


def test_what_was_measured_end_to_end_stands_on_top(made: tuple[Path, Path], html: str) -> None:
    assert "<h1>Tuning of net &lt;1&gt;</h1>" in html
    first, *_ = blocks = Page(html).blocks
    said = words(first)
    assert "measured end to end: tuned 2.09 ms, untuned 2.41 ms: 1.15 times as fast (1.12–1.18)" in said
    assert "The tuned context ships: it is faster than the untuned context for certain." in said and RULE in said
    assert "an estimate" not in html
    widest = GOOD["gain"]["high"]
    expected = [
        (name, *(end and pytest.approx(end / widest, abs=2e-4) for end in ends))
        for name, *ends in (
            ("untuned", 1.0, None, None), ("tuned alone, persistent", 1.066, 1.021, 1.109),
            ("fused", 1.048, 0.985, 1.102), ("fused, persistent", 1.153, 1.121, 1.184),
        )
    ]  # fmt: skip
    assert [(name, bar, *(ends or (None, None))) for name, bar, ends in measured_bars(blocks)] == expected
    best = "this context: 16 operations, 4 groups fused, persistent kernels 1.15 times as fast (1.12–1.18)"
    assert best in said and "no difference found (0.98–1.10)" in said
    header = read_header(made[1])
    without = replace(header, configuration={})
    assert uses_of(without, "c").end_to_end == ()


def test_a_kept_untuned_context_and_an_unknown_interval_are_said(report: Report) -> None:
    (one,) = report.end_to_end
    for gain, kept, said in (
        (Gain(0.95, 0.9, 1.02, 30), "untuned", "best tuned 2.54 ms, untuned 2.41 ms: no difference found (0.90–1.02)"),
        (Gain(1.05, 0.0, math.inf, 5), "untuned", "best tuned 2.3 ms, untuned 2.41 ms: not known after 5 rounds"),
        (Gain(1.05, 0.9, 1.2, 30), "last", "tuned 2.3 ms, untuned 2.41 ms: no difference found (0.90–1.20)"),
        (None, "untuned", "untuned 2.41 ms: tuning has led to no other context"),
    ):
        kept_one = EndToEnd(2.41e6, gain, kept)  # type: ignore[arg-type]
        blocks = report_sections(replace(report, end_to_end=(replace(one, end_to_end=kept_one, compared=()),)))
        text = words(blocks)
        assert f"measured end to end: {said}" in text
        assert (OPEN[1:] in text) == kept_one.open == (gain is not None)
        assert len(measured_bars(blocks)) == 1 + (gain is not None)


@pytest.mark.parametrize(
    "contexts",
    [
        None, [], 3, GOOD["contexts"][:-1], GOOD["contexts"][1:], [*GOOD["contexts"], {"fused": 1}],
        [{**GOOD["contexts"][0], "gain": GOOD["contexts"][1]["gain"]}, *GOOD["contexts"][1:]],
        [{**GOOD["contexts"][0], "gain": None}, *GOOD["contexts"][1:]],
        [{**GOOD["contexts"][0], "persistent": "no"}, *GOOD["contexts"][1:]],
    ],
)  # fmt: skip
def test_a_bar_that_cannot_be_true_leaves_the_two_of_the_gain(made: tuple[Path, Path], contexts: object) -> None:
    told = {"net <1>": {**GOOD, "contexts": contexts}}
    (found,) = uses_of(replace(read_header(made[1]), configuration={"end_to_end": told}), "c").end_to_end
    assert [(one.gain, one.chosen, one.operations) for one in found.contexts] == [
        (None, False, None),
        (Gain(**GOOD["gain"]), True, None),
    ]


def test_each_operation_has_its_bars_in_the_order_of_the_model(report: Report, html: str) -> None:
    place = report.places[0]
    rows = titled(Page(html).blocks, "18 operations")["blocks"][0]["rows"]
    tasks = {task.digest: task for task in place.tasks}
    timed = [run for run in place.runs if tasks[run.task].tuned]
    assert [name[0][0]["text"] for name, *_ in rows] == [run.operation for run in timed]
    for run, (name, bars, said) in zip(timed, rows, strict=True):
        task = tasks[run.task]
        assert task.default is not None and task.tuned is not None
        assert name[0][0]["link"] == f"t0-{run.task[:16]}"
        assert said[0][0].strip() == f"{time_text(task.default.median_ns)} → {time_text(task.tuned.median_ns)}"
        default, tuned = (bar["bar"] for bar in bars[0])
        assert default / tuned == pytest.approx(task.default.median_ns / task.tuned.median_ns, rel=0.02)


def test_many_operations_are_folded_away_by_graph(report: Report) -> None:
    place = report.places[0]
    again = [replace(run, graph="<b>") for run in place.runs]
    first, second = of_kind([layers(replace(place, runs=(*place.runs, *again, *again)))], "fold")
    timed = sum(task.tuned is not None for run in place.runs for task in place.tasks if task.digest == run.task)
    assert first["open"] and first["title"].startswith(f"{timed} operations of net <1>; ")
    assert "open" not in second and second["title"].startswith(f"{2 * timed} operations of <b>; ")


def test_the_way_from_the_default_is_told_in_words(html: str) -> None:
    (task,) = (each for each in every(Page(html).blocks) if each.get("id") == f"t0-{CONV.key.digest[:16]}")
    told = titled([task], "From the default to the tuned configuration")["blocks"][0]["items"]
    lines = {change["text"].split(" ")[0]: meaning.strip() for change, meaning in told}
    assert lines and lines["VW"] == "columns of a vector"
    assert "The default is kept: no other configuration was clearly faster." in html


def test_without_an_end_to_end_measurement_the_sum_is_called_an_estimate(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    header = read_header(made[1])
    with PerformanceCache.open_readonly(made[0]) as cache:
        report = gather(cache, uses_of(replace(header, configuration={}), "c"), Peak(), datetime.now(UTC))
        alone = gather(cache, None, Peak(), datetime.now(UTC))
    assert "is an estimate of the gain" in words(report_sections(report))
    assert "×, an estimate; sum of the kernels of 18 of 20 operations" in words(report_sections(report))
    assert "estimate" not in words(report_sections(alone))


@pytest.mark.parametrize(
    "told",
    [
        None, 3, [], {}, {"net <1>": None}, {"net <1>": 2.0}, {"net <1>": {**GOOD, "gain": None}}, {"other": GOOD},
        {"net <1>": {**GOOD, "kept": "best"}}, {"net <1>": {**GOOD, "untuned_ns": math.nan}},
        {"net <1>": {**GOOD, "untuned_ns": 0}}, {"net <1>": {**GOOD, "gain": {"median": 1, "low": 2, "high": 1}}},
        {"net <1>": {**GOOD, "gain": {"median": 1, "low": 0, "high": 1}}}, {"net <1>": {**GOOD, "untuned_ns": 10**400}},
    ],
)  # fmt: skip
def test_what_cannot_be_a_measurement_is_none(made: tuple[Path, Path], told: object) -> None:
    header = replace(read_header(made[1]), configuration={"end_to_end": told, "tuned_tasks": [3, None]})
    uses = uses_of(header, "c")
    assert (uses.end_to_end, uses.alternatives) == ((), frozenset())
