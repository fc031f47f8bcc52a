"""Test what a machine counts of its load, and how a system is handled that counts none of it."""

import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from gputune.runtime.devices import load
from gputune.runtime.devices.load import CLOCK, IDLE, LOAD, OWN, PROCESSORS, SWITCHES, usable_processors

STAT = """cpu  100 0 100 99000 1000 0 0 0 0 0
cpu0 10 0 10 {0} {1} 0 0 0 0 0
cpu1 90 0 90 77000 900 0 0 0 0 0
cpu3 10 0 10 {2} 0 0 0 0 0 0
intr 1 2 3
"""


@pytest.fixture(autouse=True)
def two_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: {0, 3}, raising=False)


def system(root: Path, **files: str) -> Path:
    """A root folder with files of these names below proc."""
    for name, text in files.items():
        (root / "proc").mkdir(exist_ok=True)
        (root / "proc" / name).write_text(text)
    return root


def test_only_processors_that_the_process_may_use_are_idle(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    found = load.read(system(tmp_path, stat=STAT.format(3 * ticks, 2 * ticks, 5 * ticks)))
    assert (found[IDLE], found[PROCESSORS]) == (10.0, 2)
    assert {LOAD, CLOCK, OWN} <= found.keys()


@pytest.mark.parametrize("stat", ["", "cpu0\ncpu3 x y\n", STAT.format(0, 0, 0)], ids=["none", "nonsense", "zeros"])
def test_idle_time_that_is_not_counted_is_not_there(tmp_path: Path, stat: str) -> None:
    assert IDLE not in load.read(system(tmp_path, stat=stat))


def test_a_granted_share_of_time_is_fewer_processors(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("150000 100000\n")
    assert usable_processors(tmp_path) == load.read(tmp_path)[PROCESSORS] == 1.5


def test_switches_are_there_where_the_system_counts_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def counting(voluntary: int, involuntary: int) -> None:
        usage = SimpleNamespace(ru_nvcsw=voluntary, ru_nivcsw=involuntary)
        monkeypatch.setattr(resource, "getrusage", lambda who: usage)

    counting(5, 0)
    assert load.read(tmp_path)[SWITCHES] == 0
    counting(5, 7)
    assert load.read(tmp_path)[SWITCHES] == 7
    counting(0, 0)
    assert SWITCHES not in load.read(tmp_path)


def test_a_system_without_averages_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getloadavg")
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    found = load.read(tmp_path)
    assert LOAD not in found
    assert found[PROCESSORS] == 3
