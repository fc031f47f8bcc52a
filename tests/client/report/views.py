"""Provide single tasks of a report."""

from datetime import UTC, datetime
from pathlib import Path

from gputune.cache import PerformanceCache, TaskKey, TrialRecord, WinnerRecord
from gputune.client.report.data import DeviceView, TaskView
from gputune.client.report.gather import Peak, gather
from gputune.kernels.family import problem_to_dict
from stress import made_up_cache

HAND = TaskKey(op="MatMul", problem=problem_to_dict(made_up_cache.TASKS[3].problem))


def view(place: DeviceView, task: made_up_cache.MadeUp) -> TaskView:
    return next(one for one in place.tasks if one.digest == task.key.digest)


def by_hand(path: Path, trials: list[TrialRecord], winner: WinnerRecord | None) -> TaskView:
    """The view of one task with these records."""
    with PerformanceCache.open(path) as cache:
        cache.store_trials(HAND, made_up_cache.VALIDITY, trials)
        if winner is not None:
            cache.conclude(HAND, made_up_cache.VALIDITY, winner)
        (place,) = gather(cache, None, Peak(), datetime.now(UTC)).places
    (task,) = place.tasks
    return task
