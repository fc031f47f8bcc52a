"""Represent a perf profile: what an instance asks of a device around its initialization, its inferences and its end."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping

from gputune.runtime.power.profiles.accessors import Accessors
from gputune.runtime.power.profiles.corner_names import shown
from gputune.runtime.power.profiles.presets import PRESETS, preset_name
from gputune.runtime.power.profiles.settings import (
    GENERAL,
    KINDS,
    MOMENTS,
    PHASES,
    Moment,
    Phase,
    Plain,
    check_section,
    plain,
)
from gputune.runtime.power.records import Corner, Corners, Vote

CUSTOM = "custom"


class PerfProfile(Accessors):
    """Hold the settings of a perf profile; a new profile requests nothing.

    Objects that use a profile for longer take a copy. After a change, pass the profile to them again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._votes: dict[tuple[Phase, Moment], Vote] = {}

    @classmethod
    def from_preset(cls, name: str) -> PerfProfile:
        """Return a copy of a preset, to be used or changed. Raises ValueError, with the nearest name, for an unknown
        preset."""
        profile = cls()
        for section, key, value in PRESETS[preset_name(name)].values():
            profile.set_value(section, key, value)
        return profile

    @classmethod
    def from_dict(cls, sections: object) -> PerfProfile:
        """Return the profile of `to_dict`; omitted settings are as in a new profile. Raises ValueError with section,
        key and reason for an unknown setting, and for corners that are out of order."""
        profile = cls()
        for section, key, value in _entries(sections):
            profile.set_value(section, key, value)
        profile.check()
        return profile

    def to_dict(self) -> dict[str, dict[str, Plain]]:
        """Return plain values by section and key, in the order and the spelling of the original's YAML files. Open
        settings are omitted."""
        return {
            section: {key: plain(self._values[section][key]) for key in kinds if key in self._values[section]}
            for section, kinds in KINDS.items()
        }

    def copy(self) -> PerfProfile:
        """Return a separate profile with the same settings."""
        other = PerfProfile()
        other._values = {section: dict(values) for section, values in self._values.items()}
        return other

    def set_value(self, section: str, key: str, value: object) -> None:
        super().set_value(section, key, value)
        self._votes.clear()

    def vote(self, phase: Phase, moment: Moment) -> Vote:
        """Return what to request when a phase begins ("start") or ends ("done"). Raises ValueError for other words."""
        if moment not in MOMENTS:
            raise ValueError(f"a vote is one of {' and '.join(MOMENTS)}, not {shown(moment)}")
        vote = self._votes.get((phase, moment))
        if vote is None:
            vote = self._votes[phase, moment] = self._new_vote(phase, moment)
        return vote

    def check(self) -> None:
        """Raise ValueError that names two corners if they are not in the order min <= target <= max. DISABLE has no
        place in it."""
        for phase in PHASES:
            for moment in MOMENTS:
                for rail in ("BUS", "CORE"):
                    self._check_order(phase, f"{rail}_VOLTAGE_CORNER", moment.upper())

    @property
    def name(self) -> str:
        """Return the preset with the same settings, else "custom"."""
        return next((name for name, preset in _presets().items() if preset == self), CUSTOM)

    @property
    def silent(self) -> bool:
        """Return whether the profile requests nothing: no call is made, and no file opened."""
        votes = [self.vote(phase, moment) for phase in PHASES for moment in MOMENTS]
        return not self.sleep_disable_ms and all(vote.empty for vote in votes)

    @property
    def places(self) -> tuple[int, ...]:
        """Return the numbers that gputune_perf_settings of gputune.h has, in its order."""
        votes = [self.vote(phase, moment) for moment in MOMENTS for phase in PHASES]
        return (*(place for vote in votes for place in vote.places), self.hysteresis_us, int(self.async_voting))

    @property
    def hysteresis_us(self) -> int:
        """Return how long the start vote is held after an inference."""
        return self.get_dsp_hysteresis_time_us()

    @property
    def rpc_polling_us(self) -> int:
        """Return how long to poll for an answer of the device before waiting for it."""
        return self.get_dsp_rpc_polling_time()

    @property
    def async_voting(self) -> bool:
        """Return whether votes are cast on a thread of their own."""
        return self.get_enable_async_voting()

    @property
    def sleep_disable_ms(self) -> int:
        """Return for how long a device may not sleep once an inference has begun; 0 for no such demand."""
        return self.get_sleep_disable()

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, PerfProfile) else NotImplemented

    def __repr__(self) -> str:
        changes = {name: list(_changes(self, preset)) for name, preset in _presets().items()}
        nearest = min(changes, key=lambda name: len(changes[name]))
        if not changes[nearest]:
            return f"<PerfProfile {nearest}>"
        more = f", and {len(changes[nearest]) - 3} more" if len(changes[nearest]) > 3 else ""
        return f"<PerfProfile {CUSTOM}: {nearest}, but {', '.join(changes[nearest][:3])}{more}>"

    def _new_vote(self, phase: Phase, moment: Moment) -> Vote:
        start = moment == "start"
        return Vote(
            bus=self._corners("BUS", phase, moment),
            core=self._corners("CORE", phase, moment),
            dcvs=self.get_enable_dcvs_start(phase) if start else self.get_enable_dcvs_done(phase),
            sleep_latency_us=self.get_sleep_latency_start(phase) if start else self.get_sleep_latency_done(phase),
            power_mode=self.get_power_mode_start(phase) if start else self.get_power_mode_done(phase),
            high_performance=start and self.get_high_performance_mode(phase),
        )

    def _corners(self, rail: str, phase: Phase, moment: Moment) -> Corners:
        least, target, most = (
            self._corner(phase, f"{rail}_VOLTAGE_CORNER_{end}_{moment.upper()}") for end in ("MIN", "TARGET", "MAX")
        )
        return Corners(least, target, most)

    def _check_order(self, phase: Phase, rail: str, moment: str) -> None:
        keys = [f"{rail}_{end}_{moment}" for end in ("MIN", "TARGET", "MAX")]
        asked = [(key, corner) for key in keys if (corner := self._corner(phase, key)) is not Corner.DISABLE]
        for (low, lower), (high, higher) in itertools.pairwise(asked):
            if lower > higher:
                raise ValueError(f"{phase}: {low} is {lower.name}, above {high}, which is {higher.name}")


def _entries(sections: object) -> Iterator[tuple[str, str, object]]:
    """Section, key and value of all that came in."""
    if not isinstance(sections, Mapping):
        raise ValueError(f"a perf profile is a mapping of sections, not {shown(sections)}")
    for section, settings in sections.items():
        check_section(str(section))
        if not isinstance(settings, Mapping):
            raise ValueError(f"section {section} is a mapping of settings, not {shown(settings)}")
        yield from ((str(section), str(key), value) for key, value in settings.items())


def _changes(profile: PerfProfile, base: PerfProfile) -> Iterator[str]:
    """Yield what of a profile is not as in another."""
    now, then = profile.to_dict(), base.to_dict()
    for section, kinds in KINDS.items():
        for key in kinds:
            if now[section].get(key) != then[section].get(key):
                place = "" if section == GENERAL else f"{section} "
                yield f"{place}{key} {now[section].get(key, 'left open')}"


@functools.cache
def _presets() -> Mapping[str, PerfProfile]:
    return {name: PerfProfile.from_preset(name) for name in PRESETS}
