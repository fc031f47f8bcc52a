"""Test votes of the C runtime: they mean the same as Python's, count together with them, and both clean up for each
other.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.core.identity import DeviceIdentity
from gputune.runtime.power.arbiter import Arbiter
from gputune.runtime.power.fake_trees import LATENCY, TREES, make_tree
from gputune.runtime.power.journal import DeviceFiles, power_folder
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.presets import PRESETS
from gputune.runtime.power.profiles.settings import PHASES
from gputune.runtime.power.records import Corner, Corners, PowerMode, Vote, strongest
from gputune.runtime.power.steering import Steering, find_steering
from tests.native.compiling import OPTIMISED, SOURCES, compiled, environment, sanitizers
from tests.native.test_threads import SANITIZED
from tests.waiting import becomes

FOLDER = Path(__file__).parent
CPU, ADRENO, MALI = ("cpu", "GenuineIntel", "cpu"), ("gpu", "QUALCOMM", "Adreno 740"), ("gpu", "ARM", "Mali-G78")
ANY_LATENCY_US = 2_000_000_000
"""The kernel's own. A fork of a process that has voted keeps the descriptor open, and with it what was written last."""
VOTING = [name for name in PRESETS if name != "system_settings"]


def identity(device: Sequence[str]) -> DeviceIdentity:
    kind, vendor, name = device
    return DeviceIdentity("", "", name, vendor, "", "", kind, 1, 1, (1, 1, 1), 1, 1, 1, 64, 1)


KILLED = """
import os, sys
from pathlib import Path
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.arbiter import Arbiter
from gputune.runtime.power.steering import Steering, find_steering
from tests.native.test_votes import CPU, identity

steering = find_steering(identity(CPU), Path(sys.argv[1]))
arbiter = Arbiter(steering.key, Steering(steering.actuators, limit_s=60.0))
arbiter.cast(arbiter.register(), PerfProfile.from_preset("burst").vote("execute", "start"))
os.kill(os.getpid(), 9)
"""
"""A Python process that votes and is killed."""


class Voting:
    """A process of the C runtime that votes for a device with controls below a root."""

    def __init__(self, program: Path, root: Path, device: Sequence[str]) -> None:
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([program, root, *device], env=environment(), **pipes)

    def tell(self, command: str, number: int = 0, word: str = "") -> str:
        """The answer to a command."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{command} {number} {word}\n")
        self.process.stdin.flush()
        return str(self.process.stdout.readline().strip())

    def end(self, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.communicate()
        assert self.process.returncode == (-9 if kill else 0)


@pytest.fixture(scope="module")
def program(c_compiler: None) -> Path:
    return voting_program(sanitizers())


def voting_program(flags: Sequence[str]) -> Path:
    return compiled("voting", [FOLDER / "drivers" / "voting.c", *SOURCES], (*OPTIMISED, *flags))


@contextmanager
def place() -> Iterator[Path]:
    """A folder, with the votes' own folder in it."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder).resolve()


