"""Test the schedule's rules, and the scheduler that serves several targets."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gputune.cache import PerformanceCache, TrialRecord
from gputune.client.errors import ConfigError, TargetError, TuningError
from gputune.client.model.plan import Task
from gputune.client.options.tuning import TuningOptions
from gputune.client.progress import SILENT, Progress
from gputune.client.tuning.expected_gain import (
    Rates,
    Standing,
    expected_gain_ns,
    largest_first,
    most_promising,
    rates_of,
    times_of,
)
from gputune.client.tuning.search.effort import EFFORTS, FEW
from gputune.client.tuning.search.task_search import BATCH, TaskSearch, device_limits
from gputune.client.tuning.task_scheduler import FIRST_BATCHES, Entry, TaskScheduler, Todo
from gputune.client.tuning.tuner import Tuner
from gputune.core.launches import Trial
from gputune.kernels.family import Work
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.client.answering_target import AnsweringTarget, Counting, by_width
from tests.client.fake_target import failed, ok

BIG = Task("MatMul", MatMulProblem(64, 512, 512), 1)
SMALL = Task("MatMul", MatMulProblem(4, 32, 48), 1)
TINY = Task("Softmax", SoftmaxProblem(1, 64, 1), 1)
QUICK = EFFORTS["quick"]


def standing(best_ns: float | None, flops: int = 1000, fruitless: int = 0) -> Standing:
    return Standing(Work(flops, 10), best_ns, fruitless)


def total(times: Mapping[int, float]) -> float:
    return sum(times.values())


FASTEST = Standing(Work(1000, 200), 100.0, 0)
"""Draws the roofline of these tests: 10 FLOP and 2 bytes in a nanosecond."""


def gain_of(one: Standing, inference: Any = total) -> float:
    return expected_gain_ns(1, {0: FASTEST, 1: one}, inference, 0.08)


def test_the_roofline_is_drawn_by_the_best_of_all_tasks() -> None:
    rates = rates_of([Standing(Work(1000, 10), 100.0, 0), Standing(Work(10, 4000), 200.0, 0), standing(None)])
    assert rates == Rates(flops_per_ns=10.0, bytes_per_ns=20.0)
    assert rates.roofline_ns(Work(500, 10)) == 50
    assert rates.roofline_ns(Work(10, 2000)) == 100
    assert Rates(0, 0).roofline_ns(Work(5, 5)) == 0


def test_a_gain_grows_with_the_distance_and_halves_when_nothing_comes() -> None:
    assert gain_of(standing(300.0)) == 200
    assert gain_of(standing(300.0), lambda times: times[0] + 3 * times[1]) == 600, "what runs three times counts so"
    assert gain_of(standing(300.0, fruitless=2)) == 50
    assert gain_of(standing(100.0)) == pytest.approx(8), "at the roofline a little may still be to gain"
    assert gain_of(standing(None)) == float("inf")


def test_an_alternative_gains_what_it_may_save_beyond_the_other() -> None:
    def fused_or_apart(times: Mapping[int, float]) -> float:
        return times[0] + min(times[1], 150.0)

    assert gain_of(standing(300.0), fused_or_apart) == 50, "from 150 to the roofline's 100"
    assert gain_of(standing(300.0, flops=2000), fused_or_apart) == 0, "even at the roofline it would not be used"
    assert most_promising([1], {0: FASTEST, 1: standing(300.0, flops=2000)}, fused_or_apart, 0.08, 0.0) is None


def test_the_most_promising_is_chosen_unless_it_is_not_worth_it() -> None:
    both = {0: standing(100.0), 1: standing(500.0)}
    assert most_promising([0, 1], both, total, 0.08, 0.01) == 1
    assert most_promising([0], both, total, 0.08, 0.02) is None, "8 ns of 600 are less than a fiftieth"
    assert most_promising([0], both, total, 0.08, 0.003) == 0
    assert most_promising([], both, total, 0.08, 0.0) is None


def test_what_was_not_measured_is_guessed_by_its_work() -> None:
    assert times_of({0: FASTEST, 1: standing(None), 2: standing(None, flops=4000)}) == {0: 100.0, 1: 200.0, 2: 800.0}
    unknown = times_of({0: standing(None), 1: standing(None, flops=4000)})
    assert unknown[1] == 4 * unknown[0] > 0


def test_what_is_likely_to_take_longest_is_begun_first() -> None:
    assert largest_first([(1, Work(100, 1)), (5, Work(100, 1)), (1, Work(1, 90))]) == [2, 1, 0]


def search(task: Task) -> TaskSearch:
    assert NULL_REPORT.identity is not None
    return TaskSearch(task, NULL_REPORT.identity, device_limits(NULL_REPORT.identity), QUICK, {}, "random")


def knows_its_default(search: TaskSearch) -> None:
    search.tell([TrialRecord(search.default, "ok", samples_ns=[100.0])])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_is_kept_back_to_conclude_what_was_begun() -> None:
    clock = Clock()
    scheduler = TaskScheduler([Entry(0, search(SMALL)), Entry(1, search(BIG))], QUICK, 100, lambda: 10.0 - clock.now)
    taken = scheduler.take(0)
    assert taken is not None
    entry, todo = taken
    assert (entry.search.task, todo) == (BIG, Todo.STEP), "it takes most of an inference"
    entry.tuning = object()  # type: ignore[assignment]
    knows_its_default(entry.search)
    clock.now = 6.0
    scheduler.give_back(entry, todo, BATCH, 6.0)
    taken = scheduler.take(0)
    assert taken == (entry, Todo.CONCLUDE), "another batch and its end would take 12 s, and 4 s are left"
    assert entry.hurried
    clock.now = 9.0
    scheduler.give_back(entry, Todo.CONCLUDE, 0, 3.0)
    taken = scheduler.take(0)
    assert taken is not None and taken[1] is Todo.SKIP
    scheduler.give_back(*taken, 0, 0.0)
    assert scheduler.take(0) is None


def test_a_batch_is_no_larger_than_there_is_time_for() -> None:
    """By what a trial has taken so far, or is taken to take before one was measured."""
    clock = Clock()
    scheduler = TaskScheduler([Entry(0, search(BIG))], QUICK, 100, lambda: 60.0 - clock.now, trial_seconds=15.0)
    taken = scheduler.take(0)
    assert taken is not None and taken[1] is Todo.STEP and taken[0].most == 4
    entry = taken[0]
    entry.tuning = object()  # type: ignore[assignment]
    knows_its_default(entry.search)
    clock.now = 8.0
    scheduler.give_back(entry, Todo.STEP, 4, 8.0)
    assert scheduler._batch(entry) == BATCH, "2 s each, and 52 s are left"
    clock.now = 50.0
    assert scheduler._batch(entry) == 5
    clock.now = 59.0
    assert scheduler._batch(entry) == 2, "a configuration and what it is compared with"
    short = TaskScheduler([Entry(0, search(BIG))], QUICK, 100, lambda: 20.0, trial_seconds=15.0).take(0)
    assert short is not None and short[1] is Todo.SKIP, "and no less"


@pytest.mark.parametrize(("known", "todo"), [(True, Todo.CONCLUDE), (False, Todo.SKIP)])
def test_when_time_is_over_what_is_known_decides(known: bool, todo: Todo) -> None:
    """Nothing is measured any more, not even what was to be measured first, or finalists side by side."""
    entry = Entry(0, search(BIG))
    entry.tuning = object()  # type: ignore[assignment]
    if known:
        knows_its_default(entry.search)
    scheduler = TaskScheduler([entry], QUICK, 100, lambda: 0.0)
    taken = scheduler.take(0)
    assert taken == (entry, todo)
    assert entry.hurried == known and entry.at_once
    scheduler.give_back(entry, todo, 0, 0.0)
    assert entry.skipped != known and scheduler.take(0) is None


def test_a_target_does_not_look_at_what_another_one_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of a target adds to the search of its entry at any time."""
    entries = [Entry(place, search(task)) for place, task in enumerate((BIG, BIG, SMALL))]
    scheduler = TaskScheduler(entries, QUICK, 100, None)
    theirs, mine, small = (scheduler.take(worker) for worker in (0, 1, 1))
    assert theirs is not None and mine is not None and small is not None
    for entry, todo in (mine, small):
        entry.tuning = object()  # type: ignore[assignment]
        knows_its_default(entry.search)
        scheduler.give_back(entry, todo, BATCH, 0.1)

    class Changing(dict[str, TrialRecord]):
        def values(self) -> Any:
            raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(theirs[0].search, "known", Changing())
    taken = scheduler.take(1)
    assert taken is not None and taken[0] is not theirs[0]
    assert taken[0].most > 0
    assert scheduler.others(taken[0]).keys() <= {mine[0].search.key, small[0].search.key}


