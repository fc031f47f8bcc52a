"""Test each importer's calls on a library that records them; the importers for hardware have run nowhere else."""

import fcntl
import gc
import itertools
import os
from collections.abc import Iterator

import numpy as np
import pytest

from gputune.core.errors import CannotImport, LaunchFailed, UnusableMemory
from gputune.runtime.memory import descriptors
from gputune.runtime.memory import opencl_calls as cl
from gputune.runtime.memory.handles import PAGE, MemHandle
from gputune.runtime.memory.importers import IMPORTERS
from gputune.runtime.memory.ladder import Ladder
from tests.runtime.memory.fake_opencl import FIRST, PLACE, FakeOpenCL, identity

READ_WRITE = 1
KHR = "cl_khr_external_memory", "cl_khr_external_memory_dma_buf"
TAKES_DMA_BUF = {cl.DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES: [0x2060, 0x2067]}
QUALCOMM = "cl_qcom_ext_host_ptr"


@pytest.fixture
def dma_buf(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemHandle]:
    """Four pages that pass for a dma-buf."""
    fd = os.memfd_create("test")
    os.ftruncate(fd, 4 * PAGE)
    monkeypatch.setattr(descriptors, "_link_of", lambda fd: "/dmabuf:")
    monkeypatch.setattr(descriptors, "_synchronises", lambda fd: True)
    with MemHandle.from_fd(fd, 0, 4 * PAGE) as handle:
        os.close(fd)
        yield handle


def reason_of(fake: FakeOpenCL, name: str, handle: MemHandle, *extensions: str) -> str:
    """Why an importer does not take a handle, from the whole ladder's refusal."""
    with pytest.raises(CannotImport) as raised:
        fake.ladder(identity(*extensions)).take(handle)
    reasons = str(raised.value).partition(" without a copy (")[2].removesuffix(")")
    return next(part.partition(": ")[2] for part in reasons.split("; ") if name in part.partition(": ")[0].split(", "))


# --- what each importer calls ---


def test_a_dma_buf_by_khr_external_memory(dma_buf: MemHandle) -> None:
    fake = FakeOpenCL(TAKES_DMA_BUF)
    ladder = fake.ladder(identity(*KHR))
    taken, importer = ladder.take(dma_buf)
    assert (importer.name, importer.access, importer.external) == ("cl_khr_external_memory_dma_buf", "sync", True)
    properties = [0x2067, dma_buf.fileno(), 0]
    assert fake.made() == [("clCreateBufferWithProperties", properties, READ_WRITE, 4 * PAGE)]
    ladder.hand_over([taken.whole], acquire=True)
    ladder.hand_over([taken.whole], acquire=False)
    assert fake.made() == [
        ("clEnqueueAcquireExternalMemObjectsKHR", [FIRST]),
        ("clEnqueueReleaseExternalMemObjectsKHR", [FIRST]),
    ]


def test_a_part_of_a_dma_buf_is_acquired_as_a_whole(dma_buf: MemHandle) -> None:
    fake = FakeOpenCL(TAKES_DMA_BUF)
    with MemHandle.from_fd(dma_buf.fileno(), 256, 1000) as part:
        taken, _ = fake.ladder(identity(*KHR)).take(part)
        assert (taken.pointer, taken.whole) == (FIRST + 1, FIRST)
        assert fake.made() == [
            ("clCreateBufferWithProperties", [0x2067, part.fileno(), 0], READ_WRITE, 1256),
            ("clCreateSubBuffer", FIRST, READ_WRITE, 256, 1000),
            ("clReleaseMemObject", FIRST),
        ]


def test_a_part_that_the_device_does_not_align_is_refused(dma_buf: MemHandle) -> None:
    fake = FakeOpenCL(TAKES_DMA_BUF)
    with MemHandle.from_fd(dma_buf.fileno(), 64, 1000) as part:
        assert reason_of(fake, KHR[1], part, *KHR) == "its offset is no multiple of 128 bytes"
    assert fake.made() == []


