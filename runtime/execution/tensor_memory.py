"""Provide the memory of a graph's inputs and outputs: its own, or memory handles, which launches use in place.

An application's arrays are copied through a graph's own memory. What a tensor was prepared for
(TensorRecord.memory_type) decides whether it gets memory of its own when the graph is loaded. An application may give
either kind at any time, and other memory for each inference.

Between inferences the memory of handles belongs to the host, within an inference to the device. If that makes a
difference to the driver (memory that is not coherent), it is unmapped before the first launch and mapped after the
last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gputune.core.errors import CannotImport, DeviceError
from gputune.runtime.backends import Backend, Buffer, Imported
from gputune.runtime.context.records import GraphRecord, TensorRecord
from gputune.runtime.execution.binding import Binder, unallocated
from gputune.runtime.memory.counters import MemoryCounters
from gputune.runtime.memory.handles import Lease, MemHandle, is_empty
from gputune.runtime.memory.lending import Lending
from gputune.runtime.profiling.recorder import Stamped, Start, Steps

Array = npt.NDArray[Any]
Value = Array | MemHandle
"""What an application gives for a tensor."""
Kind = Literal["input", "output"]
MOST_KNOWN = 64
"""Handles that are kept imported without being registered; those that were used longest ago go first."""
RAW = "an array was given, and the device has memory of its own"


@dataclass(eq=False)
class _Tensor:
    """An input or output. label: its name, unless an input has the same; own: its own memory, None while there is none;
    registered: the handle that it uses where nothing else is given; here: what launches use now; on_host: that as the
    host sees it, None where it does not; linked: whether it is memory shared with another graph, for good; lent:
    buffers on arrays that are read where they lie."""

    label: str
    record: TensorRecord
    kind: Kind
    index: int
    lent: Lending[Buffer]
    own: Buffer | None = None
    registered: MemHandle | None = None
    warned: bool = False
    linked: bool = False

    def __post_init__(self) -> None:
        self.name, self.shape, self.dtype = self.record.name, self.record.shape, np.dtype(self.record.dtype)
        self.use(unallocated(self.record.nbytes))

    def of_shape_and_dtype(self, array: Array) -> bool:
        return array.shape == self.shape and array.dtype == self.dtype

    def use(self, buffer: Buffer) -> None:
        """Let launches use this memory from now on."""
        self.here, self.on_host = buffer, self.seen_in(buffer)

    def seen_in(self, buffer: Buffer) -> Array | None:
        """Return the tensor in memory that the host sees, or None."""
        host = buffer.host
        return None if host is None else host[: self.record.nbytes].view(self.dtype).reshape(self.shape)


@dataclass(eq=False)
class _Known:
    """A handle that the graph has seen: imported, or why it cannot be and is copied; then a lease keeps it open."""

    handle: MemHandle
    imported: Imported | None
    reason: str = ""
    lease: Lease | None = None


class TensorMemory:
    """Of one loaded graph. Not for several threads at once, but for `checked`. counters: what its inferences cost."""

    def __init__(
        self, backend: Backend, graph: GraphRecord, binder: Binder, warn: Callable[[str], None], alignment: int = 1
    ) -> None:
        """warn is told what costs time without being asked for. alignment: what kernels ask of an input's address in
        bytes, beside that of its elements. Raises DeviceError."""
        self._backend, self._binder, self._warn, self._graph = backend, binder, warn, graph.name
        inputs, outputs = [each.name for each in graph.inputs], [each.name for each in graph.outputs]

        def tensors(kind: Kind, labels: Sequence[str], records: Sequence[TensorRecord]) -> list[_Tensor]:
            each = enumerate(zip(labels, records, strict=True))
            return [_Tensor(label, one, kind, at, Lending(backend.lent, alignment)) for at, (label, one) in each]

        self._inputs = tensors("input", inputs, graph.inputs)
        self._outputs = tensors("output", _labels(outputs, set(inputs)), graph.outputs)
        self._input_names, self._output_names = inputs, outputs
        self._labelled = {tensor.label: tensor for tensor in self._tensors()}
        self._known: OrderedDict[int, _Known] = OrderedDict()
        self._writes_handles = False  # in this inference
        self._apart: set[tuple[tuple[str, int], ...]] = set()  # handles, by label, that have nothing in common
        self.counters = MemoryCounters.of(self._labelled)
        for tensor in self._tensors():
            binder.use(tensor.kind, tensor.index, tensor.here)
            if tensor.record.memory_type == "raw":
                self._own(tensor)
        self.counters.load, self.counters.last = self.counters.last, self.counters.load

    def _tensors(self) -> Iterator[_Tensor]:
        yield from self._inputs
        yield from self._outputs

    # --- what the application says before --------------------------------------------------------------

    def register(self, name: str, handle: MemHandle) -> None:
        """Has the tensor of that name use this memory in every inference that is given nothing else for it. Raises
        ValueError for a name that is unknown, and memory that is too small or another tensor's."""
        tensor = self._tensor_named(name)
        if tensor.linked:
            raise ValueError(f"{tensor.kind} {tensor.name!r} of graph {self._graph!r} is linked to another graph")
        _check_size(tensor.record, handle)
        registered = {each.label: each.registered for each in self._tensors() if each.registered is not None}
        try:
            self._check_apart(registered | {tensor.label: handle})
            known = self._know(handle, tensor)
            if known.imported is not None:
                self._point(tensor, known.imported.buffer)
        except BaseException:
            self._apart.clear()  # it has the id of a handle that may not have been kept
            raise
        tensor.registered = handle
        self._forget_unused()

    def unregister(self, name: str) -> None:
        """End the registration, if any; the handle can be closed then unless another tensor uses it."""
        tensor = self._tensor_named(name)
        handle, tensor.registered = tensor.registered, None
        if handle is not None:
            self.release(handle)

    def release(self, handle: MemHandle) -> None:
        """Give up what is kept of a handle that is not registered (any more), so that it can be closed."""
        if id(handle) in self._known and not any(tensor.registered is handle for tensor in self._tensors()):
            self._forget(self._known.pop(id(handle)))

    def host_arrays(self, kind: Kind) -> dict[str, Array]:
        """By name, the tensors' own memory as far as the host shares it. What was not allocated is allocated."""
        tensors = [one for one in (self._inputs if kind == "input" else self._outputs) if not one.linked]
        arrays = {tensor.name: tensor.seen_in(self._own(tensor, asked=True)) for tensor in tensors}
        return {name: array for name, array in arrays.items() if array is not None}

    def link(self, kind: Kind, name: str, buffer: Buffer) -> None:
        """Has a tensor lie in memory of the device that another graph uses, too; it is neither given nor returned."""
        tensors = self._inputs if kind == "input" else self._outputs
        tensor = next(tensor for tensor in tensors if tensor.name == name)
        self._point(tensor, buffer)
        tensor.linked, tensor.own = True, None

    # --- an inference ----------------------------------------------------------------------------------

    def checked_inputs(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Return what was given, fit for use. Raises ValueError that names what is missing, unknown or does not fit."""
        for name in given:
            if name not in self._input_names and not is_empty(given[name]):
                raise ValueError(f"graph {self._graph!r} has no input {name!r}; its inputs are {self._input_names}")
        ready: dict[str, Value] = {}
        for tensor in self._free(self._inputs, given):
            value = given.get(tensor.name, tensor.registered)
            if value is None:
                raise ValueError(f"graph {self._graph!r} needs the input {tensor.name!r}")
            if isinstance(value, MemHandle):
                _check_size(tensor.record, value)
                ready[tensor.name] = value
                continue
            array = np.asarray(value)
            if not tensor.of_shape_and_dtype(array):
                raise ValueError(
                    f"input {tensor.name!r} is {_dtype(array)}{list(array.shape)}, "
                    f"the graph takes {tensor.record.dtype}{list(tensor.record.shape)}"
                )
            ready[tensor.name] = np.ascontiguousarray(array)
        return ready

    def checked_outputs(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Return where every output is going to be: in a handle or in an array, a new one where nothing else is given.
        Raises ValueError that names what is unknown or does not fit."""
        for name in given:
            if name not in self._output_names:
                raise ValueError(f"graph {self._graph!r} has no output {name!r}; its outputs are {self._output_names}")
        ready: dict[str, Value] = {}
        for tensor in self._free(self._outputs, given):
            record, value = tensor.record, given.get(tensor.name, tensor.registered)
            if value is None:
                value = np.empty(tensor.shape, tensor.dtype)
            elif isinstance(value, MemHandle):
                _check_size(record, value)
            elif not (
                isinstance(value, np.ndarray)
                and tensor.of_shape_and_dtype(value)
                and value.flags.c_contiguous
                and value.flags.writeable
            ):
                raise ValueError(
                    f"output {tensor.name!r} needs a writable C-contiguous array of {record.dtype}{list(record.shape)}"
                )
            ready[tensor.name] = value
        return ready

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
        tensors = [tensor for tensor in self._tensors() if not tensor.linked]
        for tensor in tensors:
            if tensor.registered is not None:
                shared = self._know(tensor.registered, tensor).imported is not None
            else:
                shared = tensor.own is not None and tensor.own.host is not None
            if not shared:
                raise ValueError(
                    f"{tensor.kind} {tensor.name!r} of graph {self._graph!r} is not in memory that host and device "
                    "share: register a memory handle for it, or run on arrays"
                )
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
        while self._known:
            self._forget(self._known.popitem()[1])
        for tensor in self._tensors():
            tensor.own, tensor.registered = None, None
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
            return self._copied(tensor, value.view(tensor.dtype, tensor.shape), known.reason)
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
            return self._read(tensor, value.view(tensor.dtype, tensor.shape), known.reason)
        return None if value.array is None else value.view(tensor.dtype, tensor.shape)

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
            if not self._backend.computes and tensor.kind == "output":
                self._backend.fill(tensor.own, 0)
            self.counters.last[tensor.label].allocations += 1
            if tensor.record.memory_type == "memhandle" and not (asked or tensor.warned):
                tensor.warned = True
                self._warn(
                    f"{tensor.kind} {tensor.name!r} was prepared for memory handles and is given as an array: "
                    f"{tensor.record.nbytes} bytes are allocated now, and copied in every such inference"
                )
            self._point(tensor, tensor.own)
        return tensor.own

    def _point(self, tensor: _Tensor, buffer: Buffer) -> None:
        """Has the launches use this memory for the tensor."""
        if tensor.here is not buffer:
            self._binder.use(tensor.kind, tensor.index, buffer)
            tensor.use(buffer)

    # --- handles ---------------------------------------------------------------------------------------

    def _know(self, handle: MemHandle, tensor: _Tensor) -> _Known:
        """Return the handle as this graph uses it, imported at first."""
        known = self._known.get(id(handle))
        if known is None:
            try:
                imported = self._backend.import_memory(handle)
            except CannotImport as error:
                if handle.array is None:
                    raise
                self._warn(f"{tensor.kind} {tensor.name!r} is copied: {error}")
                known = _Known(handle, None, str(error), handle.hold("copied by a context"))
            else:
                self._backend.begin_host_access(imported)
                known = _Known(handle, imported)
            self._known[id(handle)] = known
        else:
            self._known.move_to_end(id(handle))
        if not self._backend.computes and tensor.kind == "output" and handle.array is not None:
            handle.array[: tensor.record.nbytes] = 0
        return known

    def _forget_unused(self, kept: int = 0) -> None:
        """Give up handles that are not registered, but for the last ones."""
        registered = {id(tensor.registered) for tensor in self._tensors() if tensor.registered is not None}
        loose = [key for key in self._known if key not in registered]
        for key in loose[: max(len(loose) - kept, 0)]:
            self._forget(self._known.pop(key))

    def _forget(self, known: _Known) -> None:
        """Give up a handle, which can be closed once its buffer is gone."""
        self._apart.clear()  # another handle may get its id
        if known.lease is not None:
            known.lease.release()
        if known.imported is None:
            return
        for tensor in self._tensors():
            if tensor.here is known.imported.buffer:
                self._point(tensor, tensor.own or unallocated(tensor.record.nbytes))
        self._binder.give_up(known.imported.buffer)
        if not known.imported.coherent:
            with suppress(DeviceError):  # a device that is lost has nothing to be given back
                self._backend.end_host_access(known.imported)
                self._backend.finish()  # before its memory goes

    def _check_apart(self, handles: Mapping[str, MemHandle]) -> None:
        """Raise ValueError where an output would have memory that another tensor uses, too."""
        key = tuple([(label, id(handle)) for label, handle in handles.items()])
        if key in self._apart:
            return
        for (label, handle), (other_label, other) in combinations(handles.items(), 2):
            pair = self._labelled[label], self._labelled[other_label]
            if any(tensor.kind == "output" for tensor in pair) and handle.overlaps(other):
                raise ValueError(
                    f"{pair[0].kind} {label!r} and {pair[1].kind} {other_label!r} of graph {self._graph!r} would "
                    "share memory, but one is written while the other may still be read"
                )
        self._apart.add(key)

    def _free(self, tensors: Iterable[_Tensor], given: Mapping[str, Value]) -> Iterator[_Tensor]:
        """Yield the tensors that an inference is given or gives. Raises ValueError where a linked one is given."""
        for tensor in tensors:
            if not tensor.linked:
                yield tensor
            elif tensor.name in given:
                raise ValueError(f"{tensor.kind} {tensor.name!r} of graph {self._graph!r} is linked to another graph")

    def _tensor_named(self, label: str) -> _Tensor:
        if label not in self._labelled:
            raise ValueError(f"graph {self._graph!r} has no input or output {label!r}; there are {[*self._labelled]}")
        return self._labelled[label]


def _labels(outputs: Sequence[str], taken: set[str]) -> list[str]:
    """Return a name for each output that no input and no other output has: its own, where it can be."""
    labels: list[str] = []
    for name in outputs:
        label = name
        while label in taken or (label != name and label in outputs):
            label = f"output {label}"
        labels.append(label)
    return labels


def _dtype(array: Array) -> str:
    """Return an array's type in words; one in the other order of bytes is another type."""
    return array.dtype.name if array.dtype.isnative else f"{array.dtype.name} in the other byte order, "


def _check_size(record: TensorRecord, handle: MemHandle) -> None:
    if handle.closed or handle.nbytes < record.nbytes:
        why = "was closed" if handle.closed else f"has {handle.nbytes} bytes"
        raise ValueError(f"tensor {record.name!r} needs memory of {record.nbytes} bytes, its handle {why}")
