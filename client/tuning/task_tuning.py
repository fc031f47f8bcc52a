"""Tune one task on one target, batch by batch: measure, store, and in the end choose.

The default and the family's starters are measured first, then the proposals of the strategy. The baseline, which is the
default if that works, takes part in every batch, and all times are divided by its times next to them.

Finalists from several batches are measured again, side by side. A ranking of noisy times has leaders by chance, and
they fall behind when they are measured again. For a depthwise convolution, 31 of a hundred variants then ranked before
the best finalist. So the best finalist meets the best variants that rank before it now, in up to FINALS comparisons in
all.

The fastest replaces the default only if it is faster by more than TIE and few passes speak against it (SURE).
client/context/comparison.py decides whether a small gain holds inside the model.
"""

import logging
from collections.abc import Mapping, Sequence

from gputune.cache import PerformanceCache, RecordError, TrialRecord, WinnerRecord
from gputune.cache.programs import program_digest
from gputune.client.errors import TargetError, TuningError
from gputune.client.progress import Progress
from gputune.client.tuning.budget import OutOfTime
from gputune.client.tuning.measuring.doubt import doubt_of
from gputune.client.tuning.measuring.drift import Drift
from gputune.client.tuning.measuring.intervals import median_interval
from gputune.client.tuning.measuring.runner import TaskRunner
from gputune.client.tuning.search.effort import EFFORTS, Effort
from gputune.client.tuning.search.task_search import BATCH, TaskSearch
from gputune.core.launches import Trial
from gputune.kernels.space import Configuration, configuration_key
from gputune.runtime.measuring.successive_halving import paired

log = logging.getLogger(__name__)

TIE = 0.01
"""A configuration that is not faster than the default by more than this share does not replace it."""

SURE = 0.8
"""How often an interval, which has to be below the default's time to replace it, holds the ratio of the two times: of
seven passes one may speak against it. Of tasks that take few microseconds, noise is more than TIE."""

FINALS = 4
"""The finalists are measured, and what is ranked before the best of them then, so many times in all."""