def contents(root: Path) -> dict[str, bytes]:
    """Of all controls but the processors' latency, which the kernel takes back by itself."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path != root / LATENCY)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def contains(root: Path, wanted: Mapping[str, bytes]) -> bool:
    return contents(root) == wanted


def has_latency(root: Path, vote: Vote) -> bool:
    return int.from_bytes((root / LATENCY).read_bytes(), "little") == vote.sleep_latency_us


def is_in_force(files: DeviceFiles, vote: Vote) -> bool:
    return files.table().in_force == vote


def steered(folder: Path, families: Sequence[str], device: Sequence[str], vote: Vote) -> dict[str, bytes]:
    """What a tree contains once Python has brought it to a vote."""
    root = make_tree(Path(tempfile.mkdtemp(dir=folder)), *families)
    steering = Steering(find_steering(identity(device), root).actuators, limit_s=60.0)
    steering.apply(vote)
    return contents(root)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("families", "device"),
    [
        (("cpufreq",), CPU),
        (("pstate",), CPU),
        (("kgsl", "memory", "mali"), ADRENO),
        (("mali", "memory", "cpufreq"), MALI),
    ],
)
def test_presets_mean_the_same(program: Path, families: Sequence[str], device: Sequence[str]) -> None:
    with place() as folder:
        root = make_tree(folder / "root", *families)
        before, files = contents(root), DeviceFiles(find_steering(identity(device), root).key)
        voting, wanted_by = Voting(program, root, device), dict[Vote, dict[str, bytes]]()
        for number, preset in enumerate(VOTING):
            profile = PerfProfile.from_preset(preset)
            assert (
                voting.tell("open", word=preset if number % 2 else f"SNPE_PERFORMANCE_PROFILE_{preset.upper()}") == ""
            )
            for phase in PHASES:
                for moment, command in (("start", "begin"), ("done", "end")):
                    voting.tell(command, word=phase)
                    vote = profile.vote(phase, moment)  # type: ignore[arg-type]
                    assert becomes(partial(is_in_force, files, vote))
                    wanted = wanted_by[vote] = wanted_by.get(vote) or steered(folder, families, device, vote)
                    assert becomes(partial(contains, root, wanted)), (preset, phase, moment)
                    assert becomes(partial(has_latency, root, vote))
            assert voting.tell("told") == ""
            voting.tell("close")
            assert contents(root) == before
            assert list(power_folder().iterdir()) == []
            assert int.from_bytes((root / LATENCY).read_bytes(), "little") == ANY_LATENCY_US
        voting.end()


def test_presets_that_do_not_vote(program: Path) -> None:
    with place() as folder:
        voting = Voting(program, make_tree(folder / "root", "cpufreq"), CPU)
        assert voting.tell("open", word="system_settings") == ""
        known = ", ".join(PRESETS)
        assert voting.tell("open", word="quick") == f"there is no perf profile 'quick', only {known}"
        voting.end()
        assert not power_folder().exists()


def test_what_cannot_be_steered_is_told(program: Path) -> None:
    with place() as folder:
        root = make_tree(folder / "root", "amdgpu", "cpufreq")
        before = contents(root)
        voting = Voting(program, root, ("gpu", "Advanced Micro Devices, Inc.", "gfx1030"))
        assert voting.tell("open", word="burst") == ""
        voting.tell("begin", word="execute")
        assert voting.tell("told") == "power: clocks stay as they are: the C runtime cannot steer gfx1030"
        assert voting.tell("told") == ""
        voting.end()
        assert contents(root) == before


corner = st.sampled_from(list(Corner))
corners = st.builds(Corners, corner, corner, corner)
votes = st.builds(
    Vote,
    bus=corners,
    core=corners,
    dcvs=st.booleans(),
    sleep_latency_us=st.none() | st.integers(10, 3000),
    power_mode=st.sampled_from(list(PowerMode)),
    high_performance=st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=12)
@given(
    families=st.sampled_from([("kgsl", "memory"), ("memory", "mali")]),
    steps=st.lists(st.tuples(st.integers(0, 2), votes, st.sampled_from(VOTING)), min_size=1, max_size=6),
)
def test_the_strongest_of_all_is_in_force(
    program: Path, families: Sequence[str], steps: list[tuple[int, Vote, str]]
) -> None:
    """Of a Python process's (2) and of two instances of a C process."""
    with place() as folder:
        root = make_tree(folder / "root", *families)
        before, steering = contents(root), find_steering(identity(ADRENO), root)
        arbiter, files = Arbiter(steering.key, Steering(steering.actuators, limit_s=60.0)), DeviceFiles(steering.key)
        voting, live = Voting(program, root, ADRENO), {}
        python = arbiter.register()
        for who, vote, preset in steps:
            if who == 2:
                arbiter.cast(python, vote)
                live[who] = vote
            else:
                voting.tell("close", who)
                voting.tell("open", who, preset)
                voting.tell("begin", who, "execute")
                live[who] = PerfProfile.from_preset(preset).vote("execute", "start")
            in_force = strongest(live.values())
            assert becomes(partial(is_in_force, files, in_force))
            wanted = steered(folder, families, ADRENO, in_force)
            assert becomes(partial(contains, root, wanted))
        for who in (0, 1):
            voting.tell("close", who)
        arbiter.close()
        assert contents(root) == before
        assert list(power_folder().iterdir()) == []
        voting.end()


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["C", "Python"])
def test_either_brings_back_what_the_other_left(program: Path, killed: str) -> None:
    with place() as folder:
        root = make_tree(folder / "root", "cpufreq")
        before, key = contents(root), find_steering(identity(CPU), root).key
        voting = Voting(program, root, CPU)
        if killed == "C":
            arbiter = Arbiter(key, find_steering(identity(CPU), root))
            arbiter.register()
            voting.tell("open", word="burst")
            voting.tell("begin", word="execute")
            assert becomes(lambda: contents(root) != before)
            voting.end(kill=True)
            assert becomes(lambda: contents(root) == before)
            arbiter.close()
        else:
            subprocess.run([sys.executable, "-c", KILLED, root], check=False)
            assert contents(root) != before
            voting.tell("open", word="balanced")  # looks for what was left
            assert becomes(lambda: contents(root) == before)
            assert becomes(lambda: list(power_folder().iterdir()) == [])  # its end would cut that short
            voting.end()
        assert list(power_folder().iterdir()) == []


