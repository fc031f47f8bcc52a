"""Test what the system counts: real software events if it allows them, and every refusal named."""

import ctypes
import errno
import functools
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.native.compiling import driver
from tests.waiting import becomes

NAMES = (
    "task_clock_ns",
    "page_faults",
    "context_switches",
    "cpu_migrations",
    "cycles",
    "instructions",
    "cache_references",
    "cache_misses",
    "branch_misses",
    "stalled_cycles_frontend",
    "stalled_cycles_backend",
)
SOFTWARE = NAMES[:4]
pytestmark = pytest.mark.usefixtures("c_compiler")
FLAGS = 40  # where they begin in a perf_event_attr
EXCLUDE_KERNEL = 1 << 5
OPEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
ENABLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
ATTRIBUTES_BYTES = 64
MOST_THREADS = 256


def unchanged(descriptor: int) -> None:
    """What is no counter cannot be enabled."""


@dataclass(frozen=True)
class PerfCalls:
    """What is asked of the system. open: a counter from a perf_event_attr, a thread id (0: this thread) and the first
    descriptor of its group (-1: it is the first itself); returns its descriptor. enable: begins to count a group. Both
    raise OSError."""

    open: Callable[[bytes, int, int], int]
    enable: Callable[[int], None] = unchanged


class Preemption(ctypes.Structure):
    _fields_ = (("thread", ctypes.c_int), ("count", ctypes.c_uint64))


@functools.cache
def library() -> Any:
    found = driver("events", "events")
    found.opened.restype = ctypes.c_void_p
    found.unavailable.restype = found.name_of.restype = ctypes.c_char_p
    found.preemptions_of.restype = ctypes.c_size_t
    return found


class Counters:
    """The events of a process."""

    def __init__(self, calls: PerfCalls | None = None, proc: Path = Path("/proc")) -> None:
        def open_event(attributes: int, thread: int, group: int) -> int:
            assert calls is not None
            try:
                return calls.open(ctypes.string_at(attributes, ATTRIBUTES_BYTES), thread, group)
            except OSError as error:
                return -(error.errno or 0)

        def enable(descriptor: int) -> int:
            assert calls is not None
            try:
                calls.enable(descriptor)
            except OSError as error:
                return -(error.errno or 0)
            return 0

        self._kept = OPEN(open_event), ENABLE(enable)
        functions = (ctypes.cast(each, ctypes.c_void_p) if calls else None for each in self._kept)
        self._own: Any = ctypes.c_void_p(library().opened(*functions, str(proc).encode()))
        self._last: dict[str, int] = {}
        assert tuple(library().name_of(ctypes.c_size_t(place)).decode() for place in range(len(NAMES))) == NAMES
        reasons = [library().unavailable(self._own, ctypes.c_size_t(place)) for place in range(len(NAMES))]
        self.unavailable = {name: reason.decode() for name, reason in zip(NAMES, reasons, strict=True) if reason}
        self.names = tuple(name for name in NAMES if name not in self.unavailable)

    def read(self) -> dict[str, int]:
        if self._own is not None:
            counts = (ctypes.c_uint64 * len(NAMES))()
            library().counts_of(self._own, counts)
            counted = dict(zip(NAMES, counts, strict=True))
            self._last = {name: counted[name] for name in self.names}
        return self._last

    def refresh(self) -> None:
        library().refresh(self._own)

    def preemptions(self) -> dict[int, int]:
        rows = (Preemption * MOST_THREADS)()
        count = library().preemptions_of(self._own, rows, ctypes.c_size_t(MOST_THREADS))
        return {row.thread: row.count for row in rows[:count]}

    def close(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            library().closed(own)

    def __enter__(self) -> "Counters":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


@pytest.fixture
def counters() -> Iterator[Counters]:
    with Counters() as counters:
        if "task_clock_ns" in counters.unavailable:
            pytest.skip(counters.unavailable["task_clock_ns"])
        yield counters


class Parked:
    """A thread that spends some time and then waits until it may end."""

    def __init__(self) -> None:
        self._go, self._spend, self._spent = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.id = self._thread.native_id or 0

    def _run(self) -> None:
        self._spend.wait()
        spend(5_000_000)
        self._spent.set()
        self._go.wait()

    def spend(self) -> None:
        self._spend.set()
        self._spent.wait()

    def end(self) -> None:
        self._spend.set()
        self._go.set()
        self._thread.join()
        assert becomes(lambda: not Path(f"/proc/self/task/{self.id}").exists())


def spend(processor_ns: int) -> None:
    until = time.thread_time_ns() + processor_ns
    while time.thread_time_ns() < until:
        pass


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}


