"""Test votes around inferences: how many become system calls, and what is in force with several instances."""

import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputune.core.errors import ForkedProcess
from gputune.runtime.power.arbiter import Arbiter
from gputune.runtime.power.records import NOTHING, Corner, Vote
from gputune.runtime.power.voter import Voter
from tests.runtime.power.made_up import FIRST, MadeUpProfile, MadeUpSteering, contents, vote
from tests.waiting import becomes

HIGH, MIDDLE, LOW, LOWEST = vote(Corner.TURBO), vote(Corner.NOM), vote(Corner.SVS), vote(Corner.SVS2)


@pytest.fixture
def steering(tmp_path: Path) -> MadeUpSteering:
    return MadeUpSteering(MadeUpSteering.tree(tmp_path / "device"))


@pytest.fixture
def arbiter(steering: MadeUpSteering, tmp_path: Path) -> Iterator[Arbiter]:
    made = Arbiter("gpu", steering, tmp_path / "votes")
    yield made
    made.close()
    assert steering.now() == FIRST and list((tmp_path / "votes").glob("*")) == []


def voter(arbiter: Arbiter, start: Vote, done: Vote, *, share: bool = False, hysteresis_us: int = 0) -> Voter:
    return Voter(MadeUpProfile(start, done, hysteresis_us), lambda: arbiter, share)


