"""Count system events while inferences run: perf_event_open(2) for each thread of this process, through ctypes.

Software events exist on every Linux that lets a process ask for them. Hardware events need a processor that shows its
counters, which most virtual machines do not. Events that are not counted are listed with the reason. Nothing here
raises: counting must never cost an inference.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from gputune.core.opened import Closing

PROC = Path("/proc")
PARANOID = Path("sys/kernel/perf_event_paranoid")
PREEMPTED = "nonvoluntary_ctxt_switches:"


@dataclass(frozen=True)
class _Event:
    """One kind of event; kind and config are perf_event_attr's. kernel_only: it happens in the kernel, so a process
    that may count its own code only counts none."""

    name: str
    kind: int
    config: int
    kernel_only: bool = False


_HARDWARE, _SOFTWARE = 0, 1
_EVENTS = (
    _Event("task_clock_ns", _SOFTWARE, 1),
    _Event("page_faults", _SOFTWARE, 2),
    _Event("context_switches", _SOFTWARE, 3, kernel_only=True),
    _Event("cpu_migrations", _SOFTWARE, 4, kernel_only=True),
    _Event("cycles", _HARDWARE, 0),
    _Event("instructions", _HARDWARE, 1),
    _Event("cache_references", _HARDWARE, 2),
    _Event("cache_misses", _HARDWARE, 3),
    _Event("branch_misses", _HARDWARE, 5),
    _Event("stalled_cycles_frontend", _HARDWARE, 7),
    _Event("stalled_cycles_backend", _HARDWARE, 8),
)
NAMES = tuple(event.name for event in _EVENTS)

_NUMBERS = {
    ("x86_64", 8): 298,
    ("x86_64", 4): 336,  # a process of 32 bits on such a kernel
    ("i386", 4): 336,
    ("i686", 4): 336,
    ("aarch64", 8): 241,
    ("aarch64", 4): 364,
    ("armv7l", 4): 364,
    ("armv8l", 4): 364,
    ("riscv64", 8): 241,
}
"""The system call's number by machine and bytes of a pointer."""

