"""Manage the folder in which the drivers of a daemon's workers keep what they have compiled.

A restarted worker finds there what its predecessor has compiled, and so does the compiler. The folder lies in
memory, belongs to one daemon, and never exceeds MOST_BYTES by more than one request adds.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.scratch import remove_scratch, scratch_folder

MOST_BYTES = 256 << 20
LEAST_FREE_BYTES = 64 << 20  # of its file system
BLOCK_BYTES = 512  # of st_blocks
LOOK_EVERY = 16  # requests; each adds a few megabytes


class CompiledPrograms:
    """Keep a private folder in memory; `folder` is None for a device that compiles nothing, and where there is no
    room."""

    def __init__(self, report: DeviceReport) -> None:
        self.folder: Path | None = None if report.simulated else scratch_folder()
        self._looked = 0

    @property
    def lost(self) -> bool:
        """Return whether it is gone or cannot be written any more, and drivers would compile nothing: others may clear
        its file system."""
        return self.folder is not None and not os.access(self.folder, os.W_OK)

    def full(self) -> bool:
        """Return whether it should be emptied before the next request; it is looked at now and then only."""
        self._looked += 1
        if self.folder is None or self._looked % LOOK_EVERY:
            return False
        try:
            mounted, used_bytes = os.statvfs(self.folder), _used_bytes(self.folder)
        except OSError:
            return True
        scarce = mounted.f_bavail * mounted.f_frsize < LEAST_FREE_BYTES and used_bytes > LEAST_FREE_BYTES
        return scarce or used_bytes > MOST_BYTES

    def empty(self) -> None:
        """Remove what is in there, which no process may be using any more. Where it is lost there is another one then,
        or none."""
        if self.lost:
            self.remove()
            self.folder = scratch_folder()
        elif self.folder is not None:
            for path in self.folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.name.startswith("tempfile"):
                    path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder."""
        if self.folder is not None:
            remove_scratch(self.folder)
            self.folder = None


def _used_bytes(folder: Path) -> int:
    """Return what everything in there takes, while others may be writing: files come and go."""
    used = 0
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                used += os.lstat(os.path.join(where, name)).st_blocks * BLOCK_BYTES  # noqa: PTH118 - there are many
    return used
