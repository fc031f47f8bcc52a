"""Decide what a generation does with a task, and why: measure it, or use what the cache knows.

The decision is made here and nowhere else. The tuner acts on it; the summary line, `performance-cache explain` and a
frozen cache report it.

    hit       the winner is legal today, renders to the launches that were measured, and had enough effort;
              or a pinned configuration is known to work
    default   the task is not among --tasks, and nothing is known about it
    stale     the task was tuned on this device, but something has changed since
    seeded    the task is known from other devices or near problems, or a search was begun
    new       nothing is known

There is no hit if failures are to be tried again. A refresh does not see records from before it began, and a frozen
cache is opened for reading. `explain` begins the same generation on a copy of the cache in memory, so options and modes
mean the same.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gputune.cache import PerformanceCache, TaskSummary, TrialRecord, WinnerRecord
from gputune.cache.lookup import Change, look_up
from gputune.client.errors import TuningError
from gputune.client.options.tuning import TuningOptions
from gputune.client.tuning.search.effort import EFFORTS, Effort
from gputune.client.tuning.search.task_search import TaskSearch
from gputune.core.statuses import OK
from gputune.kernels.space import Configuration, configuration_key

Kind = Literal["hit", "default", "stale", "seeded", "new"]
KINDS: tuple[Kind, ...] = ("hit", "default", "stale", "seeded", "new")


@dataclass(frozen=True)
class Verdict:
    """What is done with a task.

    kind: "hit" (what is known is used, nothing is measured), "default" (the default is used, unmeasured), or a reason
    to measure: "stale" (it was tuned on this device, but something is different: `changes` and `reason` say what),
    "seeded" (known from other devices or near problems, or begun: `origin` says from where), "new".
    winner: what may be used today: that of a hit, or one that a measurement is to replace. before: the winner of other
    conditions that a stale task has. pin: the configuration that the user has chosen.
    """

    kind: Kind
    winner: WinnerRecord | None = None
    pin: Configuration | None = None
    before: WinnerRecord | None = None
    changes: tuple[Change, ...] = ()
    reason: str = ""
    origin: str = ""

    @property
    def measures(self) -> bool:
        """Whether a generation asks the target to measure the task."""
        return self.kind not in ("hit", "default")

    @property
    def why(self) -> str:
        """Why, in a few words; empty for a hit and for what is new."""
        said = [*map(str, self.changes), self.reason, f"known from {self.origin}" if self.origin else ""]
        return "; ".join(filter(None, said))


def untuned_verdict() -> Verdict:
    """Return the verdict on every task where nothing is tuned."""
    return Verdict("default", reason="tuning effort none")


def judge(
    search: TaskSearch, cache: PerformanceCache, effort: Effort, options: TuningOptions, names: Collection[str]
) -> Verdict:
    """Return the verdict on a task that answers to `names`; where it is measured, `explained` says more of the reason.

    Raises TuningError for a pinned configuration that is known not to work, CacheError."""
    pin = options.pin_of(names)
    if pin is not None:
        return _of_pin(search, cache.trials_of(search.key, search.validity), pin, options.retry_failures)
    winner = cache.winner_of(search.key, search.validity)
    lapsed = "" if winner is None else _lapsed(search, winner)
    usable = None if lapsed else winner
    if not options.wants(names):
        return Verdict("hit", usable) if usable else Verdict("default", reason="not among the tasks to be tuned")
    if lapsed:
        return Verdict("stale", before=winner, reason=lapsed)
    if usable is None:
        return Verdict("new")
    if EFFORTS[usable.effort].rank < effort.rank and search.lacks(cache.trials_of(search.key, search.validity)):
        return Verdict("stale", usable, changes=(Change("effort", usable.effort, effort.name),))
    if options.retry_failures:
        failed = search.to_retry(cache.trials_of(search.key, search.validity), options.retry_failures)
        if failed:
            return Verdict("stale", usable, reason=f"{len(failed)} failed configurations are tried again")
    return Verdict("hit", usable)


def explained(
    verdict: Verdict,
    search: TaskSearch,
    cache: PerformanceCache,
    known: Iterable[TaskSummary],
    seeds: Callable[[], str],
) -> Verdict:
    """Return a verdict of kind "new" with what is known of the task under other conditions. `seeds` says where a search
    would get configurations to begin with."""
    if verdict.kind != "new" or verdict.pin is not None:
        return verdict
    earlier = look_up(search.key, search.validity, known)
    if earlier.winner is not None:
        unseen = "" if earlier.changes else "what was stored before this refresh does not count"
        return Verdict("stale", before=earlier.winner, changes=earlier.changes, reason=unseen)
    if cache.trials_of(search.key, search.validity):
        return Verdict("seeded", origin="its own trials: it was begun and not finished")
    origin = earlier.origin or seeds()
    return Verdict("seeded", origin=origin) if origin else verdict


def counts(verdicts: Iterable[Verdict]) -> Mapping[Kind, int]:
    """Return how many verdicts there are of each kind."""
    found = [verdict.kind for verdict in verdicts]
    return {kind: found.count(kind) for kind in KINDS}


def _lapsed(search: TaskSearch, winner: WinnerRecord) -> str:
    """Why a winner cannot be used today; empty when it can."""
    if winner.effort not in EFFORTS:
        return f"its effort is {winner.effort!r}, which is none of {', '.join(EFFORTS)}"
    return search.lapsed(winner.configuration, winner.rendered_sha256)


def _of_pin(search: TaskSearch, trials: Sequence[TrialRecord], pin: Configuration, retry: Collection[str]) -> Verdict:
    record = search.counting(trials, retry).get(configuration_key(pin))
    if record is None:
        return Verdict("new", pin=pin, reason="pinned, and not known to work")
    if record.status != OK:
        raise TuningError(f"{search.title}: the pinned configuration does not work: {record.status}: {record.message}")
    return Verdict("hit", pin=pin, reason="pinned")
