"""Limit how long a processor may take to wake up, by the kernel's PM QoS request for all processors.

Source: docs.kernel.org/power/pm_qos_interface.html. Four bytes in the machine's order, microseconds, are a request for
as long as the file is open. The smallest of all open requests counts, and closing the file withdraws the request.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from gputune.runtime.power.actuators.base import NO_CONTENTS, Access, Kind, Problem, Write, advice_for, clamped_advice
from gputune.runtime.power.records import Vote

NO_REQUEST_US = 2_000_000_000
"""What the file reads while there is no request."""


class CpuLatency:
    """Holds /dev/cpu_dma_latency open while there is a vote."""

    name = "cpu_latency"
    honours = frozenset({"sleep_latency_us"})
    of_this_process = True

    def __init__(self, access: Access) -> None:
        self._access = access
        self._path = access / "dev/cpu_dma_latency"
        self.paths: tuple[Path, ...] = (self._path,)
        self.at: Path | None = None
        self._held: int | None = None
        self._held_us: int | None = None
        _all.add(self)

    @classmethod
    def find(cls, access: Access) -> list[CpuLatency]:
        """Return an actuator where the kernel has the file, none elsewhere."""
        found = cls(access)
        return [found] if found.paths[0].exists() else []

    def read(self) -> dict[str, str]:
        now = self._now_us()
        return {} if now is None else {str(self._path): str(now)}

    def adopt(self, originals: Mapping[str, str]) -> None:
        """Nothing to keep: closing the file takes the request back."""

    def plan(self, vote: Vote, after: Mapping[Path, str] = NO_CONTENTS) -> list[Write]:
        wanted = "" if vote.sleep_latency_us is None else str(vote.sleep_latency_us)
        return [] if wanted == self._word(after) else [Write(self._path, wanted)]

    def plan_back(self, originals: Mapping[str, str], after: Mapping[Path, str] = NO_CONTENTS) -> list[Write]:
        return [Write(self._path, "")] if self._word(after) else []

    def write(self, writes: Sequence[Write]) -> list[Problem]:
        """Make the request what was written; an empty value takes it back."""
        problems = []
        for write in writes:
            self.at = write.path
            try:
                self._hold(write)
            except OSError as error:
                name = errno.errorcode.get(error.errno or 0, "EIO")
                problems.append(Problem(self.name, write.path, name, advice_for(name, write)))
            else:
                problems += self._unlike(write)
        self.at = None
        return problems

    def requested(self, vote: Vote) -> dict[str, float]:
        return {} if vote.sleep_latency_us is None else {"latency_us": float(vote.sleep_latency_us)}

    def effective(self) -> dict[str, float]:
        now = self._now_us()
        return {} if now is None or now == NO_REQUEST_US else {"latency_us": float(now)}

    def close(self) -> None:
        if self._held is not None:
            os.close(self._held)
        self._held = self._held_us = None

    def _word(self, after: Mapping[Path, str]) -> str:
        """Return what this process asks for; empty for no request."""
        return after.get(self._path, "" if self._held_us is None else str(self._held_us))

    def _hold(self, write: Write) -> None:
        """Make the request another one, or take it back. Raises OSError."""
        if self._access.before_write is not None:
            self._access.before_write(write)
        if not write.value:
            self.close()
            return
        if self._held is None:
            self._held = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        if not self._is_device():
            os.ftruncate(self._held, 0)
        os.pwrite(self._held, struct.pack("=i", int(write.value)), 0)
        self._held_us = int(write.value)

    def _unlike(self, write: Write) -> list[Problem]:
        """Return a problem where the latency is above the one that was asked for."""
        now = self._now_us()
        if not write.value or now is None or now <= int(write.value):
            return []
        return [Problem(self.name, write.path, "CLAMPED", clamped_advice(str(now), write))]

    def _is_device(self) -> bool:
        return stat.S_ISCHR(self._path.stat().st_mode)

    def _now_us(self) -> int | None:
        """Return the request that counts now, of all processes."""
        try:
            content = self._path.read_bytes()[:4]
        except OSError:
            return None
        return int.from_bytes(content, sys.byteorder, signed=True) if len(content) == 4 else None


_all: weakref.WeakSet[CpuLatency] = weakref.WeakSet()


def _close_in_fork() -> None:
    """Close the requests in a fork, which would hold them for as long as it lives, whatever becomes of the process that
    made them."""
    for each in _all:
        each.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_fork)


KIND = Kind("cpu_latency", CpuLatency.find)