class TaskTuning:
    """A search on its way. `step` measures a batch, `conclude` ends it; between them the target may serve others."""

    def __init__(
        self, search: TaskSearch, runner: TaskRunner, cache: PerformanceCache, effort: Effort, progress: Progress
    ) -> None:
        self.search = search
        self.runner = runner
        self._cache = cache
        self._effort = effort
        self._progress = progress
        self._number = search.batches
        self.drift = Drift(search.baseline_ns)
        self.out_of_time = False
        """Whether a budget has ended something under way."""

    def step(self, most: int = BATCH) -> int:
        """Measure a batch of at most so many. Returns how many new configurations are known after it, 0 when there are
        no more. Raises TargetError, CacheError."""
        return self.measure(self.search.next_batch(most))

    def measure(self, batch: Sequence[Configuration]) -> int:
        """Measure these configurations, whatever the strategy would ask for, but those that render to known launches.
        Returns how many new ones are known after it. Raises TargetError, CacheError."""
        before = len(self.search.known)
        if twins := self.search.twins(batch):
            self._store(twins)
            self._progress.shrink(len(twins))
            known = {configuration_key(twin.configuration) for twin in twins}
            batch = [configuration for configuration in batch if configuration_key(configuration) not in known]
        if batch:
            try:
                self._measure(batch, self._effort.samples, harvest=False)
            except OutOfTime:
                self.out_of_time = True
        return len(self.search.known) - before

    def conclude(self, before: WinnerRecord | None, hurried: bool = False, at_once: bool = False) -> WinnerRecord:
        """Measure the finalists side by side, unless one batch has done so already, and store the winner. before: the
        winner that is to be replaced; hurried: a budget has cut the search short, so that the next generation goes on;
        at_once: nothing is measured any more.

        Raises TuningError when nothing works, TargetError, CacheError."""
        search = self.search
        finalists = search.finalists(self._effort.finalists, None if before is None else before.configuration)
        if not finalists:
            raise TuningError(
                f"{search.title}: no configuration works: {search.failures()}; --retry_failures measures them again"
            )
        best = self._choose(finalists) if at_once else self._settle(finalists, 1 if hurried else FINALS)
        hurried = hurried or self.out_of_time
        best_ns = search.time_ns(best)
        assert best_ns is not None
        efforts = [EFFORTS["none"] if hurried else self._effort] + ([] if before is None else [EFFORTS[before.effort]])
        winner = WinnerRecord(
            configuration=best,
            median_ns=best_ns,
            default_ns=self._beside(best, best_ns, search.default),
            effort=max(efforts, key=lambda effort: effort.rank).name,
            trials=search.statuses(),
            rendered_sha256=search.rendered_sha256(best),
        )
        if self.drift_line:
            log.debug(self.drift_line)
        self._cache.conclude(search.key, search.validity, winner)
        return winner

    def _settle(self, finalists: Sequence[Configuration], finals: int) -> Configuration:
        """Return the best of the finalists and of all that are ranked before it when it was measured again. Finalists
        of one batch were compared there. finals: how often more are measured at most."""
        search, met = self.search, list(finalists)
        if search.side_by_side(finalists):
            return self._choose(finalists)
        for _ in range(finals):
            try:
                self._measure(finalists, 2 * self._effort.samples, harvest=True)
            except OutOfTime:
                self.out_of_time = True
                return self._choose(finalists)
            best = self._choose(finalists)
            if not (ahead := search.ahead(best, met, self._effort.finalists)):
                break
            met += ahead
            finalists = [*(one for one in finalists if one in (best, search.default)), *ahead]
        return best

    def _beside(self, best: Configuration, best_ns: float, other: Configuration) -> float | None:
        """Return what another configuration takes on a device as fast as while the best was measured; None where it
        failed."""
        cost, other_cost = self.search.cost(best), self.search.cost(other)
        return None if not cost or other_cost is None else best_ns * (other_cost / cost)  # exact where they are equal

    def _choose(self, finalists: Sequence[Configuration]) -> Configuration:
        """Return the fastest of the finalists, or the default when that is as fast."""
        search, best = self.search, self._fastest(finalists)
        cost, default_cost = search.cost(best), search.cost(search.default)
        assert cost is not None
        if best == search.default or default_cost is None:
            return best
        samples = [search.record(one).samples_ns for one in (best, search.default)]
        sure = median_interval(paired(*samples), SURE).high < 1
        return best if sure and cost < default_cost * (1 - TIE) else search.default

    def _fastest(self, finalists: Sequence[Configuration]) -> Configuration:
        """Return the one of least cost that was not eliminated before the last round: of few samples a median may be
        small by chance."""
        search = self.search
        working = [(cost, place) for place, c in enumerate(finalists) if (cost := search.cost(c)) is not None]
        if not working:
            raise TuningError(f"{search.title}: no finalist works any more: {search.failures()}")
        lasting = [one for one in working if search.record(finalists[one[1]]).measured.get("stopped") != "slower"]
        return finalists[min(lasting or working)[1]]

    def _measure(self, batch: Sequence[Configuration], samples: int, harvest: bool) -> None:
        """Measure a batch, and store every trial as soon as it is known, then the program that was harvested."""
        search = self.search
        number, self._number = self._number, self._number + 1

        def store(trials: Mapping[int, Trial], baseline: Sequence[float]) -> None:
            self.drift.hear(baseline)
            doubt = doubt_of((trial.samples_ns for trial in trials.values()), baseline, self._effort.samples)
            search.doubt = search.doubt if doubt is None else doubt
            self._store(
                [
                    _record(
                        batch,
                        place,
                        trial,
                        search.rendered_sha256(batch[place]),
                        self.drift.ratio(trial.samples_ns, baseline),
                        number,
                    )
                    for place, trial in trials.items()
                ]
            )
            search.measured += len(trials)
            self._progress.advance(len(trials), search.title)

        harvested = self.runner.measure(batch, samples, store, harvest, self.drift.level)
        if harvested is not None:
            self._cache.keep_program(program_digest(harvested.main, search.compiler), harvested.binary)

    def _store(self, records: Sequence[TrialRecord]) -> None:
        self._cache.store_trials(self.search.key, self.search.validity, records)
        self.search.tell(records)
        for record in records:
            result = f"{record.median_ns / 1000:.1f} us" if record.median_ns is not None else record.message
            key = configuration_key(record.configuration)
            log.debug(f"{self.search.title} {key}: {record.status}, {result}")

    @property
    def drift_line(self) -> str:
        """How the device has changed its speed; nothing when it did not."""
        drift = self.drift
        if drift.first_ns is None or not drift.notable:
            return ""
        return (
            f"{self.search.title}: the device changed its speed: it became {drift.words} as when the baseline took "
            f"{drift.first_ns / 1000:.1f} us; each time is compared with that of a baseline measured next to it"
        )


def _record(
    batch: Sequence[Configuration], place: int, trial: Trial, rendered_sha256: str, drift: float | None, number: int
) -> TrialRecord:
    """Return the trial of a batch's variant as the cache keeps it; wall times, drift and the batch's number are kept
    with how it was measured, and whose code it shares by that one's configuration. Raises TargetError for the
    impossible."""
    measured = {**trial.measured, "batch": number}
    if isinstance(twin := measured.get("same_as"), int) and 0 <= twin < len(batch):
        measured["same_as"] = configuration_key(batch[twin])
    if trial.samples_ns:
        measured |= {"wall_ns": list(trial.wall_ns)} | ({} if drift is None else {"drift": drift})
    built_ns = trial.compile_ns + trial.first_launch_ns
    try:
        return TrialRecord(
            configuration=dict(batch[place]),
            status=trial.status,
            samples_ns=trial.samples_ns,
            compile_ns=built_ns or None,
            message=trial.message,
            measured=measured,
            rendered_sha256=rendered_sha256,
        )
    except RecordError as error:
        raise TargetError("bad_message", f"the target sent a trial that cannot be true: {error}") from None
