"""Test that no two figures of a tuning contradict each other, with rounds recorded on a busy machine and made-up
rounds.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.compare.comparing import Comparison as Compared
from gputune.client.compare.comparing import Measured
from gputune.client.compare.gains import chart
from gputune.client.context.comparison import _told
from gputune.client.context.elimination import Comparison, compare_contexts, ratios_from
from gputune.client.report.data import Report
from gputune.client.report.sections.inferences import inferences
from gputune.client.report.uses import uses_of
from gputune.client.tuning.measuring.end_to_end import KEPT, OPEN
from gputune.client.tuning.measuring.sequential import gain_of
from gputune.core.json_text import json_text, json_value
from gputune.runtime.context.format import read_header
from gputune.runtime.context.records import ContextHeader
from tests.client.report.contradicting import contradictions, of_comparison

RECORDED = Path(__file__).with_name("recorded_rounds.json")
"""By name, comparisons of generations at a load of 8 to 14 on two processors: by context its time by the first one's,
the untuned one's, in each round."""
UNTUNED_NS = 214_170.0


def replayed(ratios: dict[str, list[float]], rounds: int, last: str | None = None) -> Comparison:
    """A comparison of these rounds, of so many at most; the first context is the untuned one."""
    untuned, *others = ratios
    taken = 0

    def run(digests: Sequence[str]) -> list[float]:
        nonlocal taken
        taken += 1
        return [UNTUNED_NS * ratios[one][(taken - 1) % len(ratios[one])] for one in digests]

    return compare_contexts([*others, untuned], untuned, run, lambda: taken < rounds, last=last)


def written(comparison: Comparison, untuned: str, header: ContextHeader, report: Report) -> tuple[Any, str, Any]:
    """The summary, the messages and the page of a generation that compared so."""
    candidates = [
        SimpleNamespace(
            title=digest,
            digest=digest,
            plan=SimpleNamespace(operations=[None] * (9 - place)),
            groups=[None] * place,
            persistent=place % 2 == 0,
        )
        for place, digest in enumerate([*comparison.gains, untuned])
    ]
    told, record = _told(comparison, candidates, untuned), comparison.end_to_end  # type: ignore[arg-type]
    summary = {"end_to_end": record.to_dict(), "in_chain": {"candidates": told}}
    log = "\n".join([f"end to end, {KEPT[record.kept]}", f"end to end, {OPEN}" * record.open, record.line])
    graph = header.graphs[0].name
    uses = uses_of(replace(header, configuration={"end_to_end": {graph: {**record.to_dict(), "contexts": told}}}), "c")
    assert len(uses.end_to_end[0].compared) == len(told), "all bars are drawn"
    page = inferences(replace(report, end_to_end=uses.end_to_end))
    return json_value(json_text(summary)), log, page


def recorded() -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = json_value(RECORDED.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", recorded())
def test_figures_of_recorded_rounds_agree(name: str, made: tuple[Path, Path], report: Report) -> None:
    ratios, header = recorded()[name], read_header(made[1])
    assert ratios_from([ratios]) == [ratios]
    untuned, *others = ratios
    for rounds in (0, 20, 40, 200):
        for last in (None, others[-1]):
            found = written(replayed(ratios, rounds, last), untuned, header, report)
            assert contradictions(*found) == []


@st.composite
def rounds_of(draw: st.DrawFn) -> tuple[dict[str, list[float]], int, str | None]:
    names = "abc"[: draw(st.integers(0, 3))]
    count = draw(st.integers(15, 40))
    level = {name: draw(st.floats(0.3, 3.0)) for name in names}
    noise = draw(st.sampled_from([0.0, 0.004, 0.2]))
    share = st.lists(st.floats(-1, 1), min_size=count, max_size=count)
    ratios = {name: [level[name] * (1 + noise * one) for one in draw(share)] for name in names}
    last = draw(st.sampled_from([None, *names]))
    return {"untuned": [1.0] * count, **ratios}, count, last


@given(made_up=rounds_of())
def test_figures_of_any_rounds_agree(
    made_up: tuple[dict[str, list[float]], int, str | None], made: tuple[Path, Path], report: Report
) -> None:
    ratios, count, last = made_up
    found = written(replayed(ratios, count, last), "untuned", read_header(made[1]), report)
    assert contradictions(*found) == []


CHANGES = {
    "tuned_ns": lambda told: told | {"tuned_ns": 1.02 * told["tuned_ns"]},
    "kept": lambda told: told | {"kept": "untuned"},
    "open": lambda told: told | {"open": True},
    "gain": lambda told: told | {"gain": {**told["gain"], "low": 0.9}},
    "median": lambda told: told | {"gain": {**told["gain"], "median": 3.0}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_contradicts_is_found(change: str, made: tuple[Path, Path], report: Report) -> None:
    ratios = {"untuned": [1.0] * 40, "a": [0.8, 0.81] * 20}
    summary, log, page = written(replayed(ratios, 40), "untuned", read_header(made[1]), report)
    assert contradictions(summary, log, page) == []
    assert contradictions(summary | {"end_to_end": CHANGES[change](summary["end_to_end"])})


@pytest.mark.parametrize(
    ("where", "said", "other"),
    [
        (1, "1.25 times", "1.30 times"), (1, "times as fast (1.23–1.25)", "times as fast (0.99–1.25)"),
        (1, "inference 0.1", "inference 0.2"), (1, "the tuned context ships", "the untuned context ships"),
        (1, "1.25 times as fast", "no difference found"), (2, "1.25 times as fast", "1.30 times as fast"),
        (2, '"bar": 1.0, "style": "tuned"', '"bar": 0.7, "style": "tuned"'),
        (2, '"text": "fused", "style": "strong"', '"text": "fused"'), (2, '"low"', '"nothing"'),
        (2, '"low": 0.9', '"low": 0.8'), (2, "untuned 214", "untuned 241"),
    ],
)  # fmt: skip
def test_words_and_bars_that_contradict_the_summary_are_found(
    where: int, said: str, other: str, made: tuple[Path, Path], report: Report
) -> None:
    ratios = {"untuned": [1.0] * 40, "b": [1.3] * 40, "a": [0.8, 0.81] * 20}
    found = list(written(replayed(ratios, 40), "untuned", read_header(made[1]), report))
    assert contradictions(*found) == []
    told = found[where] if where < 2 else json.dumps(found[where], ensure_ascii=False)
    assert said in told
    changed = told.replace(said, other)
    found[where] = changed if where < 2 else json.loads(changed)
    assert contradictions(*found)


def test_figures_of_a_comparison_with_engines_agree() -> None:
    for ratios in recorded().values():
        untuned, *others = ratios
        measured = [Measured("tuned", (1.0,), None, 1e6, None)]
        for name in (untuned, *others):
            gain = gain_of(ratios[name])
            measured.append(Measured(name, tuple(ratios[name]), gain, 1e6 * gain.median, None))
        compared = Compared("model.onnx", "device", 2, 20.0, {}, tuple(measured))
        content = json_value(json_text(compared.to_dict()))
        assert of_comparison(content, chart(compared)) == []
        content["contenders"][1]["time_ns"] *= 1.1
        assert len(of_comparison(content, chart(compared))) == 2
    assert math.isfinite(measured[-1].time_ns)
