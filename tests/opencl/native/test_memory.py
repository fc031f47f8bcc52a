"""Test that C takes an application's memory on a real device, and gives it to commands of the application."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from gputune.core.errors import CannotImport
from gputune.runtime.backends import Backend
from gputune.runtime.memory.handles import PAGE
from gputune.runtime.native.binding import Device, Native
from gputune.runtime.native.memory import Array
from tests.opencl.native.test_one_context import Application
from tests.opencl.runtime import made

COUNT = 4096
NBYTES = 4 * COUNT


@pytest.fixture
def device(native: Native, backend: Backend) -> Iterator[Device]:
    with native.device(name=backend.identity.name) as device:
        yield device


@pytest.fixture(scope="module")
def room() -> Array:
    """Return bytes that begin at a page."""
    whole = np.zeros(NBYTES + 2 * PAGE, np.uint8)
    return whole[-whole.ctypes.data % PAGE :]


@pytest.fixture
def application(backend: Backend) -> Application:
    return Application(backend)


def test_a_cl_mem_of_the_same_context_is_read_and_written(
    native: Native, backend: Backend, application: Application, tmp_path: Path
) -> None:
    path = made.write(tmp_path / "made.bin", backend, COUNT, NBYTES)
    values = np.arange(COUNT, dtype=np.float32)
    queue = cl.CommandQueue(application.context)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    x, y = cl.Buffer(application.context, flags, hostbuf=values), cl.Buffer(application.context, flags, hostbuf=values)
    other = cl.Context([application.device])
    strange = cl.Buffer(other, cl.mem_flags.READ_WRITE, NBYTES)
    with native.open(path) as file, native.device(given=application.given) as device, device.load(file) as graph:
        with device.import_cl_mem(x.int_ptr, NBYTES) as first, device.import_cl_mem(y.int_ptr, NBYTES) as second:
            assert (first.importer, first.address, first.cl_mem) == ("cl_mem", 0, x.int_ptr)
            graph.run({"x": first}, {"y": second})
            found = np.empty_like(values)
            cl.enqueue_copy(queue, found, y)
            np.testing.assert_array_equal(found, made.expected(values))
            assert graph.counters()[1]["bytes_copied"] == 0
        with pytest.raises(CannotImport, match="cl_mem: the cl_mem belongs to another context"):
            device.import_cl_mem(strange.int_ptr, NBYTES)
        with pytest.raises(CannotImport, match=f"cl_mem: the cl_mem has {NBYTES} bytes, the handle {NBYTES + 1}"):
            device.import_cl_mem(x.int_ptr, NBYTES + 1)


@pytest.mark.parametrize("kind", ["wrapped", "own"])
def test_memory_goes_to_own_commands_and_back(
    native: Native, backend: Backend, application: Application, room: Array, kind: str
) -> None:
    queue = cl.CommandQueue(application.context)
    ints = room[:NBYTES].view(np.int32)
    with (
        native.device(given=application.given) as device,
        device.wrap(room[:NBYTES]) if kind == "wrapped" else device.allocate(NBYTES) as memory,
    ):
        seen = ints if kind == "wrapped" else memory.array("int32", (COUNT,))
        seen[...] = np.arange(COUNT)
        for times in (2, 4):
            memory.end_host()
            buffer = cl.Buffer.from_int_ptr(memory.cl_mem, retain=True)
            cl.Kernel(application.program, "twice")(queue, (COUNT,), None, buffer)  # type: ignore[arg-type]
            queue.finish()
            del buffer
            memory.begin_host(write=times == 2)
            np.testing.assert_array_equal(seen, times * np.arange(COUNT))
