"""Vote by perf profiles: an instance votes for one loaded context, or for one client of a server.

The C runtime casts the votes. All instances of this process on a device share its controls.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gputune.core.errors import DeviceNotFound, ForkedProcess
from gputune.core.identity import DeviceIdentity
from gputune.core.opened import Closing
from gputune.runtime.native.power import Controls, Votes, settings_of
from gputune.runtime.power.profiles.chosen import profile_named
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.settings import Phase


def controls_of(device: DeviceIdentity) -> list[str]:
    """Return the names of what steers a device's clocks and power, none where nothing does."""
    with _controls(device) as controls:
        return list(dict.fromkeys(control.actuator for control in controls.all()))


def _controls(device: DeviceIdentity) -> Controls:
    try:
        return Controls(device)
    except DeviceNotFound as error:
        raise ValueError(f"clocks cannot be voted for: {error}") from None


class Power(Closing):
    """The perf profile of one instance on a device. profile: a copy of what is in force. Nothing is opened for one that
    asks for nothing."""

    def __init__(self, profile: PerfProfile | str, device: DeviceIdentity) -> None:
        """Begin to vote. Raises ValueError, also where the C runtime cannot be had."""
        self._device = device
        self._turn = threading.Lock()
        self._votes: Votes | None = None
        self._forked = False
        self.set_profile(profile)
        _all.add(self)

    def set_profile(self, profile: PerfProfile | str) -> None:
        """Exchanges the profile, between inferences. Raises ValueError."""
        chosen = profile_named(profile)
        with self._turn:
            self.profile = chosen
            if chosen.silent:
                self._close()
                return
            settings = settings_of(chosen.places)
            if self._votes is None:
                self.controls = _shared(self._device)
                self._votes = Votes(self.controls, settings)
            else:
                self._votes.change(settings)

    def start(self, phase: Phase) -> None:
        """Vote in front of a phase. Raises ForkedProcess."""
        with self._turn:
            if self._votes is not None:
                self._votes.begin(phase)
                self.controls.tell()
        if self._forked:
            raise ForkedProcess("votes are of the process that this was forked from: load in each child")

    def done(self, phase: Phase) -> None:
        """Vote behind a phase. To be called for what failed, too. Raises ForkedProcess."""
        with self._turn:
            if self._votes is not None:
                self._votes.end(phase)
                self.controls.tell()

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
        with self._turn:
            self._close()

    def _close(self) -> None:
        if self._votes is not None:
            self._votes.close()
            self.controls.tell()
        self._votes = None

    def forget(self) -> None:
        """Leave the votes to the process that this is a fork of, which would not end them while a fork holds files."""
        self._turn = threading.Lock()
        if self._votes is not None:
            self._forked = True
            self._votes.close()
            self._votes = None


def live_votes() -> dict[str, dict[str, Any]]:
    """By controls, what this process requests of a device's clocks while its votes are in force, and what they are
    at."""
    found: dict[str, dict[str, Any]] = {}
    with _making:
        shared = list(_by_device.values())
    for controls in shared:
        requested, effective = controls.clocks(live=True)
        if requested or effective:
            found[controls.key] = {"requested": requested, "effective": effective}
    return found


def _shared(device: DeviceIdentity) -> Controls:
    """Return this process's controls of a device. Raises ValueError."""
    named = device.device_type, device.vendor, device.name
    with _making:
        if named not in _by_device:
            _by_device[named] = _controls(device)
        return _by_device[named]


_making = threading.Lock()
_by_device: dict[tuple[str, str, str], Controls] = {}
_all: weakref.WeakSet[Power] = weakref.WeakSet()


def _forget_in_fork() -> None:
    global _making
    _making = threading.Lock()
    for power in list(_all):
        power.forget()
    while _by_device:
        _by_device.popitem()[1].close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_fork)
