"""Control AMD GPUs under the kernel's amdgpu driver.

Source: docs.kernel.org/gpu/amdgpu/thermal.html. power_dpm_force_performance_level is normally `auto`. In `manual`,
pp_dpm_sclk and pp_dpm_mclk set the levels that may be used: a list of their numbers, in one write. They read as lines
`0: 500Mhz *`, with the star at the level in use; the allowed levels cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gputune.runtime.power.actuators.base import Access, Kind, Write, content_of, word_after
from gputune.runtime.power.actuators.controls import CLOCKS, Domain, FileActuator, Scale, Switch, held, limits, scale_of
from gputune.runtime.power.records import Corner, Vote

_MHZ = 1_000_000
_LINE = re.compile(r"^(\d+):\s*(\d+)\s*mhz\s*(\*?)", re.IGNORECASE | re.MULTILINE)
_CLOCKS: tuple[tuple[Domain, str], ...] = (("core", "pp_dpm_sclk"), ("bus", "pp_dpm_mclk"))


def find(access: Access) -> list[FileActuator]:
    """Return an actuator for each card: by the levels of its clocks, else by the names of forced states."""
    found = []
    for folder in access.found("sys/class/drm/card[0-9]*/device"):
        mode = folder / "power_dpm_force_performance_level"
        if not mode.exists():
            continue
        clocks = [clock for domain, name in _CLOCKS if (clock := _clock(domain, folder / name)) is not None]
        control = Levels(mode, tuple(clocks)) if clocks else Switch(mode, _forced)
        honours = CLOCKS | ({"bus"} if any(clock.domain == "bus" for clock in clocks) else set())
        written = frozenset(clock.path for clock in clocks)
        found.append(FileActuator("amdgpu", access, [control], honours, write_only=written))
    return found


@dataclass(frozen=True)
class LevelsOfClock:
    """One clock: the file of its levels, and the frequency of each level by its number."""

    domain: Domain
    path: Path
    scale: Scale
    frequencies: Mapping[str, int]

    def ends(self, vote: Vote) -> tuple[int, int] | None:
        """From which frequency to which, in Hz; None without a vote for this clock."""
        corners = limits(vote, self.domain)
        if corners.least is corners.most is Corner.DISABLE:
            return None
        low = self.scale.at_least(corners.least)
        high = self.scale.nearest(corners.most) if corners.most is not Corner.DISABLE else self.scale.frequencies[-1]
        return low, max(low, high)

    def numbers(self, vote: Vote | None) -> str:
        """Return the levels that a vote allows; all of them without one."""
        ends = None if vote is None else self.ends(vote)
        low, high = ends or (self.scale.frequencies[0], self.scale.frequencies[-1])
        return " ".join(number for number, frequency in self.frequencies.items() if low <= frequency <= high)

    def in_use(self) -> int | None:
        """Return the frequency now, in Hz."""
        return next((int(hz) * _MHZ for _, hz, star in _LINE.findall(content_of(self.path) or "") if star), None)


@dataclass(frozen=True)
class Levels:
    """The forced state and the levels of all clocks. A state `manual` from before any vote comes back with all levels
    allowed, because those that were cannot be read."""

    mode: Path
    clocks: tuple[LevelsOfClock, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.mode, *(clock.path for clock in self.clocks))

    def wanted(self, vote: Vote, originals: Mapping[Path, str]) -> Mapping[Path, str]:
        if all(clock.ends(vote) is None for clock in self.clocks):
            return {self.mode: originals[self.mode]} if self.mode in originals else {}
        return {self.mode: "manual"} | {clock.path: clock.numbers(vote) for clock in self.clocks}

    def ordered(self, wanted: Mapping[Path, str], after: Mapping[Path, str]) -> list[Write]:
        """Return the write of the state first: the levels are refused in any but `manual`."""
        mode = wanted.get(self.mode, "")
        writes = [Write(self.mode, mode)] if mode and mode.strip() != word_after(self.mode, after) else []
        if mode.strip() == "manual":
            writes += [Write(clock.path, wanted.get(clock.path, clock.numbers(None))) for clock in self.clocks]
        return writes

    def requested(self, vote: Vote) -> dict[str, float]:
        ends = {clock.domain: found for clock in self.clocks if (found := clock.ends(vote)) is not None}
        low = {f"{domain}_min_hz": float(least) for domain, (least, _) in ends.items()}
        return low | {f"{domain}_max_hz": float(most) for domain, (_, most) in ends.items()}

    def effective(self) -> dict[str, float]:
        used = {clock.domain: clock.in_use() for clock in self.clocks}
        return {f"{domain}_hz": float(frequency) for domain, frequency in used.items() if frequency is not None}


def _clock(domain: Domain, path: Path) -> LevelsOfClock | None:
    """Return a clock by its list of levels; None where that cannot be read."""
    frequencies = {number: int(mhz) * _MHZ for number, mhz, _ in _LINE.findall(content_of(path) or "")}
    scale = scale_of(frequencies.values())
    return None if scale is None else LevelsOfClock(domain, path, scale, frequencies)


def _forced(vote: Vote) -> str | None:
    """Return the forced state where levels cannot be chosen: `high` from TURBO on, `low` up to SVS2."""
    corners = limits(vote, "core")
    if corners.least >= Corner.TURBO or (held(vote, "core") and corners.least >= Corner.NOM_PLUS):
        return "high"
    return "low" if Corner.DISABLE < corners.most <= Corner.SVS2 else None


KIND = Kind("amdgpu", find, gpus=r"\bamd\b|advanced micro|radeon|gfx\d")
