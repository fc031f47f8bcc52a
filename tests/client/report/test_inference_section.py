"""Test how a report opens: bars of whole contexts, then of each operation, and the way from default to tuned."""

import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gputune.cache import PerformanceCache
from gputune.client.html.markup import text
from gputune.client.html.scales import time_text
from gputune.client.report.data import Report
from gputune.client.report.gather import Peak, gather
from gputune.client.report.html.inference_section import layers
from gputune.client.report.html.page import page
from gputune.client.report.uses import uses_of
from gputune.client.tuning.measuring.end_to_end import OPEN, RULE, EndToEnd
from gputune.client.tuning.measuring.sequential import Gain
from gputune.runtime.context.format import read_header
from stress import made_up_cache

CONV = made_up_cache.TASKS[0]
GOOD = made_up_cache.END_TO_END


def measured_bars(html: str) -> list[tuple[str, float, tuple[float, float] | None]]:
    """The names of the bars that a page opens with, their widths in percent, and where their whiskers begin and end."""
    (bars,) = re.findall(r'<div class="bars">(.*?)<h2>', html.split("<section")[0] + "<h2>", re.DOTALL)
    found = []
    for row in bars.split('"row">')[1:]:
        ((name, width),) = re.findall(r"^<div>(?:<b>)?([^<]+)<.*?<i [^>]*width:([\d.]+)%", row, re.DOTALL)
        whisker = re.search(r'"whisker" style="left:([\d.]+)%;width:([\d.]+)%', row)
        ends = whisker and (float(whisker[1]), round(float(whisker[1]) + float(whisker[2]), 2))
        found.append((name, float(width), ends))
    return found


def test_what_was_measured_end_to_end_stands_on_top(made: tuple[Path, Path], html: str) -> None:
    said = re.sub("<[^>]+>", "", html.split("<h2>")[0]).replace("\u00a0", " ")
    assert "Tuning of net &lt;1&gt;" in said
    assert "measured end to end: tuned 2.09 ms, untuned 2.41 ms: 1.15 times as fast (1.12–1.18)" in said
    assert "The tuned context ships: it is faster than the untuned context for certain." in said and RULE in said
    assert "an estimate" not in html
    widest = GOOD["gain"]["high"]
    expected = [
        (name, *(end and pytest.approx(100 * end / widest, abs=0.02) for end in ends))
        for name, *ends in (
            ("untuned", 1.0, None, None), ("tuned alone, persistent", 1.066, 1.021, 1.109),
            ("fused", 1.048, 0.985, 1.102), ("fused, persistent", 1.153, 1.121, 1.184),
        )
    ]  # fmt: skip
    assert [(name, bar, *(ends or (None, None))) for name, bar, ends in measured_bars(html)] == expected
    best = "this context: 16 operations, 4 groups fused, persistent kernels1.15 times as fast (1.12–1.18)"
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
        html = page(replace(report, end_to_end=(replace(one, end_to_end=kept_one, compared=()),)))
        text = re.sub("<[^>]+>", "", html).replace("\u00a0", " ")
        assert f"measured end to end: {said}" in text
        assert (OPEN[1:] in text) == kept_one.open == (gain is not None)
        assert len(measured_bars(html)) == 1 + (gain is not None)


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
    shown = html.split('<details class="rows"')[1].split("</details>")[0]
    rows = re.findall(
        r'href="#t0-(\w+)">([^<]+)</a>.*?<div class="tracks">(.*?)</div><div class="end">(.*?)<span', shown
    )
    tasks = {task.digest: task for task in place.tasks}
    timed = [run for run in place.runs if tasks[run.task].tuned]
    assert [name for _, name, *_ in rows] == [text(run.operation) for run in timed]
    for run, (digest, _, bars, said) in zip(timed, rows, strict=True):
        task = tasks[run.task]
        assert task.default is not None and task.tuned is not None
        assert run.task.startswith(digest)
        assert said.strip() == f"{time_text(task.default.median_ns)} → {time_text(task.tuned.median_ns)}"
        default, tuned = map(float, re.findall(r"width:([\d.]+)%", bars))
        assert default / tuned == pytest.approx(task.default.median_ns / task.tuned.median_ns, rel=0.02)


def test_many_operations_are_folded_away_by_graph(report: Report) -> None:
    place = report.places[0]
    again = [replace(run, graph="<b>") for run in place.runs]
    shown = layers(replace(place, runs=(*place.runs, *again, *again)))
    first, second = re.findall(r'<details class="rows"( open)?><summary>([^:]*): ', shown)
    timed = sum(task.tuned is not None for run in place.runs for task in place.tasks if task.digest == run.task)
    assert first == (" open", f"{timed} operations of net &lt;1&gt;")
    assert second == ("", f"{2 * timed} operations of &lt;b&gt;")


def test_the_way_from_the_default_is_told_in_words(html: str) -> None:
    task = html.split(f'id="t0-{CONV.key.digest[:16]}" data-words')[1].split("</details>")[0]
    told = task.split("From the default to the tuned configuration</h3><ul>")[1].split("</ul>")[0]
    lines = dict(re.findall(r"<li><code>(\w+) \d+ → \d+</code> ([^<]+)</li>", told))
    assert lines and lines["VW"] == "columns of a vector"
    assert "The default is kept: no other configuration was clearly faster." in html


def test_without_an_end_to_end_measurement_the_sum_is_called_an_estimate(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    header = read_header(made[1])
    with PerformanceCache.open_readonly(made[0]) as cache:
        report = gather(cache, uses_of(replace(header, configuration={}), "c"), Peak(), datetime.now(UTC))
        alone = gather(cache, None, Peak(), datetime.now(UTC))
    assert "is an estimate of the gain" in page(report)
    assert "×, an estimate; sum of the kernels of 18 of 20 operations" in page(report)
    assert "estimate" not in page(alone)


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