def test_what_another_target_measures_is_not_among_the_others_until_it_is_given_back() -> None:
    entries = [Entry(place, search(task)) for place, task in enumerate((BIG, SMALL))]
    for entry in entries:
        knows_its_default(entry.search)
    scheduler = TaskScheduler(entries, QUICK, 100, None)
    theirs, mine = scheduler.take(0), scheduler.take(1)
    assert theirs is not None and mine is not None
    assert scheduler.others(mine[0]) == {}
    scheduler.give_back(*theirs, 1, 0.1)
    assert scheduler.others(mine[0]) == {theirs[0].search.key: theirs[0].search.default}
    assert scheduler.take(0) is not None
    assert scheduler.others(mine[0]) == {}, "it is measured again"


def test_a_first_batch_leaves_the_pool_to_other_tasks() -> None:
    """What a task resumes with counts as had: 12 tasks that lack two trials each are all measured."""
    entries = [Entry(place, search(SMALL)) for place in range(12)]
    for entry in entries:
        knows_its_default(entry.search)
        entry.search.base = 3
    scheduler = TaskScheduler(entries, QUICK, 24, None)
    got: list[int] = []
    while len(got) < len(entries):
        taken = scheduler.take(0)
        assert taken is not None
        entry, todo = taken
        assert todo is Todo.STEP
        entry.tuning = object()  # type: ignore[assignment]
        got.append(entry.most)
        scheduler.give_back(entry, todo, got[-1], 0.1)
    assert got == [2] * 12
    assert scheduler.trial_budget == 0


