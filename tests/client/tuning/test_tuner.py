"""Test the tuner with a target that answers as the test decides: what is stored, resumed, repeated and kept."""

import json
import logging
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gputune.cache import PerformanceCache
from gputune.client.errors import CacheMiss, TargetError, TuningError
from gputune.client.model.plan import Task
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.task_search import BATCH
from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Trial
from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.matmul import FAMILY, MatMulProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.space import Configuration, configuration_key
from gputune.server.protocol.messages import Progress
from tests.client.answering_target import (
    QUICK,
    TASK,
    AnsweringTarget,
    Counting,
    by_width,
    stored,
    tune,
    tuner,
)
from tests.client.fake_target import failed, gave_up, ok


def test_the_default_is_measured_first_and_the_fastest_wins(cache: PerformanceCache) -> None:
    target = AnsweringTarget(by_width)
    outcome = tune(target, cache)
    search = tuner(target, cache)._search(TASK)
    assert target.batches[0][0] == configuration_key(search.default)
    assert all(len(batch) <= BATCH for batch in target.batches)
    best = min(sum(by_width(dict(c)).samples_ns) / 3 for c in map(eval, target.measured))
    assert outcome.tuned_ns == pytest.approx(best)
    assert sum(outcome.trials.values()) == QUICK.trials == len(set(target.measured))


def test_the_strategy_that_was_asked_for_asks_for_a_whole_space_too(cache: PerformanceCache) -> None:
    search = tuner(AnsweringTarget(by_width), cache, effort=EFFORTS["full"], strategy="random")._search(TASK)
    assert type(search.strategy).__name__ == "InOrder"


def test_a_tie_keeps_the_default(cache: PerformanceCache) -> None:
    default = FAMILY.default(TASK.problem, tuner(AnsweringTarget(by_width), cache)._limits)
    target = AnsweringTarget(lambda c: ok(1000.0 if dict(c) == default else 995.0))
    outcome = tune(target, cache)
    assert outcome.configuration == default
    assert outcome.tuned_ns == outcome.default_ns == 1000.0


@pytest.mark.parametrize(("against", "wins"), [(0, True), (1, True), (3, False)])
def test_noise_does_not_replace_the_default(cache: PerformanceCache, against: int, wins: bool) -> None:
    """Faster in the median is not enough when too many passes speak against it."""
    default = FAMILY.default(TASK.problem, tuner(AnsweringTarget(by_width), cache)._limits)
    times = (900.0,) * (7 - against) + (1050.0,) * against
    noisy = replace(ok(), samples_ns=times, wall_ns=times)
    steady = replace(ok(), samples_ns=(1000.0,) * 7, wall_ns=(1000.0,) * 7)
    outcome = tune(AnsweringTarget(lambda c: steady if dict(c) == default else noisy), cache)
    assert (outcome.configuration != default) == wins


def test_who_led_by_chance_only_leaves_its_place_to_the_next(cache: PerformanceCache) -> None:
    """Those that led when they were measured first fall behind in the final, so that the next best meets the winner."""
    seen: dict[str, int] = {}
    lucky, steady = QUICK.finalists + 2, BATCH + QUICK.finalists + 2

    def answer(configuration: Mapping[str, int]) -> Trial:
        """By the order of coming: the default, a first batch as fast, more lucky ones than a final has, and others."""
        place = list(seen).index(key) if (key := configuration_key(configuration)) in seen else len(seen)
        seen[key] = seen.get(key, 0) + 1
        if BATCH <= place < BATCH + lucky:
            return ok(700.0 if seen[key] == 1 else 980.0)
        return ok(900.0 if place == steady else 1000.0)

    target = AnsweringTarget(answer)
    outcome = tune(target, cache)
    assert (configuration_key(outcome.configuration), outcome.tuned_ns) == (list(seen)[steady], 900.0)
    assert len(target.requests) == (QUICK.trials or 0) // BATCH + 2, "two finals were enough"


def test_a_concluded_task_asks_the_target_for_nothing(cache: PerformanceCache) -> None:
    first = tune(AnsweringTarget(by_width), cache)
    target = AnsweringTarget(by_width)
    second = tune(target, cache)
    assert second.hit
    assert not target.batches
    assert not target.uploads
    assert second.configuration == first.configuration


