"""Test perf profiles of loaded contexts: what is voted when, with controls in a folder."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import DeviceNotFound, ForkedProcess, LaunchFailed
from gputune.runtime import load, load_group
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.native import power as native_power
from gputune.runtime.native.power import Controls
from gputune.runtime.power import instances
from gputune.runtime.power.fake_trees import make_tree
from gputune.runtime.power.instances import Power, controls_of, live_votes
from gputune.runtime.power.profiles.chosen import PROFILE_SETTING, setting_of
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.settings import Moment, Phase
from tests.waiting import becomes

X = {"x": np.ones((2, 4), np.float32)}
ROOT = Path(__file__).parents[3]
assert NULL_REPORT.identity is not None
DEVICE = NULL_REPORT.identity


class Tree:
    """Controls of a GPU in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = make_tree(root, "mali")
        self.least = next(root.glob("sys/class/devfreq/*.mali/min_freq"))
        self.first = self.contents

    @property
    def contents(self) -> Mapping[Path, bytes]:
        return {path: path.read_bytes() for path in (self.root / "sys").rglob("*") if path.is_file()}

    def asks(self, profile: PerfProfile, phase: Phase, moment: Moment) -> bool:
        """Whether the lower end of the clock becomes what a vote asks for."""
        with Controls(None, make_tree(self.root.parent / "other", "mali")) as controls:
            writes = controls.planned([profile.vote(phase, moment).places])
        wanted = next(each.value for each in writes if each.step == 0 and each.path.endswith("min_freq"))
        return becomes(lambda: self.least.read_text() == wanted)

    def restored(self) -> bool:
        return becomes(lambda: self.contents == self.first)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = Tree(tmp_path / "root")
    monkeypatch.setattr(instances, "Controls", lambda device: Controls(None, made.root))
    monkeypatch.setattr(instances, "_by_device", {})
    yield made
    assert made.restored()


def quick(name: str = "burst") -> PerfProfile:
    """A preset, but that votes are taken back at once."""
    profile = PerfProfile.from_preset(name)
    profile.set_dsp_hysteresis_time_us(0)
    return profile


def test_votes_are_made_around_loading_inferences_and_closing(context_path: Path, tree: Tree) -> None:
    profile = quick()
    with load(context_path, "null", perf_profile=profile) as executor:
        assert tree.asks(profile, "init", "done")
        for _ in range(2):
            executor.run(X)
            assert tree.asks(profile, "execute", "done")
        assert executor.perf_profile == profile
    assert tree.restored()


def test_a_profile_can_be_exchanged_between_inferences(context_path: Path, tree: Tree) -> None:
    with load(context_path, "null") as executor:
        executor.run(X)
        assert tree.contents == tree.first and executor.perf_profile is None
        executor.set_perf_profile("power_saver")
        executor.run(X)
        assert tree.asks(quick("power_saver"), "execute", "done")
        executor.set_perf_profile(PerfProfile.from_preset("burst"))
        executor.run(X)
        assert becomes(live_votes)
        with pytest.raises(ValueError, match="burst"):
            executor.set_perf_profile("bursty")
        executor.set_perf_profile("system_settings")
        assert tree.restored() and becomes(lambda: live_votes() == {})
        executor.run(X)
        assert tree.contents == tree.first


