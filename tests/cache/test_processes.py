"""Test several processes at once, and processes that are killed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gputune.cache import PerformanceCache

from .conftest import TASK, VALIDITY, trial

WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from conftest import TASK, VALIDITY, WINNER, trial
from gputune.cache import PerformanceCache

path, first, batches = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
with PerformanceCache.open(path) as cache:
    if len(sys.argv) > 5:
        print(cache.begin_generation(sys.argv[5], invalidate=True).invalidated, flush=True)
    for number in range(first, first + batches):
        cache.store_trials(TASK, VALIDITY, [trial(number)] * 4)
        cache.conclude(TASK, VALIDITY, WINNER)
        print(number, flush=True)
"""


def start(path: Path, first: int, batches: int, *generation: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(Path(__file__).parent), str(path), str(first), str(batches)]
    return subprocess.Popen([*command, *generation], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after(process: subprocess.Popen[str], lines: int) -> list[str]:
    """Everything the process printed until it was killed, some time after that many lines."""
    assert process.stdout is not None
    assert process.stderr is not None
    said = [process.stdout.readline().strip() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().split()
    process.stdout.close()
    process.stderr.close()
    assert process.wait() == -signal.SIGKILL
    return said


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 9])
def test_kill_loses_no_stored_batch(path: Path, lines: int) -> None:
    said = kill_after(start(path, 0, 10_000), lines)
    with PerformanceCache.open(path) as cache:
        stored = cache.trials_of(TASK, VALIDITY)
        assert cache.warnings == []
    assert len(stored) % 4 == 0
    assert len(said) <= len(stored) // 4 <= len(said) + 1
    assert stored == [trial(number) for number in range(len(stored) // 4) for _ in range(4)]


def test_a_killed_generation_resumes_with_what_it_measured(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(99)])
    said = kill_after(start(path, 0, 10_000, "f"), 4)
    assert said[0] == "True"
    with PerformanceCache.open(path) as cache:
        start_again = cache.begin_generation("f", invalidate=True)
        assert (start_again.resumed, start_again.invalidated) == (True, False)
        assert len(cache.trials_of(TASK, VALIDITY)) >= 4 * (len(said) - 1)
        assert trial(99) not in cache.trials_of(TASK, VALIDITY)[:1]


@pytest.mark.slow
def test_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"damaged" * 100)  # so that they also meet while setting it aside
    writers = [start(path, 1000 * index, 15) for index in range(1, 4)]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert (writer.returncode, errors) == (0, "")
    with PerformanceCache.open(path) as cache:
        stored = [record.configuration["MWG"] for record in cache.trials_of(TASK, VALIDITY)]
        assert cache.warnings == []
    assert len(list(path.parent.glob("*.damaged-*"))) == 1
    assert sorted(stored) == sorted(1000 * index + n for index in range(1, 4) for n in range(15) for _ in range(4))
    for index in range(1, 4):  # each process's own order is kept
        own = [number for number in stored if number // 1000 == index]
        assert own == sorted(own)
