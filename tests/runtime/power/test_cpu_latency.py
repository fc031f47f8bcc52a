"""Test the kernel's own latency file, if this process may open it."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputune.runtime.power.actuators.base import Access
from gputune.runtime.power.actuators.cpu_latency import NO_REQUEST_US, CpuLatency
from gputune.runtime.power.records import NOTHING, Vote
from gputune.runtime.power.steering import Steering

FILE = Path("/dev/cpu_dma_latency")

pytestmark = pytest.mark.skipif(not os.access(FILE, os.R_OK | os.W_OK), reason=f"{FILE} cannot be opened")


def in_force() -> int:
    return int.from_bytes(FILE.read_bytes()[:4], "little", signed=True)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Let one process of the machine hold requests at a time: the kernel shows the smallest of all."""
    with (Path(tempfile.gettempdir()) / "gputune-test-cpu-latency.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_vote_is_in_force_until_it_is_taken_back() -> None:
    if in_force() != NO_REQUEST_US:
        pytest.skip("another process holds a request")
    steering = Steering(CpuLatency.find(Access()), limit_s=5.0)
    applied = steering.apply(Vote(sleep_latency_us=100))
    assert (in_force(), applied.problems) == (100, ())
    assert applied.requested == applied.effective == {"cpu_latency.latency_us": 100.0}
    assert steering.apply(Vote(sleep_latency_us=40), own=NOTHING).effective == {}
    assert in_force() == NO_REQUEST_US
    steering.apply(Vote(sleep_latency_us=70))
    assert in_force() == 70
    assert steering.restore(steering.originals()) == []
    assert in_force() == NO_REQUEST_US


HOLDER = """
import os, time
from gputune.runtime.power.actuators.base import Access
from gputune.runtime.power.actuators.cpu_latency import CpuLatency
from gputune.runtime.power.records import Vote
(latency,) = CpuLatency.find(Access())
assert latency.write(latency.plan(Vote(sleep_latency_us=60))) == []
if os.fork() == 0:
    print("held", flush=True)
time.sleep(60)
"""


def test_the_kernel_takes_back_what_a_killed_process_asked_for() -> None:
    if in_force() != NO_REQUEST_US:
        pytest.skip("another process holds a request")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert in_force() == 60
        holder.kill()
        holder.wait(10)
        assert in_force() == NO_REQUEST_US  # though its fork lives on
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.communicate(timeout=10)
