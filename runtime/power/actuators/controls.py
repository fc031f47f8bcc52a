"""Represent controls that are files, a clock's frequency range and switches, and the actuator made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from gputune.runtime.power.actuators.base import (
    NO_CONTENTS,
    Access,
    Problem,
    Write,
    clamped,
    content_of,
    number_of,
    word_after,
    word_of,
    write_all,
)
from gputune.runtime.power.records import Corner, Corners, PowerMode, Vote

Domain = Literal["core", "bus"]


@dataclass(frozen=True)
class Limits:
    """From which corner to which a clock shall go; DISABLE leaves that end alone."""

    least: Corner
    most: Corner


def limits(vote: Vote, domain: Domain) -> Limits:
    """Return what a vote means for the two ends of a clock's range.

    Without dcvs both ends are the target. ADJUST_ONLY_UP starts at the target. A mode that saves power caps a clock
    without an upper end at SVS2, the aggressive one at MIN; PERFORMANCE_MODE raises one without a lower end to TURBO.
    """
    corners = _corners(vote, domain)
    least, most = corners.least, corners.most
    if held(vote, domain):
        return Limits(corners.target, corners.target)
    if vote.power_mode is PowerMode.ADJUST_ONLY_UP:
        least = max(least, corners.target)
    elif vote.power_mode is PowerMode.PERFORMANCE and least is Corner.DISABLE:
        least = Corner.TURBO
    elif most is Corner.DISABLE and vote.power_mode in _CAPS:
        most = max(_CAPS[vote.power_mode], least)
    return Limits(least, most)


_CAPS = {PowerMode.POWER_SAVER: Corner.SVS2, PowerMode.POWER_SAVER_AGGRESSIVE: Corner.MIN}


def held(vote: Vote, domain: Domain) -> bool:
    """Return whether a clock is to stay at its target."""
    return not vote.dcvs and _corners(vote, domain).target is not Corner.DISABLE


def _corners(vote: Vote, domain: Domain) -> Corners:
    return vote.core if domain == "core" else vote.bus


@dataclass(frozen=True)
class Scale:
    """The frequencies of a clock, ascending, in Hz, and how its files write them: in units of unit_hz, or by `words`, a
    word for each frequency. continuous: any frequency between the ends will do."""

    frequencies: tuple[int, ...]
    unit_hz: int = 1
    words: tuple[str, ...] = ()
    continuous: bool = False

    def at_least(self, corner: Corner) -> int:
        """Return the nearest frequency that is not below a corner."""
        wanted = self._wanted(corner)
        if self.continuous:
            return min(-(-wanted // self.unit_hz) * self.unit_hz, self.frequencies[-1])
        return next(frequency for frequency in self.frequencies if frequency >= wanted)

    def nearest(self, corner: Corner) -> int:
        """Return the nearest frequency; the higher one of two."""
        wanted = self._wanted(corner)
        if self.continuous:
            return round(wanted / self.unit_hz) * self.unit_hz
        return min(reversed(self.frequencies), key=lambda frequency: abs(frequency - wanted))

    def word(self, frequency: int) -> str:
        """As it is written to a file."""
        if self.words:
            return self.words[self.frequencies.index(frequency)]
        return str(frequency // self.unit_hz)

    def frequency(self, word: str) -> int | None:
        """Return what a file's content means, in Hz; None where it means nothing."""
        if self.words:
            return self.frequencies[self.words.index(word)] if word in self.words else None
        return int(word) * self.unit_hz if word.isdigit() else None

    def _wanted(self, corner: Corner) -> int:
        lowest, highest = self.frequencies[0], self.frequencies[-1]
        return min(max(round(lowest + corner.share * (highest - lowest)), lowest), highest)


def scale_of(values: Iterable[int], unit_hz: int = 1, continuous: bool = False) -> Scale | None:
    """Return the scale of frequencies in units of unit_hz; None without any above zero."""
    frequencies = tuple(sorted({value * unit_hz for value in values if value > 0}))
    return Scale(frequencies, unit_hz, continuous=continuous) if frequencies else None