def test_hysteresis_holds_the_start_vote_between_inferences(arbiter: Arbiter, steering: MadeUpSteering) -> None:
    with voter(arbiter, HIGH, LOW, hysteresis_us=10**9) as one:
        for _ in range(100):
            one.start("execute")
            one.done("execute")
        one.start("execute")
        assert one.run(now := time.monotonic() + 1001) == now + 1000  # so that the next end need not wake the thread
        assert steering.now() == contents(HIGH)
        one.done("execute")
        one.run(time.monotonic() + 1001)
        assert steering.writes["core"] == ["TURBO", "SVS"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_done_vote_follows_by_itself(arbiter: Arbiter, steering: MadeUpSteering, asynchronous: bool) -> None:
    with Voter(MadeUpProfile(HIGH, LOW, 10_000, asynchronous), lambda: arbiter) as one:
        one.start("execute")
        one.done("execute")
        assert becomes(lambda: steering.now() == contents(LOW))


def test_without_hysteresis_every_inference_votes_twice(arbiter: Arbiter, steering: MadeUpSteering) -> None:
    with voter(arbiter, HIGH, LOW) as one:
        for _ in range(100):
            one.start("execute")
            assert steering.now() == contents(HIGH)
            one.done("execute")
        assert steering.writes["core"] == ["TURBO", "SVS"] * 100


def test_a_vote_is_in_force_until_the_last_inference_at_once_is_done(
    arbiter: Arbiter, steering: MadeUpSteering
) -> None:
    with voter(arbiter, HIGH, LOW) as one:
        one.start("execute")
        one.start("execute")
        one.done("execute")
        assert steering.now() == contents(HIGH)
        one.done("execute")
        assert steering.now() == contents(LOW)


def test_asynchronous_votes_come_without_waiting(
    arbiter: Arbiter, steering: MadeUpSteering, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, apply, threads = threading.Event(), steering.apply, set()

    def slow(vote: Vote, own: Vote) -> object:
        held.wait()
        threads.add(threading.current_thread().name)
        return apply(vote, own)

    monkeypatch.setattr(steering, "apply", slow)
    with Voter(MadeUpProfile(HIGH, LOW, async_voting=True), lambda: arbiter) as one:
        one.start("execute")
        one.done("execute")
        one.start("execute")  # none of these waits for the first, which waits for what follows
        held.set()
        assert becomes(lambda: steering.now() == contents(HIGH))
        assert threads == {"power votes"}


def test_the_done_vote_of_one_instance_decides_what_another_runs_at(arbiter: Arbiter, steering: MadeUpSteering) -> None:
    """The two instances of the seed: a fast one, which has run, and a slow one, which runs behind it."""
    with voter(arbiter, HIGH, MIDDLE) as fast, voter(arbiter, LOW, LOWEST) as slow:
        for done, runs_at in ((MIDDLE, MIDDLE), (NOTHING, LOW)):
            fast.set_profile(MadeUpProfile(HIGH, done))
            fast.start("execute")
            slow.start("execute")
            assert steering.now() == contents(HIGH)
            fast.done("execute")
            assert steering.now() == contents(runs_at)
            slow.done("execute")


def test_of_a_shared_vote_the_last_counts(arbiter: Arbiter, steering: MadeUpSteering) -> None:
    with voter(arbiter, HIGH, LOW, share=True) as one, voter(arbiter, MIDDLE, LOW, share=True) as other:
        one.start("execute")
        other.start("execute")
        assert steering.now() == contents(MIDDLE)
        one.close()
        assert steering.now() == contents(MIDDLE)


def test_another_profile_counts_at_once_unless_something_runs(arbiter: Arbiter, steering: MadeUpSteering) -> None:
    with voter(arbiter, HIGH, MIDDLE, hysteresis_us=10**9) as one:
        one.start("execute")
        one.set_profile(MadeUpProfile(LOW, LOWEST))
        assert steering.now() == contents(HIGH)
        one.done("execute")
        assert steering.now() == contents(LOWEST)
        one.set_profile(MadeUpProfile(HIGH, MIDDLE))
        assert steering.now() == contents(MIDDLE)
        one.set_profile(MadeUpProfile(HIGH, MIDDLE, silent=True))
        assert steering.now() == FIRST


def test_a_silent_profile_has_no_arbiter_made(arbiter: Arbiter) -> None:
    def unwanted() -> Arbiter:
        raise AssertionError("an arbiter was made")

    with Voter(MadeUpProfile(HIGH, LOW, silent=True), unwanted) as one:
        one.start("init")
        one.done("init")


def test_a_fork_does_not_vote_for_its_parent(arbiter: Arbiter, steering: MadeUpSteering) -> None:
    with voter(arbiter, HIGH, LOW) as one:
        one.start("execute")
        child = os.fork()
        if child == 0:
            try:
                one.close()
                arbiter.close()
                one.done("execute")
            except ForkedProcess:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert steering.now() == contents(HIGH)


EQUAL_VOTES = """
import os, sys
from pathlib import Path
from gputune.runtime.power.arbiter import Arbiter
from gputune.runtime.power.voter import Voter
from tests.runtime.power.made_up import MadeUpProfile, MadeUpSteering
from tests.runtime.power.test_voter import HIGH, LOW

folder = Path(sys.argv[1])
arbiter = Arbiter("gpu", MadeUpSteering(MadeUpSteering.tree(folder / "device")), folder / "votes")
profiles = MadeUpProfile(LOW, LOW), MadeUpProfile(HIGH, LOW, 10**8)
equal, held = (Voter(profile, lambda: arbiter) for profile in profiles)
for one in (equal, held):
    one.start("execute"), one.done("execute")
for one in (equal, held):
    os.access("/begin", 0)
    for _ in range(1000):
        one.start("execute"), one.done("execute")
    os.access("/end", 0)
"""


@pytest.mark.slow
def test_equal_votes_make_no_system_call(tmp_path: Path) -> None:
    """Neither those that are equal nor those that hysteresis holds; on this process's main thread."""
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "true"], capture_output=True).returncode:
        pytest.skip("there is no strace, or it may not trace")
    log = tmp_path / "calls"
    command = [strace, "-o", str(log), sys.executable, "-c", EQUAL_VOTES, str(tmp_path)]
    root = Path(__file__).parents[3]
    subprocess.run(command, check=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
    _, *rounds = log.read_text().split('"/begin"')
    calls = [each.split('"/end"')[0].splitlines()[1:-1] for each in rounds]
    assert calls == [[], []]


@pytest.mark.slow
def test_the_end_of_a_process_brings_the_originals_back(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    script = f"{EQUAL_VOTES}\nassert arbiter.applied"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, cwd=root)
    assert MadeUpSteering(tmp_path / "device").now() == FIRST
    assert list((tmp_path / "votes").iterdir()) == []


def test_a_folder_that_does_not_work_is_one_warning(
    steering: MadeUpSteering, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "votes").mkdir(mode=0o755)
    with caplog.at_level(logging.WARNING), voter(Arbiter("gpu", steering, tmp_path / "votes"), HIGH, LOW) as one:
        for _ in range(3):
            one.start("execute")
            assert steering.now() == contents(HIGH)
            one.done("execute")
    assert steering.now() == FIRST
    (line,) = caplog.messages
    assert "can be used by others" in line