def test_a_task_tries_what_is_best_for_others_of_its_op() -> None:
    """Its own default, but for what the best of another one has in place of that one's default."""
    sizes = ((64, 512, 512), (2, 512, 512), (64, 512, 32768))
    matmuls = [Task("MatMul", MatMulProblem(*size), 1) for size in sizes]
    entries = [Entry(place, search(task)) for place, task in enumerate((*matmuls, TINY))]
    for entry in entries:
        entry.tuning, entry.dry = object(), True  # type: ignore[assignment]
        knows_its_default(entry.search)
        entry.look()
    mine, narrow, wide = (entry.search for entry in entries[:3])
    assert mine.default["MR"] != narrow.default["MR"], "what is tried is not the other's configuration"
    narrow.tell([TrialRecord(narrow.default | {"KU": 2}, "ok", samples_ns=[50.0])])
    wide.tell([TrialRecord(wide.default | {"LM": 2}, "ok", samples_ns=[50.0])])
    scheduler = TaskScheduler(entries, replace(QUICK, least_gain=0.08), 3, None)
    tried: dict[int, list[Any]] = {entry.place: [] for entry in entries}
    while (taken := scheduler.take(0)) is not None:
        entry, batch = taken[0], taken[0].transferred if taken[1] is Todo.TRANSFER else ()
        tried[entry.place] += batch
        entry.search.tell([TrialRecord(one, "ok", samples_ns=[120.0]) for one in batch])
        scheduler.give_back(*taken, len(batch), 0.1)
    assert tried[0] == [mine.default | {"KU": 2}, mine.default | {"LM": 2}], "the nearest problem's first"
    assert sum(map(len, tried.values())) == 3, "as many as the budget has"
    assert not tried[3], "another op"


def begun(*tasks: Task, improved_by: Sequence[dict[str, int]] = ()) -> list[Entry]:
    """Return entries that had their first batch, on target 0, 1 and so on. improved_by: what makes the best of each,
    in place of the default's."""
    entries = [Entry(place, search(task), worker=place) for place, task in enumerate(tasks)]
    for entry in entries:
        entry.tuning, entry.stepped = object(), True  # type: ignore[assignment]
        knows_its_default(entry.search)
    for entry, better in zip(entries, improved_by, strict=False):
        entry.search.tell([TrialRecord(entry.search.default | better, "ok", samples_ns=[50.0])])
    for entry in entries:
        entry.look()
    return entries