class Control(Protocol):
    """A few files that are written together. effective and requested: numbers by name."""

    @property
    def paths(self) -> tuple[Path, ...]: ...

    def wanted(self, vote: Vote, originals: Mapping[Path, str]) -> Mapping[Path, str]:
        """Return what each file shall contain, in the order for writing; without the files that stay as they are."""

    def ordered(self, wanted: Mapping[Path, str], after: Mapping[Path, str]) -> list[Write]:
        """Return the writes from the state now to these contents; after: see base.Actuator.plan."""

    def requested(self, vote: Vote) -> dict[str, float]: ...

    def effective(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class Switch:
    """A file with one of a few words; choose: the word for a vote, None for what it was before."""

    path: Path
    choose: Callable[[Vote], str | None]

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.path,)

    def wanted(self, vote: Vote, originals: Mapping[Path, str]) -> Mapping[Path, str]:
        word = self.choose(vote)
        return {self.path: word} if word is not None else _kept(self.paths, originals)

    def ordered(self, wanted: Mapping[Path, str], after: Mapping[Path, str]) -> list[Write]:
        return _changes(wanted, after)

    def requested(self, vote: Vote) -> dict[str, float]:
        return {}

    def effective(self) -> dict[str, float]:
        return {}


@dataclass(frozen=True)
class Range:
    """A clock's range: the files of its lower and of its upper end, and the one with its frequency now, which is in
    units of now_hz. The upper end is raised before the lower one and lowered after it."""

    label: str
    domain: Domain
    least: Path
    most: Path
    scale: Scale
    now: Path | None = None
    now_hz: int = 1

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.least, self.most)

    def wanted(self, vote: Vote, originals: Mapping[Path, str]) -> Mapping[Path, str]:
        least, most = self._voted(vote)
        kept = _kept(self.paths, originals)
        if least is None and most is None:
            return kept
        before = {path: self.scale.frequency(content.strip()) for path, content in kept.items()}
        low = self._end(least, before.get(self.least), most, min)
        high = self._end(most, before.get(self.most), least, max)
        ends = {self.most: high, self.least: low}
        words = {path: self.scale.word(hz) for path, hz in ends.items() if hz is not None}
        # what stays as it was is written back exactly, not by way of its frequency
        return {path: kept[path] if before.get(path) == ends[path] else word for path, word in words.items()}

    def ordered(self, wanted: Mapping[Path, str], after: Mapping[Path, str]) -> list[Write]:
        high = self.scale.frequency(wanted.get(self.most, "").strip())
        now = self.scale.frequency(word_after(self.most, after))
        raising = high is not None and now is not None and high > now
        order = (self.most, self.least) if raising else (self.least, self.most)
        return _changes({path: wanted[path] for path in order if path in wanted}, after)

    def requested(self, vote: Vote) -> dict[str, float]:
        least, most = self._voted(vote)
        ends = {f"{self.label}_min_hz": least, f"{self.label}_max_hz": most}
        return {name: float(value) for name, value in ends.items() if value is not None}

    def effective(self) -> dict[str, float]:
        low, high = (self.scale.frequency(word_of(path)) for path in self.paths)
        now = None if self.now is None else number_of(self.now)
        ends = {f"{self.label}_min_hz": low, f"{self.label}_max_hz": high}
        ends |= {f"{self.label}_hz": None if now is None else now * self.now_hz}
        return {name: float(value) for name, value in ends.items() if value is not None}

    def upper_word(self, vote: Vote) -> str | None:
        """Return the upper end that a vote asks for, as its file writes it."""
        most = self._voted(vote)[1]
        return None if most is None else self.scale.word(most)

    def _voted(self, vote: Vote) -> tuple[int | None, int | None]:
        """Return both ends in Hz, None for one without a vote; the lower end never above the upper one."""
        corners = limits(vote, self.domain)
        least = None if corners.least is Corner.DISABLE else self.scale.at_least(corners.least)
        most = None if corners.most is Corner.DISABLE else self.scale.nearest(corners.most)
        return least, (most if most is None or least is None else max(most, least))

    @staticmethod
    def _end(voted: int | None, before: int | None, other: int | None, pick: Callable[[int, int], int]) -> int | None:
        """Return one end: as voted, else as before unless the other end's vote lies beyond it."""
        if voted is not None:
            return voted
        return before if before is None or other is None else pick(before, other)


