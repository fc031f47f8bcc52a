"""Read how busy this machine is: its load, its processors' idle time, and the processor time of this process.

These are counts from the system's start, as `read` finds them; two readings say what happened in between
(client/tuning/measuring/quiet.py). A device and its host therefore need not agree on when to look. A load average alone
is not enough: for a minute it includes programs that have ended, and this program's own work.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

LOAD, CLOCK, PROCESSORS, IDLE, OWN, SWITCHES = (
    "load_1_minute",
    "clock_seconds",
    "processors",
    "idle_seconds",
    "own_seconds",
    "involuntary_switches",
)
"""The names of what `read` finds."""

COUNTS = (CLOCK, IDLE, OWN, SWITCHES)
"""Those that say nothing by themselves, but by how much they grow."""

IDLE_COLUMNS = slice(3, 5)
"""Of a processor in /proc/stat, after its name: idle, and idle while something waits for a disk."""


def read(root: Path = Path("/")) -> dict[str, float]:
    """Return the numbers by name, as far as this system counts them.

    load_1_minute; clock_seconds, by a clock that only ever goes on; processors, as of `usable_processors`; idle_seconds
    of all processors that this process may use; own_seconds, what it has had of them; involuntary_switches, how often
    other programs have taken a processor from it.
    """
    found = {CLOCK: time.monotonic(), OWN: time.process_time(), PROCESSORS: usable_processors(root)}
    with contextlib.suppress(OSError, AttributeError):
        found[LOAD] = os.getloadavg()[0]
    if (idle := _idle_seconds(root)) is not None:
        found[IDLE] = idle
    if (switches := _involuntary_switches()) is not None:
        found[SWITCHES] = switches
    return {name: round(value, 3) for name, value in found.items()}


def usable_processors(root: Path = Path("/")) -> float:
    """Return how many processors the threads of this process have, all together: those that they may use, or the share
    of time that control groups grant where it is less."""
    return min(len(_allowed(root)), _granted(root))


def _idle_seconds(root: Path) -> float | None:
    """Return what the processors that this process may use have been idle for; None where that is not counted, as in
    sandboxes whose counts are all 0."""
    allowed, ticks = _allowed(root), 0
    for line in _content(root / "proc/stat").splitlines():
        name, *columns = line.split()
        number = name.removeprefix("cpu")
        if number.isdecimal() and int(number) in allowed:
            ticks += sum(int(column) for column in columns[IDLE_COLUMNS] if column.isdecimal())
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else None


def _involuntary_switches() -> float | None:
    """Return the involuntary switches of all threads of this process, ended ones, too; None where the system counts no
    switches at all."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return float(usage.ru_nivcsw) if usage.ru_nivcsw or usage.ru_nvcsw else None


def _allowed(root: Path) -> set[int]:
    """Return the processors that the threads of this process may use, all together: a driver may have bound its own
    threads to others than the one that asks. All of them where the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return set(range(os.cpu_count() or 1))
    allowed = set(os.sched_getaffinity(0))
    for thread in (root / "proc/self/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended
            allowed |= os.sched_getaffinity(int(thread.name))
    return allowed


def _granted(root: Path) -> float:
    """Return the time that control groups grant, in processors; infinite where none has a limit."""
    return min(_quotas(root), default=math.inf)


def _quotas(root: Path) -> Iterator[float]:
    """Yield the limits of this process's control group and of those around it, of both versions of the interface."""
    for line in _content(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        inner = mount / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if mount in (folder, *folder.parents):
                text = _content(folder / "cpu.max") or " ".join(
                    _content(folder / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                )
                quota, period = [*text.split(), "", ""][:2]
                if quota.isdecimal() and period.isdecimal() and int(period) > 0:
                    yield int(quota) / int(period)


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
