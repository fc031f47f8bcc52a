"""Define handles of memory that the caller owns and devices use in place.

A handle is made from a size (a sealed memfd, which can be passed to other processes), a descriptor, an array or a
cl_mem. Making a handle does not involve a device: import_memory of an open device does that.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from gputune.core.errors import MemoryClosed, MemoryInUse, UnusableMemory
from gputune.core.opened import Closing
from gputune.runtime.memory.descriptors import (
    DMA_BUF,
    DMA_BUF_SYNC_END,
    DMA_BUF_SYNC_START,
    duplicate,
    examine,
    sealed_memfd,
    synchronise,
)

Bytes = npt.NDArray[np.uint8]
Kind = Literal["memfd", "fd", "host", "svm", "usm", "mapped", "cl_mem", "hardware_buffer"]
PAGE = mmap.ALLOCATIONGRANULARITY


def is_empty(value: object) -> bool:
    """Return whether a value is an array without elements. A graph has no input for which such an array is given."""
    return not isinstance(value, MemHandle) and np.asarray(value).size == 0


class Lease:
    """Keep a handle from being closed until the lease is released or dropped, and the handle's memory until it is
    dropped."""

    def __init__(self, handle: MemHandle, holder: str) -> None:
        self.holder = holder
        self._memory: object = handle._array
        self._ended = handle._begin_lease(self)

    def release(self) -> None:
        """End the lease. A second call does nothing."""
        self._ended()
        self._memory = None

    def __del__(self) -> None:
        if hasattr(self, "_ended"):
            self._ended()


class MemHandle(Closing):
    """Own memory of `nbytes` bytes. Several threads may use a handle. All methods raise MemoryClosed after close().

    Attributes:
        kind: "memfd" (a sealed memory descriptor), "fd" (a dma-buf), "host" (an array, or pages of this process), "svm"
            (OpenCL's fine-grain shared virtual memory), "usm" (Intel's unified shared memory of the host), "mapped" (a
            cl_mem that was allocated to be mapped), "cl_mem" (an application's own) or "hardware_buffer" (Android's).
        offset: where its memory begins in the descriptor `fd`.
        pointer: the cl_mem of kinds "mapped" and "cl_mem", the AHardwareBuffer of kind "hardware_buffer", else 0.
        address: where the host sees the first byte; 0 for memory that it cannot see.
    """

    def __init__(
        self,
        nbytes: int,
        kind: Kind,
        array: Bytes | None = None,
        *,
        fd: int | None = None,
        offset: int = 0,
        pointer: int = 0,
    ) -> None:
        self.nbytes, self.kind, self.offset, self.pointer = nbytes, kind, offset, pointer
        self.address = 0 if array is None else array.__array_interface__["data"][0]
        self._array, self._fd = array, fd
        self._closed = False
        self._leases: dict[int, str] = {}
        self._lock = (
            threading.Lock()
        )  # for what begins; leases end without it, wherever the garbage collector drops them
        # A handle that is dropped and not closed leaves no descriptor behind.
        self._close_fd = None if fd is None else weakref.finalize(self, os.close, fd)

    # --- how to get one ---

    @classmethod
    def allocate(cls, nbytes: int) -> Self:
        """Allocate zeroed memory in whole pages: a sealed memfd, which can be passed to other processes, or pages of
        this process (kind "host") if the system has none. Raises UnusableMemory."""
        _check_size(nbytes)
        fd = sealed_memfd(nbytes)
        if fd is not None:
            return cls._mapped_fd(fd, "memfd", 0, nbytes)
        try:
            array = np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
        except (OSError, ValueError, OverflowError) as error:
            raise UnusableMemory(f"memory of {nbytes} bytes cannot be allocated: {error}") from None
        return cls(nbytes, "host", array)

    @classmethod
    def from_fd(cls, fd: int, offset: int, nbytes: int) -> Self:
        """Make a handle of the bytes [offset, offset + nbytes) of a memfd that is sealed against shrinking, or of a
        dma-buf; the handle has its own descriptor, so the caller may close fd. Raises UnusableMemory for every other
        descriptor and for ranges outside its memory."""
        _check_size(nbytes)
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise UnusableMemory(f"offset {offset!r} is no number of bytes")
        own = duplicate(fd)
        try:
            memory = examine(own)
            if offset + nbytes > memory.nbytes:
                raise UnusableMemory(
                    f"bytes {offset} to {offset + nbytes} are asked for, the descriptor's memory has {memory.nbytes}"
                )
        except BaseException:
            os.close(own)
            raise
        return cls._mapped_fd(own, "fd" if memory.kind == DMA_BUF else "memfd", offset, nbytes)

    @classmethod
    def from_array(cls, array: Any) -> Self:
        """Make a handle of the memory of a numpy array, or of an object with DLPack or __array_interface__, in place;
        the handle holds the object. Raises UnusableMemory unless the memory is the host's, writable, C-contiguous, not
        empty and of plain numbers."""
        values = _as_array(array)
        if values.dtype.hasobject:
            raise UnusableMemory(f"an array of {values.dtype} holds references, not numbers")
        if not values.flags.writeable:
            raise UnusableMemory("the array is read-only; a device needs memory that may be written")
        if not values.flags.c_contiguous:
            raise UnusableMemory("the array is not C-contiguous; numpy.ascontiguousarray makes one that is")
        if not values.nbytes:
            raise UnusableMemory("the array is empty")
        return cls(values.nbytes, "host", values.reshape(-1).view(np.uint8))

    @classmethod
    def from_cl_mem(cls, pointer: int, nbytes: int) -> Self:
        """Make a handle of the first nbytes bytes of an application's own cl_mem, given as the number of its pointer.
        It must be a buffer of the device's own context (`context_pointer`), and live until it is imported."""
        return cls._of_pointer("cl_mem", pointer, nbytes)

    @classmethod
    def from_hardware_buffer(cls, pointer: int, nbytes: int) -> Self:
        """Make a handle of the first nbytes bytes of an AHardwareBuffer of format BLOB (Android), given as the number
        of its pointer. It must live as long as the handle and what was imported from it."""
        return cls._of_pointer("hardware_buffer", pointer, nbytes)

    @classmethod
    def _of_pointer(cls, kind: Kind, pointer: int, nbytes: int) -> Self:
        _check_size(nbytes)
        if isinstance(pointer, bool) or not isinstance(pointer, int) or not 0 < pointer < 2**64:
            raise UnusableMemory(f"{pointer!r} is no pointer")
        return cls(nbytes, kind, pointer=pointer)

    @classmethod
    def _mapped_fd(cls, fd: int, kind: Kind, offset: int, nbytes: int) -> Self:
        """Take over fd. mmap begins at pages only, so the page in which the memory begins is mapped with it."""
        delta = offset % PAGE
        try:
            whole = np.frombuffer(mmap.mmap(fd, delta + nbytes, offset=offset - delta), np.uint8)
        except (OSError, ValueError, OverflowError) as error:
            if kind == "fd":  # some dma-bufs are for devices alone
                return cls(nbytes, kind, fd=fd, offset=offset)
            os.close(fd)
            raise UnusableMemory(f"the descriptor's memory cannot be mapped for reading and writing: {error}") from None
        return cls(nbytes, kind, whole[delta:], fd=fd, offset=offset)

    @classmethod
    def _allocated(cls, kind: Kind, address: int, nbytes: int, *, pointer: int, free: Callable[[], object]) -> Self:
        """Memory that a driver has allocated; `free` is called once, when the handle and all views are gone."""
        array = np.asarray(_Allocation(address, nbytes, free))
        return cls(nbytes, kind, array, pointer=pointer)

    # --- what it is used for ---

    @property
    def fd(self) -> int | None:
        """Return the handle's own descriptor, which lives until close(); None for memory without a descriptor."""
        self._check()
        return self._fd

    def fileno(self) -> int:
        """Return the descriptor, for socket.send_fds and subprocess. Raises UnusableMemory if there is none."""
        fd = self.fd
        if fd is None:
            raise UnusableMemory(f"{self} has no descriptor; MemHandle.allocate makes memory that has one")
        return fd

    @property
    def array(self) -> Bytes | None:
        """Return all bytes for the host, in place; None for memory that the host cannot see."""
        self._check()
        return self._array

    def view(self, dtype: npt.DTypeLike, shape: Sequence[int]) -> npt.NDArray[Any]:
        """Return the start of the memory as an array of dtype and shape. Raises UnusableMemory if it is too small or
        cannot be seen by the host, and for a dtype of references."""
        array, kind = self.array, np.dtype(dtype)
        if array is None:
            raise UnusableMemory(f"{self} cannot be seen by the host")
        if kind.hasobject or kind.itemsize == 0:
            raise UnusableMemory(f"memory cannot be seen as {kind}")
        sizes = [int(size) for size in shape]
        elements = 1
        for size in sizes:
            elements *= size
        if min(sizes, default=0) < 0 or elements * kind.itemsize > self.nbytes:
            raise UnusableMemory(f"{kind} of shape {tuple(sizes)} does not fit into {self}")
        return array[: elements * kind.itemsize].view(kind).reshape(sizes)

    @contextlib.contextmanager
    def host_access(self) -> Iterator[None]:
        """Bracket the host's use of memory that no device has: notify the exporter of a dma-buf when the use begins and
        ends; do nothing for other memory. Raises UnusableMemory if the exporter refuses."""
        if self.kind != "fd":
            self._check()
            yield
            return
        synchronise(self.fileno(), DMA_BUF_SYNC_START)
        try:
            yield
        finally:
            synchronise(self.fileno(), DMA_BUF_SYNC_END)

    def overlaps(self, other: MemHandle) -> bool:
        """Return whether both have bytes in common, through any mappings. What OpenCL does with two buffers of the same
        memory in one launch is undefined. Memory of two descriptors of one dma-buf is not detected everywhere."""
        self._check()
        other._check()
        if self._fd is not None and other._fd is not None:
            mine, theirs = os.fstat(self._fd), os.fstat(other._fd)
            if (mine.st_dev, mine.st_ino) == (theirs.st_dev, theirs.st_ino):
                return _meet(self.offset, self.nbytes, other.offset, other.nbytes)
        if self.pointer and other.pointer:
            return self.pointer == other.pointer
        return bool(self.address and other.address) and _meet(self.address, self.nbytes, other.address, other.nbytes)

    def hold(self, holder: str) -> Lease:
        """Keep the handle from being closed; an attempt to close it reports `holder`."""
        return Lease(self, holder)

    # --- its end ---

    @property
    def closed(self) -> bool:
        """Return whether close() was called."""
        return self._closed

    def close(self) -> None:
        """Give up descriptor and memory; views of it that the host still has stay valid. A second call does nothing.
        Raises MemoryInUse while leases are held."""
        with self._lock:
            if self._closed:
                return
            if self._leases:
                holders = ", ".join(sorted(set(self._leases.copy().values())))
                raise MemoryInUse(f"{self} cannot be closed: it is {holders}")
            self._closed = True
            self._array = None
        if self._close_fd is not None:
            self._close_fd()

    def __enter__(self) -> Self:
        self._check()
        return super().__enter__()

    def __str__(self) -> str:
        return f"{self.kind} memory of {self.nbytes} bytes"

    def __repr__(self) -> str:
        return f"<{self}{', closed' if self._closed else ''}>"

    def _check(self) -> None:
        if self._closed:
            raise MemoryClosed(f"{self} was closed")

    def _begin_lease(self, lease: Lease) -> Callable[[], object]:
        key, leases = id(lease), self._leases
        with self._lock:
            self._check()
            leases[key] = lease.holder
        return lambda: leases.pop(key, None)