def test_what_is_left_of_a_part_that_cannot_be_cut_is_released(dma_buf: MemHandle) -> None:
    fake = FakeOpenCL(TAKES_DMA_BUF, failing={"clCreateSubBuffer": -13})
    with MemHandle.from_fd(dma_buf.fileno(), 256, 1000) as part:
        assert reason_of(fake, KHR[1], part, *KHR) == "clCreateSubBuffer failed: CL_MISALIGNED_SUB_BUFFER_OFFSET"
    assert fake.references[FIRST] == 0


def test_a_dma_buf_by_arm(dma_buf: MemHandle) -> None:
    fake = FakeOpenCL()
    taken, importer = fake.ladder(identity("cl_arm_import_memory", "cl_arm_import_memory_dma_buf")).take(dma_buf)
    assert (importer.name, importer.access, importer.external) == ("cl_arm_import_memory_dma_buf", "sync", False)
    properties = [0x40B2, 0x40B4, 0x41E3, 1, 0]
    assert fake.made() == [("clImportMemoryARM", READ_WRITE, properties, dma_buf.fileno(), 4 * PAGE)]
    assert taken.pointer == FIRST


def test_memory_of_the_process_by_arm() -> None:
    fake = FakeOpenCL()
    with MemHandle.allocate(1000) as handle:
        _, importer = fake.ladder(identity("cl_arm_import_memory", "cl_arm_import_memory_host")).take(handle)
        assert (importer.name, importer.access) == ("cl_arm_import_memory_host", "")
        assert fake.made() == [("clImportMemoryARM", READ_WRITE, [0x40B2, 0x40B3, 0], handle.address, 1000)]


def test_arm_takes_no_dma_buf_through_its_mapping(dma_buf: MemHandle) -> None:
    extensions = "cl_arm_import_memory", "cl_arm_import_memory_host"
    reason = reason_of(FakeOpenCL(), "cl_arm_import_memory_host", dma_buf, *extensions)
    assert reason == "it is no ordinary memory of the process"


def test_no_importer_takes_a_dma_buf_through_its_mapping(dma_buf: MemHandle) -> None:
    fake = FakeOpenCL({cl.DEVICE_HOST_UNIFIED_MEMORY: 1, cl.DEVICE_SVM_CAPABILITIES: 7})
    for name in ("CL_MEM_USE_HOST_PTR", "fine-grain SVM system"):
        assert reason_of(fake, name, dma_buf).startswith("it is a dma-buf, whose exporter must know")


def test_a_hardware_buffer_by_arm() -> None:
    fake = FakeOpenCL()
    extensions = "cl_arm_import_memory", "cl_arm_import_memory_android_hardware_buffer"
    fake.ladder(identity(*extensions)).take(MemHandle.from_hardware_buffer(0x777, 4096))
    assert fake.made() == [("clImportMemoryARM", READ_WRITE, [0x40B2, 0x41E2, 0], 0x777, 4096)]


@pytest.mark.parametrize(("extension", "kind"), [("cl_qcom_dmabuf_host_ptr", 0x411D), ("cl_qcom_ion_host_ptr", 0x40A8)])
@pytest.mark.parametrize(("more", "policy"), [((), 0x40A5), (("cl_qcom_ext_host_ptr_iocoherent",), 0x40A9)])
def test_a_dma_buf_by_qualcomm(
    dma_buf: MemHandle, extension: str, kind: int, more: tuple[str, ...], policy: int
) -> None:
    fake = FakeOpenCL({cl.DEVICE_EXT_MEM_PADDING_IN_BYTES: 128, cl.DEVICE_PAGE_SIZE: 4096})
    with MemHandle.from_fd(dma_buf.fileno(), 0, 4 * PAGE - 128) as handle:
        ladder = fake.ladder(identity(QUALCOMM, extension, *more))
        taken, importer = ladder.take(handle)
        nbytes, structure = 4 * PAGE - 128, [kind, policy, handle.fileno(), handle.address]
        assert (importer.name, importer.access) == (extension, "map")
        assert fake.made() == [
            ("clCreateBuffer", READ_WRITE | 1 << 3 | 1 << 29, nbytes, structure),
            ("clEnqueueMapBuffer", FIRST, nbytes),
            ("clEnqueueUnmapMemObject", FIRST, handle.address),
        ]
        assert ladder.begin_host_access(handle, taken, importer) == handle.address
        ladder.end_host_access(handle, handle.address, taken, importer)
        assert fake.made() == [
            ("clEnqueueMapBuffer", FIRST, nbytes),
            ("clEnqueueUnmapMemObject", FIRST, handle.address),
        ]


