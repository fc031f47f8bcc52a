"""Enqueue launches by a loop in C, compiled on the machine, to measure the driver without Python."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.device import PROGRAMS, address_of

SOURCE = PROGRAMS / "launches.c"


class _Functions(ctypes.Structure):
    _fields_ = (("enqueue", ctypes.c_void_p), ("release", ctypes.c_void_p), ("flush", ctypes.c_void_p))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("dimensions", ctypes.c_uint),
        ("global_size", ctypes.c_size_t * 3),
        ("local_size", ctypes.c_size_t * 3),
    )


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments, and its sizes."""

    kernel: Any
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]


@dataclass(frozen=True)
class Prepared:
    """Launches as C sees them, with the kernels, which have to live as long."""

    array: Any
    launches: tuple[Launch, ...]


class Loop:
    """The compiled loop."""

    def __init__(self, folder: Path) -> None:
        """Compiles in a folder. Raises OSError or subprocess.CalledProcessError where there is no compiler."""
        library = folder / "launches.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        self._call = ctypes.CDLL(str(library)).enqueue_all
        library.unlink()
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self._call.restype = ctypes.c_double
        self._call.argtypes = [pointer, pointer, pointer, number, number, number, number, pointer]
        names = ("clEnqueueNDRangeKernel", "clReleaseEvent", "clFlush")
        self._functions = _Functions(*map(address_of, names))

    def prepared(self, launches: Sequence[Launch]) -> Prepared:
        """Return launches as `run` takes them."""
        each = (
            _Launch(one.kernel.int_ptr, len(one.global_size), _three(one.global_size), _three(one.local_size))
            for one in launches
        )
        return Prepared((_Launch * len(launches))(*each), tuple(launches))

    def run(
        self,
        queue: Any,
        prepared: Prepared,
        events: bool = False,
        sizeless: bool = False,
        flush_each: int = 0,
        each: Any = None,
    ) -> float:
        """Enqueue launches; the microseconds of that. each: an array of double for those of single calls. Raises
        OSError with the error's number."""
        place = ctypes.addressof(each) if each is not None else None
        functions, count = ctypes.byref(self._functions), len(prepared.launches)
        taken = self._call(functions, queue.int_ptr, prepared.array, count, events, sizeless, flush_each, place)
        if taken < 0:
            raise OSError(int(taken), "clEnqueueNDRangeKernel failed")
        return float(taken)


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    first, second, third = (*sizes, 1, 1)[:3]
    return first, second, third
