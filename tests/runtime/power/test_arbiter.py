"""Test votes of several processes: the strongest live vote is in force, and after the last the originals are back."""

import errno
import fcntl
import json
import logging
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gputune.runtime.power import arbiter as arbiters
from gputune.runtime.power import journal
from gputune.runtime.power.arbiter import Arbiter, arbiter_of
from gputune.runtime.power.fake_trees import make_tree
from gputune.runtime.power.journal import DeviceFiles, Holder, Table
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.records import NOTHING, Corner, Corners, Vote, strongest
from gputune.runtime.power.steering import Applied, find_steering
from gputune.runtime.power.voter import Voter
from tests.runtime.power.made_up import FIRST, MadeUpProfile, MadeUpSteering, contents, vote
from tests.waiting import becomes

HIGH, LOW = vote(Corner.TURBO), vote(Corner.SVS)
VOTES = st.just(NOTHING) | st.builds(
    vote, st.sampled_from([Corner.SVS, Corner.NOM, Corner.TURBO]), st.none() | st.sampled_from([10, 100])
)


@dataclass(eq=False)
class Process:
    """A made-up process: an arbiter of its own, with what its instances have voted."""

    number: int
    steering: MadeUpSteering
    arbiter: Arbiter
    votes: dict["Instance", Vote] = field(default_factory=dict)


@dataclass(eq=False)
class Instance:
    process: Process
    profile: MadeUpProfile
    voter: Voter
    running: int = 0


WHICH = st.integers(0, 11)


