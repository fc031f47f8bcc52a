"""Provide controls in a folder, and profiles, for tests of votes."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputune.runtime.power.actuators.base import Problem
from gputune.runtime.power.profiles.settings import Moment, Phase
from gputune.runtime.power.records import Corner, Corners, Vote
from gputune.runtime.power.steering import Applied

FIRST = {"bus": "as found", "core": "auto\n", "latency": "2000000000"}
"""What the controls contain before any vote."""


class MadeUpSteering:
    """Steers three files in a folder; counts what it writes to each. slowest_s: writes take at most so long."""

    def __init__(self, folder: Path, slowest_s: float = 0.0) -> None:
        self.folder, self.slowest_s = folder, slowest_s
        self.writes: dict[str, list[str]] = {name: [] for name in FIRST}
        self.own: Vote | None = None
        self.failing: list[str] = []
        """Errors of the next restores, which change nothing."""
        self.slow = False

    @staticmethod
    def tree(folder: Path) -> Path:
        """A folder of controls as they are before any vote."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in FIRST.items():
            (folder / name).write_text(content, encoding="utf-8")
        return folder

    def now(self) -> dict[str, str]:
        return {name: (self.folder / name).read_text(encoding="utf-8") for name in FIRST}

    def originals(self) -> dict[str, str]:
        return {str(self.folder / name): content for name, content in self.now().items()}

    def adopt(self, originals: Mapping[str, str]) -> None:
        pass

    def apply(self, vote: Vote, own: Vote) -> Applied:
        self.own = own
        self._write(contents(vote))
        return Applied(vote, {}, {}, (Problem("made up", self.folder, "SLOW", ""),) if self.slow else ())

    def restore(self, originals: Mapping[str, str]) -> Sequence[Problem]:
        self.own = None
        if self.failing:
            return [Problem("made up", self.folder, self.failing.pop(), "")]
        self._write({Path(path).name: content for path, content in originals.items()})
        return []

    def wait(self, limit_s: float) -> bool:
        return True

    def _write(self, wanted: Mapping[str, str]) -> None:
        for name, content in wanted.items():
            path = self.folder / name
            if path.read_text(encoding="utf-8") != content:
                if self.slowest_s:
                    time.sleep(random.uniform(0, self.slowest_s))
                path.write_text(content, encoding="utf-8")
                self.writes[name].append(content)


def contents(vote: Vote) -> dict[str, str]:
    """What the controls contain while a vote is in force."""
    return {"bus": vote.bus.target.name, "core": vote.core.target.name, "latency": str(vote.sleep_latency_us)}


def vote(corner: Corner, latency_us: int | None = None) -> Vote:
    """For this corner of core and bus, exactly."""
    corners = Corners(corner, corner, corner)
    return Vote(bus=corners, core=corners, dcvs=False, sleep_latency_us=latency_us)


@dataclass
class MadeUpProfile:
    """Has the same votes in all phases."""

    start: Vote
    done: Vote
    hysteresis_us: int = 0
    async_voting: bool = False
    silent: bool = False

    def vote(self, phase: Phase, moment: Moment) -> Vote:
        return self.start if moment == "start" else self.done
