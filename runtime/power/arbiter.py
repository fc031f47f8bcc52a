"""Decide which vote is in force for a device: for each field, the strongest of all live instances in all processes.

Before the first vote changes a device, the content of its controls is written to a journal. When the last vote is gone,
the device is restored by the process that withdrew the vote. If that process was killed, the next process that looks
restores it: a process that votes, that registers, or that has an instance registered, which looks four times a second.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gputune.core.logs import printable
from gputune.core.opened import Opened
from gputune.runtime.power.actuators.base import CLAMPED, SLOW, UNKNOWN, Problem
from gputune.runtime.power.background import background
from gputune.runtime.power.journal import DeviceFiles, Files, Holder, NoFiles, Table
from gputune.runtime.power.records import NOTHING, Vote, strongest
from gputune.runtime.power.steering import Applied

LOOK_S = 0.25
"""How long a process that was killed goes unnoticed."""
AGAIN_S = 0.05
"""When what could not be done is tried again."""
LAST_LOOKS = 100
"""So often what could not be brought back is tried again; then it is left to the next process that looks."""
LOCK_S = 1.0
"""How long a vote waits for another process's; then it follows when the lock is free."""
EXIT_S = 3.0
"""How long the end of a process waits for slow controls."""

_SHARED = 0
_AS_FAR_AS_IT_GOES = (CLAMPED, UNKNOWN)

_log = logging.getLogger(__name__)


class Steers(Protocol):
    """What brings a device to a vote, as steering.Steering does. Nothing raises for a control that cannot be read or
    written."""

    def originals(self) -> Mapping[str, str]:
        """Return what every control that outlives this process contains now, by path."""

    def adopt(self, originals: Mapping[str, str]) -> None:
        """Take these contents for those from before any vote."""

    def apply(self, vote: Vote, own: Vote) -> Applied:
        """Brings the device to the strongest vote of all processes; what the kernel holds for each process, to this
        one's own."""

    def restore(self, originals: Mapping[str, str]) -> Sequence[Problem]:
        """Brings these contents back, and lets go of what the kernel holds for this process."""

    def wait(self, limit_s: float) -> bool:
        """Wait for slow controls, and say whether all are done."""


