"""Keep the votes of a user's processes for a device, and the content of its controls before any vote.

For each device there are three files in a folder that only the user may use. `KEY.lock` is held while the others are
read and written. `KEY.votes` has the votes of live processes. `KEY.originals` is the journal. The journal holds the
original content of the controls and is on the disk before any control is written. All three go with the last vote. They
are replaced as a whole, so a process that is killed leaves the old content or the new.

A vote's holder is a process with the time of its start, since process numbers are used again. A file from before the
last boot says nothing.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol, TypeVar

from gputune.core.bounds import Stored, Within
from gputune.core.decoder import decode
from gputune.core.json_text import canonical_json, json_value
from gputune.core.logs import printable
from gputune.core.whole_file import sync
from gputune.runtime.power.records import NOTHING, Corner, Corners, Vote

try:
    import fcntl
except ImportError:  # Windows, whose devices are steered by no files
    fcntl = None  # type: ignore[assignment]

VERSION = 1
MOST_BYTES = 1 << 20
"""Of a file; a longer one is not ours."""
_POLL_S = 0.001

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Holder:
    """What holds a vote: a process, when it was started, in the clock ticks of /proc, and a number within it."""

    process: int
    started: int
    number: int

    @classmethod
    def here(cls, number: int) -> Holder:
        """Return a holder of this process. Raises OSError where there is no /proc, in which others could look it up."""
        started = started_at(os.getpid())
        if started is None:
            raise FileNotFoundError(f"/proc/{os.getpid()}/stat cannot be read, so others cannot see that it is alive")
        return cls(os.getpid(), started, number)

    @property
    def alive(self) -> bool:
        return started_at(self.process) == self.started

    def __str__(self) -> str:
        return f"{self.process}:{self.started}:{self.number}"


def started_at(process: int) -> int | None:
    """When a process was started, in clock ticks; None where there is none, or one that has ended and whose parent has
    not asked yet how."""
    try:
        content = Path(f"/proc/{process}/stat").read_bytes()
        fields = content.rpartition(b")")[2].split()  # the name before it may contain blanks and parentheses
        if fields[0] in (b"Z", b"X") and len(list(Path(f"/proc/{process}/task").iterdir())) <= 1:
            return None  # while it has threads, they may be within a write
        return int(fields[_START_FIELD])
    except (OSError, IndexError, ValueError):
        return None


_START_FIELD = 22 - 3  # of proc(5), counted from the third, which stands behind the name


@dataclass(frozen=True)
class Table:
    """Votes by holder; the vote that is in force, or was about to be when the process of `by` was killed; busy: whose
    slow writes go on in the background, so that the journal is needed until they are done."""

    votes: Mapping[Holder, Vote] = field(default_factory=dict)
    in_force: Vote = NOTHING
    by: Holder | None = None
    busy: frozenset[Holder] = frozenset()


class Files(Protocol):
    """The files of a device while they are locked."""

    def table(self) -> Table:
        """Return the votes as they were written, those of dead processes included. Raises OSError."""

    def write(self, table: Table) -> None:
        """Replace the votes. Raises OSError."""

    def originals(self) -> dict[str, str] | None:
        """Return the journal; None where there is none. Raises OSError."""

    def keep(self, originals: Mapping[str, str]) -> None:
        """Write the journal and wait until it is on the disk. Raises OSError."""

    def clear(self) -> None:
        """Remove the journal, the votes and the lock."""


class NoFiles:
    """In place of the files where there can be none: this process is alone, and remembers for itself."""

    def table(self) -> Table:
        return Table()

    def write(self, table: Table) -> None:
        pass

    def originals(self) -> dict[str, str] | None:
        return None

    def keep(self, originals: Mapping[str, str]) -> None:
        pass

    def clear(self) -> None:
        pass


class DeviceFiles:
    """The files of a device; what reads or changes more than one of them does so while they are `locked`.

    device_key: names the device, in any words; folder: by default the user's, see `power_folder`.
    """

    def __init__(self, device_key: str, folder: Path | None = None) -> None:
        self._folder = folder
        self._stem = _stem(device_key)

    @contextmanager
    def locked(self, limit_s: float) -> Iterator[Files]:
        """Yield the files, which no other process reads or writes meanwhile. Raises TimeoutError where another holds
        them for longer than limit_s, PermissionError for a folder that others may use, OSError for one that does not
        work."""
        folder = _private(self._folder or power_folder())
        lock = folder / f"{self._stem}.lock"
        descriptor = _locked(lock, limit_s)
        try:
            yield _Files(folder / f"{self._stem}.votes", folder / f"{self._stem}.originals", lock)
        finally:
            assert fcntl is not None
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough where a fork has a copy
            _release(descriptor)

    def table(self) -> Table:
        """Return the votes as they are now, without the lock; empty where there are none or none can be read."""
        try:
            return _table(self._votes)
        except OSError:
            return Table()

    def stamp(self) -> tuple[int, int] | None:
        """Return what changes whenever the votes do; None where there are none."""
        try:
            status = self._votes.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    @property
    def _votes(self) -> Path:
        return (self._folder or power_folder()) / f"{self._stem}.votes"


def power_folder() -> Path:
    """Return where the files of this user lie: below XDG_RUNTIME_DIR, else below the folder for temporary files. Raises
    FileNotFoundError where there is neither."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute():
        return runtime / "gputune-power"
    return Path(tempfile.gettempdir()) / f"gputune-power-{os.geteuid()}"


