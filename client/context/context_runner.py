"""Build and load several contexts of a model on a target, and run them in turns, so that drift affects all alike.

The time of a turn is the lower quartile of its inferences. If other programs run, an inference takes its own time, or
longer by whole time slices of the scheduler. The median of a turn would show either by chance; a low quantile does not.

A round is one turn of each context, in an order that is drawn anew. If two contexts are equal, each comes first with
the same chance, so which looks faster is a fair coin, whatever the machine does from turn to turn. Turns there and back
would cancel a steady drift. But the same contexts would meet at the ends, and one disturbance would count twice.

Each turn opens its context anew. Two openings of equal contexts may differ by several per cent for as long as they
last. The causes are where their memory lies and what they learned from their first inferences.
"""

from __future__ import annotations

import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gputune.client.context import builder
from gputune.client.context.verifying.distance import Compared, compared
from gputune.client.errors import TargetError, TuningError
from gputune.client.model.plan import Plan
from gputune.client.progress import SILENT, Progress
from gputune.client.target.client import TargetClient
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.tuning.budget import USED_UP, Budget, OutOfTime, Share
from gputune.client.tuning.measuring.quiet import Quiet
from gputune.client.tuning.outcome import Outcome
from gputune.core.errors import MalformedLog
from gputune.core.launches import ArgumentForm
from gputune.core.opened import Closing
from gputune.runtime.application.made_up_inputs import random_inputs, telling_draw
from gputune.runtime.profiling.log import read_log_of
from gputune.runtime.profiling.records import LoggedInference

ROUNDS = 12
"""Turns of each context when its tasks are timed."""
LEAST_ROUNDS = 6
"""The fewest rounds that give a time, if a budget leaves no time for more."""
TURN_NS = 40e6
LOADS = 6
"""How often a context is loaded; the first time does not count."""
MOST_INFERENCES = 24
"""Inferences of a turn: as many as TURN_NS has room for, with all that they take from here, at least two."""
WARM = 4
"""A turn begins with one inference, and one more for each so many of it, which do not count."""
FAR = 0.01
"""Outputs of two contexts of a model that are further apart, by their largest value, are not of the same model."""

Array = npt.NDArray[Any]
Outcomes = Mapping[str, Outcome]
"""By task digest."""