def test_the_default_is_raced_in_every_batch_but_the_first_and_limits_follow_the_best(cache: PerformanceCache) -> None:
    """In the first one it is a variant, and may not work."""
    target = AnsweringTarget(by_width)
    tune(target, cache)
    default = tuner(target, cache)._search(TASK).default
    first, *others = target.requests
    assert (first.baseline, first.best_ns) == (None, 0)
    best = 0.0
    for before, request in zip(target.requests, others, strict=False):
        assert request.baseline is not None and request.baseline.configuration == default
        times = [by_width(variant.configuration).samples_ns[0] for variant in before.variants]
        best = min([*times, best or times[0]])
        assert request.best_ns == pytest.approx(best)


def crashing(configuration: Mapping[str, int]) -> Trial:
    return failed("crash", "SIGSEGV") if configuration["MR"] == 8 else by_width(configuration)


def test_failures_are_stored_once_and_nobody_pays_for_them_again(cache: PerformanceCache) -> None:
    target = AnsweringTarget(crashing)
    outcome = tune(target, cache)
    crashed = [trial for trial in stored(cache) if trial.status == "crash"]
    assert len(crashed) == len({configuration_key(trial.configuration) for trial in crashed}) == outcome.trials["crash"]
    assert all(trial.configuration["MR"] == 8 for trial in crashed)
    again = AnsweringTarget(crashing)
    assert tune(again, cache).hit
    assert not again.requests