def test_the_task_clock_is_the_processor_time_of_all_threads(counters: Counters) -> None:
    before, begun_ns = counters.read()["task_clock_ns"], time.process_time_ns()
    spend(20_000_000)
    counted, spent_ns = counters.read()["task_clock_ns"] - before, time.process_time_ns() - begun_ns
    assert 20_000_000 <= counted <= spent_ns + 20_000_000


def test_memory_that_is_touched_first_faults(counters: Counters) -> None:
    pages = 256
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        before = counters.read()
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1
        assert counters.read()["page_faults"] - before["page_faults"] >= pages // 2


def test_threads_come_and_go_without_a_count_lost(counters: Counters) -> None:
    """What a thread has spent is counted once it is met, also when it has ended."""
    one = len(counters.names)
    counters.refresh()
    before = len(descriptors())
    thread = Parked()
    counters.refresh()
    assert len(descriptors()) - before == one
    thread.spend()
    with_it = counters.read()["task_clock_ns"]
    thread.end()
    assert counters.read()["task_clock_ns"] >= with_it
    counters.refresh()
    assert len(descriptors()) == before
    assert counters.read()["task_clock_ns"] >= with_it


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "EACCES: perf_event_paranoid is 4; {most} or less, or the capability CAP_PERFMON"),
        (errno.EPERM, "EPERM: perf_event_paranoid is 4"),
        (errno.ENOSYS, "ENOSYS: the kernel has no perf_event_open"),
        (errno.EMFILE, "EMFILE: too many open files"),
        (errno.ENFILE, "ENFILE: too many open files on this system"),
        (errno.ENOENT, "ENOENT: the processor shows no such counter"),
        (errno.EOPNOTSUPP, f"{errno.errorcode[errno.EOPNOTSUPP]}: the processor does not count this"),
        (errno.EINVAL, "EINVAL: the processor cannot count this together with the others"),
        (errno.E2BIG, f"error {errno.E2BIG}: "),
    ],
)
def test_what_is_refused_is_named_with_its_reason(tmp_path: Path, number: int, words: str) -> None:
    paranoid(tmp_path, 4)
    with Counters(refusing(number), tmp_path) as counters:
        assert (counters.names, counters.read()) == ((), {})
        assert tuple(counters.unavailable) == NAMES
        for name, reason in counters.unavailable.items():
            assert reason.startswith(words.format(most=1 if name in ("context_switches", "cpu_migrations") else 2))


def test_a_filter_of_system_calls_is_told_from_a_setting(tmp_path: Path) -> None:
    paranoid(tmp_path, 1)
    reasons = set(Counters(refusing(errno.EPERM), tmp_path).unavailable.values())
    assert len(reasons) == 1 and "seccomp" in reasons.pop()


def test_a_process_that_may_count_its_own_code_only_does_that(tmp_path: Path) -> None:
    paranoid(tmp_path, 2)

    def open_event(attributes: bytes, thread: int, group: int) -> int:
        if not struct.unpack_from("=Q", attributes, FLAGS)[0] & EXCLUDE_KERNEL:
            raise OSError(errno.EACCES, "")
        if struct.unpack_from("=I", attributes)[0] == 0:  # hardware
            raise OSError(errno.ENOENT, "")
        return os.open(os.devnull, os.O_RDONLY)

    with Counters(PerfCalls(open_event, unchanged), tmp_path) as counters:
        assert counters.names == ("task_clock_ns", "page_faults")
        assert counters.unavailable["cycles"].startswith("ENOENT")
        assert "perf_event_paranoid is 2; 1 or less" in counters.unavailable["cpu_migrations"]


