"""Test the page of a profile: what it holds, and what it does in a browser."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputune.client.viewer.account import account_of
from gputune.client.viewer.profile import Profile, profile_of
from gputune.client.viewer.sections.document import page_of, sections
from gputune.client.viewer.sections.operations import configuration_words
from gputune.client.viewer.sections.timeline import samples
from gputune.runtime.profiling.records import PART_BEGUN, PART_ENDED
from pages.headless import Browser
from stress.made_up_profile import made_up_profile
from tests.client.pages.reading import Page, cells, of_kind, titled, words, written

LARGEST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def profile() -> Profile:
    return made_up_profile()


@pytest.fixture(scope="module")
def html(profile: Profile) -> str:
    return page_of(profile)


def test_a_page_is_not_large(html: str) -> None:
    assert len(html.encode()) < LARGEST_BYTES


def test_the_data_is_the_log_to_the_nanosecond(profile: Profile, html: str) -> None:
    (graph,), (data,) = profile.graphs, of_kind(Page(html).blocks, "timeline")
    chosen = [sample.inference for sample in samples(graph.inferences)]
    assert len(chosen) > 5
    for one, shown in zip(chosen, data["inferences"], strict=True):
        assert (shown["number"], shown["elapsed"]) == (one.number, one.elapsed_ns)
        begun_ns = profile.begun_ns + shown["begun"]
        parts, launches = np.array(shown["parts"], np.int64), np.array(shown["launches"], np.int64)
        parts[:, PART_ENDED] += parts[:, PART_BEGUN]
        parts[:, [PART_BEGUN, PART_ENDED]] += begun_ns
        assert (parts == one.parts).all()
        launches[:, -1] += launches[:, -2]
        assert (launches + begun_ns == one.launches_ns()).all()
    names = [data["operations"][place][0] for place in data["launches"]]
    assert names == [launch.operation for launch in graph.graph.launches]


def test_the_median_inference_comes_first(profile: Profile) -> None:
    (graph,) = profile.graphs
    first = samples(graph.inferences)[0].inference
    times_ns = sorted(one.elapsed_ns for one in graph.inferences)
    assert first.elapsed_ns == times_ns[(len(times_ns) - 1) // 2]


def test_the_account_of_the_page_is_that_of_the_log(profile: Profile, html: str) -> None:
    (graph,) = profile.graphs
    median = account_of(samples(graph.inferences)[0].inference)
    (table,) = of_kind([titled(Page(html).blocks, "Where the time goes")], "table")
    shown = {name: (mean, alone) for name, _, mean, _, alone in cells(table)}
    for (name, mean_ns), (_, alone_ns) in zip(graph.account.rows(), median.rows(), strict=True):
        if mean_ns or name == "rest":
            assert shown[name] == (f"{mean_ns / len(graph.inferences) / 1e3:,.1f}", f"{alone_ns / 1e3:,.1f}")
    assert "rest" in shown
    assert [key for _, key in table["foot"]][2] == graph.account.elapsed_ns / len(graph.inferences)


def test_every_operation_has_a_row_with_what_is_known_of_it(profile: Profile, html: str) -> None:
    (graph,) = profile.graphs
    assert graph.plan is not None
    (table,) = of_kind([titled(Page(html).blocks, "Operations")], "table")
    assert sorted(table["ids"]) == sorted(f"g0-operation{place}" for place in range(100))
    place = int(table["ids"][0].removeprefix("g0-operation"))
    plan, times = graph.plan.operations[place], graph.operations[place]
    assert times.total_ns == max(one.total_ns for one in graph.operations)
    slowest = words([cells(table)[0], table["details"][0]])
    assert plan.name in slowest and plan.nodes[0] in slowest and configuration_words(plan) in slowest
    assert f"{times.median_ns / 1e3:,.1f}" in slowest and f"{(plan.alone_ns or 0) / 1e3:,.1f}" in slowest


def test_a_configuration_says_what_tuning_changed(profile: Profile) -> None:
    assert profile.schematic is not None
    plan = replace(profile.schematic.graphs[0].operations[0], configuration={"A": 4, "B": 1}, default={"A": 2, "B": 1})
    assert configuration_words(plan) == "A 2 → 4; unchanged: B 1"
    assert configuration_words(replace(plan, configuration=plan.default)) == "the default: A 2, B 1"


def test_memory_is_held_from_the_first_to_the_last_use(profile: Profile) -> None:
    assert profile.schematic is not None
    (plan,) = profile.schematic.graphs
    held = plan.held_bytes()
    for place in (0, 3, 50, 99):
        alive = [one.nbytes for one in plan.tensors if one.kind == "arena" and one.first <= place <= one.last]
        assert held[place] == sum(alive)


def test_what_is_missing_is_said() -> None:
    without = words(sections(made_up_profile(8, 3, "detailed", with_schematic=False)))
    assert "--schematic" in without and "By kernel" in without and "conv_tiles" in without
    assert "Roofline" not in without
    basic = words(sections(made_up_profile(8, 3, "basic")))
    assert "--profiling_level" in basic and "Filter operations" not in basic
    (log,) = made_up_profile(8, 3).logs
    kept = replace(log, graphs=[replace(graph, state_bytes=3 << 20) for graph in log.graphs])
    found = [words(sections(profile_of([one], None))) for one in (log, kept)]
    assert ["Memory of a state" in one for one in found] == [False, True]
    cut = made_up_profile(8, 3)
    cut.logs[0].complete = False
    assert "was cut off" in words(sections(cut))
    empty = replace(made_up_profile(8, 3).logs[0], inferences=[])
    assert "no inferences" in words(sections(profile_of([empty], None)))


def test_numbers_that_cannot_be_break_nothing() -> None:
    (log,) = made_up_profile(8, 3).logs
    header = replace(log.header, begun_unix_ns=1 << 90)
    far = [replace(one, launches=one.launches + (1 << 61), counters={"huge": 1 << 200}) for one in log.inferences]
    nothing = [replace(one, ended_ns=one.begun_ns, parts=one.parts[:0], launches=one.launches[:0]) for one in far]
    backwards = [replace(one, launches=one.launches[:, ::-1].copy()) for one in log.inferences]
    for inferences in (far, nothing, backwards):
        Page(page_of(profile_of([replace(log, header=header, inferences=inferences)], None)))


def test_the_timeline_tells_and_zooms(browser: Browser, html: str, profile: Profile, tmp_path: Path) -> None:
    browser.look(1180)
    browser.load(written(tmp_path / "profile.html", html))
    facts = "document.querySelector('.said').textContent"
    press = "(key => document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key})))"
    browser.value(f"{press}('ArrowRight')")
    first = profile.graphs[0].graph.launches[0].operation
    assert browser.value(facts).startswith(first)
    browser.value("document.querySelector('.said a').click(), new Promise(done => setTimeout(done))")
    opened = "document.querySelector('tbody.open button.fold').firstChild.textContent"
    assert browser.value(opened) == first
    assert browser.value("getComputedStyle(document.querySelector('tbody.open .more')).display") == "table-row"
    browser.value(f"{press}('ArrowRight')")
    assert browser.value(facts).startswith(profile.graphs[0].graph.launches[1].operation)
    drawn = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(canvas.toDataURL()))))"
    pictures = []
    for key in ("Escape", "+", "0"):
        browser.value(f"{press}('{key}')")
        pictures.append(browser.value(drawn.replace("canvas.", "document.querySelector('canvas').")))
    assert pictures[0] == pictures[2] != pictures[1]


def test_operations_are_found_by_their_nodes(browser: Browser, html: str, profile: Profile, tmp_path: Path) -> None:
    browser.look(1180)
    browser.load(written(tmp_path / "profile.html", html))
    shown = "[...document.querySelectorAll('.folding tbody')].filter(one => one.offsetParent).map(one => one.id)"
    assert len(browser.value(shown)) == 20
    type_in = "(i => { i.value = 'matmul'; i.dispatchEvent(new Event('input', {bubbles: true})); })"
    browser.value(f"{type_in}(document.querySelector('.filter'))")
    assert browser.value(shown) == ["g0-operation99"]
