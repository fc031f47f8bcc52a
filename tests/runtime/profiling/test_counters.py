"""Test what the system counts: real software events if it allows them, and every refusal named."""

import errno
import mmap
import os
import platform
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputune.runtime.profiling.counters import NAMES, Counters, PerfCalls
from tests.waiting import becomes

SOFTWARE = NAMES[:4]
FLAGS = 40  # where they begin in a perf_event_attr
EXCLUDE_KERNEL = 1 << 5


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


def difference(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in before}


def test_the_task_clock_is_the_processor_time_of_the_thread(counters: Counters) -> None:
    me = threading.get_native_id()
    before, begun_ns = counters.read_threads()[me]["task_clock_ns"], time.thread_time_ns()
    spend(20_000_000)
    counted, spent_ns = counters.read_threads()[me]["task_clock_ns"] - before, time.thread_time_ns() - begun_ns
    assert 20_000_000 <= counted <= spent_ns + 20_000_000


def test_memory_that_is_touched_first_faults(counters: Counters) -> None:
    pages = 256
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        before = counters.read()
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1
        assert difference(counters.read(), before)["page_faults"] >= pages // 2


def test_threads_come_and_go_without_a_descriptor_left_or_a_count_lost() -> None:
    before = descriptors()
    thread = Parked()
    with Counters() as counters:
        if "task_clock_ns" in counters.unavailable:
            thread.end()
            pytest.skip(counters.unavailable["task_clock_ns"])
        one = len(counters.names)
        assert len(descriptors() - before) == one * len(counters.read_threads())
        later = Parked()
        assert later.id not in counters.read_threads()
        counters.refresh()
        assert {thread.id, later.id} <= set(counters.read_threads())
        assert len(descriptors() - before) == one * len(counters.read_threads())
        thread.spend()
        with_it = counters.read()
        assert counters.read_threads()[thread.id]["task_clock_ns"] >= 4_000_000
        thread.end()
        assert counters.read()["task_clock_ns"] >= with_it["task_clock_ns"]
        counters.refresh()
        assert thread.id not in counters.read_threads() and later.id in counters.read_threads()
        assert len(descriptors() - before) == one * len(counters.read_threads())
        assert counters.read()["task_clock_ns"] >= with_it["task_clock_ns"]
        later.end()
    assert descriptors() <= before
    assert counters.read()["task_clock_ns"] >= with_it["task_clock_ns"], "what was counted can be read afterwards"
    counters.refresh()
    assert descriptors() <= before


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
        (errno.E2BIG, "E2BIG: "),
    ],
)
def test_what_is_refused_is_named_with_its_reason(tmp_path: Path, number: int, words: str) -> None:
    paranoid(tmp_path, 4)
    with Counters(refusing(number), tmp_path) as counters:
        assert (counters.names, counters.read(), counters.read_threads()) == ((), {}, {})
        assert tuple(counters.unavailable) == NAMES
        for name, reason in counters.unavailable.items():
            assert reason.startswith(words.format(most=1 if name in ("context_switches", "cpu_migrations") else 2))


def test_a_filter_of_system_calls_is_told_from_a_setting(tmp_path: Path) -> None:
    paranoid(tmp_path, 1)
    reasons = set(Counters(refusing(errno.EPERM), tmp_path).unavailable.values())
    assert len(reasons) == 1 and "seccomp" in reasons.pop()


def test_elsewhere_than_on_linux_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, value in ((sys, "platform", "plan9"), (platform, "machine", lambda: "vax")):
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, value)
            reasons = set(Counters().unavailable.values())
        assert len(reasons) == 1 and reasons.pop().startswith("ENOSYS: perf_event_open is not known on ")


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


def test_a_thread_that_cannot_be_counted_costs_no_other(tmp_path: Path) -> None:
    task(tmp_path, 7, "main")
    task(tmp_path, 8, "worker")
    before = descriptors()

    def open_event(attributes: bytes, thread: int, group: int) -> int:
        if thread == 8 and group >= 0:
            raise OSError(errno.EMFILE, "")
        return os.open(os.devnull, os.O_RDONLY)

    with Counters(PerfCalls(open_event, unchanged), tmp_path) as counters:
        assert list(counters.read_threads()) == [7] and counters.uncounted[8].startswith("EMFILE")
        assert len(descriptors() - before) == len(counters.names) == len(NAMES)
        assert counters.read() == dict.fromkeys(NAMES, 0), "nothing can be read of these"
    assert descriptors() <= before


def test_a_thread_that_ends_while_it_is_met_is_not_told_as_uncounted(tmp_path: Path) -> None:
    """Neither at once nor at later looks, and another thread with its number is counted."""
    task(tmp_path, 7, "main")
    task(tmp_path, 8, "worker")
    before = descriptors()
    ended = {8}

    def open_event(attributes: bytes, thread: int, group: int) -> int:
        if thread in ended and group >= 0:
            raise OSError(errno.ESRCH, "")
        return os.open(os.devnull, os.O_RDONLY)

    with Counters(PerfCalls(open_event, unchanged), tmp_path) as counters:
        assert list(counters.read_threads()) == [7] and counters.uncounted == {}
        (tmp_path / "self/task/8").rename(tmp_path / "gone")
        counters.refresh()
        ended.clear()
        (tmp_path / "gone").rename(tmp_path / "self/task/8")
        counters.refresh()
        assert list(counters.read_threads()) == [7, 8] and counters.uncounted == {}
    assert descriptors() <= before


def test_a_thread_that_could_not_be_counted_is_forgotten_with_its_end(tmp_path: Path) -> None:
    task(tmp_path, 7, "main")
    task(tmp_path, 8, "worker")
    full = {8}

    def open_event(attributes: bytes, thread: int, group: int) -> int:
        if thread in full:
            raise OSError(errno.EMFILE, "")
        return os.open(os.devnull, os.O_RDONLY)

    with Counters(PerfCalls(open_event, unchanged), tmp_path) as counters:
        assert list(counters.uncounted) == [8]
        (tmp_path / "self/task/8").rename(tmp_path / "gone")
        counters.refresh()
        assert counters.uncounted == {}
        full.clear()
        (tmp_path / "gone").rename(tmp_path / "self/task/8")
        counters.refresh()
        assert list(counters.read_threads()) == [7, 8] and counters.uncounted == {}


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


def unchanged(descriptor: int) -> None:
    """What is no counter cannot be enabled."""


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
