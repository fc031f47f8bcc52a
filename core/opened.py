"""What is open belongs to the process that opened it: a fork has its handles, but neither the threads of an OpenCL
driver, for which it would wait for ever, nor a connection of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from gputune.core.errors import ForkedProcess


@dataclass(frozen=True)
class Opened:
    """`what` was opened when this was made, by this process."""

    what: str
    process: int = field(default_factory=os.getpid)

    @property
    def here(self) -> bool:
        """Whether this is that process, and no fork of it."""
        return os.getpid() == self.process

    def check(self) -> None:
        """Raises ForkedProcess in any other process."""
        if not self.here:
            raise ForkedProcess(
                f"{self.what} was opened by process {self.process} and cannot be used in its fork {os.getpid()}: fork "
                "before anything is opened and load in each child, or start processes with multiprocessing's 'spawn'"
            )
