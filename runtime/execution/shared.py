"""What several executors on one open device may have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from gputune.runtime.backends import Buffer, Program


@dataclass(eq=False)
class SharedParts:
    """Weights and programs by their digests. They hold them as long as this lives.

    turn: held during an inference and while memory is exchanged; arenas: those that all use in turns, None where each
    executor has its own; persistent: whether persistent kernels may run, which need all processors for themselves.
    """

    turn: threading.Lock = field(default_factory=threading.Lock)
    arenas: list[Buffer] | None = None
    persistent: bool = True
    weights: dict[Hashable, Buffer] = field(default_factory=dict)
    programs: dict[Hashable, Program] = field(default_factory=dict)

    def weights_of(self, digest: Hashable, upload: Callable[[], Buffer]) -> Buffer:
        """Those of that digest, uploaded at first."""
        if digest not in self.weights:
            self.weights[digest] = upload()
        return self.weights[digest]
