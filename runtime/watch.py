"""What somebody outside is told while a batch is profiled, so that a process that hangs or dies can be judged.

The profiler announces each step before it takes it, with the time that it may take at most. It cannot enforce
that itself: a kernel that never ends holds the process. Whoever watches from another process can.
"""

from __future__ import annotations

from typing import Literal, Protocol

from gputune.runtime.variant import Trial

Step = Literal["preparing", "building", "starting", "launching", "checking", "measuring"]
STEPS: tuple[Step, ...] = ("preparing", "building", "starting", "launching", "checking", "measuring")
"""preparing: inputs and packed buffers; building: the driver's compiler; starting: a first launch before it runs,
where some drivers still generate code; launching: it runs; checking: its output; measuring: a sample."""


class Cancelled(Exception):
    """The batch was given up because the watcher wished so."""


class Watcher(Protocol):
    """Who is told. `variant` counts in the order of the request; a baseline comes after the variants; None is
    work for all of them. Every method returns at once and never raises."""

    @property
    def cancelled(self) -> bool:
        """Whether to give up; the profiler asks between steps and raises Cancelled."""

    def step(self, step: Step, variant: int | None, best_ns: float) -> None:
        """What is done next; best_ns is the fastest launch known, 0 when none is, for limits that scale with it."""

    def proven(self, variant: int, trial: Trial) -> None:
        """A variant was built and found right; its trial has no samples yet. Never called while measuring."""

    def failed(self, variant: int, trial: Trial) -> None:
        """What became of a variant that does not work."""


class Unwatched:
    """A watcher that nobody is behind."""

    cancelled = False

    def step(self, step: Step, variant: int | None, best_ns: float) -> None: ...

    def proven(self, variant: int, trial: Trial) -> None: ...

    def failed(self, variant: int, trial: Trial) -> None: ...