_ATTRIBUTES = struct.Struct("=IIQ16xQQ16x")  # perf_event_attr of the first version; no sampling
_FORMAT = 1 | 2 | 8  # TOTAL_TIME_ENABLED, TOTAL_TIME_RUNNING, GROUP
_DISABLED = 1
_EXCLUDE_KERNEL = 1 << 5 | 1 << 6  # and the hypervisor
_CLOSE_ON_EXEC = 8
_ENABLE = 0x2400


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _perf_event_open(attributes: bytes, thread: int, group: int) -> int:
    number = _NUMBERS.get((platform.machine(), struct.calcsize("P")))
    if not sys.platform.startswith("linux") or number is None:
        raise OSError(errno.ENOSYS, f"perf_event_open is not known on {sys.platform}, {platform.machine()}")
    arguments = (ctypes.c_long(number), attributes, ctypes.c_int(thread), ctypes.c_int(-1), ctypes.c_int(group))
    descriptor: int = _library().syscall(*arguments, ctypes.c_ulong(_CLOSE_ON_EXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "")
    return descriptor


def _enable(descriptor: int) -> None:
    import fcntl  # exists wherever a counter could be opened

    fcntl.ioctl(descriptor, _ENABLE, 0)


@dataclass(frozen=True)
class PerfCalls:
    """What is asked of the system. open: a counter from a perf_event_attr, a thread id (0: this thread) and the first
    descriptor of its group (-1: it is the first itself); returns its descriptor. enable: begins to count a group whose
    first descriptor that is. Both raise OSError."""

    open: Callable[[bytes, int, int], int] = _perf_event_open
    enable: Callable[[int], None] = _enable


class Counters(Closing):
    """Counts events of all threads of this process that were there when it was made, or at the last `refresh`.

    names: what is counted. unavailable: by name, why another event is not. uncounted: by thread id, why that one is not
    counted. Close it, or use it in a `with` statement. For one thread at a time.
    """

    def __init__(self, calls: PerfCalls | None = None, proc: Path = PROC) -> None:
        self.names: tuple[str, ...] = ()
        self.unavailable: dict[str, str] = {}
        self.uncounted: dict[int, str] = {}
        self._calls = calls or PerfCalls()
        self._proc = proc
        self._layout: list[_Layout] = []
        self._threads: dict[int, list[_Group]] = {}
        self._known: set[int] = set()
        self._ended: dict[str, int] = {}
        self._closed = False
        self._choose()
        self.refresh()

    def read(self) -> dict[str, int]:
        """Return what was counted since each thread was met, by name: the sum over all threads, those included that
        have ended since. What shares a processor's counters with other programs is scaled to all of its time."""
        sums = dict(self._ended)
        for groups in self._threads.values():
            for group in groups:
                group.add_to(sums)
        return sums

    def read_threads(self) -> dict[int, dict[str, int]]:
        """Return the same by thread id, for threads that were there at the last refresh."""
        return {thread: _sums(self.names, groups) for thread, groups in self._threads.items()}

    def refresh(self) -> None:
        """Count threads that are new from now on, and give up the descriptors of those that have ended."""
        if self._closed or not self._layout:
            return
        threads = _thread_ids(self._proc)
        if not threads or threads == self._known:
            return
        for thread in self._known - threads:
            self._end(thread)
        for thread in sorted(threads - self._known):
            self._begin(thread)
        self._known = threads

    def preemptions(self) -> dict[int, int]:
        """By thread id, how often the system took a processor from a thread that could have run on, since it began."""
        found = {}
        for thread in _thread_ids(self._proc):
            for line in _text(self._proc / f"self/task/{thread}/status").splitlines():
                if line.startswith(PREEMPTED):
                    with suppress(ValueError):
                        found[thread] = int(line.removeprefix(PREEMPTED))
        return found

    def close(self) -> None:
        """Give up all descriptors; `read` then says what was counted until now."""
        for thread in list(self._threads):
            self._end(thread)
        self._closed = True

    def _choose(self) -> None:
        """Find out which events there are, by counting this thread for a moment. Software and hardware events are
        groups of their own, because a group counts only while all of it fits into the processor."""
        for kind in (_SOFTWARE, _HARDWARE):
            layout = _Layout([], {})
            probe = _Group(layout)
            for event in _EVENTS:
                if event.kind == kind:
                    self._try(event, probe)
            probe.close()
            if layout.events:
                self._layout.append(layout)
        self.names = tuple(event.name for layout in self._layout for event in layout.events)
        self._ended = dict.fromkeys(self.names, 0)

    def _try(self, event: _Event, probe: _Group) -> None:
        why = ""
        for excluded in (0, _EXCLUDE_KERNEL):
            if excluded and event.kernel_only:
                break
            try:
                probe.append(self._calls.open(_attributes(event, excluded, probe.first), 0, probe.first))
            except OSError as error:
                why = _reason(error, self._proc, event.kernel_only)
                if error.errno not in (errno.EACCES, errno.EPERM):
                    break
            else:
                probe.layout.events.append(event)
                probe.layout.excluded[event.name] = excluded
                return
        self.unavailable[event.name] = why

    def _begin(self, thread: int) -> None:
        """Count a thread: all events or none."""
        groups = [_Group(layout) for layout in self._layout]
        try:
            for group in groups:
                for event in group.layout.events:
                    attributes = _attributes(event, group.layout.excluded[event.name], group.first)
                    group.append(self._calls.open(attributes, thread, group.first))
                self._calls.enable(group.first)  # a counter that joins a running group may stand still
        except OSError as error:
            for group in groups:
                group.close()
            if error.errno != errno.ESRCH:  # it has ended meanwhile
                self.uncounted[thread] = _reason(error, self._proc)
        else:
            self._threads[thread] = groups

    def _end(self, thread: int) -> None:
        self.uncounted.pop(thread, None)
        for group in self._threads.pop(thread, ()):
            group.add_to(self._ended)
            group.close()


@dataclass(frozen=True)
class _Layout:
    """The events of a group, and what of each is excluded."""

    events: list[_Event]
    excluded: dict[str, int]


@dataclass
class _Group:
    """The counters of one thread that are read together. `before`: their raw values, and the ns for which they were
    wanted and did count, at the last reading; `counted`: what follows from all readings so far."""

    layout: _Layout
    descriptors: list[int] = field(default_factory=list)
    before: Sequence[int] = ()
    counted: list[int] = field(default_factory=list)

    @property
    def first(self) -> int:
        return self.descriptors[0] if self.descriptors else -1

    def append(self, descriptor: int) -> None:
        self.descriptors.append(descriptor)
        self.before = [0] * (2 + len(self.descriptors))
        self.counted = [0] * len(self.descriptors)

    def add_to(self, sums: dict[str, int]) -> None:
        """Read the counters, and add what they have counted."""
        self._read()
        for event, count in zip(self.layout.events, self.counted, strict=True):
            sums[event.name] += count

    def _read(self) -> None:
        size = 8 * (3 + len(self.descriptors))
        try:
            content = os.read(self.first, size)
        except OSError:
            return
        if len(content) != size:  # of a group that could never run
            return
        values = struct.unpack(f"={size // 8}Q", content)[1:]
        enabled_ns, running_ns = values[0] - self.before[0], values[1] - self.before[1]
        if running_ns > 0 or values[2:] != tuple(self.before[2:]):
            for place, value in enumerate(values[2:]):
                count = value - self.before[2 + place]
                self.counted[place] += count if enabled_ns <= running_ns else count * enabled_ns // max(running_ns, 1)
            self.before = values

    def close(self) -> None:
        while self.descriptors:
            with suppress(OSError):
                os.close(self.descriptors.pop())


def _sums(names: Iterable[str], groups: Iterable[_Group]) -> dict[str, int]:
    sums = dict.fromkeys(names, 0)
    for group in groups:
        group.add_to(sums)
    return sums


def _attributes(event: _Event, excluded: int, group: int) -> bytes:
    flags = excluded | (_DISABLED if group < 0 else 0)
    return _ATTRIBUTES.pack(event.kind, _ATTRIBUTES.size, event.config, _FORMAT, flags)


def _reason(error: OSError, proc: Path, kernel_only: bool = False) -> str:
    """Why an event is not counted, and what would allow it."""
    number = error.errno or 0
    name = errno.errorcode.get(number, f"error {number}")
    if number in (errno.EACCES, errno.EPERM):
        level, most = _text(proc / PARANOID).strip() or "unknown", 1 if kernel_only else 2
        if level.lstrip("-").isdecimal() and int(level) <= most:
            return f"{name}: a filter of system calls, such as a container's seccomp profile, refuses perf_event_open"
        return f"{name}: {PARANOID.name} is {level}; {most} or less, or the capability CAP_PERFMON, allows it"
    return f"{name}: {error.strerror or _HINTS.get(number) or os.strerror(number)}"


_HINTS: Mapping[int, str] = {
    errno.ENOENT: "the processor shows no such counter, as in most virtual machines",
    errno.EOPNOTSUPP: "the processor does not count this",
    errno.EINVAL: "the processor cannot count this together with the others",
    errno.ENOSYS: "the kernel has no perf_event_open, or a filter of system calls hides it",
    errno.EMFILE: "too many open files; a higher limit (ulimit -n) allows it",
    errno.ENFILE: "too many open files on this system",
}


def _thread_ids(proc: Path) -> set[int]:
    """Return the ids of this process's threads; none where the system does not say."""
    try:
        return {int(name) for name in os.listdir(proc / "self/task") if name.isdecimal()}  # noqa: PTH208 - it is fast
    except OSError:
        return set()


def _text(path: Path) -> str:
    """Return a small file's content; nothing where it is not there (any more)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
