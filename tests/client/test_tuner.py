"""The tuner against a target that answers as the test decides: what is stored, resumed, split and kept."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import PerformanceCache
from gputune.client.effort import EFFORTS
from gputune.client.errors import TuningError
from gputune.client.plan import Task
from gputune.client.target_client import TargetError
from gputune.client.task_search import BATCH
from gputune.client.tuner import Tuner
from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.matmul import FAMILY, MatMulProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.space import configuration_key
from gputune.runtime.devices import NULL_REPORT
from gputune.server.protocol.messages import Profiled, ProfileKernel, Trial

TASK = Task("MatMul", MatMulProblem(64, 32, 48, bias=True), 1)
QUICK = EFFORTS["quick"]


def ok(nanoseconds: float) -> Trial:
    return Trial("ok", "", (nanoseconds,) * 3, (nanoseconds,) * 3, 5, 5, {"timing": "event"})


def failed(status: Any) -> Trial:
    return Trial(status, f"it ended with {status}", (), (), 0, 0, {})


class FakeTarget:
    """Answers each variant by a function of its configuration; an exception is raised for the whole request."""

    def __init__(self, answer: Callable[[Mapping[str, int]], Trial]) -> None:
        assert NULL_REPORT.identity is not None
        self.device = NULL_REPORT.identity.to_dict()
        self.server: dict[str, object] = {}
        self.answer = answer
        self.batches: list[list[str]] = []
        self.uploads = 0

    def upload(self, data: object) -> int:
        self.uploads += 1
        return self.uploads

    def free(self, *buffers: int) -> None:
        assert all(0 < buffer <= self.uploads for buffer in buffers)

    def profile_kernel(self, request: ProfileKernel) -> Profiled:
        self.batches.append([configuration_key(variant.configuration) for variant in request.variants])
        trials = tuple(self.answer(variant.configuration) for variant in request.variants)
        costs = [sum(trial.samples_ns) if trial.status == "ok" else float("inf") for trial in trials]
        best = min(range(len(costs)), key=costs.__getitem__)
        return Profiled(trials, best if trials[best].status == "ok" else None, b"the binary of " + str(best).encode())

    @property
    def measured(self) -> list[str]:
        return [key for batch in self.batches for key in batch]


def tuner(target: FakeTarget, cache: PerformanceCache) -> Tuner:
    return Tuner(target, cache, QUICK)  # type: ignore[arg-type]


@pytest.fixture
def cache(tmp_path: Path) -> Any:
    with PerformanceCache.open(tmp_path / "cache.sqlite") as opened:
        yield opened


def by_width(configuration: Mapping[str, int]) -> Trial:
    return ok(1000.0 / configuration["VW"] + configuration["MR"])


def test_the_default_is_measured_first_and_the_fastest_wins(cache: PerformanceCache) -> None:
    target = FakeTarget(by_width)
    outcome = tuner(target, cache).tune(TASK)
    search = tuner(target, cache)._search(TASK)
    assert target.batches[0][0] == configuration_key(search.default)
    assert all(len(batch) <= BATCH for batch in target.batches)
    best = min(sum(by_width(dict(c)).samples_ns) / 3 for c in map(eval, target.measured))
    assert outcome.tuned_ns == pytest.approx(best)
    assert sum(outcome.trials.values()) == QUICK.trials == len(set(target.measured))


def test_a_tie_keeps_the_default(cache: PerformanceCache) -> None:
    default = FAMILY.default(TASK.problem, tuner(FakeTarget(by_width), cache)._limits)
    target = FakeTarget(lambda c: ok(1000.0 if dict(c) == default else 995.0))
    outcome = tuner(target, cache).tune(TASK)
    assert outcome.configuration == default
    assert outcome.tuned_ns == outcome.default_ns == 1000.0
    assert outcome.binary == b"", "the binary of the batch belongs to another configuration"


def test_a_concluded_task_asks_the_target_for_nothing(cache: PerformanceCache) -> None:
    first = tuner(FakeTarget(by_width), cache).tune(TASK)
    target = FakeTarget(by_width)
    second = tuner(target, cache).tune(TASK)
    assert second.hit
    assert not target.batches
    assert not target.uploads
    assert (second.configuration, second.binary) == (first.configuration, first.binary)


def test_a_variant_that_takes_the_worker_down_costs_itself_only(cache: PerformanceCache) -> None:
    def answer(configuration: Mapping[str, int]) -> Trial:
        if configuration["MR"] == 8:
            raise TargetError("worker_died", "the worker died with SIGSEGV")
        if configuration["MR"] == 4 and configuration["VW"] == 4:
            raise TargetError("worker_timeout", "no answer for 600 s")
        return by_width(configuration)

    target = FakeTarget(answer)
    outcome = tuner(target, cache).tune(TASK)
    search = tuner(target, cache)._search(TASK)
    for trial in cache.trials_of(search.key, search.validity):
        crashes = trial.configuration["MR"] == 8
        assert (trial.status == "crash") == crashes
        assert not crashes or "SIGSEGV" in trial.message
    assert outcome.trials["crash"] >= 1
    assert sum(outcome.trials.values()) == QUICK.trials

    again = FakeTarget(answer)
    assert tuner(again, cache).tune(TASK).hit, "nobody pays for the crash a second time"
    assert not again.batches


def test_buffers_that_vanished_are_uploaded_again(cache: PerformanceCache) -> None:
    gone = [TargetError("unknown_buffer", "the worker was started again")]

    def answer(configuration: Mapping[str, int]) -> Trial:
        if gone:
            raise gone.pop()
        return by_width(configuration)

    target = FakeTarget(answer)
    assert "crash" not in tuner(target, cache).tune(TASK).trials
    assert target.uploads == 8, "three inputs and the reference, twice"


def test_other_errors_of_the_target_end_the_tuning(cache: PerformanceCache) -> None:
    def answer(configuration: Mapping[str, int]) -> Trial:
        raise TargetError("connection_lost", "gone")

    with pytest.raises(TargetError, match="gone"):
        tuner(FakeTarget(answer), cache).tune(TASK)


def test_when_everything_failed_the_next_run_tries_again(cache: PerformanceCache) -> None:
    """Another program may have filled the device's memory for a minute."""
    with pytest.raises(TuningError, match="device_limits: it ended with device_limits"):
        tuner(FakeTarget(lambda c: failed("device_limits")), cache).tune(TASK)
    target = FakeTarget(by_width)
    outcome = tuner(target, cache).tune(TASK)
    assert outcome.trials["ok"] >= 1
    assert configuration_key(tuner(target, cache)._search(TASK).default) == target.measured[0]