class ContextRunner(Closing):
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
        budget: Budget | None = None,
        quiet: Quiet | None = None,
        form: ArgumentForm | None = None,
        memory_search_steps: int = 0,
        shared_memory: bool = True,
    ) -> None:
        """maker: compiles and packs for the target, and keeps what it has compiled; write: makes the file of a graph;
        budget: of which `share` may be used; quiet: settles before anything is measured; form, memory_search_steps,
        shared_memory: as of builder.build, and as of the context that ships, whose persistent kernels depend on where
        tensors lie."""
        self._target = target
        self._maker = maker
        self._write = write
        self._progress = progress
        self._budget = budget or Budget()
        self._quiet = quiet
        self._form = form
        self._memory_search_steps = memory_search_steps
        self._shared_memory = shared_memory
        self.share: Share = "comparing"
        self.hurried = False
        """True if the budget has ended something early."""
        self.making_seconds = 0.0
        """The time that building and writing the last context took."""
        self.turn_seconds = 0.0
        """The time of the last turn; before the first turn, an estimate."""
        self._folder: tempfile.TemporaryDirectory[str]  # from when the with statement begins
        self._files: dict[RemoteExecutor, Path] = {}  # of contexts that were loaded and not freed
        self._open: set[RemoteExecutor] = set()
        self._made = 0
        self.compared: Mapping[str, Compared] = {}
        """How much of each output the contexts can be compared by, once one is loaded."""
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array] = {}
        self._inferences = 0
        self._rounds: _Rounds | None = None  # of the comparison under way
        self._random = random.Random(0)

    def __enter__(self) -> Self:
        if self._quiet is not None:
            with self._budget.paused():
                self._quiet.settle()
        self._folder = tempfile.TemporaryDirectory(prefix="gputune-chain-")
        return self

    def close(self) -> None:
        """Free the contexts. Raises TargetError."""
        with suppress(TargetError):  # of a lost connection; the next request meets it
            self.free(*self._files)
        self._folder.cleanup()

    def load(
        self,
        plan: Plan,
        outcomes: Outcomes,
        persistent: bool = False,
        *,
        form: ArgumentForm | None = None,
    ) -> RemoteExecutor:
        """Return a context of a plan on the target, run twice; persistent: by persistent kernels; form: another one
        than the runner's. Raises TuningError when its outputs are not those of the first one; OutOfTime."""
        with self._in_time():
            begun_s = time.monotonic()
            steps = self._memory_search_steps if persistent else 0
            how = form or self._form, self._progress, steps, self._shared_memory
            built = builder.build(plan, outcomes, self._maker, persistent, *how)
            self._made += 1
            path = Path(self._folder.name) / f"{self._made}.bin"
            self._write(built, path)
            self.making_seconds = time.monotonic() - begun_s
            executor = RemoteExecutor(self._target, path, None, strict=True)
            self._files[executor] = path
            self._open.add(executor)
            self._run_once(executor)
        return executor

    def load_ns(self, contexts: Sequence[builder.Built]) -> list[float]:
        """Return the median of what loading each context takes on the target, with all of its graphs, in turns."""
        paths = [Path(self._folder.name) / f"load {number}.bin" for number in range(len(contexts))]
        for built, path in zip(contexts, paths, strict=True):
            self._write(built, path)
        taken: list[list[int]] = [[] for _ in contexts]
        with self._in_time():
            for _ in range(LOADS):
                for built, path, own in zip(contexts, paths, taken, strict=True):
                    own.append(0)
                    for graph in built.graphs:
                        with closing(RemoteExecutor(self._target, path, graph.name, strict=True)) as loaded:
                            own[-1] += loaded.load_ns
        return [statistics.median(own[1:]) for own in taken]

    def has_time_for(self, turns: int) -> bool:
        """Return whether so many turns of a context end in time, by what one took."""
        enough = self._budget.left(self.share) >= turns * self.turn_seconds
        self.hurried = self.hurried or not enough
        return enough

    def set_aside(self, context: RemoteExecutor) -> None:
        """Close a context on the target, and keep its file for rounds that open it anew."""
        self._open.remove(context)
        context.close()

    def free(self, *contexts: RemoteExecutor) -> None:
        """Free contexts on the target, and their files."""
        for context in contexts:
            if context in self._open:
                self.set_aside(context)
            self._files.pop(context).unlink()

    @contextmanager
    def comparing(self, seconds: float, contexts: int, least: int) -> Iterator[Callable[[], bool]]:
        """Show the progress of a comparison of so many contexts that may take so many seconds, after the least rounds
        that an answer needs; gives what says whether there is time for another round."""
        begun_s = time.monotonic()
        self._rounds = rounds = _Rounds(self._progress, contexts, least)

        def more() -> bool:
            left_s = min(begun_s + seconds - time.monotonic(), self._budget.left(self.share))
            rounds.look(left_s, time.monotonic() - begun_s)
            return left_s > 0

        with self._progress.running("comparing contexts", rounds.total, self._budget.limit(self.share)):
            yield more
        self._rounds = None

    def round_ns(self, contexts: Sequence[RemoteExecutor]) -> list[float]:
        """Time a turn of each context in whole inferences, as an application would run them, opened anew. Raises
        OutOfTime before the turn for which no time is left, and where one takes longer."""
        rounds = self._rounds
        with self._in_time():
            if rounds is not None:
                rounds.begin(len(contexts))
            return self._round(contexts, self._fresh_turn_ns, rounds.words if rounds is not None else "")

    def inference_ns(self, contexts: Sequence[RemoteExecutor]) -> list[list[float]]:
        """Time each context's whole inferences, in turns, when tasks are timed."""
        return self._in_turns("timing contexts", contexts, self._turn_ns)

    def task_ns(self, contexts: Sequence[RemoteExecutor]) -> list[dict[str, list[float]]]:
        """By task digest, what all its operations take together in an inference, by the device's clock."""
        rounds = self._in_turns("timing kernels in contexts", contexts, self._task_times)
        return [{task: [times[task] for times in own] for task in own[0]} for own in rounds]

    def _fresh_turn_ns(self, context: RemoteExecutor) -> float:
        begun_s = time.monotonic()
        with closing(RemoteExecutor(self._target, self._files[context], None, strict=True)) as fresh:
            found = self._turn_ns(fresh)
        self.turn_seconds = time.monotonic() - begun_s
        return found

    def _turn_ns(self, context: RemoteExecutor) -> float:
        warm = 1 + self._inferences // WARM
        return _quartile([context.run_timed(self._inputs)[1] for _ in range(warm + self._inferences)][warm:])

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
        self, label: str, contexts: Sequence[RemoteExecutor], turn: Callable[[RemoteExecutor], Any]
    ) -> list[list[Any]]:
        """Return the results of each context's turns in ROUNDS, or in LEAST_ROUNDS at least if a budget ends them.
        label: of the progress. Raises OutOfTime."""
        results: list[list[Any]] = []
        with self._progress.running(label, ROUNDS * len(contexts)):
            for number in range(ROUNDS):
                try:
                    with self._in_time():
                        results.append(self._round(contexts, turn, f"round {number + 1} of {ROUNDS}"))
                except OutOfTime:
                    if number < LEAST_ROUNDS:
                        raise
                    break
        return [list(own) for own in zip(*results, strict=True)]

    def _round(self, contexts: Sequence[RemoteExecutor], turn: Callable[[RemoteExecutor], Any], told: str) -> list[Any]:
        """Return the result of a turn of each context, in a drawn order. told: which round it is."""
        order = self._random.sample(range(len(contexts)), len(contexts))
        found = {}
        for place in order:
            if self._budget.left(self.share) < self.turn_seconds:
                raise OutOfTime(USED_UP)
            found[place] = turn(contexts[place])
            self._progress.advance(1, told)
        return [found[place] for place in range(len(contexts))]

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Raise OutOfTime where the share of the budget is over, or ends meanwhile."""
        try:
            if self._budget.is_over(self.share):
                raise OutOfTime(USED_UP)
            with self._budget.bounding(self._target, self.share):
                yield
        except OutOfTime:
            self.hurried = True
            raise

    def _run_once(self, executor: RemoteExecutor) -> None:
        first = not self._outputs
        if first:
            tensors = executor.graph.inputs
            draw = telling_draw(lambda draw: executor.run_timed(random_inputs(tensors, draw))[0])
            self._inputs = random_inputs(tensors, draw)
        executor.run_timed(self._inputs)
        outputs, _ = executor.run_timed(self._inputs)
        if first:
            self._outputs = {name: value.copy() for name, value in outputs.items()}
            self.compared = {name: compared(value, value) for name, value in outputs.items()}
            self._inferences = min(max(2, math.ceil(TURN_NS / executor.round_trip_ns[-1])), MOST_INFERENCES)
            inferences_ns = (1 + self._inferences // WARM + self._inferences) * executor.round_trip_ns[-1]
            self.turn_seconds = (executor.load_round_trip_ns + inferences_ns) / 1e9
        for name, value in outputs.items():
            if not _near(value, self._outputs[name]):
                raise TuningError(f"two contexts of the same model do not agree on output {name!r}")

    @property
    def machine_load(self) -> dict[str, Any] | None:
        """How busy the target's machine was until now, as LoadRecord says it; None if it was not looked at."""
        if self._quiet is None:
            return None
        self._quiet.end()
        return self._quiet.record.to_dict()