def test_what_fails_takes_its_vote_back(context_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise LaunchFailed("the device is gone")

    with load(context_path, "null", perf_profile=quick()) as executor:
        with monkeypatch.context() as patched, pytest.raises(LaunchFailed):
            patched.setattr(NullBackend, "read", fail)
            executor.run(X)
        assert tree.asks(quick(), "execute", "done")


def test_contexts_of_a_group_have_profiles_of_their_own(context_path: Path, tree: Tree) -> None:
    with load_group([context_path], "null", streams=2) as group:
        group.set_perf_profile(quick(), "context")
        group.run("context", X)
        assert tree.asks(quick(), "execute", "done")


def test_instances_share_the_controls_of_their_device(tree: Tree) -> None:
    with Power("burst", DEVICE) as one, Power("power_saver", DEVICE) as other:
        one.start("execute")
        other.start("execute")
        assert tree.asks(quick("burst"), "execute", "start")
        assert becomes(live_votes)
        (votes,) = live_votes().values()
        assert votes["requested"]["devfreq.13000000.mali_min_hz"] == votes["effective"]["devfreq.13000000.mali_min_hz"]
        one.close()
        assert tree.asks(quick("power_saver"), "execute", "start")
    assert len(instances._by_device) == 1 and controls_of(DEVICE) == ["devfreq", "cpu_latency"]


def test_what_could_not_be_done_is_logged_once(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    (tree.root.parent / "gputune-power").touch()
    with Power("burst", DEVICE) as power:
        for _ in range(3):
            power.start("execute")
            power.done("execute")
        assert tree.asks(quick(), "execute", "start")
    (line,) = {record.getMessage() for record in caplog.records}
    assert line.startswith("power: votes are not shared with other processes")
    assert len(caplog.records) == 1


def test_a_fork_does_not_vote_for_its_parent(tree: Tree) -> None:
    with Power("burst", DEVICE) as power:
        power.start("execute")
        assert tree.asks(quick(), "execute", "start")
        child = os.fork()
        if child == 0:
            try:
                power.start("execute")
            except ForkedProcess:
                power.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert tree.asks(quick(), "execute", "start")


def test_asynchronous_votes_follow(tree: Tree) -> None:
    profile = quick()
    profile.set_enable_async_voting(True)
    with Power(profile, DEVICE) as power:
        power.start("execute")
        assert tree.asks(profile, "execute", "start")
        power.done("execute")
        assert tree.asks(profile, "execute", "done")


def test_a_silent_profile_opens_nothing(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(device: object) -> None:
        raise AssertionError("controls were looked for")

    monkeypatch.setattr(instances, "Controls", unwanted)
    with Power("system_settings", DEVICE) as power:
        power.start("init")
        power.done("init")


def test_without_the_c_runtime_a_profile_is_refused(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise DeviceNotFound("there is no C compiler")

    monkeypatch.setattr(native_power, "library", missing)
    with pytest.raises(ValueError, match="clocks cannot be voted for: there is no C compiler"):
        Power("burst", DEVICE)


VOTING = """
import os, sys
from pathlib import Path
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.native.power import Controls
from gputune.runtime.power import instances
from gputune.runtime.power.instances import Power, live_votes
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from tests.waiting import becomes

instances.Controls = lambda device: Controls(None, Path(sys.argv[1]))
held, equal = PerfProfile.from_preset("burst"), PerfProfile.from_preset("burst")
held.set_dsp_hysteresis_time_us(60_000_000)
equal.set_dsp_hysteresis_time_us(0)
for phase in ("START", "DONE"):
    for rail in ("BUS", "CORE"):
        for end in ("MIN", "TARGET", "MAX"):
            equal.set_value("execute", f"{rail}_VOLTAGE_CORNER_{end}_{phase}", "SVS")
    equal.set_value("execute", f"DSP_ENABLE_DCVS_{phase}", True)
    equal.set_value("execute", f"DSP_SLEEP_LATENCY_{phase}_US", 100)
equal.set_value("execute", "HIGH_PERFORMANCE_MODE", False)
powers = [Power(profile, NULL_REPORT.identity) for profile in (held, equal)]
for one in powers:
    one.start("execute"), one.done("execute")
assert becomes(live_votes)
"""
ROUNDS = """
import time
time.sleep(1)
for one in powers:
    os.access("/begin", 0)
    for _ in range(1000):
        one.start("execute"), one.done("execute")
    os.access("/end", 0)
"""


def ran(script: str, tree: Tree, *command: str) -> int:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments: Sequence[str] = [*command, sys.executable, "-c", script, str(tree.root)]
    return subprocess.run(arguments, cwd=ROOT, env=environment).returncode


@pytest.mark.slow
def test_equal_votes_make_no_system_call(tree: Tree, tmp_path: Path) -> None:
    """Neither those that hysteresis holds nor those that are equal; on this process's main thread. It may meet the
    thread that looks, which has the lock for an instant, and a sanitizer takes memory."""
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "true"], capture_output=True).returncode:
        pytest.skip("there is no strace, or it may not trace")
    log = tmp_path / "calls"
    assert ran(VOTING + ROUNDS, tree, strace, "-o", str(log)) == 0
    _, *rounds = log.read_text().split('"/begin"')
    for calls in rounds:
        names = [line.partition("(")[0] for line in calls.split('"/end"')[0].splitlines()[1:-1]]
        assert set(names) <= {"futex", "mmap", "munmap"} and names.count("futex") < 20, names


ENDS: Mapping[str, tuple[str, Callable[[int], bool]]] = {
    "by itself": ("", lambda code: code == 0),
    "by an error": ("raise SystemExit(3)", lambda code: code == 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_process_brings_the_originals_back(tree: Tree, tmp_path: Path, end: str) -> None:
    more, is_right = ENDS[end]
    assert is_right(ran(VOTING + more, tree))
    assert tree.contents == tree.first
    assert list((tmp_path / "gputune-power").iterdir()) == []


def test_a_profile_is_a_setting_only_where_it_changes_something() -> None:
    burst, own = PerfProfile.from_preset("burst"), quick()
    assert setting_of(burst, ["cpufreq"]) == {PROFILE_SETTING: "burst"}
    assert setting_of(own, ["cpufreq"])[PROFILE_SETTING].startswith("custom ")
    assert setting_of(burst, []) == setting_of(PerfProfile(), ["cpufreq"]) == setting_of(None, ["cpufreq"]) == {}
