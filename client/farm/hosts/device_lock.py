"""Lock a device of this machine, so that of all workers, in all farms, only one has it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path

from gputune.client.farm.engine import FarmError
from gputune.core.opened import Closing


class DeviceLock(Closing):
    """Hold a device from when it is made until it is closed or the process ends, however that happens."""

    def __init__(self, what: str) -> None:
        """Take `what`, which names the device. Raises FarmError where another process holds it, and where it cannot be
        locked."""
        path = _folder() / f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.lock"
        self._descriptor = -1
        try:
            self._hold(path, what)
        except OSError as error:
            self.close()
            raise FarmError(f"{what}: {path} cannot be locked: {error.strerror}") from None
        except BaseException:
            self.close()
            raise

    def _hold(self, path: Path, what: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 80, 0).decode(errors="replace").strip()
            raise FarmError(f"{what} is taken by another farm worker ({holder}); one device cannot be in two") from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _folder() -> Path:
    """Return a folder of the user's own, gone after the machine was started again. Raises FarmError."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "gputune" if runtime else Path(tempfile.gettempdir()) / f"gputune-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mine = folder.stat(follow_symlinks=False).st_uid == os.getuid()
    except OSError as error:
        raise FarmError(f"the folder of device locks {folder} cannot be made: {error.strerror}") from None
    if not mine:
        raise FarmError(f"the folder of device locks {folder} belongs to another user; set XDG_RUNTIME_DIR")
    return folder
