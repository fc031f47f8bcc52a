"""Enqueue launches by a loop in C, compiled on the machine, to measure the driver without Python."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.device import PROGRAMS, address_of


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


class Loop:
    """The compiled loop."""

    def __init__(self, folder: Path) -> None:
        """Compile in a folder. Raises OSError or subprocess.CalledProcessError if there is no compiler."""
        library = folder / "launches.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(PROGRAMS / "launches.c")]
        subprocess.run(command, check=True, capture_output=True, text=True)
        self._call = ctypes.CDLL(str(library)).enqueue_all
        library.unlink()
        pointer = ctypes.c_void_p
        self._call.restype = ctypes.c_double
        self._call.argtypes = [pointer, pointer, pointer, ctypes.c_int, pointer]
        self._enqueue = address_of("clEnqueueNDRangeKernel")

    def run(self, queue: Any, launches: Sequence[Launch]) -> list[float]:
        """Enqueue launches; return the microseconds of each call. Raises OSError with the error's number."""
        count = len(launches)
        array = (_Launch * count)(
            *(
                _Launch(one.kernel.int_ptr, len(one.global_size), _three(one.global_size), _three(one.local_size))
                for one in launches
            )
        )
        each = (ctypes.c_double * count)()
        taken = self._call(self._enqueue, queue.int_ptr, array, count, each)
        if taken < 0:
            raise OSError(int(taken), "clEnqueueNDRangeKernel failed")
        return list(each)


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    first, second, third = (*sizes, 1, 1)[:3]
    return first, second, third
