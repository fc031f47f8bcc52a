"""Share between executors on one device what they need not have twice: arenas and weights."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from gputune.runtime.backends import Buffer


@dataclass(eq=False)
class SharedParts:
    """Weights by their digests, those that an executor holds.

    turn: held during an inference and while memory is exchanged; arenas: those that all use in turns, None where each
    executor has its own; persistent: whether persistent kernels may run, which need all processors for themselves.
    """

    turn: threading.Lock = field(default_factory=threading.Lock)
    arenas: list[Buffer] | None = None
    persistent: bool = True
    weights: MutableMapping[Hashable, Buffer] = field(default_factory=WeakValueDictionary)

    def weights_of(self, digest: Hashable, upload: Callable[[], Buffer]) -> Buffer:
        """Return the weights of that digest, uploaded where no executor holds them."""
        found = self.weights.get(digest)
        if found is None:
            found = self.weights[digest] = upload()
        return found
