"""Test an application's memory on a real device: kernels read and write it in place."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from gputune.core.errors import CannotImport, MemoryInUse
from gputune.runtime.backends import Backend, Bound, Buffer
from gputune.runtime.contexts.device import beside
from gputune.runtime.contexts.imported import Imported
from gputune.runtime.memory.handles import PAGE, MemHandle

COUNT = 4096
SOURCE = """__kernel void twice(__global const int *x, __global int *y) {
    const int i = get_global_id(0);
    y[i] = 2 * x[i] + 1;
}"""


@pytest.fixture(autouse=True)
def _no_leak(backend: Backend) -> Iterator[None]:
    beside(backend).importers()
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def buffer_of(imported: Imported) -> Buffer:
    """Return imported memory for launches of the backend, in whose context it is."""
    return Buffer(imported.handle.nbytes, cl.Buffer.from_int_ptr(imported.cl_mem, retain=True))


def bound(backend: Backend, x: Imported, y: Imported) -> Bound:
    return backend.bind(backend.build(SOURCE, ""), "twice", (COUNT,), (64,), [buffer_of(x), buffer_of(y)])


def run(backend: Backend, x: Imported, y: Imported) -> None:
    """x is 0, 1, 2, ... and y must be twice that and one."""
    values = np.arange(COUNT, dtype=np.int32)
    beside(backend).begin_host_access(x)
    x.handle.view(np.int32, (COUNT,))[:] = values
    beside(backend).end_host_access(x)
    launch = bound(backend, x, y)
    backend.enqueue(launch)
    backend.finish()
    beside(backend).begin_host_access(y)
    assert np.array_equal(y.handle.view(np.int32, (COUNT,)), 2 * values + 1)
    beside(backend).end_host_access(y)


def host_memory(backend: Backend) -> bool:
    """Whether the device takes memory of the host at all."""
    return not dict(beside(backend).importers())["CL_MEM_USE_HOST_PTR"]


def test_the_ladder_names_every_importer_with_a_reason_or_none(backend: Backend) -> None:
    names = [name for name, _ in beside(backend).importers()]
    assert names[-3:] == ["CL_MEM_USE_HOST_PTR", "CL_MEM_ALLOC_HOST_PTR", "copy"]
    extensions = set(backend.identity.extensions)
    for name, reason in beside(backend).importers():
        if name.startswith("cl_") and name not in extensions | {"cl_mem"}:
            assert reason.startswith("the device has no cl_")


def test_kernels_use_what_the_device_allocates_for_both(backend: Backend) -> None:
    with beside(backend).allocate_handle(4 * COUNT) as x, beside(backend).allocate_handle(4 * COUNT) as y:
        run(backend, beside(backend).import_memory(x), beside(backend).import_memory(y))


def test_kernels_use_descriptors_memory_and_arrays_without_a_copy(backend: Backend) -> None:
    if not host_memory(backend):
        pytest.skip("the device has memory of its own")
    room = np.zeros(4 * COUNT + PAGE, np.uint8)
    start = -room.ctypes.data % PAGE
    with MemHandle.allocate(4 * COUNT) as x, MemHandle.from_array(room[start : start + 4 * COUNT]) as y:
        imported = beside(backend).import_memory(x), beside(backend).import_memory(y)
        run(backend, *imported)
        for one in imported:
            beside(backend).begin_host_access(one)
            beside(backend).end_host_access(one)
        with pytest.raises(MemoryInUse):
            x.close()
        del imported, one


def test_another_process_sees_what_a_kernel_wrote(backend: Backend) -> None:
    if not host_memory(backend):
        pytest.skip("the device has memory of its own")
    script = "import sys, numpy as np; from gputune.runtime.memory.handles import MemHandle\n"
    script += "print(MemHandle.from_fd(int(sys.argv[1]), 0, int(sys.argv[2])).view(np.int32, (4096,)).sum())"
    with MemHandle.allocate(4 * COUNT) as x, MemHandle.allocate(4 * COUNT) as y:
        run(backend, beside(backend).import_memory(x), beside(backend).import_memory(y))
        command = [sys.executable, "-c", script, str(y.fileno()), str(4 * COUNT)]
        done = subprocess.run(command, pass_fds=[y.fileno()], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) == COUNT * COUNT


def test_an_offset_is_taken_where_it_is_aligned_and_refused_where_not(backend: Backend) -> None:
    if not host_memory(backend):
        pytest.skip("the device has memory of its own")
    alignment = backend.identity.base_address_alignment_bytes
    with MemHandle.allocate(4 * COUNT) as x, MemHandle.allocate(5 * COUNT * 4) as room:
        taken = beside(backend).import_memory(x)
        for offset in (alignment, PAGE, PAGE + alignment, 3 * alignment):
            with MemHandle.from_fd(room.fileno(), offset, 4 * COUNT) as y:
                run(backend, taken, beside(backend).import_memory(y))
        with MemHandle.from_fd(room.fileno(), 4, 4 * COUNT) as y:
            if alignment > 4:
                with pytest.raises(CannotImport, match=f"no multiple of {alignment} bytes"):
                    beside(backend).import_memory(y)
        del taken


def test_two_handles_of_the_same_memory_are_two_buffers(backend: Backend) -> None:
    if not host_memory(backend):
        pytest.skip("the device has memory of its own")
    with (
        MemHandle.allocate(4 * COUNT) as x,
        MemHandle.allocate(4 * COUNT) as y,
        MemHandle.from_fd(y.fileno(), 0, 4 * COUNT) as same,
    ):
        other = beside(backend).import_memory(same)
        run(backend, beside(backend).import_memory(x), beside(backend).import_memory(y))
        beside(backend).begin_host_access(other)
        assert same.view(np.int32, (COUNT,))[5] == 11
        beside(backend).end_host_access(other)
        del other


def test_memory_that_is_imported_stays_until_the_import_goes(backend: Backend) -> None:
    device = beside(backend)
    x, y = device.allocate_handle(4 * COUNT), device.allocate_handle(4 * COUNT)
    imported = device.import_memory(x), device.import_memory(y)
    launch = bound(backend, *imported)
    with pytest.raises(MemoryInUse):
        y.close()
    backend.enqueue(launch)
    backend.finish()
    del launch, imported
    x.close()
    y.close()


def test_memory_that_a_driver_allocated_outlives_its_handle_where_it_is_seen(backend: Backend) -> None:
    handle = beside(backend).allocate_handle(4 * COUNT)
    if handle.kind != "svm":
        pytest.skip("the device has no fine-grain SVM")
    view = handle.view(np.int32, (COUNT,))
    handle.close()
    view[:] = 3
    assert view.sum() == 3 * COUNT


def test_an_applications_own_cl_mem_is_used_and_checked(backend: Backend) -> None:
    own = backend.allocate(4 * COUNT)
    pointer = own.handle.int_ptr
    values = np.arange(COUNT, dtype=np.int32)
    backend.write(own, values)
    with MemHandle.from_cl_mem(pointer, 4 * COUNT) as x, beside(backend).allocate_handle(4 * COUNT) as y:
        result = beside(backend).import_memory(y)
        imported = beside(backend).import_memory(x)
        assert imported.importer == "cl_mem"
        launch = bound(backend, imported, result)
        del own  # the import shares it
        backend.enqueue(launch)
        backend.finish()
        assert np.array_equal(backend.read(buffer_of(result)).view(np.int32), 2 * values + 1)
        too_much = f"has {4 * COUNT} bytes, the handle {4 * COUNT + 1}"
        with MemHandle.from_cl_mem(pointer, 4 * COUNT + 1) as larger, pytest.raises(CannotImport, match=too_much):
            beside(backend).import_memory(larger)
        del imported, result, launch


def test_every_kind_is_released_many_times(backend: Backend) -> None:
    shared = [beside(backend).allocate_handle(PAGE), *([MemHandle.allocate(PAGE)] if host_memory(backend) else [])]
    for handle in shared:
        for _ in range(200):
            imported = beside(backend).import_memory(handle)
            del imported
        handle.close()