def test_what_qualcomm_asks_of_a_dma_buf(dma_buf: MemHandle) -> None:
    answers = {cl.DEVICE_EXT_MEM_PADDING_IN_BYTES: 128, cl.DEVICE_PAGE_SIZE: 4096}
    extensions = QUALCOMM, "cl_qcom_ion_host_ptr"

    def reason(handle: MemHandle) -> str:
        return reason_of(FakeOpenCL(answers), extensions[1], handle, *extensions)

    with MemHandle.from_fd(dma_buf.fileno(), 0, 4 * PAGE) as handle:
        assert reason(handle) == "the device needs 128 bytes after it, the dma-buf has 0"
    with MemHandle.from_fd(dma_buf.fileno(), PAGE, PAGE) as handle:
        assert reason(handle) == "it does not begin where the dma-buf does"


def test_a_hardware_buffer_by_qualcomm() -> None:
    fake = FakeOpenCL()
    extension = "cl_qcom_android_ahardwarebuffer_host_ptr"
    _, importer = fake.ladder(identity(QUALCOMM, extension)).take(MemHandle.from_hardware_buffer(0x777, 4096))
    assert (importer.name, importer.access) == (extension, "")
    assert fake.made() == [("clCreateBuffer", READ_WRITE | 1 << 3 | 1 << 29, 4096, [0x4119, 0x40A5, 0x777])]


def test_unified_shared_memory_of_intel() -> None:
    fake = FakeOpenCL({cl.DEVICE_HOST_MEM_CAPABILITIES: 1})
    ladder = fake.ladder(identity("cl_intel_unified_shared_memory"))
    handle = ladder.allocate(4096)
    assert (handle.kind, handle.address) == ("usm", next(iter(fake.driver_memory)))
    assert fake.made() == [("clHostMemAllocINTEL", 0, 4096, 0)]
    _, importer = ladder.take(handle)
    assert (importer.name, importer.access) == ("cl_intel_unified_shared_memory", "map")
    assert fake.made() == [
        ("clCreateBuffer", READ_WRITE | 1 << 3, 4096, handle.address),
        ("clEnqueueMapBuffer", FIRST, 4096),
        ("clEnqueueUnmapMemObject", FIRST, handle.address),
    ]
    handle.close()
    gc.collect()
    assert fake.made() == [("clMemBlockingFreeINTEL",)] and not fake.driver_memory


def test_fine_grain_buffers() -> None:
    fake = FakeOpenCL({cl.DEVICE_SVM_CAPABILITIES: 3})
    ladder = fake.ladder(identity())
    handle = ladder.allocate(4096)
    assert (handle.kind, handle.owner) == ("svm", PLACE.context)
    assert fake.made() == [("clSVMAlloc", READ_WRITE | 1 << 10, 4096, 0)]
    _, importer = ladder.take(handle)
    assert (importer.name, importer.access) == ("fine-grain SVM buffer", "")
    assert fake.made() == [("clCreateBuffer", READ_WRITE | 1 << 3, 4096, handle.address)]
    view = handle.view(np.uint8, (4096,))
    handle.close()
    gc.collect()
    assert fake.made() == []  # the host still sees it
    del view
    gc.collect()
    assert fake.made() == [("clSVMFree",)] and not fake.driver_memory