def test_a_trial_of_code_that_has_changed_is_measured_again(
    cache: PerformanceCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only configurations other than the default render to something new."""
    first = tuner(FakeTarget(by_width), cache).tune(TASK)
    limits = tuner(FakeTarget(by_width), cache)._limits
    default, render = FAMILY.default(TASK.problem, limits), type(FAMILY).render

    def changed(self: Any, problem: Any, configuration: Mapping[str, int]) -> Any:
        instance = render(self, problem, configuration)
        if dict(configuration) == default:
            return instance
        return replace(instance, main=replace(instance.main, options=instance.main.options + " -DCHANGED=1"))

    monkeypatch.setattr(type(FAMILY), "render", changed)
    target = FakeTarget(by_width)
    second = tuner(target, cache).tune(TASK)
    assert not second.hit
    assert second.resumed == 1, "the default's trial still holds"
    assert configuration_key(first.configuration) in target.measured


def test_settings_of_the_target_keep_measurements_apart(cache: PerformanceCache) -> None:
    tuner(FakeTarget(by_width), cache).tune(TASK)
    other = FakeTarget(by_width)
    other.server = {"settings": {"POCL_AFFINITY": "0"}}
    assert not tuner(other, cache).tune(TASK).hit


def test_more_effort_goes_on_where_less_effort_stopped(cache: PerformanceCache) -> None:
    tuner(FakeTarget(by_width), cache).tune(TASK)
    target = FakeTarget(by_width)
    outcome = Tuner(target, cache, EFFORTS["normal"]).tune(TASK)  # type: ignore[arg-type]
    assert not outcome.hit
    assert outcome.resumed == QUICK.trials
    assert tuner(FakeTarget(by_width), cache).tune(TASK).hit, "less effort is satisfied by more"


def test_a_space_smaller_than_the_budget_is_measured_once(cache: PerformanceCache) -> None:
    task = Task("Softmax", SoftmaxProblem(1, 4, 1), 1)
    target = FakeTarget(lambda c: ok(100.0))
    outcome = Tuner(target, cache, EFFORTS["full"]).tune(task)  # type: ignore[arg-type]
    assert sum(outcome.trials.values()) == outcome.space_size


def test_inputs_suit_the_functions_of_a_chain(cache: PerformanceCache, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task("MatMul", MatMulProblem(4, 8, 4, epilogue=Chain((Step("sqrt"),))), 1)
    seen: list[Any] = []
    target = FakeTarget(by_width)
    target.uploads = 100
    monkeypatch.setattr(target, "upload", lambda data: seen.append(data) or len(seen))  # type: ignore[func-returns-value]
    tuner(target, cache).tune(task)
    reference = seen[-1]
    assert (reference == reference).all(), "a reference with NaN would reject every variant"
