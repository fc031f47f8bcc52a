"""Bind memory of gputune.h, and give C the values of an inference: addresses of arrays, and memory used in place."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Mapping, Sequence
from ctypes import c_char, c_size_t
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.runtime.arrays import array_type
from gputune.runtime.native.closing import NativeObject
from gputune.runtime.native.declarations import Value

Array = npt.NDArray[Any]


class Memory(NativeObject):
    """Hold memory that a device uses in place, or why that is copied."""

    close_by = "free"

    @property
    def kind(self) -> str:
        """Return "shared", "mapped", or why it is copied."""
        return str(self.native.call("memory_kind", self.pointer).decode())

    @property
    def importer(self) -> str:
        """Return by which importer the device took it; "" if it is copied."""
        return (self.native.call("memory_importer", self.pointer) or b"").decode()

    @property
    def descriptor(self) -> int:
        """Return its descriptor, which lives as long as it does; -1 if it has none."""
        return int(self.native.call("memory_descriptor", self.pointer))

    @property
    def cl_mem(self) -> int:
        """Return its cl_mem as a number; 0 if it is copied."""
        return self.native.call("memory_cl_mem", self.pointer) or 0

    def begin_host(self, write: bool = True) -> None:
        """Let the host use it, if the device has it. Raises DeviceError."""
        self.native.checked("begin_host", self.pointer, write)

    def end_host(self) -> None:
        """Give it to the device for commands of one's own. Raises DeviceError."""
        self.native.checked("end_host", self.pointer)

    @property
    def address(self) -> int:
        """Return where the host sees it between inferences; 0 if the host cannot."""
        return self.native.call("memory_data", self.pointer) or 0

    def array(self, dtype: str, shape: Sequence[int]) -> Array:
        """Return the start of the memory as an array, which must not be used once it is freed. Raises ValueError if the
        host cannot see it."""
        address = self.address
        if not address:
            raise ValueError("the host cannot see this memory")
        kind = array_type(dtype)
        nbytes = math.prod(shape) * kind.itemsize
        seen = memoryview((c_char * nbytes).from_address(address)).cast("B")
        found: Array = np.frombuffer(seen, kind).reshape(shape)
        return found


Tensors = Mapping[str, Array | Memory]
"""Inputs or outputs by their names."""


def values(tensors: Tensors) -> ctypes.Array[Value]:
    """Return tensors as gputune_value. What they lie in must live as long as the result is used."""
    found = (Value * len(tensors))()
    for value, (name, tensor) in zip(found, tensors.items(), strict=True):
        value.name = name.encode()
        if isinstance(tensor, Memory):
            value.memory = tensor.pointer
        elif tensor.size:
            value.data = address_of(tensor)
    return found


def _said_address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _read_address(array: Array) -> int:
    """Return what numpy's C interface has behind Python's own fields, in a twentieth of the time that asking takes."""
    return c_size_t.from_address(id(array) + object.__basicsize__).value


def _reads() -> bool:
    """Return whether addresses lie there in this Python and numpy."""
    probe = np.zeros(1)
    return sys.implementation.name == "cpython" and _read_address(probe) == _said_address(probe)


address_of = _read_address if _reads() else _said_address
"""Returns where the first element of a contiguous array is."""


def check_arrays(tensors: Tensors, sizes: Mapping[str, int]) -> None:
    """Raise ValueError for an array that C cannot read or write as a tensor of that many bytes."""
    for name, tensor in tensors.items():
        if isinstance(tensor, Memory):
            continue
        if not tensor.flags.c_contiguous:
            raise ValueError(f"the array for {name!r} is not C-contiguous")
        if tensor.size and sizes.get(name, tensor.nbytes) != tensor.nbytes:
            raise ValueError(f"{name!r} has {sizes[name]} bytes, the array for it {tensor.nbytes}")
