"""Record what tuning found for one task."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gputune.cache import WinnerRecord
from gputune.client.model.plan import Task
from gputune.client.tuning.measuring.drift import Drift
from gputune.client.tuning.search.task_search import TaskSearch, default_of, space_of, task_key
from gputune.kernels.family import DeviceLimits
from gputune.kernels.space import Configuration


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What tuning found for one task; names follow --summary_json."""

    key: str
    op: str
    problem: Mapping[str, Any]
    weight: int
    hit: bool = False
    resumed: int = 0
    """Trials that an earlier, interrupted run had already stored."""
    space_size: int
    trials: Mapping[str, int] = field(default_factory=dict)
    """Trials by status, each configuration counted once."""
    measured: int = 0
    """Variants that this run had measured, each time counted."""
    drift: float | None = None
    """The baseline's time by that at first, in the batch where that is furthest from 1; None where nothing was
    measured."""
    default_ns: float | None = None
    tuned_ns: float | None = None
    configuration: Configuration
    in_chain: bool = False
    """Whether this was not the fastest alone, but is faster inside the whole model."""

    @property
    def failed(self) -> bool:
        """Whether variants were measured, and none of them works."""
        return bool(self.trials) and self.tuned_ns is None


def by_key(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    """Return outcomes by the keys of their tasks."""
    return {outcome.key: outcome for outcome in outcomes}


def of_tasks(tasks: Iterable[Task], outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Return those outcomes that are of these tasks."""
    return {key: outcomes[key] for key in (task_key(task).digest for task in tasks)}


def untuned(task: Task, limits: DeviceLimits) -> Outcome:
    """Return the default configuration, unmeasured: what tuning effort none gives."""
    key = task_key(task)
    return Outcome(
        key=key.digest,
        op=task.op,
        problem=key.problem,
        weight=task.weight,
        space_size=space_of(task, limits).size,
        configuration=default_of(task, limits),
    )


def pinned(search: TaskSearch, configuration: Configuration, drift: Drift | None) -> Outcome:
    """Return the configuration that a user has pinned; drift is None when it was known to work before."""
    default_ns, tuned_ns = search.time_ns(search.default), search.time_ns(configuration)
    return _searched(search, drift, configuration, search.statuses(), default_ns, tuned_ns)


def tuned(search: TaskSearch, winner: WinnerRecord, drift: Drift | None) -> Outcome:
    """Return what a search has led to; drift is None for a winner from the cache."""
    return _searched(search, drift, winner.configuration, winner.trials, winner.default_ns, winner.median_ns)


def _searched(
    search: TaskSearch,
    drift: Drift | None,
    configuration: Configuration,
    trials: Mapping[str, int],
    default_ns: float | None,
    tuned_ns: float | None,
) -> Outcome:
    return Outcome(
        key=search.key.digest,
        op=search.task.op,
        problem=search.key.problem,
        weight=search.task.weight,
        hit=drift is None,
        resumed=search.resumed,
        space_size=search.space.size,
        trials=trials,
        measured=search.measured,
        drift=None if drift is None else drift.furthest,
        default_ns=default_ns,
        tuned_ns=tuned_ns,
        configuration=configuration,
    )