def test_the_votes_of_a_killed_process_end(program: Path) -> None:
    """While another C process votes, too, for less."""
    with place() as folder:
        root = make_tree(folder / "root", "cpufreq")
        other, killed = (Voting(program, root, CPU) for _ in range(2))
        for voting, preset in ((other, "balanced"), (killed, "burst")):
            voting.tell("open", word=preset)
            voting.tell("begin", word="execute")
        files = DeviceFiles(find_steering(identity(CPU), root).key)
        assert becomes(lambda: len(files.table().votes) == 2)
        killed.end(kill=True)
        start = PerfProfile.from_preset("balanced").vote("execute", "start")
        assert becomes(lambda: contents(root) == steered(folder, ["cpufreq"], CPU, start))
        other.tell("close")
        other.end()


@settings(max_examples=20)
@given(place_in=st.integers(0, 400), garbage=st.binary(max_size=8), which=st.sampled_from(["votes", "originals"]))
def test_a_broken_file_begins_anew(program: Path, place_in: int, garbage: bytes, which: str) -> None:
    with place() as folder:
        root = make_tree(folder / "root", "cpufreq")
        key = find_steering(identity(CPU), root).key
        first, second = (Voting(program, root, CPU) for _ in range(2))
        first.tell("open", word="balanced")
        first.tell("begin", word="execute")
        assert becomes(lambda: list(power_folder().glob("*.originals")))
        (broken,) = power_folder().glob(f"*.{which}")
        first.end(kill=True)
        content = broken.read_bytes()
        broken.write_bytes(content[:place_in] + garbage + content[place_in + len(garbage) :][: 100 - place_in])
        second.tell("open", word="burst")
        second.tell("begin", word="execute")
        start = PerfProfile.from_preset("burst").vote("execute", "start")
        assert becomes(lambda: DeviceFiles(key).table().in_force == start)
        second.tell("close")
        second.end()


@pytest.mark.parametrize("flags", [pytest.param((), id="plain"), *SANITIZED])
def test_threads_may_vote_at_once(c_compiler: None, flags: tuple[str, ...]) -> None:
    with place() as folder:
        root = make_tree(folder / "root", *TREES)
        before, voting = contents(root), Voting(voting_program(flags), root, MALI)
        for number, preset in enumerate(("balanced", "burst")):
            voting.tell("open", number, preset)
            voting.tell("storm", number)
        voting.tell("close", 0)
        voting.tell("close", 1)
        voting.end()
        assert contents(root) == before