class _Allocation:
    """A driver's memory, freed when the last array on it is gone."""

    def __init__(self, address: int, nbytes: int, free: Callable[[], object]) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}
        self._free = free

    def __del__(self) -> None:
        self._free()


def _check_size(nbytes: int) -> None:
    if isinstance(nbytes, bool) or not isinstance(nbytes, int) or not 0 < nbytes < 2**63:
        raise UnusableMemory(f"memory of {nbytes!r} bytes, at least 1 is needed")


def _meet(start: int, nbytes: int, other: int, other_nbytes: int) -> bool:
    return start < other + other_nbytes and other < start + nbytes


def _as_array(source: Any) -> npt.NDArray[Any]:
    """Return an array on the memory of source, without a copy."""
    if isinstance(source, np.ndarray):
        return np.asarray(source)  # of subclasses the plain array
    try:
        interface = getattr(source, "__array_interface__", None)
        if interface is not None:
            array = np.asarray(source)
            if array.__array_interface__["data"][0] != interface["data"][0]:
                raise ValueError("its values are copied when they are read")  # as numpy's scalars are
            return array
        if hasattr(source, "__dlpack__"):
            return np.from_dlpack(source)
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise UnusableMemory(f"{type(source).__name__} gives no memory of the host: {error}") from None
    raise UnusableMemory(f"{type(source).__name__} has neither DLPack nor __array_interface__")
