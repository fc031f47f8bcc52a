"""Test strategies and stop conditions: what they propose, and when they end."""

import math
from dataclasses import replace

import pytest

from gputune.cache import TrialRecord
from gputune.client.model.plan import Task
from gputune.client.tuning.search.effort import EFFORTS, FEW, most_trials, trials_for
from gputune.client.tuning.search.strategies import Evaluation, Strategy
from gputune.client.tuning.search.strategies.auto import ESTIMATED, Auto
from gputune.client.tuning.search.strategies.in_order import InOrder
from gputune.client.tuning.search.task_search import BATCH, TaskSearch, device_limits, since_gain, space_of
from gputune.core.dtypes import HALF, HALF_EXTENSION
from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.space import Constraint, Parameter, TuningSpace, configuration_key
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.measuring.successive_halving import ENOUGH

SPACE = TuningSpace(
    (Parameter("A", (1, 2, 3, 4), "first"), Parameter("B", (1, 2, 3, 4), "second")),
    (Constraint(("A", "B"), lambda a, b: a * b <= 8, "A times B is at most 8"),),
)


def drain(strategy: Strategy, step: int = 3) -> list[str]:
    keys = []
    while batch := strategy.ask(step):
        assert len(batch) <= step
        keys += [configuration_key(c) for c in batch]
    return keys


@pytest.mark.parametrize("strategy", [InOrder(SPACE), InOrder(SPACE, 7)], ids=["exhaustive", "random"])
def test_every_valid_configuration_is_proposed_once(strategy: Strategy) -> None:
    assert sorted(drain(strategy)) == sorted(configuration_key(c) for c in SPACE.configurations())


@pytest.mark.parametrize("strategy", [InOrder(SPACE), InOrder(SPACE, 7)], ids=["exhaustive", "random"])
def test_what_was_told_is_not_proposed(strategy: Strategy) -> None:
    told = [{"A": 1, "B": 1}, {"A": 4, "B": 2}]
    strategy.tell([Evaluation(c, 1.0) for c in told])
    assert not set(drain(strategy)) & {configuration_key(c) for c in told}


def test_equal_tasks_share_a_space_and_others_have_their_own() -> None:
    assert NULL_REPORT.identity is not None
    limits = device_limits(NULL_REPORT.identity)
    space = space_of(Task("MatMul", MatMulProblem(3, 5, 7), 1), limits)
    assert space_of(Task("MatMul", MatMulProblem(3, 5, 7), 2), limits) is space
    assert space.size == len(list(space.configurations())) > 1
    larger = space_of(Task("MatMul", MatMulProblem(30, 50, 70), 1), limits)
    smaller = space_of(Task("MatMul", MatMulProblem(3, 5, 7), 1), replace(limits, max_work_group_size=1))
    assert larger.size > space.size > smaller.size


def test_the_seed_decides_the_random_order() -> None:
    assert drain(InOrder(SPACE, 1)) == drain(InOrder(SPACE, 1))
    assert drain(InOrder(SPACE, 1)) != drain(InOrder(SPACE, 2))


@pytest.mark.parametrize(
    ("costs", "count"),
    [
        ([], 0),
        ([None, None, None, None], 0),
        ([10.0, 9.95, 9.92], 2),
        ([10.0, 9.95, 9.92, 8.0], 0),
        ([None, 10.0, 9.95, None, 9.99], 3),
    ],
)
def test_trials_without_a_gain_are_counted_from_the_last_one(costs: list[float | None], count: int) -> None:
    assert since_gain(costs) == count


def search_of_a_matmul() -> TaskSearch:
    report = NULL_REPORT.identity
    assert report is not None
    task = Task("MatMul", MatMulProblem(64, 32, 48, bias=True), 1)
    return TaskSearch(task, report, device_limits(report), EFFORTS["quick"], {})


def test_what_is_measured_again_keeps_its_place() -> None:
    """At the end it would count as something new that brought no gain, or as a gain."""
    search = search_of_a_matmul()
    batch = search.next_batch()
    for times in ([100.0] * 8, [90.0]):
        search.tell([TrialRecord(c, "ok", (time,)) for c, time in zip(batch, times, strict=False)])
    assert list(search.known) == [configuration_key(configuration) for configuration in batch]
    assert search.cost(batch[0]) == 90.0