def test_a_failure_is_stored_before_its_batch_is_over(cache: PerformanceCache) -> None:
    """Whoever is killed while the rest is measured does not pay for the hang again."""

    class Interrupted(AnsweringTarget):
        def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
            on_progress(Progress("building", 0, len(request.variants), ""))
            on_progress(gave_up(1, "timeout"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(Interrupted(by_width), cache)
    assert [trial.status for trial in stored(cache)] == ["timeout"]
    target = AnsweringTarget(by_width)
    outcome = tune(target, cache)
    assert (outcome.resumed, outcome.trials["timeout"]) == (1, 1)
    assert configuration_key(stored(cache)[0].configuration) not in target.measured


def test_a_variant_that_makes_the_target_go_away_costs_itself_only(cache: PerformanceCache) -> None:
    def answer(configuration: Mapping[str, int]) -> Trial:
        if configuration["MR"] == 8:
            raise TargetError("lost_again", "the phone restarted")
        return by_width(configuration)

    target = AnsweringTarget(answer)
    outcome = tune(target, cache)
    for trial in stored(cache):
        crashes = trial.configuration["MR"] == 8
        assert (trial.status == "crash") == crashes
        assert not crashes or "the phone restarted" in trial.message
    assert outcome.trials["crash"] >= 1
    assert sum(outcome.trials.values()) == QUICK.trials


def test_what_had_failed_before_the_target_went_away_is_not_measured_one_by_one(cache: PerformanceCache) -> None:
    class Lost(AnsweringTarget):
        def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
            if not self.requests:
                self.requests.append(request)
                on_progress(gave_up(1, "timeout"))
                raise TargetError("lost_again", "gone")
            return super().measure_kernel(request, on_progress)

    target = Lost(by_width)
    outcome = tune(target, cache)
    first, *others = target.batches
    assert others[: len(first) - 1] == [[key] for key in first if key != first[1]]
    assert outcome.trials == {"ok": 23, "timeout": 1}


def test_a_trial_that_cannot_be_true_is_the_targets_error(cache: PerformanceCache) -> None:
    with pytest.raises(TargetError, match="samples_ns is 0"):
        tune(AnsweringTarget(lambda c: ok(0.0)), cache)


def test_failures_are_measured_again_when_asked_for(cache: PerformanceCache) -> None:
    before = tune(AnsweringTarget(crashing), cache)
    crashed = {configuration_key(trial.configuration) for trial in stored(cache) if trial.status == "crash"}
    other = AnsweringTarget(by_width)
    assert tune(other, cache, retry_failures=("timeout",)).hit, "nothing failed with that"

    target = AnsweringTarget(by_width)
    outcome = tune(target, cache, retry_failures=("timeout", "crash"))
    assert not outcome.hit
    finalists = target.batches[-1]
    assert {key for batch in target.batches[:-1] for key in batch} == crashed
    assert outcome.trials == {"ok": QUICK.trials}
    assert outcome.resumed == before.trials["ok"]
    assert finalists[0] == configuration_key(tuner(target, cache)._search(TASK).default)
    assert tune(AnsweringTarget(by_width), cache, retry_failures=("crash",)).hit, "they work now"


def test_the_progress_ends_where_it_should(cache: PerformanceCache) -> None:
    """Also where more failures are measured again than the effort has trials."""
    tune(AnsweringTarget(lambda c: failed("compile") if c["MR"] > 1 else ok()), cache, effort=EFFORTS["normal"])
    progress = Counting()
    tuning = tuner(AnsweringTarget(by_width), cache, progress=progress, retry_failures=("compile",))
    progress.left = tuning.expected_trials([TASK])
    assert tuning.tune([TASK])[0].measured > tuning._search(TASK).base + QUICK.finalists + 1
    assert progress.left == 0


def test_what_holds_the_target_up_is_said(
    cache: PerformanceCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0

    class Held(AnsweringTarget):
        def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
            nonlocal now
            for seconds in (0.0, 4.0, 6.0, 11.0):
                now = 100 * len(self.requests) + seconds
                on_progress(Progress("queued", 0, 2, "2 requests are served before this one"))
            if not self.requests:
                on_progress(Progress("recovering", 0, 8, "SIGKILL while building; the batch is tried again"))
            measured = super().measure_kernel(request, on_progress)
            now = 100 * len(self.requests)
            return measured

    monkeypatch.setattr("gputune.client.tuning.measuring.runner.time.monotonic", lambda: now)
    with caplog.at_level(logging.INFO, "gputune"):
        tune(Held(by_width), cache)
    waits, recovers = caplog.messages
    assert waits.endswith("queued: 2 requests are served before this one; other clients use the target")
    assert recovers.endswith("recovering: SIGKILL while building; the batch is tried again")


def test_an_upload_that_is_lost_is_no_variants_crash(cache: PerformanceCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(data: object) -> int:
        raise TargetError("lost_again", "gone")

    target = AnsweringTarget(by_width)
    monkeypatch.setattr(target, "upload", lost)
    with pytest.raises(TargetError, match="gone"):
        tune(target, cache)
    assert stored(cache) == []


def test_a_retry_with_less_effort_does_not_forget_what_was_spent(cache: PerformanceCache) -> None:
    tune(AnsweringTarget(crashing), cache, effort=EFFORTS["normal"])
    tune(AnsweringTarget(crashing), cache, retry_failures=("crash",))
    again = AnsweringTarget(crashing)
    assert tune(again, cache, effort=EFFORTS["normal"]).hit


def test_other_errors_of_the_target_end_the_tuning(cache: PerformanceCache) -> None:
    def answer(configuration: Mapping[str, int]) -> Trial:
        raise TargetError("connection_lost", "gone")

    with pytest.raises(TargetError, match="gone"):
        tune(AnsweringTarget(answer), cache)


def test_when_everything_failed_the_next_run_tries_again(cache: PerformanceCache) -> None:
    """Another program may have filled the device's memory for a minute."""
    with pytest.raises(TuningError, match="device_limits: it ended with device_limits"):
        tune(AnsweringTarget(lambda c: failed("device_limits")), cache)
    target = AnsweringTarget(by_width)
    outcome = tune(target, cache)
    assert outcome.trials["ok"] >= 1
    assert configuration_key(tuner(target, cache)._search(TASK).default) == target.measured[0]


def test_what_takes_a_worker_down_is_not_tried_again_unasked(cache: PerformanceCache) -> None:
    with pytest.raises(TuningError, match="--retry_failures"):
        tune(AnsweringTarget(lambda c: failed("timeout")), cache)
    target = AnsweringTarget(by_width)
    with pytest.raises(TuningError, match="no configuration works"):
        tune(target, cache)
    assert not target.requests
    assert tune(target, cache, retry_failures=("timeout",)).trials == {"ok": QUICK.trials}


def test_a_trial_of_code_that_has_changed_is_measured_again(
    cache: PerformanceCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only configurations other than the default render to something new."""
    first = tune(AnsweringTarget(by_width), cache)
    limits = tuner(AnsweringTarget(by_width), cache)._limits
    default, render = FAMILY.default(TASK.problem, limits), type(FAMILY).render

    def changed(self: Any, problem: Any, configuration: Mapping[str, int]) -> Any:
        instance = render(self, problem, configuration)
        if dict(configuration) == default:
            return instance
        return replace(instance, main=replace(instance.main, options=instance.main.options + " -DCHANGED=1"))

    monkeypatch.setattr(type(FAMILY), "render", changed)
    target = AnsweringTarget(by_width)
    second = tune(target, cache)
    assert not second.hit
    assert second.resumed == 1, "the default's trial still holds"
    assert configuration_key(first.configuration) in target.measured


def test_settings_of_the_target_keep_measurements_apart(cache: PerformanceCache) -> None:
    tune(AnsweringTarget(by_width), cache)
    other = AnsweringTarget(by_width)
    other.server = {"settings": {"POCL_AFFINITY": "0"}}
    assert not tune(other, cache).hit


def test_more_effort_is_a_hit_where_nothing_is_left_to_measure(cache: PerformanceCache) -> None:
    everything = replace(QUICK, trials=None, light_trials=None, share=1.0)
    task = Task("Softmax", SoftmaxProblem(1, 4, 1), 1)
    tune(AnsweringTarget(lambda c: ok(100.0)), cache, task, effort=everything)
    again = AnsweringTarget(lambda c: ok(100.0))
    assert tune(again, cache, task, effort=EFFORTS["full"]).hit
    assert not again.requests


def test_more_effort_goes_on_where_less_effort_stopped(cache: PerformanceCache) -> None:
    tune(AnsweringTarget(by_width), cache)
    target = AnsweringTarget(by_width)
    outcome = tune(target, cache, effort=EFFORTS["normal"])
    assert not outcome.hit
    assert outcome.resumed == QUICK.trials
    assert tune(AnsweringTarget(by_width), cache).hit, "less effort is satisfied by more"


def test_a_space_smaller_than_the_budget_is_measured_once(cache: PerformanceCache) -> None:
    task = Task("Softmax", SoftmaxProblem(1, 4, 1), 1)
    target = AnsweringTarget(lambda c: ok(100.0))
    outcome = tune(target, cache, task, effort=EFFORTS["full"])
    assert sum(outcome.trials.values()) == outcome.space_size


def test_inputs_suit_the_functions_of_a_chain(cache: PerformanceCache, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task("MatMul", MatMulProblem(4, 8, 4, epilogue=Chain((Step("sqrt"),))), 1)
    seen: list[Any] = []
    target = AnsweringTarget(by_width)
    target.uploads = 100
    monkeypatch.setattr(target, "upload", lambda data: seen.append(data) or len(seen))  # type: ignore[func-returns-value]
    tune(target, cache, task)
    reference = seen[-1]
    assert (reference == reference).all(), "a reference with NaN would reject every variant"


@pytest.mark.parametrize(("batches", "requests"), [(1, 1), (2, 3)])
def test_finalists_of_one_batch_were_compared_in_it(cache: PerformanceCache, batches: int, requests: int) -> None:
    """Those of several batches are measured once more, side by side."""
    target = AnsweringTarget(by_width)
    outcome = tune(target, cache, effort=replace(QUICK, trials=batches * BATCH, worth=1e-9))
    assert len(target.requests) == requests
    assert outcome.tuned_ns == min(statistics.median(by_width(json.loads(key)).samples_ns) for key in target.measured)


class TestFinalists:
    """Times by MR alone; the default's is 1000."""

    def target(self, cache: PerformanceCache, times: Mapping[int, float]) -> tuple[AnsweringTarget, Configuration]:
        default = FAMILY.default(TASK.problem, tuner(AnsweringTarget(by_width), cache)._limits)
        return AnsweringTarget(lambda c: ok(1000.0 if dict(c) == default else times.get(c["MR"], 5000.0))), default

    def test_the_winner_and_who_comes_close_best_first(self, cache: PerformanceCache) -> None:
        target, default = self.target(cache, {1: 900.0, 2: 800.0, 4: 810.0, 8: 930.0})
        first = tuner(target, cache)
        (outcome,) = first.tune([TASK])
        for again in (first, tuner(target, cache)):  # a warm cache knows as much
            found = again.finalists(TASK, 100)
            assert found[0].configuration == outcome.configuration
            *times, last = (winner.median_ns for winner in found)
            assert times == sorted(times)
            assert set(times) <= {800.0, 810.0, 900.0}, "nothing that is 15 % behind"
            assert len(times) > 2
            assert (last, found[-1].configuration) == (1000.0, default), "the default may be faster inside the model"
            assert all(again.still_holds(TASK, winner) for winner in found)
            assert len({configuration_key(winner.configuration) for winner in found}) == len(found)
            few = [winner.configuration for winner in again.finalists(TASK, 2)]
            assert few == [winner.configuration for winner in (*found[:2], found[-1])]

    def test_nobody_is_slower_than_the_default(self, cache: PerformanceCache) -> None:
        target, _ = self.target(cache, {2: 980.0, 4: 1005.0})
        first = tuner(target, cache)
        first.tune([TASK])
        assert {winner.median_ns for winner in first.finalists(TASK, 100)} <= {980.0, 1000.0}

    def test_equal_machine_code_is_there_once(self, cache: PerformanceCache) -> None:
        """All that have the same MR are the same code, of which the first was timed."""

        class Twins(AnsweringTarget):
            def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
                measured = super().measure_kernel(request, on_progress)
                trials = list(measured.trials)
                place_of: dict[int, int] = {}
                for place, variant in enumerate(request.variants):
                    twin = place_of.setdefault(variant.configuration["MR"], place)
                    if twin != place:
                        trials[place] = replace(trials[place], measured={"same_as": twin})
                return replace(measured, trials=tuple(trials))

        target = Twins(lambda c: ok(1000.0 + c["MR"]))
        first = tuner(target, cache)
        first.tune([TASK])
        found = first.finalists(TASK, 100)
        search = first._search(TASK)
        alike = [search.record(winner.configuration).measured.get("same_as") for winner in found[1:]]
        assert not set(alike) & {configuration_key(winner.configuration) for winner in found}

    def test_a_pin_leaves_no_choice(self, cache: PerformanceCache) -> None:
        target, default = self.target(cache, {2: 800.0, 4: 810.0})
        tune(target, cache)
        assert not tuner(target, cache, pins={"MatMul": default}).finalists(TASK, 3)
        assert not tuner(target, cache, only=("Conv",)).finalists(TASK, 3)


def test_an_optional_task_of_which_nothing_works_keeps_its_default(
    cache: PerformanceCache, caplog: pytest.LogCaptureFixture
) -> None:
    other = Task("MatMul", replace(TASK.problem, m=65), 1)
    target = AnsweringTarget(lambda c: failed("runtime"))
    with pytest.raises(TuningError, match="no configuration works"):
        tuner(target, cache).tune([other])
    (outcome,) = tuner(target, cache).tune([other], optional=[other])
    assert outcome.tuned_ns is None
    assert any("its operations are not fused" in line for line in caplog.messages)


def test_a_frozen_cache_does_not_measure_a_pin(cache: PerformanceCache) -> None:
    """Not even one of a task that need not be known."""
    target = AnsweringTarget(by_width)
    pins = {TASK.op: tuner(target, cache)._search(TASK).default}
    asked = tuner(target, cache, cache_mode="frozen", pins=pins)
    with pytest.raises(CacheMiss, match=r"does not hold 1 task: MatMul .*: pinned, and not known to work"):
        asked.tune([TASK], optional=[TASK])
    assert not target.requests
    tune(target, cache, pins=pins)
    measured = len(target.requests)
    assert tune(target, cache, cache_mode="frozen", pins=pins).hit
    assert len(target.requests) == measured


def test_a_pin_that_is_known_to_fail_is_said_before_anything_is_measured(cache: PerformanceCache) -> None:
    target = AnsweringTarget(lambda c: failed("runtime") if c["MR"] > 1 else ok(100.0))
    space = tuner(target, cache)._search(TASK).space
    pins = {TASK.op: next(c for c in space.configurations() if c["MR"] > 1)}
    with pytest.raises(TuningError, match="the pinned configuration does not work: runtime"):
        tune(target, cache, pins=pins)
    measured = len(target.requests)
    with pytest.raises(TuningError, match="the pinned configuration does not work: runtime"):
        tuner(target, cache, pins=pins).verdicts([TASK])
    with pytest.raises(TuningError, match="the pinned configuration does not work: runtime"):
        tune(target, cache, pins=pins)
    assert len(target.requests) == measured


@pytest.mark.parametrize("nanoseconds", [223.67379933506632, 186.83436709075676, 195.4019553105434])
def test_a_default_that_wins_takes_as_long_as_itself(cache: PerformanceCache, nanoseconds: float) -> None:
    """To the last digit, whatever it is divided by on the way."""
    outcome = tune(AnsweringTarget(lambda c: ok(nanoseconds)), cache)
    assert outcome.default_ns == outcome.tuned_ns == nanoseconds
