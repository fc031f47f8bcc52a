"""Test that the C runtime counts the system's events as Python does: by Python's own tests."""

import ctypes
import errno
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputune.runtime.profiling import counters
from gputune.runtime.profiling.counters import NAMES, PerfCalls
from tests.native.compiling import driver
from tests.runtime.profiling import test_counters as by_python

OPEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
ENABLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
ATTRIBUTES_BYTES = 64
MOST_THREADS = 256


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
    """Python's, with what C has: what a process counts, and not what each of its threads does."""

    def __init__(self, calls: PerfCalls | None = None, proc: Path = Path("/proc")) -> None:
        def open_event(attributes: int, thread: int, group: int) -> int:
            assert calls is not None
            try:
                return calls.open(ctypes.string_at(attributes, ATTRIBUTES_BYTES), thread, group)
            except OSError as error:
                return -(error.errno or 0)

        def enable(descriptor: int) -> int:
            assert calls is not None
            calls.enable(descriptor)
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


@pytest.fixture(autouse=True)
def _counted_by_c(c_compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_python, "Counters", Counters)


@pytest.mark.parametrize(
    "test",
    [
        by_python.test_a_filter_of_system_calls_is_told_from_a_setting,
        by_python.test_a_process_that_may_count_its_own_code_only_does_that,
        by_python.test_counters_that_were_taken_away_for_a_while_are_scaled,
        by_python.test_preemptions_are_by_thread,
    ],
    ids=lambda test: test.__name__,
)
def test_c_counts_what_python_counts(test: Callable[[Path], None], tmp_path: Path) -> None:
    test(tmp_path)


@pytest.mark.parametrize("level", [1, 2, 4])
@pytest.mark.parametrize(
    "number",
    [
        errno.EACCES,
        errno.EPERM,
        errno.ENOSYS,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOENT,
        errno.EOPNOTSUPP,
        errno.EINVAL,
    ],
)
def test_what_is_refused_has_pythons_reason(tmp_path: Path, number: int, level: int) -> None:
    by_python.paranoid(tmp_path, level)
    refusing = by_python.refusing(number)
    with Counters(refusing, tmp_path) as own:
        assert own.unavailable == counters.Counters(refusing, tmp_path).unavailable
        assert (own.names, own.read()) == ((), {})


def test_threads_come_and_go_without_a_descriptor_left(tmp_path: Path) -> None:
    """One of them cannot be counted at first, and counts as a new one when it comes back."""
    for thread in (7, 8):
        by_python.task(tmp_path, thread, "worker")
    before, full = by_python.descriptors(), {8}

    def open_event(attributes: bytes, thread: int, group: int) -> int:
        if thread in full and group >= 0:
            raise OSError(errno.EMFILE, "")
        return os.open(os.devnull, os.O_RDONLY)

    with Counters(PerfCalls(open_event, by_python.unchanged), tmp_path) as own:

        def counted() -> float:
            own.refresh()
            assert own.read() == dict.fromkeys(NAMES, 0), "nothing can be read of these"
            return len(by_python.descriptors() - before) / len(NAMES)

        assert counted() == 1
        full.clear()
        assert counted() == 1, "it is not tried again"
        (tmp_path / "self/task/8").rename(tmp_path / "gone")
        assert counted() == 1
        (tmp_path / "gone").rename(tmp_path / "self/task/8")
        assert counted() == 2
        (tmp_path / "self/task/7").rename(tmp_path / "gone")
        assert counted() == 1
    assert by_python.descriptors() <= before
