"""Choose what a search starts from and what it tries before it ends: winners of the same task elsewhere and of near
problems.

Elsewhere is another device tier's file in the folder of the performance cache, or another driver in the same file. What
won on this device before its driver or the kernel's source changed is the best guess available. Each such configuration
is measured before it may win, like everything else.
"""

import contextlib
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputune.cache import CacheError, PerformanceCache, TaskKey, TaskSummary, Validity, cache_files
from gputune.cache.lookup import look_up
from gputune.client.tuning.search.strategies.portfolio import greedy_portfolio
from gputune.client.tuning.search.task_search import TaskSearch, cost_of
from gputune.core.tier import tier_of
from gputune.kernels.space import Configuration, TuningSpace, configuration_key

log = logging.getLogger(__name__)

FROM_ELSEWHERE = 5
"""At most so many configurations from other devices of the vendor, and so many from those of others: the share of the
optimum that a greedy portfolio reaches hardly grows after that."""

FROM_NEAR = 3
"""At most so many near problems give their best."""

FARTHEST = 6.0
"""Problems farther apart than this, in doublings of their sizes, have little in common."""

FILES_AT_MOST = 16
"""Other tiers' files that are looked at, the newest first."""

UNLIKE = 2.0
"""The distance between two values that are no numbers and differ."""


@dataclass(frozen=True)
class Seeds:
    """Configurations to begin with, best first, and a phrase that says where they are from. strangers: those of devices
    of other vendors. earlier: the one that won for the same task on this device under the nearest other conditions,
    where there is one that is valid today."""

    configurations: tuple[dict[str, int], ...]
    origin: str
    strangers: tuple[dict[str, int], ...] = ()
    earlier: tuple[dict[str, int], ...] = ()


class Seeding:
    """Looks for seeds in the cache of a generation and in the files beside it, each read when it is needed first."""

    def __init__(self, cache: PerformanceCache) -> None:
        self._cache = cache
        self._summaries: list[tuple[Path, TaskSummary]] | None = None

    def seeds_for(
        self, key: TaskKey, validity: Validity, space: TuningSpace, running: Mapping[TaskKey, Configuration]
    ) -> Seeds:
        """Seeds of a task that are valid in its space. running: the best so far of other tasks of this generation."""
        known = self._known()
        here = tier_of(validity.device_name, validity.compute_units, validity.vendor, validity.device_version)
        same = [one for one in known if one[1].task == key and one[1].validity != validity]
        akin = [records for one in same if one[1].tier.vendor == here.vendor and (records := self._records(one))]
        strange = [records for one in same if one[1].tier.vendor != here.vendor and (records := self._records(one))]
        elsewhere = _valid(greedy_portfolio(akin, FROM_ELSEWHERE), space)
        strangers = _valid(greedy_portfolio(strange, FROM_ELSEWHERE), space)
        winners: dict[TaskKey, Configuration] = {
            summary.task: summary.winner.configuration
            for _, summary in known
            if summary.winner is not None and summary.validity.device_name == validity.device_name
        }
        near = _valid(_nearest(key, winners | dict(running)), space)
        before = look_up(key, validity, (summary for _, summary in same)).winner
        earlier = [] if before is None else _valid([before.configuration], space)
        chosen = {configuration_key(configuration): configuration for configuration in [*elsewhere, *near]}
        sources = []
        if elsewhere:
            sources.append(f"{len(elsewhere)} that won on {len(akin)} other device or driver records")
        if strangers:
            sources.append(f"{len(strangers)} that won on {len(strange)} records of other vendors' devices")
        if near:
            sources.append(f"{len(near)} of near problems")
        return Seeds(tuple(chosen.values()), " and ".join(sources), tuple(strangers), tuple(earlier))

    def _known(self) -> list[tuple[Path, TaskSummary]]:
        """Return every task in this file and in those beside it."""
        if self._summaries is None:
            self._summaries = [(self._cache.path, summary) for summary in self._cache.tasks()]
            for path in self._others():
                try:
                    with PerformanceCache.open_readonly(path, warn=log.debug) as cache:
                        self._summaries += [(path, summary) for summary in cache.tasks()]
                except CacheError as error:
                    log.debug(f"no seeds from {path.name}: {error}")
        return self._summaries

    def _others(self) -> list[Path]:
        found: list[tuple[float, Path]] = []
        with contextlib.suppress(CacheError):
            for path in cache_files(self._cache.path.parent):
                if path.name != self._cache.path.name:
                    with contextlib.suppress(OSError):
                        found.append((path.stat().st_mtime, path))
        return [path for _, path in sorted(found, reverse=True)[:FILES_AT_MOST]]

    def _records(self, one: tuple[Path, TaskSummary]) -> list[tuple[Configuration, float | None]]:
        """Return the trials behind a summary."""
        path, summary = one
        try:
            if path == self._cache.path:
                trials = self._cache.trials_of(summary.task, summary.validity)
            else:
                with PerformanceCache.open_readonly(path, warn=log.debug) as cache:
                    trials = cache.trials_of(summary.task, summary.validity)
        except CacheError as error:
            log.debug(f"no seeds from {path.name}: {error}")
            return []
        return [(trial.configuration, cost_of(trial)) for trial in trials]


def transferred(search: TaskSearch, others: Iterable[TaskSearch]) -> list[dict[str, int]]:
    """Return what a search has not tried of what is best by now in others of its op: its default, but for what the best
    of the other one has in place of the other's default. Of the nearest problems first."""
    like = [(distance(search.key, one.key), one.key.digest, one) for one in others if one.family is search.family]
    found: dict[str, dict[str, int]] = {}
    for _, _, other in sorted(like, key=lambda one: one[:2]):
        best, default = other.best or other.default, other.default
        changed = {name: value for name, value in best.items() if value != default.get(name) and name in search.default}
        wanted = search.default | changed
        found[configuration_key(wanted)] = wanted
    new = [configuration for key, configuration in found.items() if key not in search.known]
    return _valid(new, search.space)


def distance(one: TaskKey, other: TaskKey) -> float:
    """Return how far two problems of an op are apart, in doublings of their sizes; infinite for two ops."""
    if (one.op, one.dtype, one.layout) != (other.op, other.dtype, other.layout):
        return math.inf
    left, right = dict(_flat(one.problem)), dict(_flat(other.problem))
    apart = 0.0
    for name in left.keys() | right.keys():
        a, b = left.get(name), right.get(name)
        if a == b:
            continue
        if isinstance(a, int) and isinstance(b, int) and not isinstance(a, bool) and min(a, b) >= 0:
            apart += abs(math.log2((a + 1) / (b + 1)))
        else:
            apart += UNLIKE
    return apart


def _flat(value: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the plain values in nested ones, by their path."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield name, value
        return
    for key, item in items:
        yield from _flat(item, f"{name}.{key}")


def _nearest(key: TaskKey, winners: Mapping[TaskKey, Configuration]) -> list[Configuration]:
    """Return what the nearest other problems have won with."""
    apart = [(distance(key, other), other.digest, winner) for other, winner in winners.items() if other != key]
    near = sorted((one for one in apart if one[0] <= FARTHEST), key=lambda one: one[:2])
    different = {configuration_key(winner): winner for _, _, winner in near}
    return list(different.values())[:FROM_NEAR]


def _valid(configurations: Iterable[Configuration], space: TuningSpace) -> list[dict[str, int]]:
    return [dict(configuration) for configuration in configurations if not space.violations(configuration)]
