"""Test memory handles: what they are made of, what is refused, and that nothing is leaked."""

import errno
import fcntl
import gc
import mmap
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.core.errors import CannotImport, LimitExceeded, MemoryClosed, MemoryInUse, UnusableMemory
from gputune.runtime.backends.null import open_device
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.memory import descriptors
from gputune.runtime.memory.handles import PAGE, MemHandle

linux = pytest.mark.skipif(sys.platform != "linux", reason="sealed memory is Linux's")


def sealed(nbytes: int, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


# --- allocate ---


@linux
def test_allocated_memory_is_zeroed_shared_and_cannot_change_its_size() -> None:
    with MemHandle.allocate(5000) as handle:
        assert (handle.kind, handle.nbytes, handle.offset) == ("memfd", 5000, 0)
        assert handle.address % PAGE == 0 and handle.array is not None and not handle.array.any()
        for size in (0, 4999, 5001):
            with pytest.raises(PermissionError):
                os.ftruncate(handle.fileno(), size)
        with MemHandle.from_fd(handle.fileno(), 0, 5000) as same:
            handle.view(np.int32, (2,))[:] = 1, 2
            assert same.view(np.int32, (2,)).tolist() == [1, 2]
            assert same.address != handle.address and same.fd != handle.fd


@linux
def test_another_process_sees_what_is_written() -> None:
    script = "import os, sys; from gputune.runtime.memory.handles import MemHandle\n"
    script += "with MemHandle.from_fd(int(sys.argv[1]), 4096, 4) as handle: handle.array[:] = (1, 2, 3, 4)"
    with MemHandle.allocate(8192) as handle:
        fd = handle.fileno()
        subprocess.run([sys.executable, "-c", script, str(fd)], check=True, pass_fds=[fd], timeout=60)
        assert handle.view(np.uint8, (8192,))[4095:4101].tolist() == [0, 1, 2, 3, 4, 0]


def test_pages_of_the_process_stand_in_where_there_are_no_memory_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.runtime.memory.handles.sealed_memfd", lambda nbytes: None)
    with MemHandle.allocate(PAGE + 1) as handle:
        assert (handle.kind, handle.fd, handle.address % PAGE) == ("host", None, 0)
        assert not handle.view(np.uint8, (PAGE + 1,)).any()
        with pytest.raises(UnusableMemory, match="has no descriptor"):
            handle.fileno()


@pytest.mark.parametrize("nbytes", [0, -1, 2**63, 2**200, True, 1.5, "8", None])
def test_sizes_that_are_none_are_refused(nbytes: Any) -> None:
    with pytest.raises(UnusableMemory, match="at least 1 is needed"):
        MemHandle.allocate(nbytes)


@linux
def test_more_memory_than_there_is_is_refused_and_leaves_nothing() -> None:
    with pytest.raises(UnusableMemory):
        MemHandle.allocate(2**62)


@linux
@pytest.mark.parametrize(
    ("module", "call", "number"),
    [(os, "ftruncate", errno.ENOSPC), (fcntl, "fcntl", errno.EPERM), (mmap, "mmap", errno.ENOMEM)],
)
def test_memory_whose_making_fails_half_way_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, module: Any, call: str, number: int
) -> None:
    def failing(*arguments: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as changed:
        changed.setattr(module, call, failing)
        for _ in range(2):
            with pytest.raises(UnusableMemory, match=os.strerror(number)):
                MemHandle.allocate(PAGE)
    MemHandle.allocate(PAGE).close()


# --- from_fd ---


@linux
@given(offset=st.integers(0, 3 * PAGE), nbytes=st.integers(1, 3 * PAGE))
def test_any_range_of_a_descriptor_is_seen_where_it_lies(offset: int, nbytes: int) -> None:
    total = 4 * PAGE
    content = np.random.default_rng(0).integers(0, 256, total, np.uint8)
    fd = sealed(total)
    try:
        os.pwrite(fd, content.tobytes(), 0)
        if offset + nbytes > total:
            with pytest.raises(UnusableMemory, match=f"to {offset + nbytes} are asked for, .* has {total}"):
                MemHandle.from_fd(fd, offset, nbytes)
            return
        with MemHandle.from_fd(fd, offset, nbytes) as handle:
            assert (handle.nbytes, handle.offset, handle.address % PAGE) == (nbytes, offset, offset % PAGE)
            assert np.array_equal(handle.view(np.uint8, (nbytes,)), content[offset : offset + nbytes])
    finally:
        os.close(fd)


@linux
def test_hostile_descriptors_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    pair = socket.socketpair()
    ends = os.pipe()
    read_only = sealed(100, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
    unsealed = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 100)
    never = os.memfd_create("test")
    os.ftruncate(never, 100)
    grown = sealed(100, fcntl.F_SEAL_GROW)
    opened = {
        os.open(tmp_path / "file", os.O_RDWR): "a regular file",
        os.open(tmp_path, os.O_RDONLY): "a folder",
        os.open("/dev/zero", os.O_RDWR): "a character device \\(/dev/zero\\)",
        os.eventfd(0): "eventfd",
        pair[0].fileno(): "a socket",
        ends[0]: "a pipe",
        -1: "is no file descriptor",
        read_only: "cannot be mapped for reading and writing",
        unsealed: "not sealed against shrinking: create it with .*F_ADD_SEALS",
        grown: "not sealed against shrinking",
        never: "can never be",
    }
    closed = os.dup(0)  # the last, so that no other one has its number
    os.close(closed)
    opened[closed] = "cannot be used: Bad file descriptor"
    try:
        for fd, message in opened.items():
            with pytest.raises(UnusableMemory, match=message):
                MemHandle.from_fd(fd, 0, 100)
    finally:
        for fd in {*opened, *ends} - {-1, closed, pair[0].fileno()}:
            os.close(fd)
        for end in pair:
            end.close()


@linux
@pytest.mark.parametrize(("offset", "nbytes"), [(0, 101), (1, 100), (100, 1), (2**62, 2**62), (-1, 5), (0, 0), (0, -5)])
def test_ranges_outside_of_the_memory_are_refused(offset: int, nbytes: int) -> None:
    fd = sealed(100)
    try:
        with pytest.raises(UnusableMemory):
            MemHandle.from_fd(fd, offset, nbytes)
    finally:
        os.close(fd)


@linux
@pytest.mark.parametrize("fd", [True, 1.0, "1", None])
def test_what_is_no_number_is_no_descriptor(fd: Any) -> None:
    with pytest.raises(UnusableMemory, match="is no file descriptor"):
        MemHandle.from_fd(fd, 0, 1)


@linux
def test_a_dma_buf_is_checked_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_link_of", lambda fd: "/dmabuf:camera")
    monkeypatch.setattr(descriptors, "_synchronises", lambda fd: True)
    fd = os.memfd_create("test")  # not sealed, as no dma-buf is
    os.ftruncate(fd, 2 * PAGE)
    try:
        with MemHandle.from_fd(fd, PAGE, PAGE) as handle:
            assert (handle.kind, handle.offset) == ("fd", PAGE)
        with pytest.raises(UnusableMemory, match=f"has {2 * PAGE}"):
            MemHandle.from_fd(fd, PAGE, PAGE + 1)
    finally:
        os.close(fd)


@linux
def test_a_dma_buf_that_cannot_be_mapped_is_for_devices_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_link_of", lambda fd: "anon_inode:dmabuf")
    monkeypatch.setattr(descriptors, "_synchronises", lambda fd: True)
    fd = sealed(PAGE, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
    try:
        with MemHandle.from_fd(fd, 0, PAGE) as handle:
            assert (handle.kind, handle.array, handle.address) == ("fd", None, 0)
            with pytest.raises(UnusableMemory, match="cannot be seen by the host"):
                handle.view(np.uint8, (1,))
            with pytest.raises(CannotImport, match="the host cannot see it"):
                open_device(NULL_REPORT).import_memory(handle)
    finally:
        os.close(fd)


@linux
def test_the_exporter_of_a_dma_buf_is_told_of_host_access(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(fcntl, "ioctl", lambda *arguments: calls.append(arguments))
    descriptors.synchronise(7, descriptors.DMA_BUF_SYNC_START)
    descriptors.synchronise(7, descriptors.DMA_BUF_SYNC_END)
    assert calls == [(7, 0x40086200, bytes([3] + 7 * [0])), (7, 0x40086200, bytes([7] + 7 * [0]))]


@linux
def test_the_exporter_is_told_even_when_the_host_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(fcntl, "ioctl", lambda fd, number, flags: told.append(flags[0]))
    fd = sealed(PAGE)
    with MemHandle.from_fd(fd, 0, PAGE) as ordinary, ordinary.host_access():
        assert not told
    monkeypatch.setattr(descriptors, "_link_of", lambda fd: "/dmabuf:")
    monkeypatch.setattr(descriptors, "_synchronises", lambda fd: True)
    with MemHandle.from_fd(fd, 0, PAGE) as handle, pytest.raises(ZeroDivisionError), handle.host_access():
        raise ZeroDivisionError
    os.close(fd)
    assert told == [3, 7]
    with pytest.raises(MemoryClosed), handle.host_access():
        pass


@linux
def test_what_is_no_dma_buf_cannot_be_synchronised() -> None:
    with MemHandle.allocate(8) as handle, pytest.raises(UnusableMemory, match="cannot be synchronised"):
        descriptors.synchronise(handle.fileno(), descriptors.DMA_BUF_SYNC_START)


# --- from_array ---


class Exporter:
    """An array behind one of the protocols only."""

    def __init__(self, array: np.ndarray[Any, Any], protocol: str) -> None:
        self.array = array
        if protocol == "interface":
            self.__array_interface__ = array.__array_interface__


class DLPackExporter(Exporter):
    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", ["array", "interface", "dlpack"])
def test_an_array_is_used_as_it_lies(wrap: str) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    source: Any = {
        "array": array,
        "interface": Exporter(array, "interface"),
        "dlpack": DLPackExporter(array, "dlpack"),
    }[wrap]
    with MemHandle.from_array(source) as handle:
        assert (handle.kind, handle.nbytes, handle.address) == ("host", 24, array.ctypes.data)
        handle.view(np.float32, (2, 3))[1, 2] = 9
    assert array[1, 2] == 9


def test_the_array_lives_as_long_as_the_handle() -> None:
    handle = MemHandle.from_array(np.full(1 << 20, 7, np.uint8))
    gc.collect()
    assert handle.view(np.uint8, (1 << 20,)).min() == 7
    handle.close()


def _read_only() -> np.ndarray[Any, Any]:
    array = np.zeros(4)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (_read_only(), "read-only"),
        (np.zeros((4, 4))[:, 1], "C-contiguous"),
        (np.zeros((4, 4), order="F"), "C-contiguous"),
        (np.array([None, "a"]), "references"),
        (np.zeros(0), "empty"),
        (np.broadcast_to(np.zeros(1), 8), "read-only"),
        (np.float32(1), "copied"),
        ([1, 2, 3], "list has neither"),
        (bytearray(8), "bytearray has neither"),
        (None, "neither"),
    ],
)
def test_arrays_that_no_device_can_use_are_refused(source: Any, message: str) -> None:
    with pytest.raises(UnusableMemory, match=message):
        MemHandle.from_array(source)


def test_an_exporter_of_another_device_is_refused() -> None:
    class OnDevice:
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("it lies on a GPU")

        def __dlpack_device__(self) -> Any:
            return 2, 0

    with pytest.raises(UnusableMemory, match="OnDevice gives no memory of the host"):
        MemHandle.from_array(OnDevice())


# --- pointers ---


@pytest.mark.parametrize("pointer", [0, -1, 2**64, True, "x", None])
def test_what_is_no_pointer_is_refused(pointer: Any) -> None:
    for make in (MemHandle.from_cl_mem, MemHandle.from_hardware_buffer):
        with pytest.raises(UnusableMemory, match="is no pointer"):
            make(pointer, 8)


def test_memory_behind_a_pointer_is_not_the_hosts() -> None:
    with MemHandle.from_cl_mem(0x1000, 8) as handle:
        assert (handle.kind, handle.pointer, handle.array, handle.fd) == ("cl_mem", 0x1000, None, None)


# --- views ---


def test_views_check_size_and_type() -> None:
    with MemHandle.allocate(16) as handle:
        assert handle.view(np.float32, (2, 2)).shape == (2, 2)
        assert handle.view(np.float64, ()).shape == ()
        assert handle.view(np.float64, (0, 5)).shape == (0, 5)
        for dtype, shape in ((np.float32, (5,)), (np.float64, (2, 2)), (np.uint8, (2**40, 2**40)), (np.uint8, (-1,))):
            with pytest.raises(UnusableMemory, match="does not fit"):
                handle.view(dtype, shape)
        with pytest.raises(UnusableMemory):
            handle.view(object, (1,))


@linux
def test_overlaps_are_found_through_other_mappings() -> None:
    array = np.zeros(100, np.uint8)
    with (
        MemHandle.allocate(2 * PAGE) as all_of_it,
        MemHandle.from_fd(all_of_it.fileno(), PAGE, 8) as part,
        MemHandle.from_fd(all_of_it.fileno(), PAGE + 8, 8) as behind,
        MemHandle.allocate(8) as other,
    ):
        pairs = [one.overlaps(two) for one, two in ((all_of_it, part), (part, behind), (part, other))]
        assert pairs == [True, False, False]
    one, two, three = (MemHandle.from_array(array[part]) for part in (slice(60), slice(50, 100), slice(60, 100)))
    memory, same = (MemHandle.from_cl_mem(5, 8) for _ in range(2))
    assert (one.overlaps(two), one.overlaps(three), one.overlaps(memory)) == (True, False, False)
    assert memory.overlaps(same)


# --- their end ---


def test_a_closed_handle_is_refused_everywhere_and_closes_again() -> None:
    handle = MemHandle.allocate(8)
    view = handle.view(np.uint8, (8,))
    handle.close()
    handle.close()
    view[:] = 1  # what the host still has stays valid
    assert handle.closed and view.sum() == 8
    uses = (
        lambda: handle.array,
        lambda: handle.fd,
        handle.fileno,
        lambda: handle.view(np.uint8, (1,)),
        lambda: handle.hold("held"),
        lambda: handle.overlaps(handle),
        lambda: open_device(NULL_REPORT).import_memory(handle),
        handle.__enter__,
    )
    for use in uses:
        with pytest.raises(MemoryClosed, match="memfd memory of 8 bytes was closed"):
            use()


def test_a_handle_that_is_held_cannot_be_closed() -> None:
    handle = MemHandle.allocate(8)
    first, second = handle.hold("registered as 'x'"), handle.hold("imported by a device")
    with pytest.raises(MemoryInUse, match="imported by a device, registered as 'x'"):
        handle.close()
    first.release()
    first.release()
    with pytest.raises(MemoryInUse):
        handle.close()
    del second
    handle.close()


def test_a_handle_that_is_dropped_leaves_no_descriptor() -> None:
    for _ in range(10):
        MemHandle.allocate(8)


# --- on the null device ---


def test_the_null_device_uses_any_memory_of_the_host() -> None:
    null = open_device(NULL_REPORT)
    handle = null.allocate_handle(16)
    imported = null.import_memory(handle)
    assert (imported.handle, imported.importer, imported.coherent) == (handle, "host pointer", True)
    null.begin_host_access(imported)
    handle.view(np.uint8, (16,))[:] = 5
    null.end_host_access(imported)
    with pytest.raises(MemoryInUse):
        handle.close()
    del imported
    handle.close()


def test_memory_above_the_devices_limit_is_refused() -> None:
    null = open_device(NULL_REPORT)
    with pytest.raises(LimitExceeded):
        null.allocate_handle(null.identity.max_allocation_bytes + 1)
    with MemHandle.from_cl_mem(1, null.identity.max_allocation_bytes + 1) as handle, pytest.raises(LimitExceeded):
        null.import_memory(handle)


def test_a_file_with_the_name_of_a_dma_buf_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could be cut short under whatever has it mapped."""
    monkeypatch.setattr(descriptors, "_link_of", lambda fd: "/dmabuf:x")
    with (tmp_path / "dmabuf:x").open("wb+") as file:
        file.truncate(8192)
        with pytest.raises(UnusableMemory, match="a regular file"):
            MemHandle.from_fd(file.fileno(), 0, 8192)
