"""Test the state of an agent's machine: it is what that machine would read itself."""

import errno
import json
import math
import tempfile
from pathlib import Path

import pytest

from gputune.core.errors import DeviceNotFound
from gputune.runtime.devices import load, state
from gputune.server.agent import state as agent_state
from gputune.server.agent.messages import Contents, ReadFiles
from gputune.server.agent.state import AgentState, ConnectedState, load_of

FILES = json.loads(Path(__file__).with_name("machine.json").read_text(encoding="utf-8"))
"""The content of each file of a machine."""


class Machine:
    """A machine whose agent answers from a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[tuple[str, ...]] = []
        self.within_ns: list[int] = []
        for name, content in FILES.items():
            self.write(name, content)

    def write(self, name: str, content: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def ask(self, request: ReadFiles) -> Contents:
        self.asked.append(request.paths)
        self.within_ns.append(request.within_ns)
        return Contents(tuple(map(self._content, request.paths)))

    def _content(self, path: str) -> bytes:
        place = self.root / path.lstrip("/")
        if place.is_dir():
            return "".join(f"{one.name}\n" for one in [*place.iterdir(), place / "..", Path("../../x")]).encode()
        return place.read_bytes() if place.is_file() else b""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_is_the_state_that_the_machine_reads(machine: Machine) -> None:
    far = AgentState(machine.ask)
    own = state.read(machine.root, seconds=60)
    assert {"kgsl-3d0_busy_percent", "temperature_headroom_c", "cooling_steps", "throttles"} <= set(own)
    found = far.read()
    assert found.items() >= own.items()
    rounds = len(machine.asked)
    machine.write("sys/class/kgsl/kgsl-3d0/gpubusy", "90 120")
    (machine.root / "sys/class/kgsl/kgsl-3d0/temp").unlink()  # its driver sleeps
    later = far.read()
    assert later["kgsl-3d0_busy_percent"] == 75 and "kgsl-3d0_temperature_c" not in later
    assert len(machine.asked) == rounds + 1 and not any("trip_point" in path for path in machine.asked[-1])


def test_no_file_is_asked_for_outside_of_the_systems(machine: Machine) -> None:
    AgentState(machine.ask).read()
    asked = {path for paths in machine.asked for path in paths}
    assert all(path.startswith(("/proc/", "/sys/")) and ".." not in path.split("/") for path in asked)


def test_many_files_are_asked_for_in_parts(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_state, "FILES_AT_ONCE", 3)
    assert AgentState(machine.ask).read().items() >= state.read(machine.root, seconds=60).items()
    assert max(map(len, machine.asked)) == 3


def test_its_load_is_that_of_all_its_processors(machine: Machine) -> None:
    assert load_of(machine.root) == {
        load.CLOCK: 100.5,
        load.PROCESSORS: 2,
        load.OWN: 3,
        load.IDLE: 32,
        load.SWITCHES: 12,
    }
    for name, content in (("uptime", ""), ("self/stat", "77 (x) S"), ("self/stat", "77 (x) S " + "? " * 20)):
        before = (machine.root / "proc" / name).read_text(encoding="utf-8")
        machine.write(f"proc/{name}", content)
        assert load_of(machine.root) == {}
        machine.write(f"proc/{name}", before)


def test_nothing_is_said_while_the_agent_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(address: str, **options: object) -> None:
        raise DeviceNotFound(address)

    monkeypatch.setattr(agent_state, "AgentConnection", unreachable)
    far = ConnectedState("127.0.0.1:1")
    assert far.read() == {}
    far.close()


def test_a_machine_has_as_long_as_this_one_to_read_its_state(machine: Machine) -> None:
    """Not so short that files are left out, and not so long that a measurement waits."""
    far = AgentState(machine.ask)
    far.read()
    assert set(machine.within_ns) == {10**9}  # what there is, is found out once
    machine.within_ns.clear()
    far.read()
    assert machine.within_ns == [3_000_000] and state.SECONDS_AT_MOST == 0.003


ODD_NAMES = (
    b"cpu\0x\npolicy\0\nthermal_zone\0x\n",
    b"\n".join(each + b"x" * 300 for each in (b"cpu", b"policy", b"thermal_zone", b"card", b"hwmon")),
    b" \n ",
    b"cpu0 " + b" ".join([b"9" * 5000] * 12),
    b"9" * 5000,
    b"cpu0\n",
    b"\xff\xfe",
    b"1e999 1e999",
)


@pytest.mark.parametrize("content", ODD_NAMES)
def test_what_is_no_state_says_nothing(content: bytes) -> None:
    far = AgentState(lambda asked: Contents((content,) * len(asked.paths)))
    for _ in range(2):
        assert all(map(math.isfinite, far.read().values()))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("stat", ""),
        ("stat", "\n \ncpu0\n"),
        ("stat", "cpu0 1 1 1 " + "9" * 5000),
        ("uptime", " "),
        ("uptime", "soon"),
        ("uptime", "inf"),
        ("self/stat", "77 (x) S " + "\u00b2 " * 20),
        ("self/stat", "77 (x) S 1 2 3 4 5 6 7 8 9 10 " + "9" * 5000 + " 1"),
        ("self/status", "nonvoluntary_ctxt_switches: " + "9" * 5000),
    ],
)
def test_a_load_that_is_none_says_nothing(machine: Machine, name: str, content: str) -> None:
    machine.write(f"proc/{name}", content)
    found = load_of(machine.root)
    assert found == {} or (content == "\n \ncpu0\n" and load.IDLE not in found)


@pytest.mark.parametrize("where", ["write_text", "mkdir", "mkdtemp"])
def test_a_full_disk_here_means_no_state(machine: Machine, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    far = AgentState(machine.ask)
    whole = far.read() if where != "mkdtemp" else {}

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as changed:
        changed.setattr(tempfile if where == "mkdtemp" else Path, where, full)
        assert far.read().items() <= whole.items()  # and nothing of another time
        fresh = AgentState(machine.ask)
        assert fresh.read() == {}
    assert far.read().keys() >= whole.keys() and far.read()


def test_an_endless_machine_is_asked_for_so_much_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_state, "FOLDERS_AT_ONCE", 8)
    monkeypatch.setattr(agent_state, "MOST_FILES", 50)
    asked: list[int] = []

    def ask(request: ReadFiles) -> Contents:
        asked.append(len(request.paths))
        names = "".join(f"{each}{number}\n" for each in ("card", "hwmon", "cpu") for number in range(100))
        return Contents((names.encode(),) * len(request.paths))

    AgentState(ask).read()
    assert asked[-1] <= 50 + len(agent_state.LOAD_FILES) and max(asked[:-1]) <= 8 and len(asked) < 200