@dataclass(frozen=True)
class _Files:
    votes: Path
    journal: Path
    lock: Path

    def table(self) -> Table:
        return _table(self.votes)

    def write(self, table: Table) -> None:
        content = _table_text(table)
        if _content(self.votes) != content:  # what is the same stays, so that others need not look
            _replace(self.votes, content, synced=False)

    def originals(self) -> dict[str, str] | None:
        return _originals(self.journal)

    def keep(self, originals: Mapping[str, str]) -> None:
        fields = {"version": VERSION, "boot": _boot(), "originals": dict(originals)}
        _replace(self.journal, canonical_json(fields).encode(), synced=True)

    def clear(self) -> None:
        for path in (self.journal, self.votes):
            path.unlink(missing_ok=True)
            _unfinished(path).unlink(missing_ok=True)
        self.lock.unlink(missing_ok=True)


def _stem(device_key: str) -> str:
    """Return a file name for any text: readable, and different for different texts."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", device_key).strip("-")[:40]
    return f"{words or 'device'}-{hashlib.sha256(device_key.encode()).hexdigest()[:8]}"


def _private(folder: Path) -> Path:
    """Return a folder that is there and that only this user may use."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{folder} is no folder; remove it")
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} can be used by others; remove it, or set XDG_RUNTIME_DIR to a folder of yours")
    return folder


_held: set[int] = set()
"""Descriptors of locks, which forks close: as long as one is open anywhere, the lock of a killed process is held."""


def _close_in_fork() -> None:
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_fork)


def _locked(path: Path, limit_s: float) -> int:
    """Return a descriptor that holds the lock of a file."""
    if fcntl is None:
        raise OSError("this system has no flock")
    until = time.monotonic() + limit_s
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _held.add(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):  # and has not been removed by what held it before
                return descriptor
        except BlockingIOError:
            pass
        except BaseException:
            _release(descriptor)
            raise
        _release(descriptor)
        if time.monotonic() > until:
            raise TimeoutError(f"{path} has been locked by another process for {limit_s:g} s")
        time.sleep(_POLL_S)


def _release(descriptor: int) -> None:
    """Close a lock's descriptor."""
    _held.discard(descriptor)
    os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _content(path: Path) -> bytes | None:
    """Return what a file contains; None where there is none. Raises OSError for one that cannot be read, which must not
    be taken for none: what the controls contain now would be kept in its place."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, MOST_BYTES)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes, synced: bool) -> None:
    """Write a file as a whole; synced: it is on the disk when this returns."""
    unfinished = _unfinished(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(unfinished, flags, 0o600), "wb") as file:
        file.write(content)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    unfinished.replace(path)
    if synced:
        sync(path.parent)


def _unfinished(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


@functools.cache
def _boot() -> str:
    """Name the time since the machine was started: contents and process numbers from before mean nothing now."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _holder(text: str) -> Holder:
    if not _HOLDER.fullmatch(text):
        raise ValueError("a holder is not process:started:number")
    return Holder(*map(int, text.split(":")))


def _absolute(path: str) -> str:
    if not Path(path).is_absolute():
        raise ValueError("a control's path is not absolute")
    return path


_HOLDER = re.compile(r"[0-9]{1,10}:[0-9]{1,20}:[0-9]{1,10}", re.ASCII)
_Named = Annotated[Holder, Stored(str, _holder)]


@dataclass(frozen=True)
class _File:
    """What every file of ours has: contents and process numbers of another boot mean nothing."""

    version: Annotated[int, Within(VERSION, VERSION)]
    boot: str


_Kind = TypeVar("_Kind", bound=_File)


@dataclass(frozen=True)
class _Votes(_File):
    votes: Mapping[_Named, Vote]
    in_force: Vote
    by: _Named | None
    busy: tuple[_Named, ...]


@dataclass(frozen=True)
class _Originals(_File):
    originals: Mapping[Annotated[str, Stored(str, _absolute)], str]


def _table_text(table: Table) -> bytes:
    fields = {
        "version": VERSION,
        "boot": _boot(),
        "votes": {str(holder): _vote_fields(vote) for holder, vote in table.votes.items()},
        "in_force": _vote_fields(table.in_force),
        "by": None if table.by is None else str(table.by),
        "busy": sorted(map(str, table.busy)),
    }
    return canonical_json(fields).encode()


def _table(path: Path) -> Table:
    """Return the votes in a file; none, with a warning, where it is no such file."""
    found = _read(path, _Votes, "starting anew without the votes of others")
    return Table() if found is None else Table(found.votes, found.in_force, found.by, frozenset(found.busy))


def _originals(path: Path) -> dict[str, str] | None:
    """Return the contents of controls in a journal; None, with a warning, where it is none."""
    found = _read(path, _Originals, "what the controls contain now counts as original")
    return None if found is None else dict(found.originals)


def _read(path: Path, kind: type[_Kind], otherwise: str) -> _Kind | None:
    """Return the record in a file of this boot. For a file that is none, log a warning that ends with `otherwise`, and
    return None."""
    content = _content(path)
    if content is None:
        return None
    try:
        found = decode(kind, json_value(content))
    except ValueError as error:
        _log.warning("power: %s: %s; %s", path, printable(error), otherwise)
        return None
    return found if found.boot == _boot() else None


def _vote_fields(vote: Vote) -> dict[str, object]:
    return {
        "bus": list(map(int, _ends(vote.bus))),
        "core": list(map(int, _ends(vote.core))),
        "dcvs": vote.dcvs,
        "sleep_latency_us": vote.sleep_latency_us,
        "power_mode": vote.power_mode.value,
        "high_performance": vote.high_performance,
    }


def _ends(corners: Corners) -> tuple[Corner, Corner, Corner]:
    return corners.least, corners.target, corners.most
