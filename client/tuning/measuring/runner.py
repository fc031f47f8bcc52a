"""Measure the variants of one task on the target while it is tuned; its inputs and reference output stay there."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.client.tuning.budget import Budget
from gputune.client.tuning.measuring.cooling import Cooling
from gputune.client.tuning.measuring.quiet import LoadRecord
from gputune.client.tuning.search.effort import Effort
from gputune.client.tuning.search.task_search import TaskSearch
from gputune.core.batches import ProfileKernel
from gputune.core.launches import Launch, Trial, Variant
from gputune.core.statuses import OK
from gputune.kernels.space import Configuration
from gputune.server.protocol.messages import Progress

log = logging.getLogger(__name__)

Concluded: TypeAlias = Callable[[Mapping[int, Trial], Sequence[float]], None]
"""Hears what became of variants, by their place in the batch, and the baseline's samples beside them in nanoseconds;
none where it was not measured with them."""
QUEUE_SECONDS = 5.0
"""After this time behind other clients it is said once per task."""


@dataclass(frozen=True)
class Harvest:
    """A program's binary, and the launch that it was compiled for."""

    main: Launch
    binary: bytes


class TaskRunner:
    """Measures variants of one task. Buffers are made when a batch needs them and stay until they are cleared away."""

    def __init__(
        self,
        target: TargetClient,
        search: TaskSearch,
        effort: Effort,
        cold: bool = False,
        cooling: Cooling | None = None,
        load: LoadRecord | None = None,
        budget: Budget | None = None,
    ) -> None:
        """cold: every launch finds empty caches; cooling: says how long the device has to rest after a batch; load:
        hears how busy it was meanwhile; budget: a batch is given up when that is spent."""
        self.target = target
        self._search = search
        self._effort = effort
        self._cold = cold
        self._cooling = cooling
        self._load = load
        self._budget = budget or Budget()
        self._waited = False
        self._level = 1.0
        self._buffers: dict[str, int] = {}
        self._reference: int | None = None
        self.bytes = 0
        """What its buffers take on the target now."""

    def clear(self) -> None:
        """Free its buffers; they come back with the next batch. Raises TargetError."""
        if self._reference is not None:
            handles, self._buffers, self._reference, self.bytes = (
                [*self._buffers.values(), self._reference],
                {},
                None,
                0,
            )
            self.target.free(*handles)

    def measure(
        self,
        batch: Sequence[Configuration],
        samples: int,
        concluded: Concluded,
        harvest: bool = False,
        level: float = 1.0,
    ) -> Harvest | None:
        """Measure a batch; return, if that is to be harvested, the variant that the target has found to be the fastest
        (None when the batch had to be split). level: by how much slower the device is now than when the task was begun.

        `concluded` hears of every variant once and as soon as possible: of failures while the others are still being
        measured. When a batch ends the target's server again and again, it is measured one by one, so that only the
        variant that does it gets the status crash. Raises TargetError for what no variant has caused, OutOfTime.
        """
        if self._reference is None:
            self._upload()
        known: set[int] = set()
        self._level = level

        def conclude(trials: Mapping[int, Trial], baseline: Sequence[float]) -> None:
            fresh = {place: trial for place, trial in trials.items() if place not in known}
            known.update(fresh)
            if fresh:
                concluded(fresh, baseline)

        everything = range(len(batch))
        try:
            return self._measure(batch, everything, samples, conclude, harvest)
        except TargetError as error:
            if error.name != "lost_again":
                raise
        for place in everything:
            if place not in known:
                try:
                    self._measure(batch, [place], samples, conclude, False)
                except TargetError as error:
                    if error.name != "lost_again":
                        raise
                    conclude({place: _crash(f"the target's server did not survive this: {error.reason}")}, ())
        return None

    def _measure(
        self, batch: Sequence[Configuration], places: Sequence[int], samples: int, conclude: Concluded, harvest: bool
    ) -> Harvest | None:
        """Measure those variants of a batch, whose places are their numbers."""
        began = time.monotonic()

        def hear(progress: Progress) -> None:
            if progress.variant is not None and progress.trial is not None and progress.trial.status != OK:
                conclude({progress.variant: progress.trial}, ())
            self._say(progress, time.monotonic() - began)

        with self._budget.bounding(self.target, "other graphs"):  # what a batch has begun may end in a later share
            measured = self.target.measure_kernel(self._request(batch, places, samples, harvest), hear)
        trials = dict(zip(places, measured.trials, strict=True))
        conclude(trials, self._baseline_samples(batch, trials, measured.baseline))
        if self._load is not None:
            self._load.hear_batch(measured.state)
        self._cool_down(measured.state)
        if measured.best is None or not measured.binary:
            return None
        return Harvest(self._variant(batch[measured.best], 0).main, bytes(measured.binary))

    def _cool_down(self, state: Mapping[str, object]) -> None:
        """Wait where the device says that it had to slow down."""
        if self._cooling is not None and (seconds := self._cooling.after(state)) > 0:
            log.info(f"the device rests for {seconds:.0f} s: {self._cooling.reason}")
            time.sleep(seconds)

    def _say(self, progress: Progress, seconds: float) -> None:
        """Pass on what the target says of itself, so many seconds after it was asked."""
        line = f"{self._search.title}: {progress.phase}: {progress.message}"
        if progress.phase == "queued" and seconds >= QUEUE_SECONDS and not self._waited:
            self._waited = True
            log.info(f"{line}; other clients use the target")
        elif progress.phase == "recovering" and progress.message:
            log.info(line)
        elif progress.message:
            log.debug(line)

    def _request(
        self, batch: Sequence[Configuration], places: Sequence[int], samples: int, harvest: bool
    ) -> ProfileKernel:
        search, problem = self._search, self._search.task.problem
        assert self._reference is not None
        baseline = next((place for place in places if batch[place] == search.baseline), len(batch))
        tolerance, work = search.family.tolerance(problem), search.family.work(problem)
        return ProfileKernel(
            task=search.title,
            buffers=self._buffers,
            output_bytes=search.family.output(problem).nbytes,
            reference=self._reference,
            relative=tolerance.relative,
            absolute=tolerance.absolute,
            dtype=search.family.output(problem).dtype,
            variants=tuple(self._variant(batch[place], place) for place in places),
            baseline=None if search.baseline is None else self._variant(search.baseline, baseline),
            best_ns=search.best_ns * self._level,
            work=work,
            samples=samples,
            sample_ns=self._effort.sample_ns,
            warm_up_ns=self._effort.warm_up_ns,
            cold=self._cold,
            together=True,
            harvest=harvest,
        )

    def _variant(self, configuration: Configuration, number: int) -> Variant:
        return self._search.rendered(configuration).variant(configuration, number)

    def _baseline_samples(
        self, batch: Sequence[Configuration], trials: Mapping[int, Trial], baseline: Trial | None
    ) -> tuple[float, ...]:
        """Return the samples of the baseline, or where there was none yet, of the variant that will be it."""
        working = [place for place, trial in trials.items() if trial.status == OK]
        chosen = self._search.baseline or self._search.default
        trial = baseline or next((trials[place] for place in working if batch[place] == chosen), None)
        if trial is None and not self._search.had_baseline and working:
            trial = trials[working[0]]
        fits = trial is not None and trial.status == OK and min(trial.samples_ns, default=0.0) > 0
        return trial.samples_ns if trial is not None and fits else ()

    def _upload(self) -> None:
        """Put random inputs, the same for every run of this task, and their reference output on the target."""
        family, problem = self._search.family, self._search.task.problem
        inputs = family.sample_inputs(problem, np.random.default_rng(self._search.seed))
        reference = family.reference(problem, inputs).astype(family.output(problem).dtype)
        self._buffers = {name: self.target.upload(values) for name, values in inputs.items()}
        self._reference = self.target.upload(reference)
        self.bytes = reference.nbytes + sum(values.nbytes for values in inputs.values())


def _crash(message: str) -> Trial:
    return Trial("crash", message)