class Processes(RuleBasedStateMachine):
    """Instances of several processes vote, close and are killed in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.tree = MadeUpSteering.tree(Path(self.folder.name) / "device")
        self.votes = Path(self.folder.name) / "votes"
        self.instances: list[Instance] = []
        self.begun = 0
        self.dead: set[int] = set()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(arbiters, "LOOK_S", math.inf)  # they look when this says so
        self.patch.setattr(journal, "started_at", lambda number: None if number in self.dead else 1)
        self.patch.setattr(Holder, "here", lambda number: Holder(self.begun, 1, number))

    @rule(start=VOTES, done=VOTES)
    def begin_process(self, start: Vote, done: Vote) -> None:
        self.begun += 1
        steering = MadeUpSteering(self.tree)
        self.add_instance(Process(self.begun, steering, Arbiter("gpu", steering, self.votes)), start, done)

    @precondition(lambda self: self.instances)
    @rule(which=WHICH, start=VOTES, done=VOTES)
    def begin_instance(self, which: int, start: Vote, done: Vote) -> None:
        self.add_instance(self.chosen(which).process, start, done)

    def add_instance(self, process: Process, start: Vote, done: Vote) -> None:
        profile = MadeUpProfile(start, done)
        instance = Instance(process, profile, Voter(profile, lambda: process.arbiter))
        process.votes[instance] = NOTHING
        self.instances.append(instance)

    def chosen(self, which: int) -> Instance:
        return self.instances[which % len(self.instances)]

    @precondition(lambda self: self.instances)
    @rule(which=WHICH)
    def start(self, which: int) -> None:
        instance = self.chosen(which)
        instance.running += 1
        instance.process.votes[instance] = instance.profile.start
        instance.voter.start("execute")

    @precondition(lambda self: any(instance.running for instance in self.instances))
    @rule(which=WHICH)
    def done(self, which: int) -> None:
        running = [instance for instance in self.instances if instance.running]
        instance = running[which % len(running)]
        instance.running -= 1
        if not instance.running:
            instance.process.votes[instance] = instance.profile.done
        instance.voter.done("execute")

    @precondition(lambda self: self.instances)
    @rule(which=WHICH)
    def close(self, which: int) -> None:
        instance = self.chosen(which)
        self.instances.remove(instance)
        del instance.process.votes[instance]
        instance.voter.close()

    @precondition(lambda self: self.instances)
    @rule(which=WHICH)
    def kill(self, which: int) -> None:
        killed = self.chosen(which).process
        self.dead.add(killed.number)
        self.instances = [instance for instance in self.instances if instance.process is not killed]

    @invariant()
    def the_strongest_live_vote_is_in_force(self) -> None:
        processes = list(dict.fromkeys(instance.process for instance in self.instances))
        if not processes:
            return
        processes[0].arbiter.run(time.monotonic())
        in_force = strongest(vote for process in processes for vote in process.votes.values())
        assert processes[0].steering.now() == (FIRST if in_force.empty else contents(in_force))
        for process in processes:
            assert (process.steering.own or NOTHING) == strongest(process.votes.values())
        if in_force.empty:
            assert list(self.votes.iterdir()) == []

    def teardown(self) -> None:
        while self.instances:
            self.kill(0)
        self.begin_process(NOTHING, NOTHING)
        assert self.instances[0].process.steering.now() == FIRST and list(self.votes.iterdir()) == []
        self.patch.undo()
        self.folder.cleanup()


@pytest.mark.slow
def test_any_order_of_what_processes_do() -> None:
    run_state_machine_as_test(Processes, settings=settings(max_examples=60, stateful_step_count=25, deadline=None))


@pytest.fixture
def steering(tmp_path: Path) -> MadeUpSteering:
    return MadeUpSteering(MadeUpSteering.tree(tmp_path / "device"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "votes"


def killed_after(vote: Vote, steering: MadeUpSteering, folder: Path, waited_for: bool = True) -> int:
    """Return the number of a process that has voted and was killed, and that its parent has waited for, or not yet."""
    child = os.fork()
    if child == 0:
        own = Arbiter("gpu", steering, folder)
        own.cast(own.register(), vote)
        if steering.now() == contents(vote):
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)
    assert os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT).si_status == signal.SIGKILL  # type: ignore[union-attr]
    if waited_for:
        os.waitpid(child, 0)
    return child


@pytest.mark.parametrize("waited_for", [True, False])
def test_the_next_process_brings_back_what_a_killed_one_left(
    steering: MadeUpSteering, folder: Path, waited_for: bool
) -> None:
    child = killed_after(HIGH, steering, folder, waited_for)
    Arbiter("gpu", steering, folder).look()
    assert steering.now() == FIRST and list(folder.iterdir()) == []
    assert waited_for or os.waitpid(child, 0)


def test_a_process_with_an_instance_notices_without_voting(
    steering: MadeUpSteering, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arbiters, "LOOK_S", 0.02)
    survivor = Arbiter("gpu", steering, folder)
    instance = survivor.register()
    killed_after(HIGH, steering, folder)
    assert becomes(lambda: steering.now() == FIRST)
    survivor.cast(instance, LOW)
    killed_after(HIGH, steering, folder)
    assert becomes(lambda: steering.now() == contents(LOW))
    survivor.close()
    assert steering.now() == FIRST and list(folder.iterdir()) == []


def test_a_process_that_is_killed_before_it_writes_is_noticed(steering: MadeUpSteering, folder: Path) -> None:
    """It has said which vote is in force, but did not bring the device there."""

    class Killed(MadeUpSteering):
        def apply(self, vote: Vote, own: Vote) -> Applied:
            if self.writes["core"]:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().apply(vote, own)

    survivor = Arbiter("gpu", steering, folder)
    survivor.cast(survivor.register(), LOW)
    child = os.fork()
    if child == 0:
        own = Arbiter("gpu", Killed(steering.folder), folder)
        instance = own.register()
        own.cast(instance, HIGH)
        own.withdraw(instance)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert steering.now() == contents(HIGH)
    survivor.run(time.monotonic())
    assert steering.now() == contents(LOW)
    survivor.close()


def test_what_changes_while_there_is_no_vote_is_original(steering: MadeUpSteering, folder: Path) -> None:
    one = Arbiter("gpu", steering, folder)
    instance = one.register()
    one.cast(instance, HIGH)
    one.cast(instance, NOTHING)
    (steering.folder / "core").write_text("chosen by the user")
    one.cast(instance, HIGH)
    one.close()
    assert steering.now() == {**FIRST, "core": "chosen by the user"}


def test_to_look_changes_nothing(voting: Arbiter, steering: MadeUpSteering, folder: Path) -> None:
    files = DeviceFiles("gpu", folder)
    stamp = files.stamp()
    Arbiter("gpu", MadeUpSteering(steering.folder), folder).look()
    assert files.stamp() == stamp


def test_a_lock_that_its_holder_removes_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def too_late(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        flock(descriptor, operation)
        one_file(folder, ".lock").unlink()

    monkeypatch.setattr(fcntl, "flock", too_late)
    with DeviceFiles("gpu", folder).locked(1.0), pytest.raises(TimeoutError), DeviceFiles("gpu", folder).locked(0.0):
        pass


def test_what_fails_to_go_back_is_tried_again_and_stays_in_the_journal(
    steering: MadeUpSteering, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arbiters, "LOOK_S", 0.02)
    one = Arbiter("gpu", steering, folder)
    instance = one.register()
    one.cast(instance, HIGH)
    steering.failing = ["EBUSY"] * 3 + ["SLOW"]
    one.withdraw(instance)
    assert steering.now() == contents(HIGH)
    assert any(path.suffix == ".originals" for path in folder.iterdir())
    assert becomes(lambda: not list(folder.iterdir()))
    assert steering.now() == FIRST


@pytest.fixture
def voting(steering: MadeUpSteering, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arbiter]:
    """One whose votes are in the files, which looks at them when it is told to."""
    monkeypatch.setattr(arbiters, "LOOK_S", 1000.0)
    one = Arbiter("gpu", steering, folder)
    one.cast(one.register(), HIGH)
    yield one
    one.close()
    assert steering.now() == FIRST and list(folder.iterdir()) == []


def one_file(folder: Path, suffix: str) -> Path:
    (path,) = folder.glob(f"*{suffix}")
    return path


def broken_votes(content: str) -> Iterator[str]:
    """What a file of votes may have become."""
    yield from ("", "\0" * 100, content[: len(content) // 2], "[" * 100_000, "[]", "{}")
    fields = json.loads(content)
    (holder, stored) = next(iter(fields["votes"].items()))
    wrongs: list[object] = [
        {"1": stored},
        {holder: {**stored, "bus": [1, 2]}},
        {holder: {**stored, "bus": [1, 2, 99]}},
        {holder: {**stored, "dcvs": 1}},
        {holder: {**stored, "sleep_latency_us": -1}},
        {holder: {**stored, "power_mode": "TURBO"}},
        {holder: {**stored, "more": 1}},
        {holder: None},
        [],
    ]
    for wrong in wrongs:
        yield json.dumps({**fields, "votes": wrong})


def test_broken_votes_start_anew_and_the_journal_stays(
    voting: Arbiter, steering: MadeUpSteering, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    votes, other = one_file(folder, ".votes"), Arbiter("gpu", steering, folder)
    whole, instance = votes.read_text(), other.register()
    for number, content in enumerate(broken_votes(whole)):
        votes.write_text(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            other.cast(instance, Vote(core=Corners(target=Corner.MAX), sleep_latency_us=number))
        assert [line for line in caplog.messages if "starting anew" in line], content
        voting.run(time.monotonic())
        assert len(DeviceFiles("gpu", folder).table().votes) == 2
    other.close()
    assert steering.now() == contents(HIGH)


def test_what_was_written_before_the_machine_started_again_is_ignored(
    voting: Arbiter, steering: MadeUpSteering, folder: Path
) -> None:
    for path in (one_file(folder, ".votes"), one_file(folder, ".originals")):
        path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "another"}))
    assert DeviceFiles("gpu", folder).table() == Table()
    with DeviceFiles("gpu", folder).locked(1.0) as files:
        assert files.originals() is None


@pytest.mark.parametrize("suffix", [".originals", ".votes"])
def test_files_that_cannot_be_read_are_not_taken_for_none(
    suffix: str, steering: MadeUpSteering, folder: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    killed_after(HIGH, steering, folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    unreadable, read = one_file(folder, suffix).stat().st_ino, os.read

    def fails(descriptor: int, size: int) -> bytes:
        if os.fstat(descriptor).st_ino == unreadable:
            raise OSError(errno.EIO, "Input/output error")
        return read(descriptor, size)

    with monkeypatch.context() as failing:
        failing.setattr(os, "read", fails)
        Arbiter("gpu", steering, folder).look()
        with closing(Arbiter("gpu", steering, folder)) as voter:
            voter.cast(voter.register(), LOW)
    assert f"clocks stay as they are if this process is killed: [Errno 5] Input/output error: '{folder}" in caplog.text
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    Arbiter("gpu", steering, folder).look()
    assert steering.now() == FIRST and list(folder.iterdir()) == []


def test_a_journal_that_has_gone_is_written_anew(voting: Arbiter, steering: MadeUpSteering, folder: Path) -> None:
    for path in list(folder.iterdir()):
        path.unlink()
    voting.run(time.monotonic())
    with DeviceFiles("gpu", folder).locked(1.0) as files:
        assert files.originals() == {str(steering.folder / name): content for name, content in FIRST.items()}


def test_the_originals_are_on_the_disk_before_the_first_write(
    steering: MadeUpSteering, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    apply = steering.apply
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink()))

    def checked(vote: Vote, own: Vote) -> object:
        assert [path.suffix for path in synced] == [".new", ""] and synced[1] == folder
        assert json.loads(one_file(folder, ".originals").read_text())["originals"] == steering.originals()
        return apply(vote, own)

    monkeypatch.setattr(steering, "apply", checked)
    one = Arbiter("gpu", steering, folder)
    one.cast(one.register(), HIGH)
    one.close()


def test_a_folder_of_another_kind_is_not_used(
    steering: MadeUpSteering, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").touch()
    for number, name in enumerate(("link", "file", "missing/votes")):
        one = Arbiter(f"gpu {number}", steering, tmp_path / name)
        for corner in (HIGH, LOW):
            one.cast(one.register(), corner)
            assert steering.now() == contents(HIGH)
        one.close()
        assert steering.now() == FIRST
        assert len(caplog.messages) == number + 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_full_disk_leaves_the_votes_of_this_process(
    steering: MadeUpSteering, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    one = Arbiter("gpu", steering, folder)
    first, second = one.register(), one.register()
    one.cast(first, HIGH)
    one.cast(second, LOW)
    one.withdraw(first)
    assert steering.now() == contents(LOW)
    one.close()
    assert steering.now() == FIRST and list(folder.iterdir()) == []
    (line,) = caplog.messages
    assert "No space left on device" in line


def test_a_lock_that_another_process_holds_delays_a_vote(
    steering: MadeUpSteering, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arbiters, "LOCK_S", 0.01)
    monkeypatch.setattr(arbiters, "LOOK_S", 0.02)
    one = Arbiter("gpu", steering, folder)
    instance = one.register()
    with DeviceFiles("gpu", folder).locked(1.0):
        one.cast(instance, HIGH)
        assert steering.now() == FIRST
    assert becomes(lambda: steering.now() == contents(HIGH))
    one.close()


def test_slow_writes_are_followed_by_the_vote_that_is_in_force_then(
    steering: MadeUpSteering, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arbiters, "LOOK_S", 0.02)
    one, other = (Arbiter("gpu", made, folder) for made in (steering, MadeUpSteering(steering.folder)))
    instance, wait = one.register(), threading.Event()
    monkeypatch.setattr(steering, "wait", lambda limit_s: wait.is_set())
    steering.slow = True
    one.cast(instance, LOW)
    other.cast(other.register(), HIGH)
    steering.apply(LOW, LOW)  # what goes on in the background
    wait.set()
    assert becomes(lambda: steering.now() == contents(HIGH))
    for each in (other, one):
        each.close()
    assert steering.now() == FIRST and list(folder.iterdir()) == []


def test_the_journal_stays_while_a_live_process_writes(
    steering: MadeUpSteering, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow writes of one end when another has brought the originals back already."""
    monkeypatch.setattr(arbiters, "AGAIN_S", 0.02)
    one, other = (Arbiter("gpu", made, folder) for made in (steering, MadeUpSteering(steering.folder)))
    instance, done = one.register(), threading.Event()
    monkeypatch.setattr(steering, "wait", lambda limit_s: done.is_set())
    steering.failing = ["SLOW"]
    one.cast(instance, HIGH)
    one.withdraw(instance)
    other.cast(other.register(), LOW)
    other.close()
    assert steering.now() == FIRST and one_file(folder, ".originals").exists()
    MadeUpSteering(steering.folder).apply(HIGH, HIGH)  # what goes on in the background
    done.set()
    assert becomes(lambda: not list(folder.iterdir()))
    assert steering.now() == FIRST


def test_controls_of_several_families_are_as_before(tmp_path: Path, folder: Path) -> None:
    root = make_tree(tmp_path / "root", "kgsl", "memory", "i915", "xe", "cpufreq")
    before = {path: path.read_bytes() for path in (root / "sys").rglob("*") if path.is_file()}
    steering = find_steering(None, root)
    with Voter(PerfProfile.from_preset("burst"), lambda: arbiter_of(str(root), lambda: steering, folder)) as voter:
        voter.start("execute")
        changed = [path for path, content in before.items() if path.read_bytes() != content]
        assert len(changed) > 10
        voter.done("execute")
        voter.set_profile(PerfProfile.from_preset("power_saver"))
        voter.start("execute")
        voter.done("execute")
    steering.wait(60.0)
    assert becomes(lambda: not list(folder.iterdir()))
    assert {path: path.read_bytes() for path in before} == before


def test_a_process_has_one_arbiter_for_a_device(steering: MadeUpSteering, tmp_path: Path) -> None:
    one, other = (arbiter_of(f"{tmp_path}{name}", lambda: steering) for name in "ab")
    assert one is arbiter_of(f"{tmp_path}a", lambda: steering) and one is not other
