"""Represent instances of perf profiles: each votes for one loaded context, on the controls of its device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gputune.core.identity import DeviceIdentity
from gputune.runtime.power.arbiter import Arbiter, arbiter_of
from gputune.runtime.power.profiles.chosen import profile_named
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.settings import Phase
from gputune.runtime.power.steering import find_steering
from gputune.runtime.power.voter import Voter


def controls_of(device: DeviceIdentity) -> list[str]:
    """Return the names of what steers a device's clocks and power, none where nothing does."""
    return [actuator.name for actuator in find_steering(device).actuators if actuator.paths]


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
