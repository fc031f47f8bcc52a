"""The folder where the drivers of a daemon's workers keep what they have compiled.

A worker that is started again finds there what the one before it has compiled, and so does the second compiler.
It lies in memory, belongs to one daemon, and never outgrows MOST_BYTES by more than one request adds.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from gputune.runtime.backends.scratch import remove_scratch, scratch_folder
from gputune.runtime.devices.discovery import DeviceReport

MOST_BYTES = 256 << 20
LEAST_FREE_BYTES = 64 << 20  # of its file system
BLOCK_BYTES = 512  # of st_blocks
LOOK_EVERY = 16  # requests; each adds a few megabytes


class CompiledPrograms:
    """A private folder in memory; `folder` is None for a device that compiles nothing, and where there is no room."""

    def __init__(self, report: DeviceReport) -> None:
        self.folder: Path | None = None if report.simulated else scratch_folder()
        self._looked = 0

    def full(self) -> bool:
        """Whether it should be emptied before the next request; it is looked at now and then only."""
        self._looked += 1
        if self.folder is None or self._looked % LOOK_EVERY:
            return False
        mounted = os.statvfs(self.folder)
        used_bytes = _used_bytes(self.folder)
        scarce = mounted.f_bavail * mounted.f_frsize < LEAST_FREE_BYTES and used_bytes > LEAST_FREE_BYTES
        return scarce or used_bytes > MOST_BYTES

    def empty(self) -> None:
        """Removes what is in there, which no process may be using any more."""
        if self.folder is not None:
            for path in self.folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.name.startswith("tempfile"):
                    path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Removes the folder."""
        if self.folder is not None:
            remove_scratch(self.folder)
            self.folder = None


def _used_bytes(folder: Path) -> int:
    """What everything in there takes, while others may be writing: files come and go."""
    used = 0
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                used += os.lstat(os.path.join(where, name)).st_blocks * BLOCK_BYTES  # noqa: PTH118 - there are many
    return used
