"""Give the C runtime a graph's inputs and outputs: addresses of arrays, or memory that it uses in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from gputune.runtime.context.records import GraphRecord
from gputune.runtime.contexts.device import NativeDevice
from gputune.runtime.counters import MemoryCounters, TensorCounters
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.native.binding import Graph
from gputune.runtime.native.counting import tensor_counters
from gputune.runtime.native.declarations import Value as Slot
from gputune.runtime.native.memory import Memory, address_of
from gputune.runtime.values import MOST_KNOWN, Array, Kind, Known, Tensor, Tensors, Value

_SHARED = "shared"
"""The kind, in C, of memory that host and device see without commands."""


@dataclass(eq=False)
class _Tensor(Tensor):
    """An input or output. shared: memory that applications asked for with shared_inputs or shared_outputs; seen:
    whether host and device both see that without commands."""

    shared: Memory | None = None
    seen: bool = False


@dataclass(eq=False)
class _Taken:
    """A handle's memory as C uses it. own: whether it was made for this graph."""

    memory: Memory
    own: bool


class NativeTensors(Tensors[_Tensor, _Taken]):
    """Hold the tensors of one loaded graph. run: runs an inference on the values that were given last."""

    def __init__(self, device: NativeDevice, graph: Graph, record: GraphRecord, warn: Callable[[str], None]) -> None:
        super().__init__(record, _Tensor, warn)
        self._device, self._of_c = device, graph
        self._has_handles = False  # among what was given last
        self._lay_out()

    def _lay_out(self) -> None:
        """Make a slot for each value that an inference is given or gives."""
        slots = {}
        for kind, tensors in (("input", self._inputs), ("output", self._outputs)):
            given = [tensor for tensor in tensors if not tensor.linked]
            slots[kind] = (Slot * len(given))(*(Slot(tensor.name.encode(), None, None) for tensor in given))
        inputs, outputs = slots["input"], slots["output"]
        self.run = self._of_c.prepared(inputs, outputs)
        self._slots = [*zip((one for one in self._inputs if not one.linked), inputs, strict=True)]
        self._taken = [*zip((one for one in self._outputs if not one.linked), outputs, strict=True)]

    def link(self, kind: Kind, name: str) -> None:
        """Neither take nor return a tensor from now on."""
        self._linked_tensor(kind, name)
        self._lay_out()

    # --- an inference ----------------------------------------------------------------------------------

    def give(self, inputs: Mapping[str, Value], outputs: Mapping[str, Value]) -> None:
        """Set the values of an inference to what was checked. Raises ValueError for memory of an output that something
        else uses, too; DeviceError."""
        handles = {}
        for slots, values in ((self._slots, inputs), (self._taken, outputs)):
            for tensor, slot in slots:
                value = values[tensor.name]
                if type(value) is not np.ndarray and isinstance(value, MemHandle):
                    handles[tensor.label] = value
                    slot.data, slot.memory = None, self._memory(value, tensor).pointer
                else:
                    slot.data, slot.memory = address_of(value), None
        self._has_handles = bool(handles)
        if handles:
            self._check_apart(handles)

    def taken(self, outputs: dict[str, Value]) -> dict[str, Array]:
        """Return the outputs after an inference; those that the host cannot see are omitted."""
        if not self._has_handles:
            return cast(dict[str, Array], outputs)
        if len(self._known) > MOST_KNOWN:
            self._forget_unused(MOST_KNOWN)
        results = {}
        for tensor, _ in self._taken:
            value = outputs[tensor.name]
            if not isinstance(value, MemHandle):
                results[tensor.name] = value
            elif value.array is not None:
                results[tensor.name] = value.view(tensor.dtype, tensor.shape)
        return results

    def give_shared(self) -> None:
        """Set the values of an inference to registered handles and shared memory. Raises ValueError for a tensor that
        has neither, DeviceError."""
        for tensor, slot in (*self._slots, *self._taken):
            if tensor.registered is not None:
                known = self._know(tensor.registered, tensor)
                memory = None if known.reason else known.imported.memory
            else:
                asked = tensor.shared is not None or tensor.record.memory_type == "raw"
                memory = self._shared(tensor) if asked else None
            if memory is None:
                raise self._not_shared(tensor)
            slot.data, slot.memory = None, memory.pointer

    def host_arrays(self, kind: Kind) -> dict[str, Array]:
        """Return, by name, arrays in memory that host and device share; none if the device has memory of its own."""
        arrays = {}
        for tensor in self._inputs if kind == "input" else self._outputs:
            if not tensor.linked and (memory := self._shared(tensor)) is not None:
                arrays[tensor.name] = memory.array(tensor.record.dtype, tensor.shape)
        return arrays

    def _shared(self, tensor: _Tensor) -> Memory | None:
        """Return memory for a tensor that host and device share, None if they cannot."""
        if tensor.shared is None:
            tensor.shared = self._device.device.allocate(tensor.record.nbytes)
            tensor.seen = tensor.shared.kind == _SHARED
        return tensor.shared if tensor.seen else None

    def counted(self) -> MemoryCounters:
        """Return what C has counted, also once the graph is closed."""
        if self._of_c.closed:
            return self.counters
        counted = self.counters
        counted.inferences = self._of_c.counters()[0]["inferences"]
        call, pointer = self._of_c.native.call, self._of_c.pointer
        for tensor in self.all():
            found = tensor_counters(call, pointer, tensor.kind == "output", tensor.index)
            for counts, one in zip((counted.load, counted.total, counted.last), found, strict=True):
                counts[tensor.label] = TensorCounters(**one)
        return counted

    def close(self) -> None:
        """Give up all memory. The graph must be closed."""
        self._forget_all()
        for tensor in self.all():
            if tensor.shared is not None:
                tensor.shared.close()
                tensor.shared = None

    # --- handles ---------------------------------------------------------------------------------------

    def _memory(self, handle: MemHandle, tensor: _Tensor) -> Memory:
        """Return the memory of a handle, which C copies if the device cannot use it in place."""
        return self._know(handle, tensor).imported.memory

    def _import(self, handle: MemHandle) -> Known[_Taken]:
        lease = handle.hold("imported by a device")
        try:
            memory, own = self._device.memory_of(handle)
        except BaseException:
            lease.release()
            raise
        return Known(handle, _Taken(memory, own), "" if memory.importer else memory.kind, lease)

    def _give_up(self, imported: _Taken) -> None:
        if imported.own:
            imported.memory.close()
