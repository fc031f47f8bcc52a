"""Provide what all actuators share: the files of a device's controls, ordered writes to them, and the results of
writes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gputune.runtime.power.records import Vote

CONTENT_BYTES = 1 << 16

CLAMPED = "CLAMPED"
"""The `error` of a write that the driver took and changed."""
SLOW = "SLOW"
"""The `error` of writes that go on in the background."""
UNKNOWN = "UNKNOWN"
"""The `error` of a file that is none of the device's controls."""


@dataclass(frozen=True)
class Write:
    """One value for one file, written whole."""

    path: Path
    value: str


@dataclass(frozen=True)
class Problem:
    """Why a control is not as it was asked for. error: an errno's name, CLAMPED, SLOW or UNKNOWN; advice: what it
    means, and what would allow it."""

    actuator: str
    path: Path
    error: str
    advice: str

    @property
    def line(self) -> str:
        """In one line."""
        return f"{self.actuator}: {self.path}: {self.error}: {self.advice}"


@dataclass(frozen=True)
class Access:
    """Where the files of controls lie, and how they are written. before_write is told each write just before it and
    may raise OSError in its place: it records orders, and injects faults."""

    root: Path = Path("/")
    before_write: Callable[[Write], None] | None = None

    def __truediv__(self, below: str) -> Path:
        return self.root / below

    def found(self, pattern: str) -> list[Path]:
        """Return the files and folders below the root that fit a pattern, sorted."""
        try:
            return sorted(self.root.glob(pattern))
        except OSError:
            return []

    def write(self, write: Write) -> None:
        """Write the whole value in one call; a file that is not there is not made. Raises OSError."""
        if self.before_write is not None:
            self.before_write(write)
        content = write.value.encode()
        descriptor = os.open(write.path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(write.path))
        finally:
            os.close(descriptor)


NO_CONTENTS: Mapping[Path, str] = {}


@dataclass(frozen=True)
class Kind:
    """Declare a kind of controls, as KIND in the module that knows its files.

    find: looks for its actuators; gpus: a pattern for the vendors and names of the GPUs that it is made for, in lower
    case; also: the names of the kinds that steer these GPUs as well.
    """

    name: str
    find: Callable[[Access], Sequence[Actuator]]
    gpus: str = ""
    also: tuple[str, ...] = ()


class Actuator(Protocol):
    """What steers one device, or one kind of control of it. Nothing raises for a file that cannot be read or written.

    name: of its kind; paths: the files that it may write; honours: the fields of a vote that it makes something of;
    of_this_process: whether the kernel takes its vote back when the process ends, and finds the strongest of several
    processes' by itself; at: the file that it is writing just now.
    """

    name: str
    paths: tuple[Path, ...]
    honours: frozenset[str]
    of_this_process: bool
    at: Path | None

    def read(self) -> dict[str, str]:
        """Return what the files contain now, exactly; without those that cannot be read."""

    def adopt(self, originals: Mapping[str, str]) -> None:
        """Take these contents, as `read` gives them, for those that a field without a vote goes back to."""

    def plan(self, vote: Vote, after: Mapping[Path, str] = NO_CONTENTS) -> list[Write]:
        """Return what is to be written, in this order, to bring the device from its state now to a vote. after:
        contents that files would have by then, in place of their own."""

    def plan_back(self, originals: Mapping[str, str], after: Mapping[Path, str] = NO_CONTENTS) -> list[Write]:
        """Return what is to be written, in this order, to bring back exactly these contents; after: as for `plan`."""

    def write(self, writes: Sequence[Write]) -> list[Problem]:
        """Write, read back, and say what did not become as it was asked for."""

    def requested(self, vote: Vote) -> dict[str, float]:
        """Return what a vote asks for, by the names of `effective`; without what it leaves alone."""

    def effective(self) -> dict[str, float]:
        """Return what is in force now: numbers by name, with the unit at the end (`_hz`, `_us`)."""

    def close(self) -> None:
        """Let go of what only this process holds."""


