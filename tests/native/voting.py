"""Run processes that vote by the C runtime, and compare what the files of their controls contain."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gputune.core.identity import DeviceIdentity
from gputune.runtime.native.power import Controls
from gputune.runtime.power.fake_trees import LATENCY, make_tree
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.settings import Moment, Phase
from gputune.runtime.power.records import MODES, Corners, PowerMode, Vote
from tests.native.compiling import OPTIMISED, SOURCES, compiled, environment

DRIVER = Path(__file__).parent / "drivers" / "voting.c"
ALL, CPU = ("all", "any", "any"), ("cpu", "GenuineIntel", "cpu")
ADRENO, MALI = ("gpu", "QUALCOMM", "Adreno 740"), ("gpu", "ARM", "Mali-G78")


def voting_program(flags: Sequence[str]) -> Path:
    return compiled("voting", [DRIVER, *SOURCES], (*OPTIMISED, *flags))


def identity(device: Sequence[str]) -> DeviceIdentity | None:
    kind, vendor, name = device
    if kind == "all":
        return None
    return DeviceIdentity("", "", name, vendor, "", "", kind, 1, 1, (1, 1, 1), 1, 1, 1, 64, 1)


def start(preset: str, phase: Phase = "execute", moment: Moment = "start") -> Vote:
    return PerfProfile.from_preset(preset).vote(phase, moment)


class Voting:
    """A process of the C runtime that votes on the controls below a root."""

    def __init__(self, program: Path, root: Path, device: Sequence[str] = ALL, **variables: str) -> None:
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([program, *device], env={**environment(), **variables}, **pipes)
        self.tell("power", word=str(root))

    def tell(self, command: str, number: int = 0, word: str | Vote = "") -> str:
        """The answer to a command."""
        assert self.process.stdin is not None and self.process.stdout is not None
        said = ",".join(map(str, word.places)) if isinstance(word, Vote) else word
        self.process.stdin.write(f"{command} {number} {said}\n")
        self.process.stdin.flush()
        return str(self.process.stdout.readline().strip())

    def vote(self, vote: str | Vote, number: int = 0) -> None:
        """Has an instance that is not open yet vote, and waits until all is as it asks."""
        assert self.tell("open", number, vote) == ""
        self.tell("begin", number, "execute")
        self.tell("sync")

    def told(self) -> list[str]:
        """All warnings since the last call."""
        return list(iter(lambda: self.tell("told"), ""))

    def end(self, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.communicate()
        assert self.process.returncode == (-9 if kill else 0)


@contextmanager
def place() -> Iterator[Path]:
    """A folder, with the votes' own folder in it."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder).resolve()


def contents(root: Path) -> dict[str, bytes]:
    """Return all controls but those that read otherwise than what is written to them, and the latency, which the kernel
    takes back by itself."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path != root / LATENCY)
    return {str(path.relative_to(root)): path.read_bytes() for path in files if not path.name.startswith("pp_dpm")}


def has_latency(root: Path, vote: Vote) -> bool:
    return int.from_bytes((root / LATENCY).read_bytes(), "little") == vote.sleep_latency_us


def planned(folder: Path, families: Sequence[str], vote: Vote, device: Sequence[str] = ALL) -> dict[str, bytes]:
    """What a new tree contains once the writes that are planned for a vote are done."""
    root = make_tree(Path(tempfile.mkdtemp(dir=folder)), *families)
    with Controls(identity(device), root) as controls:
        for write in controls.planned([vote.places]):
            if write.step == 0 and not write.path.endswith(LATENCY):
                Path(write.path).write_text(write.value)
    return contents(root)


def files(folder: Path) -> list[Path]:
    """The votes' own files."""
    return sorted((folder / "gputune-power").glob("*"))


def table(folder: Path) -> Mapping[str, Any] | None:
    """The file of votes of the one device that has one; None without."""
    found = [path for path in files(folder) if path.suffix == ".votes"]
    try:
        return dict(json.loads(found[0].read_bytes())) if found else None
    except FileNotFoundError:
        return None


def is_in_force(folder: Path, vote: Vote) -> bool:
    found = table(folder)
    return found is not None and found["in_force"] == stored(vote)


def stored(vote: Vote) -> dict[str, object]:
    """A vote as a file of votes has it since version 1."""
    return {
        "bus": [int(end) for end in (vote.bus.least, vote.bus.target, vote.bus.most)],
        "core": [int(end) for end in (vote.core.least, vote.core.target, vote.core.most)],
        "dcvs": vote.dcvs,
        "sleep_latency_us": vote.sleep_latency_us,
        "power_mode": vote.power_mode.value,
        "high_performance": vote.high_performance,
    }


def strongest(votes: Iterable[Vote]) -> Vote:
    """Return what is in force while these votes are: for each field the strongest; of sleep latencies the smallest. A
    governor is held as soon as one vote holds it."""
    live = [vote for vote in votes if not vote.empty]
    latencies = [vote.sleep_latency_us for vote in live if vote.sleep_latency_us is not None]
    return Vote(
        bus=_strongest(vote.bus for vote in live),
        core=_strongest(vote.core for vote in live),
        dcvs=all(vote.dcvs for vote in live),
        sleep_latency_us=min(latencies, default=None),
        power_mode=max((vote.power_mode for vote in live), key=MODES.index, default=PowerMode.ADJUST_UP_DOWN),
        high_performance=any(vote.high_performance for vote in live),
    )


def _strongest(corners: Iterable[Corners]) -> Corners:
    rows = [(each.least, each.target, each.most) for each in corners]
    return Corners(*(max(column) for column in zip(*rows, strict=True))) if rows else Corners()
