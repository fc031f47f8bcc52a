"""Finds the fastest verified configuration of each task.

Per task: a concluded winner in the performance cache is used after it was validated against today's space and code.
Otherwise the default and the family's starters are measured first, then what the strategy asks for, batch by batch,
until a stop condition ends it. Trials that an interrupted run left in the cache are told to the strategy and not
measured again. The finalists are measured once more, side by side, and the default configuration wins a tie.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gputune.cache import PerformanceCache, TrialRecord, WinnerRecord
from gputune.client.effort import EFFORTS, Effort
from gputune.client.errors import TuningError
from gputune.client.plan import Task
from gputune.client.target_client import TargetClient
from gputune.client.task_search import TaskSearch, default_of, device_limits, task_key
from gputune.client.workbench import Workbench
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits
from gputune.kernels.space import Configuration, configuration_key
from gputune.runtime.identity import DeviceIdentity
from gputune.server.protocol.messages import Trial

TIE = 0.01
"""A configuration that is not faster than the default by more than this share does not replace it."""


@dataclass(frozen=True)
class Outcome:
    """What tuning found for one task; names follow --summary_json."""

    key: str
    op: str
    problem: Mapping[str, Any]
    weight: int
    hit: bool
    resumed: int
    """Trials that an earlier, interrupted run had already stored."""
    space_size: int
    trials: Mapping[str, int]
    """Trials by status, each configuration counted once."""
    measured: int
    """Variants that this run had measured, finalists counted again."""
    default_ns: float | None
    tuned_ns: float | None
    configuration: Configuration
    binary: bytes = field(repr=False)
    """The winner's program binary; empty where it has still to be compiled."""


class Progress(Protocol):
    """Who hears of what the tuner does."""

    def advance(self, steps: int, what: str) -> None:
        """So many variants were measured for a task."""

    def shrink(self, steps: int) -> None:
        """So many variants fewer than expected have to be measured."""

    def verbose(self, text: str) -> None:
        """A line about one trial."""


class Silent:
    """A progress that nobody watches."""

    def advance(self, steps: int, what: str) -> None: ...

    def shrink(self, steps: int) -> None: ...

    def verbose(self, text: str) -> None: ...


def untuned(task: Task, limits: DeviceLimits) -> Outcome:
    """The default configuration, unmeasured: what tuning effort none gives."""
    family, key = family_of(task.op), task_key(task)
    return Outcome(
        key=key.digest,
        op=task.op,
        problem=key.problem,
        weight=task.weight,
        hit=False,
        resumed=0,
        space_size=family.space(task.problem, limits).size,
        trials={},
        measured=0,
        default_ns=None,
        tuned_ns=None,
        configuration=default_of(task, limits),
        binary=b"",
    )


class Tuner:
    """Tunes tasks on one target, remembering every trial in one performance cache."""

    def __init__(
        self, target: TargetClient, cache: PerformanceCache, effort: Effort, progress: Progress | None = None
    ) -> None:
        self._target = target
        self._cache = cache
        self._effort = effort
        self._progress: Progress = progress or Silent()
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
            return _outcome(search, winner, hit=True)
        search.resume(self._cache.trials_of(search.key, search.validity))
        self._progress.shrink(search.resumed)
        with Workbench(self._target, search, self._effort) as bench:
            while batch := search.next_batch():
                self._measure(bench, search, batch, self._effort.samples)
            self._progress.shrink(max(0, search.budget - len(search.known)))
            winner = self._final(bench, search)
        self._cache.conclude(search.key, search.validity, winner)
        return _outcome(search, winner, hit=False)

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
        winner = self._cache.winner_of(search.key, search.validity)
        if winner is None or not search.still_holds(winner.configuration, winner.rendered_sha256):
            return None
        spent = EFFORTS.get(winner.effort)
        return winner if spent is not None and spent.rank >= self._effort.rank else None

    def _finalists(self, search: TaskSearch) -> int:
        return min(self._effort.finalists + 1, search.space.size)

    def _measure(self, bench: Workbench, search: TaskSearch, batch: Sequence[Configuration], samples: int) -> bytes:
        """Profiles a batch, stores every trial before anything else happens, returns the best one's binary."""
        trials, binary = bench.profile(batch, samples)
        records = [
            _record(configuration, trial, search.rendered_sha256(configuration))
            for configuration, trial in zip(batch, trials, strict=True)
        ]
        self._cache.store_trials(search.key, search.validity, records)
        search.tell(records)
        search.measured += len(batch)
        self._progress.advance(len(batch), search.title)
        for record in records:
            result = f"{record.median_ns / 1000:.1f} us" if record.median_ns is not None else record.message
            self._progress.verbose(
                f"{search.title} {configuration_key(record.configuration)}: {record.status}, {result}"
            )
        return binary

    def _final(self, bench: Workbench, search: TaskSearch) -> WinnerRecord:
        finalists = search.finalists(self._effort.finalists)
        self._progress.shrink(self._finalists(search) - len(finalists))
        if not finalists:
            raise TuningError(f"{search.title}: no configuration works: {search.failures()}")
        binary = self._measure(bench, search, finalists, 2 * self._effort.samples)
        placed = [(search.cost(configuration), configuration) for configuration in finalists]
        ranked = sorted(((cost, c) for cost, c in placed if cost is not None), key=lambda pair: pair[0])
        if not ranked:
            raise TuningError(f"{search.title}: no finalist works any more: {search.failures()}")
        best_ns, best = ranked[0]
        default_ns = search.cost(search.default)
        if default_ns is not None and best != search.default and best_ns >= default_ns * (1 - TIE):
            best_ns, best, binary = default_ns, search.default, b""
        return WinnerRecord(
            configuration=best,
            median_ns=best_ns,
            default_ns=default_ns,
            effort=self._effort.name,
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


def _outcome(search: TaskSearch, winner: WinnerRecord, hit: bool) -> Outcome:
    return Outcome(
        key=search.key.digest,
        op=search.task.op,
        problem=search.key.problem,
        weight=search.task.weight,
        hit=hit,
        resumed=search.resumed,
        space_size=search.space.size,
        trials=winner.trials,
        measured=search.measured,
        default_ns=winner.default_ns,
        tuned_ns=winner.median_ns,
        configuration=winner.configuration,
        binary=winner.binary,
    )


def _record(configuration: Configuration, trial: Trial, rendered_sha256: str) -> TrialRecord:
    """A trial as the cache keeps it; the wall times are kept with how it was measured."""
    measured = {**trial.measured, "wall_ns": list(trial.wall_ns)} if trial.samples_ns else dict(trial.measured)
    built_ns = trial.compile_ns + trial.first_launch_ns
    return TrialRecord(
        configuration=dict(configuration),
        status=trial.status,
        samples_ns=trial.samples_ns,
        compile_ns=built_ns or None,
        message=trial.message,
        measured=measured,
        rendered_sha256=rendered_sha256,
    )
