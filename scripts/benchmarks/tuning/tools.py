"""Share code between the tools of `scripts/bench tune`: a task on a target, tuned, or timed from outside the tuner, and
ratios of times with their intervals."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

import tool
from gputune.cache import PerformanceCache
from gputune.client.model.plan import Task
from gputune.client.target.client import TargetClient
from gputune.client.tuning.outcome import Outcome
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.options import TuningOptions
from gputune.client.tuning.search.task_search import default_of, device_limits, task_key
from gputune.client.tuning.tuner import Tuner
from gputune.core.identity import DeviceIdentity
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits
from gputune.kernels.space import Configuration, configuration_key
from gputune.runtime.measuring.successive_halving import paired
from gputune.server.protocol.messages import Profiled, ProfileKernel

WORK = tool.ROOT / "build" / "tune"
CACHE_FILE = "tune.sqlite"
SAMPLE_NS = 1_000_000
WARM_UP_NS = 200_000_000
SAMPLES = 24
"""What a configuration gets at most in one request of a re-timing: all that successive halving gives."""
DRAWS = 2000
"""Bootstrap resamples behind an interval; more change its ends by less than they are shown with."""

Rounds = Sequence[Sequence[float]]
"""Samples in nanoseconds, request by request."""


@dataclass(frozen=True)
class Result:
    """What a tool has found: figures for JSON, a table for people, and what follows from it line by line."""

    figures: dict[str, Any]
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    conclusions: Sequence[str]


def device_of(options: argparse.Namespace) -> str | None:
    """The device that is asked for; trying a tool out needs none."""
    device: str | None = options.device
    return device or ("null" if options.quick else None)


class NotTimed(Exception):
    """What was to be timed does not work (any more)."""


def title_of(task: Task) -> str:
    """How the tuner's own messages call a task."""
    return f"{task.op} {task_key(task).digest[:10]}"


def limits_of(client: TargetClient) -> DeviceLimits:
    """The limits of the client's device."""
    return device_limits(DeviceIdentity.from_dict(client.device))


def tune(client: TargetClient, task: Task, effort: str, cache: Path, strategy: str = "auto") -> Outcome:
    """Tunes one task from an empty cache in the folder `cache`. Raises GputuneError, CacheError."""
    shutil.rmtree(cache, ignore_errors=True)
    with PerformanceCache.open(cache / CACHE_FILE) as store:
        options = TuningOptions(strategy=strategy)
        return Tuner([client], store, EFFORTS[effort], options=options).tune([task])[0]


def configurations_in(cache: Path) -> set[str]:
    """The keys of all configurations that `tune` has measured into this folder."""
    with PerformanceCache.open_readonly(cache / CACHE_FILE) as store:
        trials = [trial for one in store.tasks() for trial in store.trials_of(one.task, one.validity)]
    return {configuration_key(trial.configuration) for trial in trials}