def test_fine_grain_memory_of_another_context_is_ordinary_memory() -> None:
    fake, other = FakeOpenCL({cl.DEVICE_SVM_CAPABILITIES: 3}), FakeOpenCL({cl.DEVICE_HOST_UNIFIED_MEMORY: 1})
    handle = fake.ladder(identity()).allocate(4096)
    handle.owner = 5
    reason = reason_of(fake, "fine-grain SVM buffer", handle)
    assert reason == "it was allocated in another context"
    if handle.address % 128 == 0:
        assert other.ladder(identity(kind="cpu")).take(handle)[1].name == "CL_MEM_USE_HOST_PTR"


def test_devices_that_share_the_hosts_address_space() -> None:
    fake = FakeOpenCL({cl.DEVICE_SVM_CAPABILITIES: 7})
    with MemHandle.allocate(100) as handle:
        _, importer = fake.ladder(identity()).take(handle)
        assert (importer.name, importer.access) == ("fine-grain SVM system", "")
        assert fake.made() == [("clCreateBuffer", READ_WRITE | 1 << 3, 100, handle.address)]


def test_a_buffer_that_the_driver_does_not_know_as_shared_is_released() -> None:
    fake = FakeOpenCL({cl.DEVICE_SVM_CAPABILITIES: 7}, uses_svm=False)
    with MemHandle.allocate(100) as handle:
        reason = reason_of(fake, "fine-grain SVM system", handle)
    assert reason == "the driver does not know buffers of such memory as shared virtual memory"
    assert set(fake.references.values()) == {0}


def test_host_pointers_are_whole_pages_on_a_gpu() -> None:
    fake = FakeOpenCL({cl.DEVICE_HOST_UNIFIED_MEMORY: 1})
    with MemHandle.allocate(3 * PAGE) as room, MemHandle.from_fd(room.fileno(), PAGE + 256, 1000) as handle:
        taken, importer = fake.ladder(identity()).take(handle)
        assert importer.name == "CL_MEM_USE_HOST_PTR"
        assert fake.made() == [
            ("clCreateBuffer", READ_WRITE | 1 << 3, PAGE, handle.address - 256),
            ("clCreateSubBuffer", FIRST, READ_WRITE, 256, 1000),
            ("clReleaseMemObject", FIRST),
            ("clEnqueueMapBuffer", FIRST + 1, 1000),
            ("clEnqueueUnmapMemObject", FIRST + 1, handle.address),
        ]
        assert taken.pointer == FIRST + 1


def test_arrays_are_refused_where_a_gpus_driver_would_copy_them() -> None:
    room = np.zeros(4 * PAGE, np.uint8)
    start = -room.ctypes.data % PAGE
    unified = {cl.DEVICE_HOST_UNIFIED_MEMORY: 1, cl.DEVICE_GLOBAL_MEM_CACHELINE_SIZE: 128}

    def reason(first: int, nbytes: int, answers: dict[int, int]) -> str:
        handle = MemHandle.from_array(room[first : first + nbytes])
        return reason_of(FakeOpenCL(answers), "CL_MEM_USE_HOST_PTR", handle)

    assert reason(start + 128, PAGE, unified).startswith(f"its address is no multiple of a page of {PAGE} bytes")
    assert reason(start, PAGE + 64, unified).startswith("its size is no multiple of a cache line of 128 bytes")
    assert reason(start, PAGE, {}).startswith("the device has memory of its own")
    fake = FakeOpenCL(unified)
    fake.ladder(identity()).take(MemHandle.from_array(room[start : start + PAGE + 128]))
    assert fake.made()[0] == ("clCreateBuffer", READ_WRITE | 1 << 3, PAGE + 128, room.ctypes.data + start)


