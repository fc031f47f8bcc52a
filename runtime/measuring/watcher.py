"""Inform another process while the device works, so that it can judge a process that hangs or dies.

Each step is announced before it is taken, with its expected duration. This process cannot enforce it, since a kernel
that never ends holds the process; another process can.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Literal, Protocol

from gputune.core.launches import Trial

Step = Literal["preparing", "building", "starting", "launching", "checking", "measuring"]
STEPS: tuple[Step, ...] = ("preparing", "building", "starting", "launching", "checking", "measuring")
"""preparing: copies of the inputs; building: the driver's compiler; starting: a first launch before it runs,
where some drivers still generate code; launching: it runs; checking: its output; measuring: warm-up or a sample."""

_PURPOSE: Mapping[Step, str] = {
    "preparing": "verify",
    "building": "build",
    "starting": "build",
    "launching": "verify",
    "checking": "verify",
    "measuring": "measure",
}


PURPOSES = ("build", "verify", "measure")


class Cancelled(Exception):
    """Report that the work was given up because the watcher wished so."""


class Watcher(Protocol):
    """Hear of each step. `variant` is the number of one in the request, or of its baseline; None is work for all of
    them. Every method but yield_device returns at once, and none raises."""

    @property
    def cancelled(self) -> bool:
        """Return whether to give up; asked between variants and between samples, which ends in Cancelled."""

    def step(self, step: Step, variant: int | None, expected_ns: float) -> None:
        """Note what is done next. expected_ns is for limits that scale with it: the fastest launch known when
        launching, the length of the sample when measuring; 0 when nothing is known."""

    def verified(self, variant: int, trial: Trial) -> None:
        """Note that a variant was built and found right; its trial has no samples yet. Never called while measuring."""

    def failed(self, variant: int, trial: Trial) -> None:
        """Note what became of a variant that does not work."""

    def yield_device(self) -> None:
        """Let others have the device, where they are to, and return when they have had it. Called between two variants,
        while nothing is measured and nothing runs."""


class Unwatched:
    """Do nothing."""

    cancelled = False

    def step(self, step: Step, variant: int | None, expected_ns: float) -> None: ...

    def verified(self, variant: int, trial: Trial) -> None: ...

    def failed(self, variant: int, trial: Trial) -> None: ...

    def yield_device(self) -> None: ...


UNWATCHED = Unwatched()


class Course:
    """Follow the way of one request: announce its steps, sum up what they take, and remember the fastest launch.

    best_ns: the fastest launch known, 0 when none is. What lies between two announcements belongs to the first, and to
    the variant that it names.
    """

    def __init__(self, watcher: Watcher, best_ns: float = 0.0) -> None:
        self.watcher = watcher
        self.best_ns = best_ns
        self._spent_ns: dict[int | None, dict[str, int]] = {}
        self._purpose = "verify"
        self._variant: int | None = None
        self._since_ns = time.perf_counter_ns()

    def step(self, step: Step, variant: int | None, expected_ns: float = 0.0, *, shared: bool = False) -> None:
        """Announce what comes next. What is `shared` serves the whole batch: its time is no variant's own."""
        self._account()
        self._purpose, self._variant = _PURPOSE[step], None if shared else variant
        self.watcher.step(step, variant, expected_ns)

    def go_on(self) -> None:
        """Raise Cancelled when the watcher wishes so."""
        if self.watcher.cancelled:
            raise Cancelled("the request was cancelled")

    def yield_device(self) -> None:
        """Let others have the device, if they are to. That time is not the request's."""
        self._account()
        self.watcher.yield_device()
        self._since_ns = time.perf_counter_ns()

    def seen(self, launch_ns: float) -> None:
        """Note how long a right variant's launch took."""
        self.best_ns = min(self.best_ns or math.inf, launch_ns)

    @property
    def spent_ns(self) -> dict[str, int]:
        """Return the host's time until now, for "build", "verify" and "measure"."""
        self._account()
        return {purpose: sum(spent[purpose] for spent in self._spent_ns.values()) for purpose in PURPOSES}

    def spent_on(self, variant: int) -> dict[str, int]:
        """Return the host's time for one variant until now, as in spent_ns."""
        self._account()
        return dict(self._spent_ns.get(variant, dict.fromkeys(PURPOSES, 0)))

    def _account(self) -> None:
        now_ns = time.perf_counter_ns()
        spent = self._spent_ns.setdefault(self._variant, dict.fromkeys(PURPOSES, 0))
        spent[self._purpose] += now_ns - self._since_ns
        self._since_ns = now_ns
