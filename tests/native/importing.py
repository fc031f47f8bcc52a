"""Provide the library of fake_importing.c, and dma-bufs: memory files that the C runtime takes for such."""

import ast
import contextlib
import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputune.runtime.memory.handles import PAGE
from gputune.runtime.native.binding import Device, Native
from gputune.runtime.native.memory import Memory
from tests.native.compiling import OPTIMISED, SOURCES, compiled, sanitizers
from tests.native.fake import HERE

Answers = Mapping[int, int | Sequence[int]]
SUB_BUFFER_ALIGNMENT = 128
UNIFIED = {0x1035: 1}
"""Of a device without memory of its own."""
DMA_BUF_BYTES = 4 * PAGE


def importing_library() -> Native:
    """Return the C runtime that takes memory files called "dmabuf" for dma-bufs."""
    own = compiled("fake_dma_buf.o", [HERE / "fake_dma_buf.c"], (*OPTIMISED, *sanitizers(), "-c"), ("-std=c11",))
    return Native(compiled("libgputune_importing.so", [*SOURCES, own], (*OPTIMISED, "-shared", *sanitizers())))


class Importing:
    """Say what the device has, and read which calls were made."""

    def __init__(self, native: Native) -> None:
        self.native = native
        flags = (*OPTIMISED, "-shared", *sanitizers())
        strict = ("-std=c11", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror")
        self.path = compiled("libOpenCL_importing.so", [HERE / "fake_importing.c"], flags, strict)
        self.opencl = ctypes.CDLL(str(self.path))
        for name in ("alive", "driver_memory"):
            getattr(self.opencl, f"fake_{name}").restype = ctypes.c_long
        self.opencl.fake_asked_for_svm.restype = ctypes.c_bool
        self.opencl.fake_told.restype = ctypes.c_char_p
        self.opencl.fake_move.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        self.opencl.fake_fail.argtypes = [ctypes.c_char_p, ctypes.c_int32]

    @contextlib.contextmanager
    def device(
        self,
        *extensions: str,
        answers: Answers | None = None,
        version: str = "OpenCL 3.0 fake",
        cpu: bool = False,
        given: tuple[int, int] | None = None,
    ) -> Iterator[Device]:
        """Open a device that answers so, which must leave nothing behind."""
        self.opencl.fake_usual()
        self.opencl.fake_fail_at(ctypes.c_long(0))
        self.opencl.fake_cpu(ctypes.c_long(cpu))
        self.opencl.fake_texts(version.encode(), " ".join(extensions or ("cl_khr_fp16",)).encode())
        self.answer(answers or {})
        alive = int(self.opencl.fake_alive())
        with self.native.device(opencl=str(self.path), given=given) as device:
            self.told()
            yield device
        assert int(self.opencl.fake_alive()) == alive
        assert self.opencl.fake_driver_memory() == 0
        self.opencl.fake_cpu(ctypes.c_long(0))

    def answer(self, answers: Answers) -> None:
        """Have the device answer so from now on."""
        for what, value in answers.items():
            values = [value] if isinstance(value, int) else list(value)
            self.opencl.fake_answer(what, (ctypes.c_uint64 * len(values))(*values), ctypes.c_size_t(len(values)))

    def fail(self, failing: Mapping[str, int]) -> None:
        """Have only these calls fail from now on, with these codes."""
        self.opencl.fake_succeed()
        for name, code in failing.items():
            self.opencl.fake_fail(name.encode(), code)

    def told(self) -> list[list[Any]]:
        """Return the calls about memory since the last time, and nothing is left."""
        return list(ast.literal_eval(f"[{self.opencl.fake_told().decode()}]"))

    def names(self) -> list[str]:
        """Return the names of these calls."""
        return [call[0] for call in self.told()]

    def made_context(self) -> tuple[int, int]:
        """Return a new context of the application, and its device."""
        self.opencl.fake_usual()
        device = ctypes.c_void_p()
        self.opencl.clGetDeviceIDs(None, ctypes.c_uint64(4), 1, ctypes.byref(device), None)
        self.opencl.clCreateContext.restype = ctypes.c_void_p
        context = self.opencl.clCreateContext(None, 1, ctypes.byref(device), None, None, None)
        assert device.value
        return int(context), device.value

    def made_buffer(self, context: int, nbytes: int) -> int:
        """Return a new cl_mem of the application."""
        self.opencl.clCreateBuffer.restype = ctypes.c_void_p
        where = ctypes.c_void_p(context), ctypes.c_uint64(1), ctypes.c_size_t(nbytes), None, None
        return int(self.opencl.clCreateBuffer(*where))

    def synchronised(self) -> list[int]:
        """Return the flags of which a dma-buf's exporter was told since the last time."""
        library = self.native._library
        library.fake_synchronised.restype = ctypes.c_char_p
        return list(ast.literal_eval(f"[{library.fake_synchronised().decode()}]"))

    def refuse_sync(self, on: bool) -> None:
        """Have exporters refuse, or no more."""
        self.native._library.fake_refuse_sync(int(on))


@contextlib.contextmanager
def dma_buf(device: Device, nbytes: int = DMA_BUF_BYTES, offset: int = 0) -> Iterator[Memory]:
    """Import a part of four pages that pass for a dma-buf."""
    fd = os.memfd_create("dmabuf")
    os.ftruncate(fd, DMA_BUF_BYTES)
    try:
        memory = device.import_(fd, nbytes, offset)
    finally:
        os.close(fd)
    with memory:
        yield memory
