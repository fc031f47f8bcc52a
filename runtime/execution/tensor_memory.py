"""Provide the memory of a graph's inputs and outputs: its own, or memory handles, which launches use in place.

An application's arrays are copied through a graph's own memory. What a tensor was prepared for
(TensorRecord.memory_type) decides whether it gets memory of its own when the graph is loaded. An application may give
either kind at any time, and other memory for each inference.

Between inferences the memory of handles belongs to the host, within an inference to the device. If that makes a
difference to the driver (memory that is not coherent), it is unmapped before the first launch and mapped after the
last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from gputune.core.errors import DeviceError
from gputune.runtime.backends import Backend, Buffer, Imported
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.execution.binding import Binder, unallocated
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.memory.lending import Lending
from gputune.runtime.profiling.recorder import Stamped, Start, Steps
from gputune.runtime.values import MOST_KNOWN, RAW, Array, Kind, Tensor, Tensors, Value


@dataclass(eq=False)
class _Tensor(Tensor):
    """An input or output. own: its own memory, None while there is none; here: what launches use now; on_host: that as
    the host sees it, None where it does not; lent: buffers on arrays that are read where they lie."""

    lent: Lending[Buffer] = field(kw_only=True)
    own: Buffer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.use(unallocated(self.record.nbytes))

    def use(self, buffer: Buffer) -> None:
        """Let launches use this memory from now on."""
        self.here, self.on_host = buffer, self.seen_by_host(buffer)

    def seen_by_host(self, buffer: Buffer) -> Array | None:
        """Return the tensor in memory that the host sees, or None."""
        host = buffer.host
        return None if host is None else host[: self.record.nbytes].view(self.dtype).reshape(self.shape)


class TensorMemory(Tensors[_Tensor, Imported]):
    """Hold the tensors of one loaded graph, whose launches a binder knows."""

    def __init__(
        self, backend: Backend, graph: GraphRecord, binder: Binder, warn: Callable[[str], None], alignment: int = 1
    ) -> None:
        """warn is told what costs time without being asked for. alignment: what kernels ask of an input's address in
        bytes, beside that of its elements. Raises DeviceError."""
        self._backend, self._binder = backend, binder
        self._writes_handles = False  # in this inference
        super().__init__(graph, lambda *names: _Tensor(*names, lent=Lending(backend.lent, alignment)), warn)
        for tensor in self.all():
            binder.use(tensor.kind, tensor.index, tensor.here)
            if tensor.record.memory_type == "raw":
                self._own(tensor)
        self.counters.load, self.counters.last = self.counters.last, self.counters.load

    def host_arrays(self, kind: Kind) -> dict[str, Array]:
        """By name, the tensors' own memory as far as the host shares it. What was not allocated is allocated."""
        tensors = [one for one in (self._inputs if kind == "input" else self._outputs) if not one.linked]
        arrays = {tensor.name: tensor.seen_by_host(self._own(tensor, asked=True)) for tensor in tensors}
        return {name: array for name, array in arrays.items() if array is not None}

    def link(self, kind: Kind, name: str, buffer: Buffer) -> None:
        """Has a tensor lie in memory of the device that another graph uses, too; it is neither given nor returned."""
        tensor = self._linked_tensor(kind, name)
        self._point(tensor, buffer)
        tensor.own = None

    # --- an inference ----------------------------------------------------------------------------------

    def run(
        self, inputs: Mapping[str, Value], outputs: Mapping[str, Value], start: Start, stamped: Stamped | None = None
    ) -> dict[str, Array]:
        """Has `start` enqueue an inference on what checked_inputs and checked_outputs returned. stamped: for a
        profiler, which is given the steps and returns them with a stamp on each side.

        Returns the outputs: arrays that were given or are new, and views of handles; those that the host cannot see are
        left out. Raises ValueError for memory of an output that something else uses, too; DeviceError."""
        self.counters.begin()
        values = [(tensor, inputs[tensor.name]) for tensor in self._inputs if not tensor.linked]
        values += [(tensor, outputs[tensor.name]) for tensor in self._outputs if not tensor.linked]
        handles = {tensor.label: value for tensor, value in values if isinstance(value, MemHandle)}
        self._check_apart(handles)
        self._writes_handles = any(self._labelled[label].kind == "output" for label in handles)
        used: list[Imported] = []
        writes: list[object] = []  # what must be held until it is copied, or read where it lies
        give, launch, finish, give_back, take = self._steps(stamped)
        read = [tensor for tensor in self._outputs if not tensor.linked]
        results: dict[str, Array] = {}
        try:
            for tensor, value in values:
                if (held := give(tensor, value, used)) is not None:
                    writes.append(held)
            waits = handles or any(tensor.on_host is not None for tensor in read) or (writes and not read)
            over = launch(start, used)  # what follows is not in the caches any more: the less, the better
            if (waits and not over) or used or stamped is not None:
                finish(used)  # others are read by a command that waits itself
        except BaseException:
            self._failed()
            raise
        finally:
            give_back(*used)  # the host has it again, whatever became of the inference
        for tensor in read:
            if (result := take(tensor, outputs[tensor.name])) is not None:
                results[tensor.name] = result
        self.counters.end()
        if len(self._known) > MOST_KNOWN:
            self._forget_unused(MOST_KNOWN)
        return results

    def run_in_place(self, start: Start, stamped: Stamped | None = None) -> None:
        """Run an inference on what registered handles and shared memory hold. Raises ValueError where a tensor has
        neither, DeviceError."""
        tensors = [tensor for tensor in self.all() if not tensor.linked]
        for tensor in tensors:
            if tensor.registered is not None:
                shared = self._know(tensor.registered, tensor).imported is not None
            else:
                shared = tensor.own is not None and tensor.own.host is not None
            if not shared:
                raise self._not_shared(tensor)
        self.counters.begin()
        used: list[Imported] = []
        give, launch, finish, give_back, _ = self._steps(stamped)
        try:
            for tensor in tensors:
                if tensor.registered is not None:
                    give(tensor, tensor.registered, used)
                else:
                    self._point(tensor, self._own(tensor))
            over = launch(start, used)
            if not over or used or stamped is not None:
                finish(used)
        except BaseException:
            self._failed()
            raise
        finally:
            give_back(*used)
        self.counters.end()

    def _shared_outputs(self) -> Iterator[Array]:
        """Return the outputs' own memory, as far as the application can see it."""
        return (one.own.host for one in self._outputs if one.own is not None and one.own.host is not None)

    def _steps(self, stamped: Stamped | None) -> Steps:
        steps = self._give, self._launch, self._finish, self._backend.begin_host_access, self._taken
        return steps if stamped is None else stamped(steps)

    def _failed(self) -> None:
        """Wait for an inference that has failed, because its launches may have begun."""
        self._apart.clear()  # it has ids of handles that may not have been kept
        with suppress(DeviceError):
            self._backend.finish()

    def _launch(self, start: Start, used: Sequence[Imported]) -> bool:
        """Return whether nothing is left to be waited for."""
        if not any(imported.external for imported in used):
            return start()
        self._backend.acquire(used)
        try:
            start()
        finally:
            self._backend.release(used)
        return False

    def _finish(self, used: Sequence[Imported]) -> None:
        """Wait for everything; what gives the host its memory back waits, too."""
        if not any(not imported.coherent for imported in used):
            self._backend.finish()

    def close(self) -> None:
        """Give up all handles. Launches must be gone."""
        self._forget_all()
        for tensor in self.all():
            tensor.own = None
            tensor.lent.clear()
            tensor.use(unallocated(tensor.record.nbytes))

    # --- one tensor ------------------------------------------------------------------------------------

    def _give(self, tensor: _Tensor, value: Value, used: list[Imported]) -> object:
        """Has the launches use the memory of a value, or that of the tensor's own with an input's value in it. Adds to
        `used` what is the device's from now on; what this returns must be held until the next launch is over."""
        counted = self.counters.last[tensor.label]
        if not isinstance(value, MemHandle):
            # A handle may be another mapping of the array's memory, so nothing is known of what launches write there.
            if tensor.kind == "input" and not self._writes_handles:
                lent = tensor.lent.on(value, self._shared_outputs())
                if lent is not None:
                    self._point(tensor, lent)
                    return value
            return self._copied(tensor, value, RAW)
        known = self._know(value, tensor)
        if known.imported is None:
            return self._copied(tensor, tensor.seen_in(value), known.reason)
        self._point(tensor, known.imported.buffer)
        if known.imported not in used:
            used.append(known.imported)
            if not known.imported.coherent:
                self._backend.end_host_access(known.imported)
                counted.maps += value.array is not None
        return None

    def _taken(self, tensor: _Tensor, value: Value) -> Array | None:
        """Return an output after an inference."""
        if not isinstance(value, MemHandle):
            return self._read(tensor, value, RAW)
        known = self._known[id(value)]
        if known.imported is None:
            return self._read(tensor, tensor.seen_in(value), known.reason)
        return None if value.array is None else tensor.seen_in(value)

    def _copied(self, tensor: _Tensor, value: Array, reason: str) -> object:
        """Has the launches use the tensor's own memory, and copies an input there."""
        self._point(tensor, self._own(tensor))
        if tensor.kind == "output":
            return None
        counted = self.counters.last[tensor.label]
        counted.copied(value.nbytes, reason)
        counted.writes += 1
        if tensor.on_host is None:
            return self._backend.begin_write(tensor.here, value)
        tensor.on_host[...] = value
        return None

    def _read(self, tensor: _Tensor, into: Array, reason: str) -> Array:
        """Copy an output from where launches leave it, once everything is finished."""
        counted = self.counters.last[tensor.label]
        counted.copied(into.nbytes, reason)
        counted.reads += 1
        if tensor.on_host is None:
            self._backend.read(tensor.here, into=into.reshape(-1).view(np.uint8))
        else:
            into[...] = tensor.on_host
        return into

    def _own(self, tensor: _Tensor, asked: bool = False) -> Buffer:
        """Return the tensor's own memory, allocated where it is not yet. asked: the application has asked for it."""
        if tensor.own is None:
            tensor.own = self._backend.allocate_shared(tensor.record.nbytes)
            self._own_memory(tensor, asked)
            self._point(tensor, tensor.own)
        return tensor.own

    def _point(self, tensor: _Tensor, buffer: Buffer) -> None:
        """Has the launches use this memory for the tensor."""
        if tensor.here is not buffer:
            self._binder.use(tensor.kind, tensor.index, buffer)
            tensor.use(buffer)

    # --- handles ---------------------------------------------------------------------------------------

    def _import(self, handle: MemHandle) -> Imported:
        imported = self._backend.import_memory(handle)
        self._backend.begin_host_access(imported)
        return imported

    def _use(self, tensor: _Tensor, imported: Imported) -> None:
        self._point(tensor, imported.buffer)

    def _give_up(self, imported: Imported) -> None:
        for tensor in self.all():
            if tensor.here is imported.buffer:
                self._point(tensor, tensor.own or unallocated(tensor.record.nbytes))
        self._binder.give_up(imported.buffer)
        if not imported.coherent:
            with suppress(DeviceError):  # a device that is lost has nothing to be given back
                self._backend.end_host_access(imported)
                self._backend.finish()  # before its memory goes
