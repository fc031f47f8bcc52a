"""Test what the tuner does when time is short, and where it may measure nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gputune.cache import PerformanceCache
from gputune.client.errors import CacheMiss, TargetError
from gputune.client.model.plan import Task
from gputune.client.tuning.search.effort import EFFORTS
from gputune.core.batches import Profiled, ProfileKernel
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.server.protocol.messages import Progress
from tests.client.answering_target import QUICK, TASK, AnsweringTarget, by_width, stored, tune, tuner


def test_a_budget_of_nothing_leaves_what_was_found_before(cache: PerformanceCache) -> None:
    found = tune(AnsweringTarget(by_width), cache)
    idle = AnsweringTarget(by_width)
    again = tune(idle, cache, effort=EFFORTS["normal"], budget_seconds=1e-9)
    assert (again.configuration, again.tuned_ns) == (found.configuration, found.tuned_ns)
    assert not idle.requests


def test_what_a_budget_has_cut_short_goes_on_with_the_same_command(cache: PerformanceCache) -> None:
    class Late(AnsweringTarget):
        def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
            time.sleep(0.2)
            return super().measure_kernel(request, on_progress)

    first = Late(by_width)
    tune(first, cache, budget_seconds=0.1)
    assert 0 < len(set(first.measured)) < (QUICK.trials or 0)
    second = AnsweringTarget(by_width)
    tune(second, cache)
    assert second.requests


class GivesUp(AnsweringTarget):
    """Its clock goes on by 10 s in each batch, and it gives up a batch during which time is over."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__(by_width)
        self.clock = clock
        self.over: Callable[[], bool] = lambda: False
        self.given_up = 0

    @contextmanager
    def giving_up(self, over: Callable[[], bool]) -> Iterator[None]:
        self.over = over
        yield

    def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
        self.clock[0] += 10.0
        if self.over():
            self.given_up += 1
            raise TargetError("cancelled", "the client has cancelled the request")
        return super().measure_kernel(request, on_progress)


@pytest.mark.parametrize(("seconds", "given_up"), [(9.0, 1), (29.0, 0), (39.0, 1)])
def test_a_batch_that_is_given_up_costs_nothing_that_was_measured(
    cache: PerformanceCache, monkeypatch: pytest.MonkeyPatch, seconds: float, given_up: int
) -> None:
    """In the first batch, in another, or while finalists are measured."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    target = GivesUp(now)
    hurried = tuner(target, cache, budget_seconds=seconds)
    (outcome,) = hurried.tune([TASK])
    assert now[0] <= seconds + 1.0 and target.given_up == given_up
    known = stored(cache)
    assert (outcome.tuned_ns is not None) == bool(target.requests) == bool(known)
    assert hurried.unfinished
    tune(AnsweringTarget(by_width), cache)
    assert len(stored(cache)) > len(known), "the same command goes on"


def test_comparing_again_measures_no_task_and_names_those_that_the_cache_does_not_know(cache: PerformanceCache) -> None:
    """What has won so far is enough, whatever the effort; another task, or a pin that is not known to work, is not."""
    found, target = tune(AnsweringTarget(by_width), cache), AnsweringTarget(by_width)
    again = tune(target, cache, effort=EFFORTS["full"], compare_again=True)
    assert (again.configuration, again.tuned_ns) == (found.configuration, found.tuned_ns)
    other = Task("Softmax", SoftmaxProblem(8, 8, 1), 1)
    asked = tuner(target, cache, compare_again=True)
    title = asked._search(other).title
    with pytest.raises(CacheMiss, match=rf"^--compare_again measures no task, .* does not hold 1 task: {title}: new; "):
        asked.tune([TASK, other])
    assert asked.tune([TASK, other], optional=[other])[1].tuned_ns is None, "which need not be fused"
    with pytest.raises(CacheMiss, match="pinned, and not known to work"):
        pinned_one = asked._search(other).default
        tuner(target, cache, compare_again=True, pins={other.op: pinned_one}).tune([other])
    assert not target.requests