@pytest.mark.parametrize(
    ("default", "other", "gained"),
    [(400.0, 100.0, 0.75), (400.0, 300.0, 0.25), (100.0, 400.0, 0.0), (None, 100.0, 0.0)],
)
def test_what_is_gained_is_a_share_of_the_baselines_time(default: float | None, other: float, gained: float) -> None:
    """If the default fails, the first one that works is the baseline."""
    search = search_of_a_matmul()
    assert search.gained == 0
    mine, theirs = search.next_batch()[:2]
    assert mine == search.default
    failed = TrialRecord(mine, "compile", message="no")
    search.tell(
        [failed if default is None else TrialRecord(mine, "ok", (default,)), TrialRecord(theirs, "ok", (other,))]
    )
    assert search.gained == pytest.approx(gained)


@pytest.mark.parametrize(("samples", "best"), [(ENOUGH - 1, 50.0), (ENOUGH, 100.0)])
def test_what_few_samples_say_is_no_measure_where_others_have_enough(samples: int, best: float) -> None:
    search = search_of_a_matmul()
    slow, fast = search.next_batch()[:2]
    search.tell([TrialRecord(slow, "ok", (100.0,) * samples), TrialRecord(fast, "ok", (50.0,))])
    assert search.best_ns == best


@pytest.mark.parametrize(
    ("effort", "size", "most"),
    [("quick", 8, 8), ("quick", 10_000, 32), ("normal", 50, 50), ("normal", 400, FEW), ("normal", 1000, 100),
     ("normal", 10_000, 384), ("full", 10_000, 10_000), ("none", 100, 0)],
)  # fmt: skip
def test_a_task_gets_a_share_of_its_space_or_a_few(effort: str, size: int, most: int) -> None:
    assert most_trials(EFFORTS[effort], size) == most
    assert trials_for(EFFORTS[effort], True, size) <= most


def test_of_equal_ones_the_same_wins_whatever_was_measured_first() -> None:
    """A farm whose scheduler was killed measures in another order."""
    searches = [search_of_a_matmul() for _ in range(2)]
    batch = searches[0].next_batch()
    for search, order in zip(searches, (batch, batch[::-1]), strict=True):
        search.tell([TrialRecord(c, "ok", (200.0 if c == search.default else 100.0,)) for c in order])
    assert searches[0].best == searches[1].best
    assert searches[0].finalists(2) == searches[1].finalists(2)


GPU = replace(NULL_REPORT.identity, device_type="gpu") if NULL_REPORT.identity else None
WINDOWS = ConvProblem(1, 8, 8, 16, 16, (3, 3), pads=(1, 1, 1, 1))


def search_on_a_gpu(task: Task, strategy: str = "auto", extensions: frozenset[str] = frozenset()) -> TaskSearch:
    assert GPU is not None
    limits = replace(device_limits(GPU), extensions=extensions)
    return TaskSearch(task, GPU, limits, EFFORTS["normal"], {}, strategy)


def test_the_estimate_proposes_in_place_of_the_starters() -> None:
    """The first starter of another algorithm than the default's stays."""
    task, family = Task("MatMul", MatMulProblem(32, 64, 64), 1), family_of("MatMul")
    search, random = search_on_a_gpu(task), search_on_a_gpu(task, "random")
    starters = family.starters(task.problem, search._limits)
    first = search.next_batch()
    best = Auto(search.space, 1, estimate=family.estimate(task.problem, search._limits)).ask(ESTIMATED)
    assert first[0] == search.default
    assert search.default["ALG"] == 1
    direct = next(each for each in starters if each["ALG"] == 0)
    assert first[1:] == [direct, *(each for each in best if each not in (search.default, direct))][: BATCH - 1]
    assert random.next_batch()[1:] == starters[: BATCH - 1]


def test_starters_stay_of_which_the_estimate_knows_nothing() -> None:
    """As of Winograd's, and the first of each other algorithm."""
    search, family = search_on_a_gpu(Task("Conv", WINDOWS, 1)), family_of("Conv")
    batch, known = search.next_batch(), family.estimate(WINDOWS, search._limits)
    assert known is not None
    unknown = [each for each in family.starters(WINDOWS, search._limits) if math.isinf(known(each))]
    assert unknown and [each for each in batch if each in unknown] == unknown
    assert {each["ALG"] for each in batch} == {0, 1, 2, 4}


def test_a_starter_of_each_algorithm_stays_in_float_and_in_half() -> None:
    task = Task("Conv", replace(WINDOWS, dtype=HALF, factors=HALF), 1)
    batch = search_on_a_gpu(task, extensions=frozenset({HALF_EXTENSION})).next_batch()
    assert {(each["ALG"], each["HALF"]) for each in batch} == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (4, 0)}
