"""Tie open handles to the process that opened them, and refuse their use in a fork.

A fork has the handles, but neither the threads of an OpenCL driver, for which it would wait forever, nor a connection
of its own. What is open is closed where it was opened.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from gputune.core.errors import ForkedProcess


@dataclass(frozen=True)
class Opened:
    """Note that `what` was opened when this was made, by this process."""

    what: str
    process: int = field(default_factory=os.getpid)

    @property
    def here(self) -> bool:
        """Return whether this is that process, and no fork of it."""
        return os.getpid() == self.process

    def check(self) -> None:
        """Raise ForkedProcess in any other process."""
        if not self.here:
            raise ForkedProcess(
                f"{self.what} was opened by process {self.process} and cannot be used in its fork {os.getpid()}: fork "
                "before anything is opened and load in each child, or start processes with multiprocessing's 'spawn'"
            )


class Closing(ABC):
    """Close it at the end of a with statement, whatever was raised in there."""

    @abstractmethod
    def close(self) -> None:
        """Give back what is held. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
