"""Learn which features a target has, if a task of a model wants to know."""

from __future__ import annotations

from collections.abc import Iterable

from gputune.client.model.plan import Task
from gputune.client.target.client import TargetClient
from gputune.client.tuning.search.task_search import asked_by
from gputune.kernels.family import DeviceLimits


def proven_features(targets: Iterable[TargetClient], tasks: Iterable[Task], limits: DeviceLimits) -> frozenset[str]:
    """Return the features for which tasks ask and which all targets have proven. Targets are asked only if a task asks.
    Raises TargetError."""
    asked = asked_by(tasks, limits)
    return asked.intersection(*(target.proven(asked) for target in targets)) if asked else asked
