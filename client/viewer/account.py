"""Account for all the time of an inference: every nanosecond has a name, and unnamed time is a row of its own.

An inference is divided along the host's time line. While the device works on a launch, the time counts for the launch,
whatever the host does. Time between launches is a gap. Time from the first enqueueing to the first launch is the queue.
Time from the last launch until the host has noticed is the wake-up. All else are parts that the host has stamped.
Without timestamps of launches, the device has all time from enqueueing to the end of waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np

from gputune.runtime.profiling.records import PART_BEGUN, PART_ENDED, PART_KIND, HostPart, LoggedInference, Times


@dataclass(frozen=True)
class Account:
    """ns of an inference, or of several together. kernels: launches on the device; device: the same without timestamps
    of launches, with queue, gaps and wake-up in it; profiler: reading timestamps in the middle; rest: what has no
    stamps of its own. They add up to `elapsed_ns`. The rest may be below 0 by what the clocks' fit is wrong."""

    elapsed_ns: int
    host_ns: int
    write_ns: int
    queue_ns: int
    kernels_ns: int
    gaps_ns: int
    device_ns: int
    wake_up_ns: int
    read_ns: int
    profiler_ns: int

    @property
    def rest_ns(self) -> int:
        return self.elapsed_ns - sum(ns for _, ns in self._stamped())

    def rows(self) -> Iterator[tuple[str, int]]:
        """Yield names and ns, the rest last: they add up to the whole."""
        yield from self._stamped()
        yield "rest", self.rest_ns

    def _stamped(self) -> Iterator[tuple[str, int]]:
        for each in fields(self)[1:]:
            yield each.name.removesuffix("_ns").replace("_", "-"), getattr(self, each.name)


def account_of(inference: LoggedInference) -> Account:
    """Of one inference."""
    parts, launches = inference.parts, device_rows(inference)
    begun_ns, ended_ns = _launching(parts)
    first_ns, last_ns = (int(launches[0, 0]), int(launches[-1, 1])) if len(launches) else (begun_ns, ended_ns)
    busy_ns = int((launches[:, 1] - launches[:, 0]).sum())
    profiler_ns = _idle(_of(parts, HostPart.PROFILER), launches, first_ns, last_ns)
    between_ns = last_ns - first_ns - busy_ns - profiler_ns
    return Account(
        elapsed_ns=inference.elapsed_ns,
        host_ns=_outside(_of(parts, HostPart.HOST), begun_ns, ended_ns),
        write_ns=_outside(_of(parts, HostPart.WRITE), begun_ns, ended_ns),
        queue_ns=first_ns - begun_ns,
        kernels_ns=busy_ns,
        gaps_ns=between_ns if len(launches) else 0,
        device_ns=0 if len(launches) else between_ns,
        wake_up_ns=ended_ns - last_ns,
        read_ns=_outside(_of(parts, HostPart.READ), begun_ns, ended_ns),
        profiler_ns=profiler_ns,
    )


def total(accounts: Iterable[Account]) -> Account:
    """Several together."""
    rows = [[getattr(one, each.name) for each in fields(Account)] for one in accounts]
    return Account(*map(sum, zip(*rows, strict=True))) if rows else Account(*[0] * len(fields(Account)))


def device_rows(inference: LoggedInference) -> Times:
    """When each launch started and ended on the device, by the host's clock: n rows of two."""
    return inference.launches_ns()[:, -2:]


def _of(parts: Times, kind: HostPart) -> Times:
    """From when to when the parts of a kind were: n rows of two."""
    rows: Times = parts[parts[:, PART_KIND] == kind][:, [PART_BEGUN, PART_ENDED]]
    return rows


def _launching(parts: Times) -> tuple[int, int]:
    """From where the host begins to enqueue to where it has noticed the end."""
    given = np.concatenate([_of(parts, HostPart.ENQUEUE), _of(parts, HostPart.WAIT)])
    return (int(given[:, 0].min()), int(given[:, 1].max())) if len(given) else (0, 0)


def _outside(rows: Times, begun_ns: int, ended_ns: int) -> int:
    """Return what these take before and behind the device's time."""
    before = np.minimum(rows, begun_ns)
    behind = np.maximum(rows, ended_ns)
    return int((before[:, 1] - before[:, 0] + behind[:, 1] - behind[:, 0]).sum())


def _idle(rows: Times, launches: Times, first_ns: int, last_ns: int) -> int:
    """Return what these take between two moments while no launch runs."""
    idle_ns = 0
    for begun_ns, ended_ns in np.clip(rows, first_ns, last_ns).tolist():
        running = np.clip(launches, begun_ns, ended_ns)
        idle_ns += ended_ns - begun_ns - int((running[:, 1] - running[:, 0]).sum())
    return idle_ns