@pytest.mark.parametrize("budget", [BATCH + 3, BATCH, 1])
def test_two_targets_together_try_no_more_than_the_budget(budget: int) -> None:
    scheduler = TaskScheduler(begun(BIG, BIG), QUICK, budget, None)
    taken = [scheduler.take(worker) for worker in (0, 1)]
    most = [one[0].most for one in taken if one is not None and one[1] is Todo.STEP]
    assert (sum(most), scheduler.trial_budget) == (budget, 0)
    for one in taken:
        assert one is not None
        scheduler.give_back(*one, 0, 0.1)
    assert scheduler.trial_budget == budget, "what was not tried can be tried elsewhere"


@pytest.mark.parametrize(("budget", "todo"), [(2, Todo.TRANSFER), (1, Todo.CONCLUDE)])
def test_two_targets_together_try_no_more_of_others_than_the_budget(budget: int, todo: Todo) -> None:
    matmuls = [Task("MatMul", MatMulProblem(64, 512, n), 1) for n in (512, 480, 448)]
    entries = begun(*matmuls, improved_by=[{"KU": 2}, {"LM": 2}, {"KU": 2}])
    for entry in entries:
        entry.dry = True
    scheduler = TaskScheduler(entries, replace(QUICK, least_gain=0.08, finalists=1), budget, None)
    assert scheduler.take(0) == (entries[0], Todo.TRANSFER)
    assert scheduler.take(1) == (entries[1], todo)
    assert scheduler.trial_budget == 0
    scheduler.give_back(entries[0], Todo.TRANSFER, 1, 0.1)
    assert scheduler.trial_budget == 0, "what was tried of others counts"


def test_what_gets_better_by_what_others_found_goes_on() -> None:
    """A batch that brought nothing is not worth another one here, and one that brought something is."""
    entries = [Entry(place, search(Task("MatMul", MatMulProblem(m, 512, 512), 1))) for place, m in enumerate((64, 60))]
    mine, other = (entry.search for entry in entries)
    for entry in entries:
        entry.tuning, entry.stepped = object(), True  # type: ignore[assignment]
        knows_its_default(entry.search)
    other.tell([TrialRecord(other.default | {"KU": 2}, "ok", samples_ns=[90.0])])
    for entry in entries:
        batch = [one for one in entry.search.next_batch(BATCH) if one != mine.default | {"KU": 2}]
        entry.search.tell([TrialRecord(one, "ok", samples_ns=[120.0]) for one in batch])
        entry.search.tell([TrialRecord(one, "ok", samples_ns=[120.0]) for one in entry.search.next_batch(1)])
        entry.look()
    scheduler = TaskScheduler(entries, replace(QUICK, worth=0.03, least_gain=0.08), 100, None)
    taken = scheduler.take(0)
    assert taken == (entries[0], Todo.TRANSFER)
    assert entries[0].transferred == [mine.default | {"KU": 2}]
    mine.tell([TrialRecord(one, "ok", samples_ns=[80.0]) for one in entries[0].transferred])
    scheduler.give_back(*taken, 1, 0.1)
    assert scheduler.take(0) == (entries[0], Todo.STEP)


def test_nothing_of_others_is_tried_where_it_is_not_worth_it() -> None:
    entries = [Entry(place, search(task)) for place, task in enumerate((BIG, SMALL))]
    for entry, ns, better in zip(entries, (1e6, 1e3), ({"KU": 2}, {"LM": 2}), strict=True):
        entry.tuning, entry.dry = object(), True  # type: ignore[assignment]
        entry.search.tell([TrialRecord(entry.search.default, "ok", samples_ns=[ns])])
        entry.search.tell([TrialRecord(entry.search.default | better, "ok", samples_ns=[0.9 * ns])])
        entry.look()
    late = TaskScheduler(entries, QUICK, 100, lambda: 0.0).take(0)
    assert late is not None and late[1] is Todo.CONCLUDE, "or where there is no time"
    late[0].busy = False
    scheduler = TaskScheduler(entries, QUICK, 100, None)
    first = scheduler.take(0)
    assert first is not None and (first[0].search.task, first[1]) == (BIG, Todo.TRANSFER)
    scheduler.give_back(*first, 1, 0.1)
    big = entries[0].search
    big.tell([TrialRecord(one, "ok", samples_ns=[2e6]) for one in first[0].transferred])
    while (taken := scheduler.take(0)) is not None:
        assert taken[1] is Todo.CONCLUDE
        scheduler.give_back(*taken, 0, 0.1)


