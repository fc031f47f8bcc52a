"""Test that the controls of a device go back, whichever write a voting process is killed at."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gputune.runtime.power.actuators.base import Actuator, Write
from gputune.runtime.power.arbiter import Arbiter
from gputune.runtime.power.fake_trees import make_tree
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.records import Vote
from gputune.runtime.power.steering import Steering, find_actuators
from tests.waiting import PATIENCE_SECONDS

FAMILIES = ("kgsl", "memory", "cpufreq")


def preset(name: str) -> Vote:
    return PerfProfile.from_preset(name).vote("execute", "start")


def contents(tree: Path) -> Mapping[Path, bytes]:
    return {path: path.read_bytes() for path in (tree / "sys").rglob("*") if path.is_file()}


class Killing:
    """Ends its process at one of the writes to come."""

    write = -1

    def __call__(self, _: Write) -> None:
        self.write -= 1
        if self.write == -1:
            os.kill(os.getpid(), signal.SIGKILL)


def voting(actuators: Sequence[Actuator], folder: Path) -> Arbiter:
    return Arbiter("made up", Steering(actuators, limit_s=PATIENCE_SECONDS), folder)


def votes_until_killed(actuators: Sequence[Actuator], folder: Path, killing: Killing, write: int) -> bool:
    """Vote for much and for little in a process that is killed at a write; return whether it was."""
    child = os.fork()
    if child == 0:
        try:
            killing.write = write
            own = voting(actuators, folder)
            instance = own.register()
            own.cast(instance, preset("burst"))
            own.cast(instance, preset("low_power_saver"))
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.mark.parametrize("survives", [True, False], ids=["a survivor", "the next process"])
def test_controls_go_back_whichever_write_a_process_is_killed_at(tmp_path: Path, survives: bool) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "votes"
    make_tree(tree, *FAMILIES)
    originals = contents(tree)
    killing = Killing()
    # Found once: a plain file is empty between being emptied and written, which no file of a kernel is.
    actuators = find_actuators(None, tree, killing)
    survivor = voting(actuators, folder)
    if survives:
        survivor.cast(survivor.register(), preset("balanced"))
    in_force = contents(tree)
    kills = 0
    while votes_until_killed(actuators, folder, killing, kills):
        kills += 1
        if survives:
            survivor.run(time.monotonic())
        else:
            voting(actuators, folder).look()
        assert contents(tree) == in_force, f"killed at write {kills}"
    assert kills > 2 * len(FAMILIES)
    survivor.close()
    if survives:
        assert contents(tree) == originals and list(folder.iterdir()) == []
