"""Test that each change between two profiles is named, and nothing else."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gputune.client.errors import ConfigError
from gputune.client.viewer.analysis.compare import Compared, compare
from gputune.client.viewer.profile import Profile, profile_of
from gputune.runtime.profiling.log import Log
from tests.client.viewer.made_up_plans import plan, schematic
from tests.runtime.profiling import made_up

MEDIANS_NS = (90_000, 40_000, 200_000, 15_000, 60_000, 120_000, 33_000, 75_000)
NAMES = [f"op{place}" for place in range(len(MEDIANS_NS))]
INFERENCES = 40


def noisy(seed: int, scales: Sequence[float], drift: float = 1.0, inferences: int = INFERENCES) -> Profile:
    """Times that spread by 3 %, one of 30 being an outlier by a factor of 3."""
    random = np.random.default_rng(seed)
    shape = inferences, len(scales)
    times = np.array(MEDIANS_NS[: len(scales)]) * scales * drift * random.lognormal(0, 0.03, shape)
    times *= np.where(random.random(shape) < 1 / 30, 3, 1)
    records = [made_up.inference(row, int(5_000 * drift)) for row in np.round(times).astype(int).tolist()]
    log = Log("made up", made_up.header(), [made_up.graph(NAMES[: len(scales)])], inferences=records)
    return profile_of([log], None)


def quiet(names: Sequence[str], ops: Sequence[str]) -> Profile:
    graph = made_up.graph(names)
    log = Log("made up", made_up.header(), [graph], inferences=made_up.inferences(3, [1000] * len(names)))
    return profile_of([log], schematic(plan(graph, ops=ops)))


def named(compared: Compared) -> list[str]:
    return [one.operation for one in compared.changed]


def same(count: int = len(NAMES)) -> list[float]:
    return [1.0] * count


def one_slower(place: int, by: float = 1.1, count: int = len(NAMES)) -> list[float]:
    return [by if each == place else 1.0 for each in range(count)]


@pytest.mark.slow
def test_nothing_is_named_where_nothing_has_changed() -> None:
    runs = [compare(noisy(seed, same(), drift=1 + seed % 7 / 50), noisy(seed + 10**6, same())) for seed in range(120)]
    assert sum(bool(named(run)) for run in runs) <= 1


@pytest.mark.slow
def test_an_operation_that_is_slower_is_named_and_no_other_is() -> None:
    right = 0
    for seed in range(60):
        place = seed % len(NAMES)
        run = compare(noisy(seed, one_slower(place), drift=1 + seed % 7 / 50), noisy(seed + 10**6, same()), 0.05)
        assert set(named(run)) <= {NAMES[place]}
        right += named(run) == [NAMES[place]]
    assert right >= 59


@pytest.mark.parametrize("count", [3, 4])
def test_the_scale_of_few_operations_is_not_that_of_what_has_changed(count: int) -> None:
    runs = [
        compare(noisy(seed, one_slower(1, 1.3, count)), noisy(seed + 10**6, same(count)), 0.05) for seed in range(20)
    ]
    assert [named(run) for run in runs] == [["op1"]] * 20


def test_the_scale_is_not_taken_from_half_of_the_operations() -> None:
    """Of four, two are slower by the same factor: it is taken from three, whose median is one of them."""
    for seed in range(20):
        now, was = noisy(seed, [1.0, 1.3, 1.3, 1.0]), noisy(seed + 10**6, same(4))
        run = compare(now, was, 0.05)
        scale = run.operations[0].scale
        assert scale in [one.ratio for one in run.operations]
        beside = {place for place, one in enumerate(run.operations) if abs(one.ratio / scale - 1) < 0.1}
        assert beside in ({0, 3}, {1, 2})
        assert {NAMES.index(name) for name in named(run)} == {0, 1, 2, 3} - beside


def test_whole_inferences_fail_where_all_operations_are_slower_and_no_operation_does() -> None:
    run = compare(noisy(1, same(), drift=1.2), noisy(2, same()), 0.05)
    assert [(one.graph, one.operation) for one in run.failed] == [("net", "")]
    assert 1.15 < run.wholes[0].low < run.wholes[0].high < 1.2  # what the host does has not changed
    assert run.operations[0].scale == pytest.approx(1.2, rel=0.02)


def test_only_what_is_slower_by_more_than_allowed_fails() -> None:
    now, was = noisy(1, one_slower(2, 1.15)), noisy(2, same())
    assert [one.name for one in compare(now, was, 0.05).failed] == ["net: op2"]
    run = compare(now, was, 0.14)
    assert (run.failed, named(run)) == ((), ["op2"])
    assert compare(now, was).failed == ()
    assert compare(was, now, 0.05).failed == ()


def test_what_is_only_less_improved_than_the_rest_does_not_fail() -> None:
    assert compare(noisy(1, one_slower(2, 2.0), drift=0.5), noisy(2, same()), 0.05).failed == ()


def test_of_few_inferences_nothing_is_certain() -> None:
    run = compare(noisy(1, one_slower(2, 3.0), inferences=3), noisy(2, same(), inferences=3), 0.05)
    assert {one.direction for one in (*run.wholes, *run.operations)} == {"unknown"}
    assert run.failed == ()
    assert "  too few inferences to be certain of 8 of them" in run.lines


def test_without_timestamps_of_launches_whole_inferences_are_compared() -> None:
    profiles = noisy(1, same(), drift=1.3), noisy(2, same())
    for profile in profiles:
        log = profile.logs[0]
        log.inferences[:] = [replace(one, launches=one.launches[:0]) for one in log.inferences]
    now, was = (profile_of(profile.logs, None) for profile in profiles)
    run = compare(now, was, 0.05)
    assert (run.operations, run.added, [one.name for one in run.failed]) == ((), (), ["net: whole inferences"])


def test_operations_are_matched_by_name_and_op_where_the_launches_differ() -> None:
    now, was = quiet(["a", "b", "new"], ["Conv", "Conv", "Conv"]), quiet(["a", "b", "old"], ["Conv", "Pool", "Conv"])
    run = compare(now, was)
    assert [one.operation for one in run.operations] == ["a"]
    assert (run.added, run.removed) == (("net: b", "net: new"), ("net: b", "net: old"))
    assert run.notes == ("net: the launches differ; operations were matched by their names",)
    other = Log("made up", made_up.header(), [made_up.graph(["a"], "elsewhere")], inferences=made_up.inferences(1, [9]))
    with pytest.raises(
        ConfigError, match=r"no graph has inferences in both logs: 'net' here, 'elsewhere' in the other"
    ):
        compare(now, profile_of([other], None))


def test_lines_have_at_most_80_columns() -> None:
    run = compare(noisy(1, one_slower(2, 1.4)), noisy(2, same()), 0.05)
    long = [
        replace(one, graph="net" * 30, operation=one.operation * 30, now_ns=1e11, ratio=500.0) for one in run.operations
    ]
    wide = replace(
        run,
        wholes=(replace(run.wholes[0], graph="net" * 30, failed=True),),
        operations=tuple(long),
        added=("x" * 200,),
        notes=("a note " * 20,),
    )
    assert max(map(len, [*run.lines, *wide.lines])) <= 80
    assert run.lines[-1] == "slower by more than 5 %: net: op2"


def test_what_an_inference_does_not_feel_fails_nothing() -> None:
    """An operation of the hundredth of a percent that takes twice as long is named, but is no reason to stop a
    release."""
    scales = [*same(len(NAMES) - 1), 1 / 1000]
    was, now = noisy(1, scales), noisy(2, [*scales[:-1], 2 * scales[-1]])
    compared = compare(now, was, fail_over=0.05)
    assert named(compared) == [NAMES[-1]] and not compared.failed
