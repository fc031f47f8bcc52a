"""A page of memory that daemon and worker share: what the worker does, and until when it may do it.

Writing there wakes nobody up, so a measurement is not disturbed, and what is written outlives the worker. The
daemon sleeps until the deadline that it read last and looks again.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass

from gputune.runtime.watch import STEPS, Step

_RECORD = struct.Struct("<qqq")  # step, variant, deadline
_CANCEL = _RECORD.size
_SIZE = mmap.PAGESIZE
_NOBODY = -1


@dataclass(frozen=True)
class Doing:
    """What the worker was doing when the page was read. deadline_ns is of the clock that counts on by itself
    (time.monotonic_ns), the same in both processes."""

    step: Step | None
    variant: int | None
    deadline_ns: int


class Activity:
    """One page, made by the daemon with `create` and opened by the worker from the descriptor it inherits."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._page = mmap.mmap(descriptor, _SIZE)

    @classmethod
    def create(cls) -> Activity:
        """A new page where nothing is being done."""
        descriptor = os.memfd_create("gputune-activity")
        os.ftruncate(descriptor, _SIZE)
        activity = cls(descriptor)
        activity.rest()
        return activity

    def close(self) -> None:
        """Gives the page back. The other side's stays."""
        self._page.close()
        os.close(self.descriptor)

    # --- the worker's side --------------------------------------------------------------------------

    def begin(self, step: Step, variant: int | None, seconds: float) -> None:
        """The worker does this now, for at most so many seconds."""
        deadline_ns = time.monotonic_ns() + round(seconds * 1e9)
        number = _NOBODY if variant is None else variant
        _RECORD.pack_into(self._page, 0, STEPS.index(step), number, deadline_ns)

    def rest(self) -> None:
        """The worker does nothing that has a limit of its own."""
        _RECORD.pack_into(self._page, 0, _NOBODY, _NOBODY, 0)

    @property
    def cancelled(self) -> bool:
        """Whether the daemon has asked to give the request up."""
        return self._page[_CANCEL] != 0

    # --- the daemon's side --------------------------------------------------------------------------

    def read(self) -> Doing:
        """What the worker does, or did last."""
        step, variant, deadline_ns = _RECORD.unpack_from(self._page, 0)
        known = 0 <= step < len(STEPS)
        return Doing(STEPS[step] if known else None, variant if known and variant >= 0 else None, deadline_ns)

    def cancel(self, wanted: bool) -> None:
        """Asks the worker to give its request up, or takes that back before the next one."""
        self._page[_CANCEL] = int(wanted)
