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

from gputune.runtime.native.declarations import PerfSettings
from gputune.runtime.native.power import Controls, Votes, settings_of
from gputune.runtime.power.fake_trees import NO_REQUEST_US
from gputune.runtime.power.records import NOTHING, Vote
from tests.native.voting import MALI, identity
from tests.waiting import becomes

ROOT = Path(__file__).parents[3]
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


@pytest.fixture
def controls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Controls]:
    """Those of a GPU for which nothing else is steered here."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if in_force() != NO_REQUEST_US:
        pytest.skip("another process holds a request")
    with Controls(identity(MALI)) as found:
        yield found


def test_a_vote_is_in_force_until_it_is_taken_back(controls: Controls) -> None:
    with Votes(controls, of(100)) as votes:
        votes.begin("execute")
        assert becomes(lambda: in_force() == 100)
        assert becomes(lambda: controls.clocks(live=True)[1].get("cpu_latency.latency_us") == 100.0)
        votes.end("execute")
        assert becomes(lambda: in_force() == NO_REQUEST_US)
        votes.change(of(70))
        votes.begin("execute")
        assert becomes(lambda: in_force() == 70)
    assert in_force() == NO_REQUEST_US


def of(latency_us: int) -> PerfSettings:
    """Settings with a latency while a phase runs."""
    return settings_of([*Vote(sleep_latency_us=latency_us).places * 3, *NOTHING.places * 3, 0, 0])


HOLDER = """
import os, sys, time
from gputune.runtime.power.instances import Power
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from tests.native.voting import MALI, identity
from tests.runtime.power.test_cpu_latency import in_force
from tests.waiting import becomes
profile = PerfProfile()
profile.set_value("execute", "DSP_SLEEP_LATENCY_START_US", 60)
power = Power(profile, identity(MALI))
power.start("execute")
assert becomes(lambda: in_force() == 60)
if os.fork() == 0:
    print("held", flush=True)
time.sleep(60)
"""


def test_the_kernel_takes_back_what_a_killed_process_asked_for(controls: Controls) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    )
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
