"""Finds the fastest verified configuration of each task.

Per task: a concluded winner in the performance cache is used after it was validated against today's space and code.
Otherwise the default and the family's starters are measured first, then what the strategy asks for, batch by batch,
until a stop condition ends it. Trials that an interrupted run left in the cache are told to the strategy and not
measured again. The finalists are measured once more, side by side, and the default configuration wins a tie.

One configuration, the default where it works, is raced in every batch: where its time does not fit to what it was, the
batch is measured again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from gputune.cache import PerformanceCache, RecordError, TrialRecord, WinnerRecord
from gputune.client.errors import TargetError, TuningError
from gputune.client.plan import Task
from gputune.client.target_client import TargetClient
from gputune.client.tuning.drift import Drift
from gputune.client.tuning.effort import EFFORTS, Effort
from gputune.client.tuning.outcome import Outcome, tuned
from gputune.client.tuning.task_search import TaskSearch, device_limits
from gputune.client.tuning.workbench import Workbench
from gputune.kernels.space import Configuration, configuration_key
from gputune.runtime.identity import DeviceIdentity
from gputune.server.protocol.messages import Trial

TIE = 0.01
"""A configuration that is not faster than the default by more than this share does not replace it."""


class Progress(Protocol):
    """Who hears of what the tuner does."""

    def advance(self, steps: int, what: str) -> None:
        """So many variants were measured for a task."""

    def shrink(self, steps: int) -> None:
        """So many variants fewer than expected have to be measured."""

    def verbose(self, text: str) -> None:
        """A line about one trial."""

    def info(self, text: str) -> None:
        """A line about what takes its time."""

    def warn(self, text: str) -> None:
        """A line about something that may have spoilt measurements."""


class Silent:
    """A progress that nobody watches."""

    def advance(self, steps: int, what: str) -> None: ...

    def shrink(self, steps: int) -> None: ...

    def verbose(self, text: str) -> None: ...

    def info(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...


class Tuner:
    """Tunes tasks on one target, remembering every trial in one performance cache."""

    def __init__(
        self,
        target: TargetClient,
        cache: PerformanceCache,
        effort: Effort,
        progress: Progress | None = None,
        retry_failures: Collection[str] = (),
    ) -> None:
        """retry_failures: what was stored with one of these statuses is measured again."""
        self._target = target
        self._cache = cache
        self._effort = effort
        self._progress: Progress = progress or Silent()
        self._retry = retry_failures
        self._device = DeviceIdentity.from_dict(target.device)
        self._limits = device_limits(self._device)
        self._settings = _settings(target.server)
        self._searches: dict[Task, TaskSearch] = {}

    def expected_trials(self, task: Task) -> int:
        """How many variants will be measured for the task at most, finalists included: 0 when the cache answers."""
        search = self._search(task)
        return 0 if self._concluded(search) else search.budget + self._finalists(search)

    def tune(self, task: Task) -> Outcome:
        """The outcome for one task. Raises TuningError when no variant works, TargetError, CacheError."""
        search = self._search(task)
        winner = self._concluded(search)
        if winner is not None:
            return tuned(search, winner, None)
        search.resume(self._cache.trials_of(search.key, search.validity), self._retry)
        drift = Drift(search.baseline_samples())
        self._progress.shrink(search.budget - search.left)  # the other way where many failures are measured again
        with Workbench(self._target, search, self._effort, self._progress) as bench:
            while batch := search.next_batch():
                self._measure(bench, search, drift, batch, self._effort.samples)
            self._progress.shrink(max(0, search.budget - len(search.known)))
            winner = self._final(bench, search, drift)
        self._report(search, drift)
        self._cache.conclude(search.key, search.validity, winner)
        return tuned(search, winner, drift)

    def store_binary(self, task: Task, outcome: Outcome) -> None:
        """Keeps a binary that was compiled at finalize time with the winner it belongs to."""
        search = self._search(task)
        winner = self._cache.winner_of(search.key, search.validity)
        if winner is not None and winner.configuration == outcome.configuration:
            self._cache.conclude(search.key, search.validity, replace(winner, binary=outcome.binary))

    def _search(self, task: Task) -> TaskSearch:
        """The search of a task; made once, because counting a space takes a while."""
        if task not in self._searches:
            self._searches[task] = TaskSearch(task, self._device, self._limits, self._effort, self._settings)
        return self._searches[task]

    def _concluded(self, search: TaskSearch) -> WinnerRecord | None:
        winner = self._winner(search)
        if winner is None or EFFORTS[winner.effort].rank < self._effort.rank:
            return None
        retries = self._retry and search.to_retry(self._cache.trials_of(search.key, search.validity), self._retry)
        return None if retries else winner

    def _winner(self, search: TaskSearch) -> WinnerRecord | None:
        """The winner in the cache, if it still holds."""
        winner = self._cache.winner_of(search.key, search.validity)
        if winner is None or winner.effort not in EFFORTS:
            return None
        return winner if search.still_holds(winner.configuration, winner.rendered_sha256) else None

    def _finalists(self, search: TaskSearch) -> int:
        return min(self._effort.finalists + 1, search.space.size)

    def _measure(
        self, bench: Workbench, search: TaskSearch, drift: Drift, batch: Sequence[Configuration], samples: int
    ) -> bytes:
        """Profiles a batch, again where the device seems to have drifted; returns the best one's binary."""
        drift.in_doubt = False
        binary = self._profile(bench, search, drift, batch, samples)
        if drift.in_doubt and (working := [c for c in batch if search.cost(c) is not None]):
            drift.measured_again += len(working)
            self._progress.shrink(-len(working))
            binary = self._profile(bench, search, drift, working, samples)
        return binary

    def _profile(
        self, bench: Workbench, search: TaskSearch, drift: Drift, batch: Sequence[Configuration], samples: int
    ) -> bytes:
        """Profiles a batch and stores every trial as soon as it is known."""

        def store(trials: Mapping[int, Trial], baseline: Sequence[float]) -> None:
            ratio = drift.ratio(baseline)
            records = [
                _record(batch[place], trial, search.rendered_sha256(batch[place]), ratio)
                for place, trial in trials.items()
            ]
            self._cache.store_trials(search.key, search.validity, records)
            search.tell(records)
            search.measured += len(records)
            self._progress.advance(len(records), search.title)
            for record in records:
                result = f"{record.median_ns / 1000:.1f} us" if record.median_ns is not None else record.message
                self._progress.verbose(
                    f"{search.title} {configuration_key(record.configuration)}: {record.status}, {result}"
                )

        return bench.profile(batch, samples, store)

    def _report(self, search: TaskSearch, drift: Drift) -> None:
        """Says how the device changed and what that has cost."""
        if drift.first_ns is None or not (drift.measured_again or drift.beyond):
            return
        change = f"for a moment, by up to {100 * (drift.furthest - 1):+.1f} %"
        if drift.beyond and drift.kept is not None:
            change = f"and stayed so for a part of what is kept, by up to {100 * (drift.kept - 1):+.1f} %"
        self._progress.warn(
            f"{search.title}: the device drifted: the baseline took {drift.first_ns / 1000:.1f} us at first, which "
            f"changed {change}; {drift.measured_again} variants were measured again"
        )

    def _final(self, bench: Workbench, search: TaskSearch, drift: Drift) -> WinnerRecord:
        finalists = search.finalists(self._effort.finalists)
        self._progress.shrink(self._finalists(search) - len(finalists))
        if not finalists:
            raise TuningError(
                f"{search.title}: no configuration works: {search.failures()}; --retry_failures measures them again"
            )
        binary = self._measure(bench, search, drift, finalists, 2 * self._effort.samples)
        placed = [(search.cost(c), search.time_ns(c), c) for c in finalists]
        working = [(cost, time_ns, c) for cost, time_ns, c in placed if cost is not None and time_ns is not None]
        if not working:
            raise TuningError(f"{search.title}: no finalist works any more: {search.failures()}")
        best_cost, best_ns, best = min(working, key=lambda one: one[0])
        default_cost, default_ns = search.cost(search.default), search.time_ns(search.default)
        if default_cost is not None and default_ns is not None and best_cost >= default_cost * (1 - TIE):
            binary = binary if best == search.default else b""
            best_ns, best = default_ns, search.default
        before = self._winner(search)  # not None where its failures are measured again; what it was given still counts
        efforts = [self._effort] if before is None else [EFFORTS[before.effort], self._effort]
        return WinnerRecord(
            configuration=best,
            median_ns=best_ns,
            default_ns=default_ns,
            effort=max(efforts, key=lambda effort: effort.rank).name,
            binary=binary,
            trials=search.statuses(),
            rendered_sha256=search.rendered_sha256(best),
        )


def _settings(server: Mapping[str, object]) -> dict[str, str]:
    """The settings of the target that change code or time, as its welcome reports them."""
    settings = server.get("settings")
    if not isinstance(settings, Mapping):
        return {}
    return {str(name): str(value) for name, value in settings.items()}


def _record(configuration: Configuration, trial: Trial, rendered_sha256: str, drift: float | None) -> TrialRecord:
    """A trial as the cache keeps it; wall times and drift are kept with how it was measured. Raises TargetError for one
    that cannot be true."""
    measured = dict(trial.measured)
    if trial.samples_ns:
        measured |= {"wall_ns": list(trial.wall_ns)} | ({} if drift is None else {"drift": drift})
    built_ns = trial.compile_ns + trial.first_launch_ns
    try:
        return TrialRecord(
            configuration=dict(configuration),
            status=trial.status,
            samples_ns=trial.samples_ns,
            compile_ns=built_ns or None,
            message=trial.message,
            measured=measured,
            rendered_sha256=rendered_sha256,
        )
    except RecordError as error:
        raise TargetError("bad_message", f"the target sent a trial that cannot be true: {error}") from None