class Arbiter:
    """The votes of this process's instances for one device.

    device_key: names the device, the same in all processes; folder: where its files lie, by default the user's. A
    folder that does not work is one warning, and votes are of this process only. A fork does nothing for the process
    that it was forked from: votes raise ForkedProcess there, the rest has no effect. May be used by several threads.
    """

    def __init__(self, device_key: str, steering: Steers, folder: Path | None = None) -> None:
        self.applied: Applied | None = None
        """What became of the vote in force; None while there is none."""
        self._device_key = device_key
        self._steering = steering
        self._files = DeviceFiles(device_key, folder)
        self._opened = Opened(f"the votes for {device_key}")
        self._background = background()
        self._lock = threading.RLock()
        self._numbers = itertools.count(_SHARED + 1)
        self._users: dict[int, int] = {}
        self._votes: dict[int, Vote] = {}
        self._own = NOTHING
        self._holder: Holder | None = None
        self._number = next(_counted)
        self._others: frozenset[Holder] = frozenset()
        self._held = NOTHING
        self._originals: dict[str, str] | None = None
        self._controls: frozenset[str] | None = None
        self._stamp: tuple[int, int] | None = None
        self._behind = False
        self._late = False
        self._looks_left = 0
        self._warned: set[str] = set()
        _all.add(self)

    @property
    def here(self) -> bool:
        """Whether this process made it, and no fork of it."""
        return self._opened.here

    def register(self, shared: bool = False) -> int:
        """Register an instance, without a vote yet, and return its number. shared: all such instances of this process
        have one vote, that of the last of them that votes; else each has its own. Raises ForkedProcess."""
        self._opened.check()
        with self._lock:
            instance = _SHARED if shared else next(self._numbers)
            if not self._users:
                self._settle()
                self._background.call(self, time.monotonic() + LOOK_S)
            self._users[instance] = self._users.get(instance, 0) + 1
            self._votes.setdefault(instance, NOTHING)
            return instance

    def vote_of(self, instance: int) -> Vote:
        """Return the last vote of an instance; none for one that has been withdrawn."""
        return self._votes.get(instance, NOTHING)

    def cast(self, instance: int, vote: Vote) -> None:
        """Replace an instance's vote; one that has been withdrawn has none. What changes nothing for this process
        makes no system call. Raises ForkedProcess."""
        before = self._votes.get(instance)
        if before is None or before is vote or before == vote:
            return
        self._opened.check()
        with self._lock:
            if instance in self._votes:
                self._votes[instance] = vote
                self._settle_own()

    def withdraw(self, instance: int) -> None:
        """Take an instance and its vote back; a shared one with the last that uses it. One that is not registered is
        left alone."""
        if not self.here:
            return
        with self._lock:
            self._users[instance] = self._users.get(instance, 0) - 1
            if self._users[instance] <= 0:
                del self._users[instance]
                self._votes.pop(instance, None)
                self._settle_own()

    def look(self) -> None:
        """Take back the votes of dead processes, and what they left behind where no vote is left."""
        if self.here:
            with self._lock:
                self._settle()

    def close(self) -> None:
        """Withdraws all instances and waits until slow controls are done, for EXIT_S at most."""
        if not self.here:
            return
        with self._lock:
            self._users.clear()
            self._votes.clear()
            self._settle_own()
            if self._late and self._steering.wait(EXIT_S):
                self._settle(EXIT_S)

    def run(self, now: float) -> float:
        """Look, where there may be something to see."""
        if not self.here:
            return math.inf
        with self._lock:
            late = self._late and self._steering.wait(0.0)
            if late or self._behind or self._looks_left or (self._users and self._changed()):
                self._settle(AGAIN_S)
            if self._behind or self._looks_left or self._late:
                return now + AGAIN_S
            return now + LOOK_S if self._users else math.inf

    def _changed(self) -> bool:
        """Return whether another process has changed the votes, or has ended."""
        if self._holder is None:  # there are no others
            return False
        return self._files.stamp() != self._stamp or not all(other.alive for other in self._others)

    def _settle_own(self) -> None:
        own = strongest(self._votes.values())
        if own != self._own or self._behind:
            self._own = own
            self._settle()

    def _settle(self, wait_s: float = 0.0) -> None:
        """Brings the device to what is in force now. wait_s: how long to wait for slow controls."""
        self._behind = False
        try:
            holder = self._holder = self._holder or Holder.here(self._number)
            with self._files.locked(LOCK_S) as files:
                self._bring(files, holder, wait_s)
                self._stamp = self._files.stamp()
        except TimeoutError as error:
            self._behind = True
            self._background.call(self, time.monotonic() + AGAIN_S)
            self._warn(f"{printable(error)}; the vote is written when it is free")
        except OSError as error:
            self._warn(
                "votes are not shared with other processes, and clocks stay as they are if this process is killed: "
                f"{printable(error)}"
            )
            self._bring(NoFiles(), self._holder or Holder(0, 0, self._number), wait_s)

    def _bring(self, files: Files, holder: Holder, wait_s: float) -> None:
        table, journal = files.table(), files.originals()  # before anything is written: one may be unreadable
        votes = {other: vote for other, vote in table.votes.items() if other != holder and other.alive}
        busy = frozenset(other for other in table.busy if other != holder and other.alive)
        self._others = frozenset(votes) | busy
        if not self._own.empty:
            votes[holder] = self._own
        in_force = strongest(votes.values())
        if in_force.empty:
            self._let_go(files, journal, holder, busy, wait_s)
        else:
            self._hold(files, journal, Table(votes, in_force, holder, busy), table, wait_s)
        if self._own.empty and not self._late and not self._looks_left:
            self._originals = None  # other processes may bring them back from now on, unseen

    def _hold(self, files: Files, journal: dict[str, str] | None, wanted: Table, found: Table, wait_s: float) -> None:
        """Brings the device to a vote, unless the process that did so before lives and it is the same. After slow
        writes it is done again, because another process may have voted meanwhile."""
        late = self._late or self._looks_left > 0
        same = not late and found.in_force == wanted.in_force and found.by in wanted.votes
        table = replace(wanted, by=found.by) if same else wanted
        files.write(table)
        self._keep_originals(files, journal)
        self._looks_left = 0
        if not same or self._held != self._own:
            self.applied = self._steering.apply(wanted.in_force, self._own)
            self._held = self._own
            if self._becomes_late(self.applied.problems, wait_s) and wanted.by is not None:
                files.write(replace(table, busy=table.busy | {wanted.by}))

    def _becomes_late(self, problems: Sequence[Problem], wait_s: float) -> bool:
        """Return whether slow writes go on in the background; then they are looked after there."""
        self._late = any(problem.error == SLOW for problem in problems) and not self._steering.wait(wait_s)
        if self._late:
            self._background.call(self, time.monotonic() + AGAIN_S)
        return self._late

    def _keep_originals(self, files: Files, found: dict[str, str] | None) -> None:
        """Journals what the controls contained before any vote, where it is not found there yet, and those that only
        this process knows."""
        kept = self._originals if found is None else found
        if kept is None or self._controls is None or not self._controls <= kept.keys():
            now = self._steering.originals()
            self._controls = frozenset(now)
            kept = {**now, **(kept or {})}
        if kept != found:
            files.keep(kept)
        if kept != self._originals:
            self._steering.adopt(kept)
            self._originals = kept

    def _let_go(
        self, files: Files, found: dict[str, str] | None, holder: Holder, busy: frozenset[Holder], wait_s: float
    ) -> None:
        """Brings the originals back; the journal stays until all are, and no process writes any more."""
        originals = self._originals if found is None else found
        failed = False
        if originals is not None or self._late or not self._held.empty:
            problems = self._steering.restore(originals or {})
            self.applied, self._held = None, NOTHING
            if self._becomes_late(problems, wait_s):
                busy |= {holder}
            else:
                failed = self._fails(problems, originals or {})
        self._looks_left = (self._looks_left or LAST_LOOKS + 1) - 1 if failed else 0
        if failed or self._late:
            self._originals = originals
        if self._looks_left:
            self._background.call(self, time.monotonic() + AGAIN_S)
        if failed or busy:
            files.write(Table(busy=busy))
        else:
            files.clear()

    def _fails(self, problems: Sequence[Problem], originals: Mapping[str, str]) -> bool:
        """Return whether a control that could be otherwise is not as it was."""
        errors = {problem.error for problem in problems}
        now = self._steering.originals() if errors.difference(_AS_FAR_AS_IT_GOES) else {}
        return any(now.get(path, content) != content for path, content in originals.items())

    def _warn(self, text: str) -> None:
        """Log a line about this device, once."""
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("power: %s: %s", printable(self._device_key), text)


def arbiter_of(device_key: str, steering: Callable[[], Steers], folder: Path | None = None) -> Arbiter:
    """Return the arbiter of this process for a device, so that its instances can share a vote; steering makes what the
    first one steers with."""
    with _making:
        found = _by_device.get(device_key)
        if found is None or not found.here:
            found = _by_device[device_key] = Arbiter(device_key, steering(), folder)
        return found


def live_votes() -> dict[str, dict[str, Any]]:
    """By device, the votes of this process that are in force, what was requested of its controls by all, and what they
    are at."""
    found: dict[str, dict[str, Any]] = {}
    with _making:
        arbiters = dict(_by_device)
    for key, arbiter in arbiters.items():
        if (brought := arbiter.applied) is not None and arbiter.here:
            found[key] = {"requested": dict(brought.requested), "effective": dict(brought.effective)}
    return found


_counted = itertools.count(1)
_making = threading.Lock()
_by_device: dict[str, Arbiter] = {}
_all: weakref.WeakSet[Arbiter] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for arbiter in list(_all):
        with suppress(RuntimeError):  # Python 3.12.0 and 3.12.1 start no thread any more: the journal stays
            arbiter.close()
