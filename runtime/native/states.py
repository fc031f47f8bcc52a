"""Bind states of gputune.h: what graphs remember between inferences, in memory of the device."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from weakref import WeakSet

import numpy as np

from gputune.core.errors import ContextClosed
from gputune.runtime.arrays import array_type
from gputune.runtime.native.binding import Device, Graph
from gputune.runtime.native.closing import NativeObject
from gputune.runtime.native.memory import Array, address_of


class State(NativeObject):
    """Hold what a graph, and those like it, remember. It is for one thread at a time."""

    close_by = "close_state"

    def __init__(self, pointer: int, device: Device) -> None:
        """Own what C has made on a device."""
        super().__init__(device.native, pointer, device)
        self._device = device
        _MADE.add(self)

    @classmethod
    def of(cls, graph: Graph, device: Device) -> State:
        """Open one for a graph on a device, of zeros. Raises DeviceError, ValueError for a graph that remembers
        nothing."""
        return cls(graph.native.made("open_state", graph.pointer), device)

    @property
    def length(self) -> int:
        """Return how many rows are remembered."""
        return int(self.native.call("state_length", self.pointer))

    @property
    def capacity(self) -> int:
        """Return how many rows there is room for; 0 if it does not grow."""
        return int(self.native.call("state_capacity", self.pointer))

    @property
    def nbytes(self) -> int:
        """Return the bytes of its device memory."""
        return int(self.native.call("state_bytes", self.pointer))

    def rewind(self, length: int) -> None:
        """Forget rows behind the first ones. Raises ValueError for more rows than there are, and if it cannot."""
        self.native.checked("rewind_state", self.pointer, length)

    def reset(self) -> None:
        """Forget everything. Raises DeviceError."""
        self.native.checked("reset_state", self.pointer)

    def copy(self) -> State:
        """Open another one that remembers the same. Raises DeviceError."""
        return State(self.native.made("copy_state", self.pointer), self._device)

    def read(self, name: str, dtype: str, shape: Sequence[int]) -> Array:
        """Return what is remembered for an input, of this dtype and shape. Raises ValueError, DeviceError."""
        found: Array = np.empty(shape, array_type(dtype))
        self.native.checked("read_state", self.pointer, name.encode(), address_of(found), found.nbytes)
        return found


_MADE: WeakSet[State] = WeakSet()


def state_bytes(device: Device) -> int:
    """Return the bytes of device memory of all states that are open on a device."""
    nbytes = 0
    for state in [one for one in _MADE if one._device is device]:
        with suppress(ContextClosed):
            nbytes += state.nbytes
    return nbytes


def use_state(graph: Graph, state: State | None) -> None:
    """Make inferences of a graph from now on use a state; None ends that. Raises ValueError for one that does not
    fit."""
    graph.native.checked("use_state", graph.pointer, None if state is None else state.pointer)