def test_a_driver_that_maps_a_copy_is_found_out_once() -> None:
    fake = FakeOpenCL({cl.DEVICE_HOST_UNIFIED_MEMORY: 1}, moved=4096)
    ladder = fake.ladder(identity())
    with MemHandle.allocate(PAGE) as handle:
        for calls in (["clCreateBuffer", "clEnqueueMapBuffer", "clEnqueueUnmapMemObject", "clReleaseMemObject"], []):
            with pytest.raises(CannotImport, match="CL_MEM_USE_HOST_PTR: the driver copies"):
                ladder.take(handle)
            assert [call[0] for call in fake.made()] == calls
    for of in (ladder, fake.ladder(identity())):  # which asked before, and which has to try
        assert dict(of.importers())["CL_MEM_USE_HOST_PTR"] == "the driver copies: what it maps lies elsewhere"
    assert set(fake.references.values()) == {0}


def copying_other_memory() -> tuple[FakeOpenCL, Ladder]:
    """A device without memory of its own whose driver copies what it has not allocated, which is known already."""
    fake = FakeOpenCL({cl.DEVICE_HOST_UNIFIED_MEMORY: 1}, moved=4096)
    ladder = fake.ladder(identity())
    with MemHandle.allocate(PAGE) as handle, pytest.raises(CannotImport):
        ladder.take(handle)
    fake.made()
    return fake, ladder


def test_memory_that_is_allocated_to_be_mapped_where_nothing_else_is_taken() -> None:
    fake, ladder = copying_other_memory()
    handle = ladder.allocate(4096)
    first = handle.pointer
    made = [
        ("clCreateBuffer", READ_WRITE | 1 << 4, 4096, 0),
        *(2 * [("clEnqueueMapBuffer", first, 4096), ("clEnqueueUnmapMemObject", first, handle.address)]),
    ]
    assert (handle.kind, fake.made()) == ("mapped", made)
    taken, importer = ladder.take(handle)
    assert (importer.name, importer.access, taken.pointer) == ("CL_MEM_ALLOC_HOST_PTR", "map", first)
    assert fake.references[first] == 2
    handle.close()
    gc.collect()
    assert fake.references[first] == 1  # the import's


