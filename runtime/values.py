"""Check what an application gives for the inputs and outputs of a graph, and keep the memory handles that it gave.

Every executor takes values in the same way, whatever runs the graph. What it does with memory is its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from gputune.runtime.arrays import array_type, is_of
from gputune.runtime.context.records import GraphRecord, TensorRecord
from gputune.runtime.counters import MemoryCounters
from gputune.runtime.memory.handles import Lease, MemHandle, is_empty

Array = npt.NDArray[Any]
Value = Array | MemHandle
"""What an application gives for a tensor."""
Values = Mapping[str, Value]
"""By the names of inputs or outputs."""
NOTHING: Values = MappingProxyType({})
Kind = Literal["input", "output"]
MOST_KNOWN = 64
"""Handles that are kept imported without being registered; those that were used longest ago go first."""
RAW = "an array was given, and the device has memory of its own"


@dataclass(eq=False)
class Tensor:
    """An input or output. label: its name, unless an input has the same; registered: the handle that it uses where
    nothing else is given; linked: whether it is memory shared with another graph, for good; warned: whether it was said
    that it gets memory of its own against its preparation."""

    label: str
    record: TensorRecord
    kind: Kind
    index: int
    registered: MemHandle | None = None
    linked: bool = False
    warned: bool = False

    def __post_init__(self) -> None:
        self.name, self.shape, self.dtype = self.record.name, self.record.shape, array_type(self.record.dtype)

    def of_shape_and_dtype(self, array: Array) -> bool:
        return array.shape == self.shape and is_of(array, self.record.dtype)

    def seen_in(self, value: Value) -> Array:
        """Return an array that was given, or the tensor in a handle that was."""
        return value.view(self.dtype, self.shape) if isinstance(value, MemHandle) else value


T = TypeVar("T", bound=Tensor)
M = TypeVar("M")


@dataclass(eq=False)
class Known(Generic[M]):
    """A handle that the graph has seen. imported: its memory; reason: why that is copied, empty where it is used in
    place; lease: keeps the handle open, where its memory does not."""

    handle: MemHandle
    imported: M
    reason: str = ""
    lease: Lease | None = None


class Tensors(ABC, Generic[T, M]):
    """The inputs and outputs of one loaded graph. Not for several threads at once, but for `checked`. counters: what
    its inferences cost."""

    def __init__(self, graph: GraphRecord, make: Callable[..., T], warn: Callable[[str], None]) -> None:
        """make: makes a tensor of the first fields of Tensor. warn: is told what costs time without being asked for."""
        self._graph, self._warn = graph.name, warn
        inputs, outputs = [each.name for each in graph.inputs], [each.name for each in graph.outputs]

        def tensors(kind: Kind, labels: Sequence[str], records: Sequence[TensorRecord]) -> list[T]:
            each = enumerate(zip(labels, records, strict=True))
            return [make(label, record, kind, place) for place, (label, record) in each]

        self._inputs = tensors("input", inputs, graph.inputs)
        self._outputs = tensors("output", labels_of(outputs, set(inputs)), graph.outputs)
        self._input_names, self._output_names = inputs, outputs
        self._labelled = {tensor.label: tensor for tensor in self.all()}
        self._known: OrderedDict[int, Known[M]] = OrderedDict()
        self._apart: set[tuple[tuple[str, int], ...]] = set()  # handles, by label, that have nothing in common
        self.counters = MemoryCounters.of(self._labelled)

    def all(self) -> Iterator[T]:
        """Yield the inputs, then the outputs."""
        yield from self._inputs
        yield from self._outputs

    # --- what a kind of memory defines -----------------------------------------------------------------

    @abstractmethod
    def _import(self, handle: MemHandle) -> Known[M]:
        """Return a handle's memory as the graph uses it. Raises CannotImport for memory that can neither be used nor
        copied, DeviceError."""

    @abstractmethod
    def _give_up(self, imported: M) -> None:
        """Let nothing use the memory any more."""

    # --- what the application says before --------------------------------------------------------------

    def register(self, name: str, handle: MemHandle) -> None:
        """Use this memory for the tensor of that name in every inference that is given nothing else for it. Raises
        ValueError for a name that is unknown, and memory that is too small or another tensor's."""
        tensor = self._tensor_named(name)
        if tensor.linked:
            raise ValueError(f"{tensor.kind} {tensor.name!r} of graph {self._graph!r} is linked to another graph")
        _check_size(tensor.record, handle)
        registered = {each.label: each.registered for each in self.all() if each.registered is not None}
        try:
            self._check_apart(registered | {tensor.label: handle})
            self._know(handle, tensor)
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
        if id(handle) in self._known and not any(tensor.registered is handle for tensor in self.all()):
            self._forget(self._known.pop(id(handle)))

    def host_arrays(self, kind: Kind) -> dict[str, Array]:
        """By name, the tensors' own memory as far as the host shares it; none where the device has its own."""
        return {}

    # --- what it gives for an inference ----------------------------------------------------------------

    def checked_inputs(self, given: Values) -> dict[str, Value]:
        """Return what was given, fit for use. Raises ValueError that names what is missing, unknown or does not fit."""
        plain = self._plain(self._inputs, given)
        if plain is not None:
            return plain
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

    def checked_outputs(self, given: Values) -> dict[str, Value]:
        """Return where every output is going to be: in a handle or in an array, a new one where nothing else is given.
        Raises ValueError that names what is unknown or does not fit."""
        plain = self._plain(self._outputs, given)
        if plain is not None:
            return plain
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

    def _plain(self, tensors: Sequence[T], given: Values) -> dict[str, Value] | None:
        """Return what is given if it is as usual, which takes little time to see: for each tensor an array that fits,
        and nothing else. None means that it has to be looked at."""
        if len(given) != len(tensors):
            return None
        plain: dict[str, Value] = {}
        for tensor in tensors:
            array = given.get(tensor.name)
            if type(array) is not np.ndarray or array.dtype != tensor.dtype or array.shape != tensor.shape:
                return None
            flags = array.flags
            if tensor.linked or not flags.c_contiguous or not (flags.writeable or tensor.kind == "input"):
                return None
            plain[tensor.name] = array
        return plain

    # --- for kinds of memory ---------------------------------------------------------------------------

    def _own_memory(self, tensor: T, asked: bool) -> None:
        """Count memory of a tensor's own. Warn where it was prepared for handles, and the application has not asked."""
        self.counters.last[tensor.label].allocations += 1
        if tensor.record.memory_type == "memhandle" and not (asked or tensor.warned):
            tensor.warned = True
            self._warn(
                f"{tensor.kind} {tensor.name!r} was prepared for memory handles and is given as an array: "
                f"{tensor.record.nbytes} bytes are allocated now, and copied in every such inference"
            )

    def _not_shared(self, tensor: T) -> ValueError:
        """Return the error of an inference in place."""
        return ValueError(
            f"{tensor.kind} {tensor.name!r} of graph {self._graph!r} is not in memory that host and device "
            "share: register a memory handle for it, or run on arrays"
        )

    def _linked_tensor(self, kind: Kind, name: str) -> T:
        """Return the tensor of that name, which is memory shared with another graph from now on."""
        tensor = next(one for one in (self._inputs if kind == "input" else self._outputs) if one.name == name)
        tensor.linked = True
        return tensor

    def _know(self, handle: MemHandle, tensor: T) -> Known[M]:
        """Return the handle as this graph uses it, imported at first."""
        known = self._known.get(id(handle))
        if known is None:
            known = self._known[id(handle)] = self._import(handle)
            if known.reason:
                self._warn(f"{tensor.kind} {tensor.name!r} is copied: {known.reason}")
        else:
            self._known.move_to_end(id(handle))
        return known

    def _forget_unused(self, kept: int = 0) -> None:
        """Give up handles that are not registered, but for the last ones."""
        registered = {id(tensor.registered) for tensor in self.all() if tensor.registered is not None}
        loose = [key for key in self._known if key not in registered]
        for key in loose[: max(len(loose) - kept, 0)]:
            self._forget(self._known.pop(key))

    def _forget_all(self) -> None:
        """Give up all handles, registered ones, too."""
        while self._known:
            self._forget(self._known.popitem()[1])
        for tensor in self.all():
            tensor.registered = None

    def _forget(self, known: Known[M]) -> None:
        """Give up a handle, which can be closed once its buffer is gone."""
        self._apart.clear()  # another handle may get its id
        if known.lease is not None:
            known.lease.release()
        self._give_up(known.imported)

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

    def _free(self, tensors: Iterable[T], given: Values) -> Iterator[T]:
        """Yield the tensors that an inference is given or gives. Raises ValueError where a linked one is given."""
        for tensor in tensors:
            if not tensor.linked:
                yield tensor
            elif tensor.name in given:
                raise ValueError(f"{tensor.kind} {tensor.name!r} of graph {self._graph!r} is linked to another graph")

    def _tensor_named(self, label: str) -> T:
        if label not in self._labelled:
            raise ValueError(f"graph {self._graph!r} has no input or output {label!r}; there are {[*self._labelled]}")
        return self._labelled[label]


def labels_of(outputs: Sequence[str], taken: set[str]) -> list[str]:
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
