"""Open the device for phases: one context and queue, kernels, times, and the calls that pyopencl does not have."""

from __future__ import annotations

import ctypes
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpu.card import POSITION
from gputune.core.quirks import unset_defaults

os.environ.update(unset_defaults(os.environ))
os.environ["PYOPENCL_NO_CACHE"] = "1"
warnings.filterwarnings("ignore")  # build logs, which are kept where they matter

import pyopencl as cl  # noqa: E402  # reads the variables

__all__ = ["Device", "address_of", "cl", "in_turns"]

PROGRAMS = Path(__file__).parent / "programs"
Enqueue = Callable[[], Any]


class Device:
    """A device that is open."""

    def __init__(self) -> None:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
        self.device = devices[int(os.environ.get(POSITION, "0"))]
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context, self.device)
        self.nvidia = "NVIDIA" in self.device.vendor
        self.gpu = bool(self.device.type & cl.device_type.GPU)
        self._held: list[Any] = []  # arguments of kernels, which do not hold them

    def build(self, source: str, options: str = "") -> Any:
        """Return a built program. Raises pyopencl's RuntimeError with the build log."""
        return cl.Program(self.context, source).build(options)

    def log_of(self, program: Any) -> str:
        """Return what the compiler said of a program."""
        return str(program.get_build_info(self.device, cl.program_build_info.LOG))

    def upload(self, array: Any) -> Any:
        """Return a buffer with an array's contents."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.context, flags, hostbuf=np.ascontiguousarray(array))

    def empty(self, nbytes: int) -> Any:
        """Return a buffer."""
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes)

    def read(self, buffer: Any, dtype: Any, count: int) -> Any:
        """Return a buffer's contents once all commands before are done."""
        result = np.empty(count, dtype)
        cl.enqueue_copy(self.queue, result, buffer, is_blocking=True)
        return result

    def kernel(self, program: Any, name: str, *arguments: Any) -> Any:
        """Return a kernel with its arguments."""
        kernel = cl.Kernel(program, name)
        self._held.append(arguments)
        for place, argument in enumerate(arguments):
            kernel.set_arg(place, argument)
        return kernel

    def wall_us(self, enqueue: Enqueue, times: int) -> float:
        """Return the microseconds of one call when so many follow each other, by the host's clock."""
        self.queue.finish()
        start = time.perf_counter()
        for _ in range(times):
            enqueue()
        self.queue.finish()
        return (time.perf_counter() - start) / times * 1e6


LIBRARY = ctypes.CDLL(cl._cl.__file__)


def address_of(name: str) -> int:
    """Return where a function of the OpenCL library lies."""
    return ctypes.cast(getattr(LIBRARY, name), ctypes.c_void_p).value or 0


def in_turns(contenders: Mapping[str, Callable[[], float]], rounds: int, left: Callable[[], float]) -> dict[str, Any]:
    """Return the samples of contenders that take turns, for so many rounds or until no time is left; of those that
    fail, the error's text."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    failed: dict[str, str] = {}
    for turn in range(rounds):
        for name, work in contenders.items():
            if name not in failed:
                try:
                    samples[name].append(work())
                except Exception as error:
                    failed[name] = " ".join(str(error).split())[:300]
        if left() < 0 and turn:
            break
    return {**samples, **failed}
