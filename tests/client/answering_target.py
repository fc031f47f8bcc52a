"""Provide a target that answers each variant as a test decides, and a tuner on it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gputune.cache import PerformanceCache, TrialRecord
from gputune.client.model.plan import Task
from gputune.client.options.tuning import TuningOptions
from gputune.client.progress import SILENT, Silent
from gputune.client.progress import Progress as Steps
from gputune.client.tuning.measuring.quiet import LoadRecord
from gputune.client.tuning.outcome import Outcome
from gputune.client.tuning.search.effort import EFFORTS, Effort
from gputune.client.tuning.tuner import Tuner
from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Trial
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.space import configuration_key
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.server.protocol.messages import Progress

from .fake_target import gave_up, ok

TASK = Task("MatMul", MatMulProblem(16, 16, 16, bias=True), 1)
QUICK = replace(EFFORTS["quick"], trials=24, worth=0.002)
"""Three batches for each task, whatever the real one has."""


class AnsweringTarget:
    """Answers each variant by a function of its configuration; an exception is raised for the whole request."""

    def __init__(self, answer: Callable[[Mapping[str, int]], Trial]) -> None:
        assert NULL_REPORT.identity is not None
        self.device = NULL_REPORT.identity.to_dict()
        self.server: dict[str, object] = {}
        self.answer = answer
        self.requests: list[ProfileKernel] = []
        self.uploads = 0

    @contextmanager
    def giving_up(self, over: Callable[[], bool]) -> Iterator[None]:
        """Answers all the same."""
        yield

    def upload(self, data: object) -> int:
        self.uploads += 1
        return self.uploads

    def free(self, *buffers: int) -> None:
        assert all(0 < buffer <= self.uploads for buffer in buffers)

    def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
        self.requests.append(request)
        trials = tuple(self.answer(variant.configuration) for variant in request.variants)
        for place, trial in enumerate(trials):
            if trial.status != "ok":
                on_progress(gave_up(place, trial.status))
        costs = [sum(trial.samples_ns) if trial.status == "ok" else float("inf") for trial in trials]
        best = min(range(len(costs)), key=costs.__getitem__)
        baseline = None
        if request.baseline is not None:
            baseline = self.answer(request.baseline.configuration)
        binary = configuration_key(request.variants[best].configuration).encode()
        return Profiled(trials, best if trials[best].status == "ok" else None, binary, baseline, {}, {})

    @property
    def batches(self) -> list[list[str]]:
        return [[configuration_key(variant.configuration) for variant in r.variants] for r in self.requests]

    @property
    def measured(self) -> list[str]:
        return [key for batch in self.batches for key in batch]


def tuner(
    target: AnsweringTarget,
    cache: PerformanceCache,
    effort: Effort = QUICK,
    progress: Steps = SILENT,
    load: LoadRecord | None = None,
    **options: Any,
) -> Tuner:
    chosen = TuningOptions(**{"strategy": "random", **options})
    return Tuner([target], cache, effort, progress, chosen, load=load)  # type: ignore[list-item]


def tune(target: AnsweringTarget, cache: PerformanceCache, task: Task = TASK, **how: Any) -> Outcome:
    (outcome,) = tuner(target, cache, **how).tune([task])
    return outcome


def stored(cache: PerformanceCache) -> list[TrialRecord]:
    search = tuner(AnsweringTarget(by_width), cache)._search(TASK)
    return cache.trials_of(search.key, search.validity)


def by_width(configuration: Mapping[str, int]) -> Trial:
    return ok(1000.0 / configuration["VW"] + configuration["MR"])


class Counting(Silent):
    """A progress that counts how many steps are left."""

    def __init__(self) -> None:
        self.left = 0

    def advance(self, steps: int, what: str) -> None:
        self.left -= steps

    def shrink(self, steps: int) -> None:
        self.left -= steps
