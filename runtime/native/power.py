"""Bind the votes of gputune.h: the controls of a device, and an instance that votes on them."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from ctypes import byref, c_size_t
from pathlib import Path
from typing import NamedTuple

from gputune.core.identity import DeviceIdentity
from gputune.core.logs import printable
from gputune.runtime.native.binding import library
from gputune.runtime.native.closing import NativeObject
from gputune.runtime.native.declarations import LINE, VOTE_FIELDS, Clock, PerfSettings, PowerState, Vote, Write

PHASES = "init", "execute", "deinit"
_MOST_CLOCKS = 1024
_MOST_WRITES = 1 << 14

log = logging.getLogger(__name__)
Places = Sequence[int]
"""A vote or settings as C has them."""


class Control(NamedTuple):
    """Describe a control now. content: None where it cannot be read; refusal: the errno's name that a write would fail
    with, empty where it would not; advice: what would allow it."""

    actuator: str
    path: str
    content: str | None
    refusal: str
    advice: str


class Planned(NamedTuple):
    """Name a write: for the vote at place `step`, or behind the last one for the way back."""

    step: int
    path: str
    value: str


class Controls(NativeObject):
    """Steer the clocks and power of a device, or with None all that is there, by files below a root."""

    close_by = "close_power"

    def __init__(self, device: DeviceIdentity | None, root: Path = Path("/")) -> None:
        """Find them. Raises DeviceNotFound where the C runtime cannot be had."""
        named = (None, None, None) if device is None else (device.device_type, device.vendor, device.name)
        native = library()
        texts = [None if text is None else printable(text).encode() for text in named]
        super().__init__(native, native.made("open_power", *texts, str(root).encode()))
        self._told = 0

    def read(self) -> PowerState:
        """Return their state now; it is valid until the next call. Raises ForkedProcess."""
        state = PowerState()
        self.native.checked("read_power", self.pointer, byref(state))
        return state

    @property
    def key(self) -> str:
        """Return what names them, the same in all processes."""
        return str(self.native.call("power_key", self.pointer).decode())

    def all(self) -> list[Control]:
        """Return the state of each control that a vote may change."""
        state = self.read()
        rows = [state.controls[place] for place in range(state.control_count)]
        return [Control(*(_text(getattr(row, name)) for name in Control._fields)) for row in rows]  # type: ignore[arg-type]

    def clocks(self, live: bool = False) -> tuple[dict[str, float], dict[str, float]]:
        """Return what is requested of clocks and what they are at, by names with the unit at the end. live: only while
        a vote of this process is in force; no control is waited for then."""
        rows = (Clock * _MOST_CLOCKS)()
        if live:
            found = list(rows[: self.native.call("live_clocks", self.pointer, rows, len(rows))])
        else:
            state = self.read()
            found = [state.clocks[place] for place in range(state.clock_count)]
        named = [(row.name.decode(), row) for row in found]
        requested = {name: row.requested for name, row in named if row.requested}
        return requested, {name: row.effective for name, row in named if row.effective}

    @property
    def honoured(self) -> set[int]:
        """Return the places in a vote that a control makes something of."""
        bits = self.read().honoured
        return {place for place in range(VOTE_FIELDS) if bits >> place & 1}

    def planned(self, votes: Sequence[Places]) -> list[Planned]:
        """Return what would be written for votes, one after the other from now on, and for the way back; nothing is.
        No instance may vote meanwhile."""
        rows, count = (Write * _MOST_WRITES)(), c_size_t()
        given = (Vote * len(votes))(*map(_vote, votes))
        self.native.checked("plan", self.pointer, given, len(votes), rows, len(rows), byref(count))
        return [Planned(row.step, row.path.decode(), row.value.decode()) for row in rows[: count.value]]

    def tell(self) -> None:
        """Log what could not be done since the last call."""
        while (line := self.native.call("power_warning", self.pointer, self._told)) is not None:
            self._told += 1
            log.warning("power: %s", printable(line.decode(errors="replace")))


class Votes(NativeObject):
    """Vote as an instance on some controls."""

    close_by = "close_votes"

    def __init__(self, controls: Controls, settings: PerfSettings) -> None:
        """Begin; the first phase votes first. Raises ForkedProcess, ValueError."""
        super().__init__(
            controls.native, controls.native.made("open_votes", controls.pointer, byref(settings)), controls
        )

    def change(self, settings: PerfSettings) -> None:
        """Vote by other settings. Raises ForkedProcess, ValueError."""
        self.native.checked("set_votes", self.pointer, byref(settings))

    def begin(self, phase: str) -> None:
        """Vote when a phase begins. Raises ForkedProcess."""
        self.native.checked("begin_phase", self.pointer, PHASES.index(phase))

    def end(self, phase: str) -> None:
        """Vote when a phase has ended, whatever became of it. Raises ForkedProcess."""
        self.native.checked("end_phase", self.pointer, PHASES.index(phase))


def settings_of(places: Places) -> PerfSettings:
    """Return settings as C has them: the votes when init, execute and deinit begin, those when they have ended, the
    microseconds of hysteresis, and whether votes are asynchronous."""
    votes = [_vote(places[at : at + VOTE_FIELDS]) for at in range(0, 6 * VOTE_FIELDS, VOTE_FIELDS)]
    *_, hysteresis_us, asynchronous = places
    return PerfSettings((Vote * 3)(*votes[:3]), (Vote * 3)(*votes[3:]), hysteresis_us, bool(asynchronous))


def preset_of(name: str) -> PerfSettings:
    """Return the settings of a preset as C has them. Raises ValueError for a name that is none."""
    settings = PerfSettings()
    library().checked("preset", name.encode(), byref(settings))
    return settings


def restore(root: Path = Path("/")) -> list[str]:
    """Bring back what killed processes have left, and return a line for each change and each process that votes."""
    lines: list[str] = []
    library().checked(
        "restore", str(root).encode(), LINE(lambda _, line: lines.append(line.decode(errors="replace"))), None
    )
    return lines


def _vote(places: Places) -> Vote:
    return Vote((ctypes.c_int32 * VOTE_FIELDS)(*places))


def _text(text: bytes | None) -> str | None:
    return None if text is None else text.decode(errors="replace")