def test_a_strategy_that_has_nothing_more_to_ask_for_ends_its_task() -> None:
    scheduler = TaskScheduler([Entry(0, search(BIG))], QUICK, 100, None)
    taken = scheduler.take(0)
    assert taken is not None
    taken[0].tuning = object()  # type: ignore[assignment]
    scheduler.give_back(*taken, 0, 0.1)
    knows_its_default(taken[0].search)
    again = scheduler.take(0)
    assert again is not None and again[1] is Todo.CONCLUDE


def tuner(
    targets: list[AnsweringTarget], cache: PerformanceCache, progress: Progress = SILENT, **options: Any
) -> Tuner:
    chosen = TuningOptions(**{"strategy": "random", **options})
    return Tuner(targets, cache, QUICK, progress, chosen, {BIG: ("/fc/Gemm",)})  # type: ignore[arg-type]


def test_every_task_is_begun_before_any_goes_on(cache: PerformanceCache) -> None:
    target, progress = AnsweringTarget(by_width), Counting()
    tuning = tuner([target], cache, progress)
    progress.left = tuning.expected_trials([SMALL, BIG])
    told: list[str] = []
    outcomes = tuning.tune([SMALL, BIG], lambda outcome: told.append(outcome.key))
    first, second = (request.task for request in target.requests[:2])
    assert first == tuning._search(BIG).title and second == tuning._search(SMALL).title
    assert [outcome.key for outcome in outcomes] == [tuning._search(task).key.digest for task in (SMALL, BIG)]
    assert set(told) == {outcome.key for outcome in outcomes}
    assert progress.left == 0


def test_trials_go_where_there_is_most_to_gain(cache: PerformanceCache) -> None:
    """Both bring as many; the one that hardly counts gets no more than a first look."""

    class Unequal(AnsweringTarget):
        def measure_kernel(self, request: Any, on_progress: Any) -> Any:
            slow = request.task == big
            self.answer = lambda c: ok((1e6 if slow else 10.0) / (1 + len(self.requests) % 7) / c["VW"])
            return super().measure_kernel(request, on_progress)

    big = tuner([AnsweringTarget(by_width)], cache)._search(BIG).title
    effort, options = replace(QUICK, trials=2 * FEW), TuningOptions(strategy="random")
    small, large = Tuner([Unequal(by_width)], cache, effort, options=options).tune([SMALL, BIG])  # type: ignore[list-item]
    assert sum(small.trials.values()) <= FIRST_BATCHES[-2][1]
    assert sum(large.trials.values()) >= 16 * FIRST_BATCHES[-2][1]


def test_a_budget_that_is_used_up_is_said_and_the_next_run_goes_on(
    cache: PerformanceCache,
) -> None:
    progress = Counting()
    hurried = tuner([AnsweringTarget(by_width)], cache, progress, budget_seconds=1e-9)
    progress.left = hurried.expected_trials([BIG, SMALL])
    outcomes = hurried.tune([BIG, SMALL])
    assert [outcome.tuned_ns for outcome in outcomes] == [None, None]
    assert hurried.unfinished == "2 of 2 tasks keep their earlier winners, or their unmeasured defaults"
    assert progress.left == 0
    target = AnsweringTarget(by_width)
    assert all(outcome.tuned_ns for outcome in tuner([target], cache).tune([BIG, SMALL]))


