"""Represent instances of perf profiles: each votes for one loaded context, on the controls of its device."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gputune.core.identity import DeviceIdentity
from gputune.core.json_text import canonical_json
from gputune.runtime.power.arbiter import Arbiter, arbiter_of
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.presets import PRESETS
from gputune.runtime.power.profiles.settings import Phase
from gputune.runtime.power.profiles.yaml_form import read_yaml
from gputune.runtime.power.steering import find_steering
from gputune.runtime.power.voter import Voter


def controls_of(device: DeviceIdentity) -> list[str]:
    """Return the names of what steers a device's clocks and power, none where nothing does."""
    return [actuator.name for actuator in find_steering(device).actuators if actuator.paths]


PROFILE_SETTING = "gputune.perf_profile"


def setting_of(profile: PerfProfile | None, controls: Sequence[str]) -> dict[str, str]:
    """Return what a profile adds to the settings under which something is measured: its name, of one with other
    settings than a preset's a digest; nothing where nothing steers the device's clocks."""
    if profile is None or profile.silent or not controls:
        return {}
    digest = hashlib.sha256(canonical_json(profile.to_dict()).encode()).hexdigest()[:16]
    return {PROFILE_SETTING: profile.name if profile.name in PRESETS else f"{profile.name} {digest}"}


def profile_named(profile: PerfProfile | str) -> PerfProfile:
    """Return a profile, or the preset of a name; checked, and a copy. Raises ValueError for a name that is none, and
    for corners out of order."""
    chosen = PerfProfile.from_preset(profile) if isinstance(profile, str) else profile.copy()
    chosen.check()
    return chosen


def chosen_profile(name: str | None, file: Path | None) -> PerfProfile | None:
    """Return the profile of a preset's name or of a file, as options give them; None for neither. Raises ValueError for
    both, and for what is none, OSError."""
    if name is not None and file is not None:
        raise ValueError("--perf_profile and --perf_config_yaml are two ways to say the same; drop one")
    if file is not None:
        return read_yaml(file)
    return None if name is None else profile_named(name)


class Power:
    """The perf profile of one instance on a device. profile: a copy of what is in force. Nothing is opened for one that
    asks for nothing."""

    def __init__(self, profile: PerfProfile | str, device: DeviceIdentity, share_votes: bool = False) -> None:
        """share_votes: with the other instances of this process that do so, as if they were one. Raises ValueError."""
        self.profile = profile_named(profile)

        def arbiter() -> Arbiter:
            steering = find_steering(device)
            return arbiter_of(steering.key, lambda: steering)

        self._voter = Voter(self.profile, arbiter, share_votes)
        self.start, self.done = self._voter.start, self._voter.done

    def set_profile(self, profile: PerfProfile | str) -> None:
        """Exchanges the profile, between inferences. Raises ValueError."""
        chosen = profile_named(profile)
        self._voter.set_profile(chosen)
        self.profile = chosen

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Vote in front of a phase and behind it, whatever becomes of it. Raises ForkedProcess."""
        self.start(phase)
        try:
            yield
        finally:
            self.done(phase)

    def close(self) -> None:
        """Take back whatever it has voted for. Doing so again does nothing."""
        self._voter.close()