def test_what_is_not_taken_is_given_back_where_other_memory_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the device has turned out to copy, and again."""
    shared, allocate = list[MemHandle](), MemHandle.allocate

    def allocated(nbytes: int) -> MemHandle:
        shared.append(allocate(nbytes))
        return shared[-1]

    _, ladder = copying_other_memory()
    monkeypatch.setattr(MemHandle, "allocate", allocated)
    for _ in range(2):
        with ladder.allocate(4096) as handle:
            assert handle.kind == "mapped"
    assert [one.closed for one in shared] == [True, True]


def test_memory_that_is_mapped_is_not_allocated_on_a_device_with_memory_of_its_own() -> None:
    """There it is a copy, and mapping it overwrites what the host has written into it before."""
    fake = FakeOpenCL()
    ladder = fake.ladder(identity())
    with ladder.allocate(4096) as handle:
        assert (handle.kind, fake.made()) == ("memfd", [])
        with pytest.raises(CannotImport, match="CL_MEM_USE_HOST_PTR, CL_MEM_ALLOC_HOST_PTR: the device has memory of"):
            ladder.take(handle)


def test_memory_that_moves_from_map_to_map_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, ladder = copying_other_memory()
    mapped, places = fake._clEnqueueMapBuffer, itertools.count(step=4096)
    monkeypatch.setattr(fake, "_clEnqueueMapBuffer", lambda *arguments: mapped(*arguments) + next(places))
    with ladder.allocate(4096) as handle:
        assert handle.kind == "memfd"  # which is copied, but can be given to others
    assert set(fake.references.values()) == {0}


def test_the_best_memory_is_a_memfd_where_the_device_takes_it() -> None:
    fake = FakeOpenCL({cl.DEVICE_HOST_UNIFIED_MEMORY: 1})
    with fake.ladder(identity()).allocate(4096) as handle:
        assert handle.kind == "memfd"
    assert set(fake.references.values()) == {0}


# --- an application's own cl_mem ---


def test_an_own_cl_mem_is_shared() -> None:
    fake = FakeOpenCL()
    taken, importer = fake.ladder(identity()).take(MemHandle.from_cl_mem(0x99, 64))
    assert (taken.pointer, importer.name, fake.made()) == (0x99, "cl_mem", [("clRetainMemObject", 0x99)])


@pytest.mark.parametrize(
    ("answers", "nbytes", "reason"),
    [
        ({cl.MEM_TYPE: 0x10F1}, 64, "the cl_mem is an image or a pipe, no buffer"),
        ({cl.MEM_CONTEXT: 7}, 64, "the cl_mem belongs to another context"),
        ({}, 65, "the cl_mem has 64 bytes, the handle 65"),
    ],
)
def test_a_cl_mem_that_does_not_fit_is_refused(answers: dict[int, int], nbytes: int, reason: str) -> None:
    fake = FakeOpenCL(answers)
    assert reason_of(fake, "cl_mem", MemHandle.from_cl_mem(0x99, nbytes)) == reason
    assert fake.made() == []


# --- what goes wrong ---


@pytest.mark.parametrize(
    ("call", "code", "name", "extensions", "reason"),
    [
        ("clCreateBufferWithProperties", -64, KHR[1], KHR, "CL_INVALID_PROPERTY"),
        (
            "clImportMemoryARM",
            -59,
            "cl_arm_import_memory_dma_buf",
            ("cl_arm_import_memory", "cl_arm_import_memory_dma_buf"),
            "CL_INVALID_OPERATION",
        ),
        ("clCreateBuffer", -30, "cl_qcom_ion_host_ptr", (QUALCOMM, "cl_qcom_ion_host_ptr"), "CL_INVALID_VALUE"),
        (
            "clCreateBuffer",
            -37,
            "cl_qcom_dmabuf_host_ptr",
            (QUALCOMM, "cl_qcom_dmabuf_host_ptr"),
            "CL_INVALID_HOST_PTR",
        ),
        ("clEnqueueMapBuffer", -12, "cl_qcom_ion_host_ptr", (QUALCOMM, "cl_qcom_ion_host_ptr"), "CL_MAP_FAILURE"),
        ("clCreateBuffer", -1234, "cl_qcom_ion_host_ptr", (QUALCOMM, "cl_qcom_ion_host_ptr"), "error -1234"),
    ],
)
def test_a_failing_call_is_a_reason_with_its_code_by_name(
    dma_buf: MemHandle, call: str, code: int, name: str, extensions: tuple[str, ...], reason: str
) -> None:
    fake = FakeOpenCL(TAKES_DMA_BUF, failing={call: code})
    assert reason_of(fake, name, dma_buf, *extensions) == f"{call} failed: {reason}"
    assert set(fake.references.values()) <= {0}


def test_a_function_that_the_driver_does_not_have_is_a_reason(dma_buf: MemHandle) -> None:
    fake = FakeOpenCL(absent=("clImportMemoryARM",))
    extensions = "cl_arm_import_memory", "cl_arm_import_memory_dma_buf"
    assert reason_of(fake, extensions[1], dma_buf, *extensions) == "clImportMemoryARM is not available"


@pytest.mark.parametrize(
    ("call", "answers", "extensions"),
    [
        ("clSVMAlloc", {cl.DEVICE_SVM_CAPABILITIES: 3}, ()),
        ("clHostMemAllocINTEL", {cl.DEVICE_HOST_MEM_CAPABILITIES: 1}, ("cl_intel_unified_shared_memory",)),
        ("clCreateBuffer", {}, ()),
        ("clEnqueueMapBuffer", {}, ()),
    ],
)
def test_memory_that_cannot_be_allocated_is_looked_for_elsewhere(
    call: str, answers: dict[int, int], extensions: tuple[str, ...]
) -> None:
    """On a device without memory of its own, whose driver copies what it has not allocated."""
    fake = FakeOpenCL({cl.DEVICE_HOST_UNIFIED_MEMORY: 1, **answers}, failing={call: -6}, moved=4096)
    with fake.ladder(identity(*extensions)).allocate(4096) as handle:
        assert handle.kind == ("memfd" if call in ("clCreateBuffer", "clEnqueueMapBuffer") else "mapped")
    gc.collect()
    assert set(fake.references.values()) <= {0}


@pytest.mark.parametrize(
    ("version", "answers", "reason"),
    [
        ("OpenCL 2.0 old", TAKES_DMA_BUF, "the device has OpenCL 2.0, 3.0 is needed"),
        ("nonsense", TAKES_DMA_BUF, "the device has OpenCL 1.0, 3.0 is needed"),
        ("OpenCL 3.0", {cl.DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES: [0x2060]}, "the device does not list dma-bufs"),
        ("OpenCL 3.0", {}, "the device does not list dma-bufs"),
    ],
)
def test_what_khr_external_memory_needs(version: str, answers: dict[int, int | list[int]], reason: str) -> None:
    ladder = FakeOpenCL(answers).ladder(identity(*KHR, version=version))
    assert dict(ladder.importers())[KHR[1]].startswith(reason)


def test_devices_before_opencl_2_are_not_asked_for_svm() -> None:
    fake = FakeOpenCL({cl.DEVICE_SVM_CAPABILITIES: 7})
    reasons = dict(fake.ladder(identity(version="OpenCL 1.2 old")).importers())
    assert reasons["fine-grain SVM buffer"] and ("clGetDeviceInfo", cl.DEVICE_SVM_CAPABILITIES) not in fake.calls


def test_the_ladder_lists_all_importers_and_the_copy() -> None:
    assert [name for name, _ in FakeOpenCL().ladder(identity()).importers()] == [
        *(one.name for one in IMPORTERS),
        "copy",
    ]


def test_host_access_that_fails_is_named() -> None:
    fake = FakeOpenCL({cl.DEVICE_HOST_UNIFIED_MEMORY: 1})
    ladder = fake.ladder(identity())
    with MemHandle.allocate(PAGE) as handle:
        grip = ladder.take(handle)
        fake.failing = {"clEnqueueMapBuffer": -5}
        with pytest.raises(LaunchFailed, match=r"mapping memfd memory of \d+ bytes: .*CL_OUT_OF_RESOURCES"):
            ladder.begin_host_access(handle, *grip)
        fake.failing, fake.moved = {}, 64
        with pytest.raises(LaunchFailed, match="the driver has mapped a copy"):
            ladder.begin_host_access(handle, *grip)
        fake.failing = {"clEnqueueUnmapMemObject": -38}
        with pytest.raises(LaunchFailed, match=r"unmapping .*CL_INVALID_MEM_OBJECT"):
            ladder.end_host_access(handle, handle.address, *grip)


def test_host_access_to_a_dma_buf_waits_and_tells_its_exporter(
    dma_buf: MemHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeOpenCL(TAKES_DMA_BUF)
    ladder = fake.ladder(identity(*KHR))
    grip = ladder.take(dma_buf)
    with pytest.raises(UnusableMemory, match="cannot be synchronised"):
        ladder.begin_host_access(dma_buf, *grip)
    told = []
    monkeypatch.setattr(fcntl, "ioctl", lambda fd, number, flags: told.append((fd, number, flags[0])))
    fake.calls.clear()
    assert ladder.begin_host_access(dma_buf, *grip) == 0
    ladder.end_host_access(dma_buf, 0, *grip)
    assert fake.made() == [("clFinish",)]
    assert told == [(dma_buf.fileno(), 0x40086200, 3), (dma_buf.fileno(), 0x40086200, 7)]
    fake.failing = {"clFinish": -36}
    with pytest.raises(LaunchFailed, match="clFinish failed: CL_INVALID_COMMAND_QUEUE"):
        ladder.begin_host_access(dma_buf, *grip)


def test_memory_that_cannot_be_acquired_is_named() -> None:
    fake = FakeOpenCL(failing={"clEnqueueAcquireExternalMemObjectsKHR": -38})
    with pytest.raises(LaunchFailed, match="clEnqueueAcquireExternalMemObjectsKHR failed: CL_INVALID_MEM_OBJECT"):
        fake.ladder(identity()).hand_over([1], acquire=True)