def test_a_budget_that_cuts_a_search_short_is_said(cache: PerformanceCache, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Slow(AnsweringTarget):
        """Each of its batches takes a minute."""

        def measure_kernel(self, request: Any, on_progress: Any) -> Any:
            now[0] += 60.0
            return super().measure_kernel(request, on_progress)

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    hurried = tuner([Slow(by_width)], cache, budget_seconds=90.0)
    hurried.tune([BIG])
    assert hurried.unfinished == "the search of 1 of 1 tasks was cut short"


class Gated(AnsweringTarget):
    """Goes on only when the other one is at work, too."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__(by_width)
        self.barrier = barrier

    def measure_kernel(self, request: Any, on_progress: Any) -> Any:
        if not self.requests:
            self.barrier.wait(30)
        return super().measure_kernel(request, on_progress)


def test_targets_work_side_by_side_and_a_task_stays_where_it_was_begun(cache: PerformanceCache) -> None:
    barrier = threading.Barrier(2)
    targets: list[AnsweringTarget] = [Gated(barrier), Gated(barrier)]
    outcomes = tuner(targets, cache).tune([BIG, SMALL])
    first, second = ({request.task for request in target.requests} for target in targets)
    assert len(first) == len(second) == 1 and first != second
    assert all(outcome.trials == {"ok": sum(outcome.trials.values())} for outcome in outcomes)
    again = AnsweringTarget(by_width)
    assert all(outcome.hit for outcome in tuner([again], cache).tune([BIG, SMALL]))


def test_what_ends_one_target_ends_the_tuning(cache: PerformanceCache) -> None:
    def gone(configuration: Mapping[str, int]) -> Trial:
        raise TargetError("connection_lost", "gone")

    with pytest.raises(TargetError, match="gone"):
        tuner([AnsweringTarget(gone), AnsweringTarget(gone)], cache).tune([BIG, SMALL])


def test_only_tasks_that_are_meant_are_tuned(cache: PerformanceCache) -> None:
    target = AnsweringTarget(by_width)
    big, small = tuner([target], cache, only=("/fc/*",)).tune([BIG, SMALL])
    assert big.tuned_ns is not None and small.tuned_ns is None
    big, small = tuner([target], cache, only=("MatMul",)).tune([BIG, SMALL])
    assert big.hit and small.tuned_ns is not None
    with pytest.raises(ConfigError, match="nobody"):
        tuner([target], cache, only=("nobody",)).tune([BIG])


PIN: dict[str, int] = dict(search(BIG).space.first())


@pytest.mark.parametrize("answer", [by_width, lambda c: ok(5.0 if dict(c) != PIN else 50.0)])
def test_a_pinned_one_is_verified_once_and_used(cache: PerformanceCache, answer: Callable[..., Trial]) -> None:
    target, progress = AnsweringTarget(answer), Counting()
    tuning = tuner([target], cache, progress, pins={"/fc/*": PIN})
    progress.left = tuning.expected_trials([BIG])
    (outcome,) = tuning.tune([BIG])
    assert dict(outcome.configuration) == PIN
    assert (len(target.requests), progress.left) == (1, 0)
    assert tuner([AnsweringTarget(answer)], cache, pins={"/fc/*": PIN}).tune([BIG])[0].hit
    assert dict(tuner([target], cache).tune([BIG])[0].configuration) != PIN or answer is by_width


def test_a_pinned_configuration_that_cannot_be_is_refused(cache: PerformanceCache) -> None:
    with pytest.raises(ConfigError, match=r"VW=7 is not one of .* NV=1\|2\|3\|4; .* The default is MR="):
        tuner([AnsweringTarget(by_width)], cache, pins={"MatMul": {**PIN, "VW": 7}}).tune([BIG])
    broken = AnsweringTarget(lambda c: failed("correctness") if dict(c) == PIN else by_width(c))
    with pytest.raises(TuningError, match="does not work: correctness"):
        tuner([broken], cache, pins={"MatMul": PIN}).tune([BIG])


def test_a_target_without_work_goes_on_with_what_waits_for_another() -> None:
    scheduler = TaskScheduler([Entry(0, search(BIG)), Entry(1, search(SMALL))], QUICK, 100, None)
    begun = []
    for _ in range(2):  # target 0 begins both
        taken = scheduler.take(0)
        assert taken is not None
        taken[0].tuning = object()  # type: ignore[assignment]
        knows_its_default(taken[0].search)
        scheduler.give_back(*taken, 1, 0.1)
        begun.append(taken[0])
    mine = scheduler.take(0)
    late = scheduler.take(1)
    assert mine is not None and late is not None
    assert {mine[0], late[0]} == set(begun)
    assert late[0].worker == 1