class _Rounds:
    """What is shown of a comparison: which round it is, of about how many. total: of the turns."""

    def __init__(self, progress: Progress, contexts: int, least: int) -> None:
        self._progress = progress
        self._contexts = contexts
        self._expected = least
        self._taken = 0
        self._bound = "about"
        self.total = contexts * least

    @property
    def words(self) -> str:
        """Such as "round 4 of about 15"."""
        return f"round {self._taken} of {self._bound} {max(self._taken, self._expected)}"

    def begin(self, contexts: int) -> None:
        """Begin a round of so many contexts."""
        self._taken += 1
        gone, self._contexts = self._contexts - contexts, contexts
        self._change(-gone * max(0, self._expected - self._taken + 1))

    def look(self, left_s: float, passed_s: float) -> None:
        """Expect as many rounds as there is time for, when those that an answer needs were not enough."""
        if self._taken and self._taken >= self._expected and left_s > 0:
            more = math.ceil(left_s * self._taken / max(passed_s, 1e-9)) if math.isfinite(left_s) else 1
            self._expected, self._bound = self._taken + more, "at most"
            self._change(more * self._contexts)

    def _change(self, turns: int) -> None:
        self.total += turns
        self._progress.shrink(-turns)


def _inferences(log: memoryview, address: str) -> list[LoggedInference]:
    """Return the inferences in a log from a target. Raises TargetError for a log that cannot be."""
    try:
        return read_log_of(BytesIO(log), f"the log from target {address}").inferences
    except MalformedLog as error:
        raise TargetError("bad_message", str(error)) from None


def _quartile(samples: Sequence[float]) -> float:
    """Return the lower quartile, of fewer than four samples the least."""
    return sorted(samples)[len(samples) // 4] if len(samples) >= 4 else min(samples)


def _near(value: Array, expected: Array) -> bool:
    finite = np.abs(expected[np.isfinite(expected)])
    return bool(np.allclose(value, expected, rtol=0, atol=FAR * float(finite.max(initial=0.0)), equal_nan=True))