class NoActuator:
    """The actuator of a device that nothing steers; it honours no field of a vote."""

    name = "none"
    paths: tuple[Path, ...] = ()
    honours: frozenset[str] = frozenset()
    of_this_process = True
    at: Path | None = None

    def read(self) -> dict[str, str]:
        return {}

    def adopt(self, originals: Mapping[str, str]) -> None:
        """Nothing to keep."""

    def plan(self, vote: Vote, after: Mapping[Path, str] = NO_CONTENTS) -> list[Write]:
        return []

    def plan_back(self, originals: Mapping[str, str], after: Mapping[Path, str] = NO_CONTENTS) -> list[Write]:
        return []

    def write(self, writes: Sequence[Write]) -> list[Problem]:
        return []

    def requested(self, vote: Vote) -> dict[str, float]:
        return {}

    def effective(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is held."""


def content_of(path: Path) -> str | None:
    """Return what a file contains; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(CONTENT_BYTES).decode(errors="replace")
    except OSError:
        return None


def word_of(path: Path) -> str:
    """Return a file's content without blanks around it; empty where it cannot be read."""
    return (content_of(path) or "").strip()


def word_after(path: Path, after: Mapping[Path, str]) -> str:
    """word_of, but for files that would have another content by then."""
    return after[path].strip() if path in after else word_of(path)


def numbers_of(path: Path) -> list[int]:
    """Return the whole numbers in a file, in its order; empty where it cannot be read."""
    return [int(word) for word in word_of(path).split() if word.lstrip("-").isdigit()]


def number_of(path: Path) -> int | None:
    """Return the first whole number in a file."""
    return next(iter(numbers_of(path)), None)


def write_all(access: Access, actuator: str, writes: Iterable[Write]) -> list[Problem]:
    """Write one after the other, whatever becomes of each. A value that is refused as invalid is tried once more
    after the others: another process may have moved the other end of a range meanwhile."""
    problems, again = [], []
    for write in writes:
        error = _error_of(access, write)
        if error == "EINVAL":
            again.append(write)
        elif error:
            problems.append(Problem(actuator, write.path, error, advice_for(error, write)))
    for write in again:
        if error := _error_of(access, write):
            problems.append(Problem(actuator, write.path, error, advice_for(error, write)))
    return problems


def clamped(actuator: str, writes: Iterable[Write]) -> list[Problem]:
    """Return the writes whose files read otherwise now."""
    found = []
    for write in writes:
        now = word_of(write.path)
        if now and now != write.value.strip():
            found.append(Problem(actuator, write.path, CLAMPED, clamped_advice(now, write)))
    return found


def refusal_of(path: Path) -> str:
    """Return the name of the errno that a write would fail with now, empty where it would not; nothing is written. A
    name without a file is a library's control, which takes root."""
    if not path.exists():
        return "" if os.geteuid() == 0 else "EPERM"
    if os.access(path, os.W_OK):
        return ""
    return "EROFS" if os.statvfs(path).f_flag & os.ST_RDONLY else "EACCES"


def clamped_advice(now: str, write: Write) -> str:
    """Return what to say of a file that reads otherwise than what was written to it."""
    return f"reads {now[:80]!r} after {write.value.strip()!r} was written: the driver or another process limits it"


def advice_for(error: str, write: Write) -> str:
    """Return what an errno's name means for a control, and what would allow the write."""
    if error == "EINVAL":
        return f"the driver does not take {write.value.strip()!r}"
    return _ADVICE.get(error, "the driver refuses it; the kernel's log may say more")


_ADVICE = {
    "EACCES": "not allowed; run as root, or give the file to a group by a udev rule",
    "EPERM": "not allowed; run as root, or with CAP_SYS_ADMIN in a container",
    "EROFS": "mounted read-only, as in most containers; run outside of it, or mount /sys writable",
    "ENOENT": "the control is gone; its device or driver was removed",
    "ENODEV": "the control is gone; its device or driver was removed",
    "EBUSY": "something else holds the control; stop the daemon that steers it",
}


def _error_of(access: Access, write: Write) -> str:
    """Return the name of what a write fails with, empty where it does not."""
    try:
        access.write(write)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "EIO")
    return ""
