"""Share a page of memory between daemon and worker: what the worker does, and until when it may do it.

A write there wakes no process, so a measurement is not disturbed, and what is written outlives the worker. The daemon
sleeps until the deadline that it read last and looks again.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from dataclasses import dataclass

from gputune.runtime.measuring.watcher import STEPS, Step

_WHAT = struct.Struct("<qqq")  # step, variant, nanoseconds allowed
_WHEN = struct.Struct("<q")  # deadline; written last, and 0 while the rest changes
_DEADLINE = _WHAT.size
_CANCEL = _DEADLINE + _WHEN.size
_COMPANY = _CANCEL + 1
_WAITING = _COMPANY + 1
_YIELD = _WAITING + 1
_PAUSED = _YIELD + 1
_SIZE = mmap.PAGESIZE
_NONE = -1
_PAUSE_SECONDS = 1e-3
_COMPANY_SECONDS = 30.0  # no company lasts so long; a kernel that wrote on the page must not stop everything


@dataclass(frozen=True)
class Doing:
    """Tell what the worker was doing when the page was read. deadline_ns is of the clock that counts on by itself
    (time.monotonic_ns), the same in both processes; 0 means that there is none. allowed_ns is how far it lay ahead when
    the step began. paused: others have the device, as the daemon has wished."""

    step: Step | None
    variant: int | None
    allowed_ns: int
    deadline_ns: int
    paused: bool = False


class HeartbeatPage:
    """Share one page, made by the daemon with `create` and opened by the worker from the descriptor it inherits."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._yield_wanted = False  # by this process
        self._page = mmap.mmap(descriptor, _SIZE)

    @classmethod
    def create(cls) -> HeartbeatPage:
        """Return a new page where nothing is being done."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("gputune-heartbeat")
        else:  # an older Android, or not Linux
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        try:
            os.ftruncate(descriptor, _SIZE)
            page = cls(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        page.rest()
        return page

    def detach(self) -> None:
        """Close the descriptor, once the other process has inherited it. The page stays."""
        os.close(self.descriptor)

    # --- the worker's side --------------------------------------------------------------------------

    def begin(self, step: Step, variant: int | None, seconds: float) -> None:
        """Note that the worker does this now, for at most so many seconds."""
        allowed_ns = round(seconds * 1e9)
        deadline_ns = time.monotonic_ns() + allowed_ns
        number = _NONE if variant is None else variant
        _WHEN.pack_into(self._page, _DEADLINE, 0)  # so that no reader sees this step with the last one's deadline
        _WHAT.pack_into(self._page, 0, STEPS.index(step), number, allowed_ns)
        _WHEN.pack_into(self._page, _DEADLINE, deadline_ns)

    def rest(self) -> None:
        """Note that the worker does nothing that has a limit of its own."""
        _WHEN.pack_into(self._page, _DEADLINE, 0)
        _WHAT.pack_into(self._page, 0, _NONE, _NONE, 0)

    @property
    def cancelled(self) -> bool:
        """Return whether the daemon has asked to give the request up."""
        return self._page[_CANCEL] != 0

    def wait_until_alone(self) -> None:
        """Wait until the daemon has said that no other process compiles any more."""
        self._page[_WAITING] = 1
        until = time.monotonic() + _COMPANY_SECONDS
        while self._page[_COMPANY] and not self.cancelled and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)
        self._page[_WAITING] = 0

    @property
    def to_yield(self) -> bool:
        """Return whether the daemon wishes that others have the device. Not while another worker compiles for this
        request."""
        return self._page[_YIELD] != 0 and not self._page[_COMPANY]

    def pause(self) -> None:
        """Wait until the daemon says that the others have had the device, or that the request is to be given up."""
        self.rest()
        self._page[_PAUSED] = 1
        while self._page[_YIELD] and not self.cancelled:
            time.sleep(_PAUSE_SECONDS)
        self._page[_PAUSED] = 0

    # --- the daemon's side --------------------------------------------------------------------------

    def read(self) -> Doing:
        """Return what the worker does, or did last. Whatever the page holds, the step is known or None."""
        if self._yield_wanted and self._page[_PAUSED]:
            return Doing(None, None, 0, 0, paused=True)
        (deadline_ns,) = _WHEN.unpack_from(self._page, _DEADLINE)
        step, variant, allowed_ns = _WHAT.unpack_from(self._page, 0)
        if not 0 <= step < len(STEPS):
            return Doing(None, None, 0, 0)
        return Doing(STEPS[step], variant if variant >= 0 else None, allowed_ns, deadline_ns)

    def cancel(self, wanted: bool) -> None:
        """Ask the worker to give its request up, or take that back before the next one."""
        self._page[_CANCEL] = int(wanted)

    def ask_to_yield(self, wanted: bool) -> None:
        """Ask the worker to let others have the device between two variants, or to go on."""
        self._yield_wanted = wanted
        self._page[_YIELD] = int(wanted)

    def accompany(self, wanted: bool) -> None:
        """Say whether another worker compiles at the same time."""
        if wanted:
            self._page[_WAITING] = 0
        self._page[_COMPANY] = int(wanted)

    @property
    def waiting(self) -> bool:
        """Return whether the worker waits to be alone."""
        return self._page[_WAITING] != 0