def test_threads_come_and_go_without_a_descriptor_left(tmp_path: Path) -> None:
    """One of them cannot be counted at first, and counts as a new one when it comes back."""
    for thread in (7, 8):
        task(tmp_path, thread, "worker")
    before, full = descriptors(), {8}

    def open_event(attributes: bytes, thread: int, group: int) -> int:
        if thread in full and group >= 0:
            raise OSError(errno.EMFILE, "")
        return os.open(os.devnull, os.O_RDONLY)

    with Counters(PerfCalls(open_event, unchanged), tmp_path) as own:

        def counted() -> float:
            own.refresh()
            assert own.read() == dict.fromkeys(NAMES, 0), "nothing can be read of these"
            return len(descriptors() - before) / len(NAMES)

        assert counted() == 1
        full.clear()
        assert counted() == 1, "it is not tried again"
        (tmp_path / "self/task/8").rename(tmp_path / "gone")
        assert counted() == 1
        (tmp_path / "gone").rename(tmp_path / "self/task/8")
        assert counted() == 2
        (tmp_path / "self/task/7").rename(tmp_path / "gone")
        assert counted() == 1
    assert descriptors() <= before


def test_counters_that_were_taken_away_for_a_while_are_scaled(tmp_path: Path) -> None:
    task(tmp_path, 7, "main")
    ends: list[tuple[int, int]] = []
    enabled: list[int] = []

    def open_event(attributes: bytes, thread: int, group: int) -> int:
        if struct.unpack_from("=I", attributes)[0] == 1:  # software
            raise OSError(errno.ENOENT, "")
        read, write = os.pipe()
        os.set_blocking(read, False)  # a counter always has something to say
        if thread == 7:
            ends.append((read, write))
        else:
            os.close(write)
        return read

    with Counters(PerfCalls(open_event, enabled.append), tmp_path) as counters:
        hardware = len(NAMES) - len(SOFTWARE)
        assert len(counters.names) == hardware == len(ends) and enabled == [ends[0][0]]

        def says(enabled_ns: int, running_ns: int, value: int) -> dict[str, int]:
            os.write(
                ends[0][1], struct.pack(f"={3 + hardware}Q", hardware, enabled_ns, running_ns, *[value] * hardware)
            )
            return counters.read()

        assert says(100, 100, 50)["cycles"] == 50
        assert says(300, 200, 70)["cycles"] == 50 + 40, "for half of the time it did not count"
        assert says(400, 200, 70)["cycles"] == 90
        assert says(500, 300, 80)["cycles"] == 90 + 20
    for _, write in ends:
        os.close(write)


def test_preemptions_are_by_thread(tmp_path: Path) -> None:
    task(tmp_path, 7, "main", 12)
    task(tmp_path, 8, "worker", 345)
    counters = Counters(refusing(errno.ENOSYS), tmp_path)
    assert counters.preemptions() == {7: 12, 8: 345}
    (tmp_path / "self/task/8/status").unlink()
    assert counters.preemptions() == {7: 12}, "a thread may end in between"
    if sys.platform.startswith("linux"):
        assert threading.get_native_id() in Counters(refusing(errno.ENOSYS)).preemptions()


def refusing(number: int) -> PerfCalls:
    def open_event(attributes: bytes, thread: int, group: int) -> int:
        raise OSError(number, "")

    return PerfCalls(open_event)


def paranoid(proc: Path, level: int) -> None:
    (proc / "sys/kernel").mkdir(parents=True)
    (proc / "sys/kernel/perf_event_paranoid").write_text(f"{level}\n")


def task(proc: Path, thread: int, name: str, preempted: int = 0) -> None:
    folder = proc / "self/task" / str(thread)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    status = f"Name:\t{name}\nvoluntary_ctxt_switches:\t99\nnonvoluntary_ctxt_switches:\t{preempted}\n"
    (folder / "status").write_text(status)