class TaskOnTarget:
    """One task on a target: its inputs, the same in every run, and their reference lie there, and here."""

    def __init__(self, client: TargetClient, task: Task) -> None:
        self._client = client
        self.task = task
        self.family = family_of(task.op)
        self.default = default_of(task, limits_of(client))
        self.inputs = self.family.sample_inputs(task.problem, np.random.default_rng(1))
        self.reference = self.family.reference(task.problem, self.inputs).astype(np.float32)
        self.buffers = {name: client.upload(values) for name, values in self.inputs.items()}
        self._reference = client.upload(self.reference)

    def __enter__(self) -> TaskOnTarget:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:  # after an error the target may be gone
            self._client.free(*self.buffers.values(), self._reference)

    def measure(
        self,
        configurations: Sequence[Configuration],
        samples: int,
        baseline: Configuration | None = None,
        best_ns: float = 0.0,
    ) -> Profiled:
        """One request for at most limits.variants configurations; best_ns is the least time known before, 0 for none.
        Raises TargetError."""
        problem = self.task.problem
        work, tolerance = self.family.work(problem), self.family.tolerance(problem)

        def variant(configuration: Configuration, number: int) -> Any:
            return self.family.render(problem, configuration).variant(configuration, number)

        request = ProfileKernel(
            task=title_of(self.task),
            buffers=self.buffers,
            output_bytes=self.family.output(problem).nbytes,
            reference=self._reference,
            relative=tolerance.relative,
            absolute=tolerance.absolute,
            dtype="float32",
            variants=tuple(map(variant, configurations, range(len(configurations)))),
            baseline=None if baseline is None else variant(baseline, len(configurations)),
            best_ns=best_ns,
            work=work,
            samples=samples,
            sample_ns=SAMPLE_NS,
            warm_up_ns=WARM_UP_NS,
            cold=False,
            together=True,
            harvest=False,
        )
        return self._client.measure_kernel(request)

    def retime(
        self, configurations: Sequence[Configuration], rounds: int, samples: int = SAMPLES
    ) -> list[list[tuple[float, ...]]]:
        """The samples of each configuration in each of so many requests, in which all of them are measured side by
        side. Those far behind get few; the first one gets all, and they take turns to be it. Raises NotTimed,
        TargetError.
        """
        distinct = {configuration_key(one): one for one in configurations}
        found: dict[str, list[tuple[float, ...]]] = {key: [] for key in distinct}
        for number in range(rounds):
            first = number % len(distinct)
            order = [*list(distinct)[first:], *list(distinct)[:first]]
            measured = self.measure([distinct[key] for key in order], samples)
            for key, trial in zip(order, measured.trials, strict=True):
                if trial.status != "ok":
                    raise NotTimed(f"{title_of(self.task)} {key}: {trial.status}: {trial.message}")
                found[key].append(trial.samples_ns)
        return [found[configuration_key(one)] for one in configurations]


def median_of(rounds: Rounds) -> float:
    """The median of the rounds' medians, in nanoseconds."""
    return statistics.median(statistics.median(samples) for samples in rounds)


@dataclass(frozen=True)
class Ratio:
    """One time by another, and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def doubt(self) -> float:
        """Half the interval, as a share of the ratio."""
        return (self.high - self.low) / (2 * self.value)

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f}-{self.high:.3f})"


def ratio(mine: Rounds, other: Rounds) -> Ratio:
    """The median over rounds of median(mine) / median(other), and its bootstrap interval: rounds are drawn, and samples
    within them. Both were taken side by side in each round."""
    numbers = np.random.default_rng(1)

    def medians(samples: Sequence[float]) -> npt.NDArray[Any]:
        return np.asarray(np.median(numbers.choice(samples, (DRAWS, len(samples))), axis=1))

    drawn = np.array([medians(a) / medians(b) for a, b in zip(mine, other, strict=True)])
    values = [statistics.median(a) / statistics.median(b) for a, b in zip(mine, other, strict=True)]
    return Ratio(statistics.median(values), *_bounds(drawn, numbers))


def paired_ratio(mine: Rounds, other: Rounds) -> Ratio:
    """Like ratio, of samples that were taken in the same passes: neighbours are held against each other, so that
    what slows down both for a moment does not count."""
    numbers = np.random.default_rng(1)
    pairs = [paired(a, b) for a, b in zip(mine, other, strict=True)]
    drawn = np.array([np.median(numbers.choice(one, (DRAWS, len(one))), axis=1) for one in pairs])
    return Ratio(statistics.median(map(statistics.median, pairs)), *_bounds(drawn, numbers))


def _bounds(drawn: npt.NDArray[Any], numbers: np.random.Generator) -> tuple[float, float]:
    """Of the median over rounds, from draws by round: rounds are drawn, too."""
    rounds = numbers.integers(len(drawn), size=drawn.shape)
    low, high = np.quantile(np.median(np.take_along_axis(drawn, rounds, axis=0), axis=0), [0.025, 0.975])
    return float(low), float(high)


def share(numbers: Sequence[bool]) -> str:
    """How many of them are true: "9 of 10, 90 %"."""
    return f"{sum(numbers)} of {len(numbers)}, {100 * sum(numbers) / max(len(numbers), 1):.0f} %"


@contextmanager
def appending(path: Path) -> Iterator[tuple[list[Any], Any]]:
    """What a file of JSON lines holds already, and a function that adds a line which outlives the program. The end of
    a line that was cut off is dropped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    with path.open("wb") as file:
        file.write(whole + b"\n" if whole else b"")

        def add(line: Any) -> None:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()

        yield [json.loads(line) for line in whole.splitlines()], add