class FileActuator:
    """An actuator whose controls are files, written control after control."""

    of_this_process = False

    def __init__(
        self,
        name: str,
        access: Access,
        controls: Sequence[Control],
        honours: frozenset[str],
        write_only: frozenset[Path] = frozenset(),
    ) -> None:
        """write_only: files that read otherwise than what is written to them; they are neither kept nor read back."""
        self.name = name
        self.honours = honours
        self.controls = tuple(controls)
        self.paths: tuple[Path, ...] = tuple(path for control in controls for path in control.paths)
        self.at: Path | None = None
        self._access = access
        self._write_only = write_only
        self._originals: dict[Path, str] = {}

    def read(self) -> dict[str, str]:
        contents = {str(path): content_of(path) for path in self.paths if path not in self._write_only}
        return {path: content for path, content in contents.items() if content is not None}

    def adopt(self, originals: Mapping[str, str]) -> None:
        self._originals = self._mine(originals)

    def plan(self, vote: Vote, after: Mapping[Path, str] = NO_CONTENTS) -> list[Write]:
        wanted = [(control, control.wanted(vote, self._originals)) for control in self.controls]
        return [write for control, contents in wanted for write in control.ordered(contents, after)]

    def plan_back(self, originals: Mapping[str, str], after: Mapping[Path, str] = NO_CONTENTS) -> list[Write]:
        mine = self._mine(originals)
        return [write for control in self.controls for write in control.ordered(_kept(control.paths, mine), after)]

    def write(self, writes: Sequence[Write]) -> list[Problem]:
        problems = write_all(self._watched(), self.name, writes)
        self.at = None
        failed = {problem.path for problem in problems} | self._write_only
        return problems + clamped(self.name, [write for write in writes if write.path not in failed])

    def requested(self, vote: Vote) -> dict[str, float]:
        return {name: value for control in self.controls for name, value in control.requested(vote).items()}

    def effective(self) -> dict[str, float]:
        return {name: value for control in self.controls for name, value in control.effective().items()}

    def close(self) -> None:
        """Files stay as they are."""

    def _mine(self, originals: Mapping[str, str]) -> dict[Path, str]:
        return {path: originals[str(path)] for path in self.paths if str(path) in originals}

    def _watched(self) -> Access:
        """Access that keeps `at` at the file that is being written."""

        def before(write: Write) -> None:
            self.at = write.path
            if self._access.before_write is not None:
                self._access.before_write(write)

        return Access(self._access.root, before)


def _kept(paths: Iterable[Path], originals: Mapping[Path, str]) -> dict[Path, str]:
    return {path: originals[path] for path in paths if path in originals}


def _changes(wanted: Mapping[Path, str], after: Mapping[Path, str]) -> list[Write]:
    """Return the writes for files that contain something else by then."""
    return [Write(path, value) for path, value in wanted.items() if value.strip() != word_after(path, after)]


def governor(folder: Path, name: str, domain: Domain) -> Switch | None:
    """Return the switch of a clock's governor: `performance` for a clock that is held, `powersave` for one that saves
    power without an upper end of its own, each where the driver has it; None without a governor. name: of the file, and
    of `available_` the list that goes with it."""
    prefix, _, last = name.rpartition("_")
    listed = folder / "_".join(part for part in (prefix, f"available_{last}s") if part)
    offered = word_of(listed).split()
    if not word_of(folder / name):
        return None

    def choose(vote: Vote) -> str | None:
        wanted = None
        if held(vote, domain) or vote.power_mode is PowerMode.PERFORMANCE:
            wanted = "performance"
        elif vote.power_mode in _CAPS and _corners(vote, domain).most is Corner.DISABLE:
            wanted = "powersave"
        return wanted if wanted in offered else None

    return Switch(folder / name, choose)


CLOCKS = frozenset({"core", "dcvs", "power_mode"})
"""What a clock's range and its governor honour of a vote."""
