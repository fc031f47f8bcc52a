"""Test the tuner on a device that changes its speed: times are relative to the baseline's times of the same passes."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from gputune.cache import PerformanceCache
from gputune.client.tuning.measuring.drift import Drift
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.task_search import BATCH, cost_of
from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Trial
from gputune.kernels.ops.matmul import FAMILY
from gputune.kernels.space import configuration_key
from gputune.server.protocol.messages import Progress
from tests.client.answering_target import TASK, AnsweringTarget, Counting, by_width, stored, tune, tuner
from tests.client.fake_target import failed, ok


class Drifting(AnsweringTarget):
    """Which takes, by number of the request, so many times as long; several numbers are the samples'."""

    def __init__(
        self, *speeds: float | tuple[float, ...], answer: Callable[[Mapping[str, int]], Trial] = by_width
    ) -> None:
        super().__init__(answer)
        self.speeds = speeds

    def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
        number = len(self.requests)
        speeds = self.speeds[number] if number < len(self.speeds) else 1.0
        measured = super().measure_kernel(request, on_progress)

        def slowed(trial: Trial) -> Trial:
            own = speeds if isinstance(speeds, tuple) else (speeds,) * len(trial.samples_ns)
            return replace(trial, samples_ns=tuple(a * b for a, b in zip(trial.samples_ns, own, strict=False)))

        return replace(
            measured,
            trials=tuple(map(slowed, measured.trials)),
            baseline=None if measured.baseline is None else slowed(measured.baseline),
        )


def drifts(cache: PerformanceCache) -> list[float]:
    return [trial.measured["drift"] for trial in stored(cache)]


def test_times_are_held_against_the_baselines_beside_them(cache: PerformanceCache) -> None:
    """However the device changes: from batch to batch, or from sample to sample."""
    steady = tune(AnsweringTarget(by_width), cache)
    costs = {configuration_key(trial.configuration): cost_of(trial) for trial in stored(cache)}
    with PerformanceCache.open(cache.path.with_name("other.sqlite")) as other:
        target = Drifting(1.0, 1.5, (3.0, 0.5, 1.2), (0.8, 1.9, 1.0), 0.5)
        outcome = tune(target, other)
        assert outcome.configuration == steady.configuration
        assert {configuration_key(trial.configuration): cost_of(trial) for trial in stored(other)} == pytest.approx(
            costs
        )
        assert drifts(other)[: 3 * BATCH] == pytest.approx([1.0] * BATCH + [1.5] * BATCH + [1.2] * BATCH)
        assert outcome.measured == steady.measured


def test_who_leaves_early_is_held_against_what_the_baseline_took_until_then(cache: PerformanceCache) -> None:
    """The device is half as fast at first, which those meet that are eliminated early."""
    default = FAMILY.default(TASK.problem, tuner(AnsweringTarget(by_width), cache)._limits)

    def answer(configuration: Mapping[str, int]) -> Trial:
        trial = steadily(by_width(configuration).samples_ns[0])
        return trial if dict(configuration) == default else replace(trial, samples_ns=trial.samples_ns[:4])

    tune(Drifting(1.0, (2.0,) * 4 + (1.0,) * 5, answer=answer), cache)
    early = stored(cache)[BATCH : 2 * BATCH]
    assert {len(trial.samples_ns) for trial in early} == {4}
    assert [cost_of(trial) for trial in early] == pytest.approx(
        [by_width(trial.configuration).samples_ns[0] for trial in early]
    )


@pytest.mark.parametrize(("moment", "costs_more"), [(0.25, 1.0), (4.0, 4.0)])
def test_nobody_seems_fast_by_a_hiccup_of_the_baseline(
    cache: PerformanceCache, moment: float, costs_more: float
) -> None:
    """All but the first samples of the second batch are from the device as it was. Who has just one has not proved that
    the moment was slow, but cannot have gained by a fast one."""

    class Early(Drifting):
        def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
            measured = super().measure_kernel(request, on_progress)
            early = tuple(replace(trial, samples_ns=trial.samples_ns[:1]) for trial in measured.trials)
            return replace(measured, trials=early) if len(self.requests) == 2 else measured

    tune(Early(1.0, (moment, 1.0, 1.0)), cache)
    early = [trial for trial in stored(cache) if len(trial.samples_ns) == 1]
    assert len(early) == BATCH
    costs = [costs_more * by_width(trial.configuration).samples_ns[0] for trial in early]
    assert [cost_of(trial) for trial in early] == pytest.approx(costs)


def test_a_device_that_drifts_is_said_once(cache: PerformanceCache, caplog: pytest.LogCaptureFixture) -> None:
    progress, target = Counting(), Drifting(1.0, 1.5, 0.9)
    tuning = tuner(target, cache, progress=progress)
    progress.left = tuning.expected_trials([TASK])
    outcome = tuning.tune([TASK])[0]
    assert progress.left == 0
    assert outcome.drift == pytest.approx(1.5)
    (warning,) = caplog.messages
    assert "the device changed its speed: it became 1.5 times as slow as when the baseline took" in warning


@pytest.mark.parametrize(
    ("levels", "words"), [((1.0, 3.4, 0.9), "3.4 times as slow"), ((1.0, 0.3), "3.3 times as fast")]
)
def test_drift_is_said_in_words(levels: tuple[float, ...], words: str) -> None:
    drift = Drift()
    for level in levels:
        drift.hear([1000 * level])
    assert drift.words == words


def test_a_steady_device_is_not_worth_a_word(cache: PerformanceCache, caplog: pytest.LogCaptureFixture) -> None:
    tune(Drifting(1.0, 1.09, 0.95), cache)
    assert not caplog.messages


def test_a_winner_is_told_from_the_default_while_the_device_changes(cache: PerformanceCache) -> None:
    """Each sample of the default is from another speed, and so is each of the finalists'."""
    default = FAMILY.default(TASK.problem, tuner(AnsweringTarget(by_width), cache)._limits)
    changing = Drifting(*[(1.0, 1.3, 0.8)] * 100, answer=lambda c: steadily(1000.0 if dict(c) == default else 950.0))
    assert tune(changing, cache).configuration != default


def steadily(ns: float) -> Trial:
    return replace(ok(ns), samples_ns=(ns,) * 9, wall_ns=(ns,) * 9)


def test_a_resumed_task_is_held_against_its_first_run(cache: PerformanceCache) -> None:
    tune(AnsweringTarget(by_width), cache)
    before = len(stored(cache))
    tune(Drifting(*[1.3] * 100), cache, effort=EFFORTS["normal"])
    assert drifts(cache)[before:] == pytest.approx([1.3] * (len(stored(cache)) - before))


def test_where_the_default_does_not_work_the_first_that_does_is_the_baseline(cache: PerformanceCache) -> None:
    default = tuner(AnsweringTarget(by_width), cache)._search(TASK).default
    target = Drifting(1.0, 1.2, 1.2)
    target.answer = lambda c: failed("timeout") if dict(c) == default else by_width(c)
    outcome = tune(target, cache)
    first, *others = target.requests
    assert first.baseline is None
    for request in others:
        assert request.baseline is not None and request.baseline.configuration == first.variants[1].configuration
    assert outcome.default_ns is None
    assert outcome.drift == pytest.approx(1.2)
