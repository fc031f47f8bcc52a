"""Enqueue launches by a loop in C, without events, where the machine has a C compiler.

A launch from Python takes a microsecond or more next to the driver's own time, and pyopencl has an event made for each.
The loop is native/loop/loop.c, built when it is first used.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence

from gputune.runtime.native.building import NotBuilt, native_part


class _Launch(ctypes.Structure):
    """`struct launch` of loop.c."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("dimensions", ctypes.c_size_t),
        ("global_size", ctypes.c_size_t * 3),
        ("local_size", ctypes.c_size_t * 3),
    )


@functools.cache
def loop() -> ctypes.CDLL | str:
    """Return the library with the loop, or why there is none."""
    try:
        return ctypes.CDLL(str(native_part("loop")))
    except (NotBuilt, OSError) as error:
        return str(error)


Sizes = tuple[int, ...]


def in_c(enqueue: int, queue: int, kernels: Sequence[tuple[int, Sizes, Sizes]]) -> Callable[[], int] | None:
    """Return what enqueues these kernels on a queue and returns the first error code or 0; None if there is no loop
    here. enqueue: where clEnqueueNDRangeKernel lies; kernels: each as a cl_kernel, which must live as long as it is
    enqueued, its global and its local size."""
    library = loop()
    if isinstance(library, str):
        return None
    launches = (_Launch * len(kernels))(*(_Launch(kernel, len(sizes[0]), *sizes) for kernel, *sizes in kernels))
    arguments = ctypes.c_void_p(enqueue), ctypes.c_void_p(queue), launches, ctypes.c_size_t(len(kernels))
    enqueue_all: Callable[[], int] = functools.partial(library.gputune_enqueue, *arguments)
    return enqueue_all
