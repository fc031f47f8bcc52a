"""Contexts of one model side by side on a target: built, loaded, and run in turns, so that drift meets all alike.

The time of a turn is the lower quartile of its inferences. Beside other programs an inference takes what it takes, or
whole time slices of the scheduler more; the median of a turn is then one or the other by chance, a low quantile is not.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gputune.client.context import builder
from gputune.client.errors import TargetError, TuningError
from gputune.client.model.plan import Plan
from gputune.client.progress import SILENT, Progress
from gputune.client.target.client import TargetClient
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.tuning.outcome import Outcome
from gputune.core.errors import MalformedLog
from gputune.runtime.profiling.log import read_log_of
from gputune.runtime.profiling.records import LoggedInference

ROUNDS = 12
"""Turns of each context when its tasks are timed."""
LEAST_ROUNDS = 6
"""A budget that is used up ends a comparison after no fewer rounds: so many give an interval its 95 %."""
TURN_NS = 40e6
MOST_INFERENCES = 24
"""Inferences of a turn, one more goes before them: as many as TURN_NS has room for, at least two."""
FAR = 0.01
"""Outputs of two contexts of a model that are further apart, by their largest value, are not of the same model."""

Array = npt.NDArray[Any]
Outcomes = Mapping[str, Outcome]
"""By task digest."""


class OutOfTime(TuningError):
    """The budget is used up before contexts could be compared."""


class ContextRunner:
    """The contexts on the target; leaving a with statement frees them. Methods raise GputuneError, ContextError and
    OSError.

    Samples are lists of as many times as there are rounds, one for each turn, in nanoseconds.
    """

    def __init__(
        self,
        target: TargetClient,
        maker: builder.Maker,
        write: Callable[[builder.Built, Path], object],
        progress: Progress = SILENT,
        deadline: float | None = None,
    ) -> None:
        """maker: compiles and packs for the target, and keeps what it has compiled; write: makes the file of a graph;
        deadline: when there is no more time, by time.monotonic."""
        self._target = target
        self._maker = maker
        self._write = write
        self._progress = progress
        self._deadline = deadline
        self._folder: tempfile.TemporaryDirectory[str]  # from when the with statement begins
        self._loaded: list[RemoteExecutor] = []
        self._files = 0
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array] = {}
        self._inferences = 0

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="gputune-chain-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(TargetError):  # of a lost connection; the next request meets it
            self.free(*self._loaded)
        self._folder.cleanup()

    def load(self, plan: Plan, outcomes: Outcomes, persistent: bool = False, *, needed: bool = False) -> RemoteExecutor:
        """A context of a plan on the target, run twice; persistent: by persistent kernels. Raises TuningError when its
        outputs are not those of the first one; OutOfTime when there is no time left, unless it is `needed`."""
        if self.late and not needed:
            raise OutOfTime("--tuning_budget is used up")
        built = builder.build(plan, outcomes, self._maker, persistent)
        self._files += 1
        path = Path(self._folder.name) / f"{self._files}.bin"
        self._write(built, path)
        executor = RemoteExecutor(self._target, path, None, strict=True)
        path.unlink()  # it stays mapped
        self._loaded.append(executor)
        self._run_once(executor)
        return executor

    def free(self, *contexts: RemoteExecutor) -> None:
        """Frees contexts on the target."""
        for context in contexts:
            context.close()
        self._loaded = [one for one in self._loaded if one not in contexts]

    def inference_ns(self, contexts: Sequence[RemoteExecutor], rounds: int = ROUNDS) -> list[list[float]]:
        """Each context's whole inferences, as an application would run them; fewer rounds where a budget ends them."""

        def turn(context: RemoteExecutor) -> float:
            return _quartile([context.run_timed(self._inputs)[1] for _ in range(1 + self._inferences)][1:])

        return self._in_turns("comparing contexts", contexts, turn, rounds)

    def task_ns(self, contexts: Sequence[RemoteExecutor]) -> list[dict[str, list[float]]]:
        """By task digest, what all its operations take together in an inference, by the device's clock."""
        rounds = self._in_turns("timing kernels in contexts", contexts, self._task_times, ROUNDS)
        return [{task: [times[task] for times in own] for task in own[0]} for own in rounds]

    def _task_times(self, context: RemoteExecutor) -> dict[str, float]:
        profiled = _inferences(context.profile(self._inputs, 1 + self._inferences), self._target.address)[1:]
        places: dict[str, list[int]] = {}
        for place, launch in enumerate(context.graph.launches):
            places.setdefault(launch.operation, []).append(place)
        took_ns = [each.took_ns() for each in profiled]
        if any(len(row) != len(context.graph.launches) for row in took_ns):
            raise TargetError("bad_message", f"target {self._target.address} sent times of other launches")
        times = dict.fromkeys((launch.task for launch in context.graph.launches), 0.0)
        for own in places.values():
            times[context.graph.launches[own[0]].task] += _quartile([float(row[own].sum()) for row in took_ns])
        return times

    def _in_turns(
        self, label: str, contexts: Sequence[RemoteExecutor], turn: Callable[[RemoteExecutor], Any], rounds: int
    ) -> list[list[Any]]:
        """What the turns of each context gave, there and back again; label: of the progress."""
        results: list[list[Any]] = [[] for _ in contexts]
        with self._progress.running(label, rounds * len(contexts)):
            for number in range(rounds):
                if self.late and number >= LEAST_ROUNDS:
                    break
                places = range(len(contexts))
                for place in places if number % 2 == 0 else reversed(places):
                    results[place].append(turn(contexts[place]))
                    self._progress.advance(1, f"round {number + 1}")
        return results

    def _run_once(self, executor: RemoteExecutor) -> None:
        if not self._inputs:
            generator = np.random.default_rng(0)
            self._inputs = {
                tensor.name: generator.standard_normal(tensor.shape).astype(tensor.dtype)
                for tensor in executor.graph.inputs
            }
        executor.run_timed(self._inputs)
        outputs, elapsed_ns = executor.run_timed(self._inputs)
        if not self._outputs:
            self._outputs = {name: value.copy() for name, value in outputs.items()}
            self._inferences = min(max(2, math.ceil(TURN_NS / max(elapsed_ns, 1))), MOST_INFERENCES)
        for name, value in outputs.items():
            if not _near(value, self._outputs[name]):
                raise TuningError(f"two contexts of the same model do not agree on output {name!r}")

    @property
    def late(self) -> bool:
        """Whether the budget is used up."""
        return self._deadline is not None and time.monotonic() >= self._deadline


def _inferences(log: memoryview, address: str) -> list[LoggedInference]:
    """Those of a log from a target. Raises TargetError for one that cannot be."""
    try:
        return read_log_of(BytesIO(log), f"the log from target {address}").inferences
    except MalformedLog as error:
        raise TargetError("bad_message", str(error)) from None


def _quartile(samples: Sequence[float]) -> float:
    """The lower quartile, of fewer than four samples the least."""
    return sorted(samples)[len(samples) // 4] if len(samples) >= 4 else min(samples)


def _near(value: Array, expected: Array) -> bool:
    finite = np.abs(expected[np.isfinite(expected)])
    return bool(np.allclose(value, expected, rtol=0, atol=FAR * float(finite.max(initial=0.0)), equal_nan=True))
