"""Test why importers refuse memory, what a device lists, who may touch memory, and inferences on external memory."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import CannotImport, LaunchFailed, UnusableMemory
from gputune.runtime.memory.handles import PAGE, MemHandle
from gputune.runtime.native.binding import Device, Graph
from gputune.runtime.native.counting import tensor_counters
from gputune.runtime.native.memory import Memory
from tests.native.fake import ELEMENTS, NBYTES, STAGES, doubling_context
from tests.native.importing import UNIFIED, Answers, Importing, dma_buf
from tests.native.test_importers import fake

__all__ = ["fake"]

pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")
KHR = "cl_khr_external_memory", "cl_khr_external_memory_dma_buf"
TAKES_DMA_BUF: Answers = {0x204F: [0x2060, 0x2067]}
IMPORTERS = [
    "cl_mem",
    "cl_khr_external_memory_dma_buf",
    "cl_arm_import_memory_dma_buf",
    "cl_arm_import_memory_host",
    "cl_arm_import_memory_android_hardware_buffer",
    "cl_qcom_dmabuf_host_ptr",
    "cl_qcom_ion_host_ptr",
    "cl_qcom_android_ahardwarebuffer_host_ptr",
    "cl_intel_unified_shared_memory",
    "fine-grain SVM buffer",
    "fine-grain SVM system",
    "CL_MEM_USE_HOST_PTR",
    "CL_MEM_ALLOC_HOST_PTR",
    "copy",
]
ARM_DMA_BUF = "cl_arm_import_memory", "cl_arm_import_memory_dma_buf"
ARM_HOST = "cl_arm_import_memory", "cl_arm_import_memory_host"
DMABUF = "cl_qcom_ext_host_ptr", "cl_qcom_dmabuf_host_ptr"
ION = "cl_qcom_ext_host_ptr", "cl_qcom_ion_host_ptr"
QUALCOMM_ASKS: Answers = {0x40A0: 128, 0x40A1: 4096}
LIKE_A_PAGE: Answers = UNIFIED | {0x101D: 128}
Make = Callable[[Device], contextlib.AbstractContextManager[Memory]]
READ, WRITE, END = 1, 2, 4
"""Flags of which a dma-buf's exporter is told."""


def reason_of(memory: Memory, name: str) -> str:
    """Return why an importer does not take memory, from the whole refusal."""
    reasons = memory.kind.partition(" without a copy (")[2].removesuffix(")")
    return next(part.partition(": ")[2] for part in reasons.split("; ") if name in part.partition(": ")[0].split(", "))


@contextlib.contextmanager
def array(device: Device, first: int, nbytes: int) -> Iterator[Memory]:
    """Wrap an array from so many bytes behind the begin of a page on."""
    room = np.zeros(4 * PAGE, np.uint8)
    begin = -room.ctypes.data % PAGE + first
    with device.wrap(room[begin : begin + nbytes]) as memory:
        yield memory


def part(nbytes: int, offset: int) -> Make:
    return lambda device: dma_buf(device, nbytes, offset)


# --- what does not fit ---

REFUSED: list[tuple[str, tuple[str, ...], Answers, Make, str]] = [
    (KHR[1], KHR, TAKES_DMA_BUF, part(1000, 64), "its offset is no multiple of 128 bytes"),
    (KHR[1], KHR, TAKES_DMA_BUF, lambda device: array(device, 0, PAGE), "it is no dma-buf"),
    (ARM_HOST[1], ARM_HOST, {}, part(PAGE, 0), "it is no ordinary memory of the process"),
    (
        *(ARM_HOST[1], ARM_HOST, {0x101D: 256}, lambda device: array(device, 128, PAGE)),
        "its address is no multiple of a cache line of 256 bytes",
    ),
    (
        *("CL_MEM_USE_HOST_PTR", (), UNIFIED, part(PAGE, 0)),
        "it is a dma-buf, whose exporter must know of every access through the host's mapping",
    ),
    (
        *("fine-grain SVM system", (), {0x1053: 7}, part(PAGE, 0)),
        "it is a dma-buf, whose exporter must know of every access through the host's mapping",
    ),
    (ION[1], ION, QUALCOMM_ASKS, part(4 * PAGE, 0), "the device needs 128 bytes after it, the dma-buf has 0"),
    (ION[1], ION, QUALCOMM_ASKS, part(PAGE, PAGE), "it does not begin where the dma-buf does"),
    (
        *("fine-grain SVM buffer", (), {0x1053: 3}, lambda device: array(device, 0, PAGE)),
        "the device did not allocate it",
    ),
    (
        *("CL_MEM_USE_HOST_PTR", (), LIKE_A_PAGE, lambda device: array(device, 128, PAGE)),
        f"its address is no multiple of a page of {PAGE} bytes, so the driver would copy",
    ),
    (
        *("CL_MEM_USE_HOST_PTR", (), LIKE_A_PAGE, lambda device: array(device, 0, PAGE + 64)),
        "its size is no multiple of a cache line of 128 bytes, so the driver would copy",
    ),
    (
        *("CL_MEM_USE_HOST_PTR", (), {}, lambda device: array(device, 0, PAGE)),
        "the device has memory of its own, so its driver would copy at every map",
    ),
    ("cl_mem", (), {}, lambda device: array(device, 0, PAGE), "it is no cl_mem"),
    (KHR[1], (), {}, lambda device: array(device, 0, PAGE), "the device has no cl_khr_external_memory"),
    (ION[1], ION[:1], {}, lambda device: array(device, 0, PAGE), "the device has no cl_qcom_ion_host_ptr"),
]


@pytest.mark.parametrize(("name", "extensions", "answers", "make", "reason"), REFUSED)
def test_memory_that_does_not_fit_is_copied_with_the_reason(
    fake: Importing, name: str, extensions: tuple[str, ...], answers: Answers, make: Make, reason: str
) -> None:
    with fake.device(*extensions, answers=answers) as device, make(device) as memory:
        assert reason_of(memory, name) == reason
        assert re.match(r"Fake GPU cannot use (fd|host) memory of \d+ bytes without a copy \(", memory.kind)
        assert (memory.importer, memory.cl_mem, fake.told()) == ("", 0, [])


FAILING: list[tuple[str, int, str, tuple[str, ...], int, str]] = [
    ("clCreateBufferWithProperties", -64, KHR[1], KHR, 0, "CL_INVALID_PROPERTY"),
    ("clCreateSubBuffer", -13, KHR[1], KHR, 256, "CL_MISALIGNED_SUB_BUFFER_OFFSET"),
    ("clImportMemoryARM", -59, ARM_DMA_BUF[1], ARM_DMA_BUF, 0, "CL_INVALID_OPERATION"),
    ("clCreateBuffer", -30, ION[1], ION, 0, "CL_INVALID_VALUE"),
    ("clCreateBuffer", -37, DMABUF[1], DMABUF, 0, "CL_INVALID_HOST_PTR"),
    ("clEnqueueMapBuffer", -12, ION[1], ION, 0, "CL_MAP_FAILURE"),
    ("clCreateBuffer", -1234, ION[1], ION, 0, "error -1234"),
]


@pytest.mark.parametrize(("call", "code", "name", "extensions", "offset", "reason"), FAILING)
def test_a_failing_call_is_a_reason_with_its_code_by_name(
    fake: Importing, call: str, code: int, name: str, extensions: tuple[str, ...], offset: int, reason: str
) -> None:
    with fake.device(*extensions, answers=TAKES_DMA_BUF) as device:
        fake.fail({call: code})
        with dma_buf(device, 1000, offset) as memory:
            assert reason_of(memory, name) == f"{call} failed: {reason}"
        fake.fail({})


def test_a_function_that_the_driver_does_not_have_is_a_reason(fake: Importing) -> None:
    with fake.device(*ARM_DMA_BUF) as device:
        fake.opencl.fake_absent(b"clImportMemoryARM")
        with dma_buf(device) as memory:
            assert reason_of(memory, ARM_DMA_BUF[1]) == "clImportMemoryARM is not available"


def test_a_buffer_that_the_driver_does_not_know_as_shared_is_released(fake: Importing) -> None:
    why = "the driver does not know buffers of such memory as shared virtual memory"
    with fake.device(answers={0x1053: 7, 0x1109: 0}) as device:
        for calls in (["clCreateBuffer", "clReleaseMemObject"], []):
            with array(device, 0, PAGE) as memory:
                assert reason_of(memory, "fine-grain SVM system") == why
            assert fake.names() == calls, "what holds for all memory is found out once"


def test_a_driver_that_maps_a_copy_is_found_out_once(fake: Importing) -> None:
    with fake.device(answers=UNIFIED) as device:
        fake.opencl.fake_move(4096, 0)
        tried = ["clCreateBuffer", "clEnqueueMapBuffer", "clEnqueueUnmapMemObject", "clReleaseMemObject"]
        for calls in (tried, []):
            with array(device, 0, PAGE) as memory:
                assert reason_of(memory, "CL_MEM_USE_HOST_PTR") == "the driver copies: what it maps lies elsewhere"
            assert fake.names() == calls
        assert dict(device.importers())["CL_MEM_USE_HOST_PTR"] == "the driver copies: what it maps lies elsewhere"
    with fake.device(answers=UNIFIED) as device:  # which has to try
        fake.opencl.fake_move(4096, 0)
        assert dict(device.importers())["CL_MEM_USE_HOST_PTR"] == "the driver copies: what it maps lies elsewhere"


def test_memory_that_the_host_cannot_see_is_not_copied(fake: Importing) -> None:
    with fake.device() as device:
        with pytest.raises(CannotImport, match=r"without a copy .*the device has no cl_arm_import_memory"):
            device.import_hardware_buffer(0x777, 64)
        with pytest.raises(UnusableMemory, match="0 is no pointer"):
            device.import_cl_mem(0, 64)


# --- what a device lists ---


def test_the_device_lists_all_importers_and_the_copy(fake: Importing) -> None:
    with fake.device() as device:
        assert [name for name, _ in device.importers()] == IMPORTERS
        assert device.importers()[-1] == ("copy", "")


@pytest.mark.parametrize(
    ("version", "answers", "reason"),
    [
        ("OpenCL 2.0 old", TAKES_DMA_BUF, "the device has OpenCL 2.0, 3.0 is needed"),
        ("nonsense", TAKES_DMA_BUF, "the device has OpenCL 1.0, 3.0 is needed"),
        ("OpenCL 3.0", {0x204F: [0x2060]}, "the device does not list dma-bufs"),
        ("OpenCL 3.0", {}, "the device does not list dma-bufs"),
    ],
)
def test_what_khr_external_memory_needs(fake: Importing, version: str, answers: Answers, reason: str) -> None:
    with fake.device(*KHR, answers=answers, version=version) as device:
        assert dict(device.importers())[KHR[1]].startswith(reason)


def test_devices_before_opencl_2_are_not_asked_for_svm(fake: Importing) -> None:
    with fake.device(version="OpenCL 1.2 old", answers={0x1053: 7}) as device:
        assert dict(device.importers())["fine-grain SVM buffer"] == "the device has no fine-grain SVM"
        assert not fake.opencl.fake_asked_for_svm()


@pytest.mark.parametrize(
    ("failing", "why"), [({}, ""), ({"clHostMemAllocINTEL": -6}, "clHostMemAllocINTEL failed: CL_OUT_OF_HOST_MEMORY")]
)
def test_what_can_be_tried_on_a_page_is_tried(fake: Importing, failing: dict[str, int], why: str) -> None:
    with fake.device("cl_intel_unified_shared_memory", answers={0x4190: 1}) as device:
        fake.fail(failing)
        assert dict(device.importers())["cl_intel_unified_shared_memory"] == why
        fake.fail({})
        assert "clHostMemAllocINTEL" in fake.names()


# --- who may touch it ---


@pytest.mark.parametrize(("write", "flags"), [(False, 1), (True, 3)])
def test_memory_that_is_mapped_is_given_and_taken_once(fake: Importing, write: bool, flags: int) -> None:
    with fake.device(answers=UNIFIED) as device, array(device, 0, PAGE) as memory:
        fake.told()
        memory.begin_host(write)
        assert fake.told() == [], "between inferences it is the host's"
        memory.end_host()
        assert fake.told() == [["clEnqueueUnmapMemObject", 1, memory.address], ["clFinish"]]
        memory.end_host()
        assert fake.told() == []
        memory.begin_host(write)
        assert fake.told() == [["clEnqueueMapBuffer", 1, PAGE, flags], ["clFinish"]]
        memory.begin_host(True)
        assert (fake.names() == []) == write, "what was mapped to be read is mapped again"


def test_memory_that_needs_no_command_is_left_alone(fake: Importing) -> None:
    with fake.device(answers={0x1053: 7}) as device, array(device, 0, PAGE) as shared:
        fake.told()
        shared.end_host()
        shared.begin_host()
        assert fake.told() == []
    with fake.device() as device, array(device, 0, PAGE) as copied:
        copied.end_host()
        copied.begin_host()
        assert fake.told() == []


def test_host_access_that_fails_is_named(fake: Importing) -> None:
    with fake.device(answers=UNIFIED) as device, array(device, 0, PAGE) as memory:
        fake.fail({"clEnqueueUnmapMemObject": -38})
        with pytest.raises(LaunchFailed, match=r"unmapping .*CL_INVALID_MEM_OBJECT"):
            memory.end_host()
        fake.fail({"clEnqueueMapBuffer": -36})
        memory.end_host()
        with pytest.raises(LaunchFailed, match=r"mapping .*CL_INVALID_COMMAND_QUEUE"):
            memory.begin_host()
        fake.fail({})
        fake.opencl.fake_move(64, 0)
        with pytest.raises(LaunchFailed, match="the driver has mapped a copy"):
            memory.begin_host()
        fake.opencl.fake_move(0, 0)
        memory.begin_host()


def test_host_access_to_a_dma_buf_waits_and_tells_its_exporter(fake: Importing) -> None:
    with fake.device(*KHR, answers=TAKES_DMA_BUF) as device:
        fake.synchronised()
        with dma_buf(device) as memory:
            looked = [READ | WRITE, READ | WRITE | END]
            assert fake.synchronised() == [*looked, READ | WRITE]
            fake.told()
            memory.end_host()
            assert fake.synchronised() == [READ | WRITE | END]
            fake.told()
            memory.begin_host(False)
            memory.end_host()
            assert fake.synchronised() == [READ, READ | END]
            assert fake.names()[0] == "clFinish"
            fake.refuse_sync(True)
            with pytest.raises(UnusableMemory, match="the dma-buf cannot be synchronised"):
                memory.begin_host()
            fake.refuse_sync(False)
            fake.fail({"clFinish": -36})
            with pytest.raises(LaunchFailed, match="CL_INVALID_COMMAND_QUEUE"):
                memory.begin_host()
            fake.fail({})


def test_a_file_with_the_name_of_a_dma_buf_is_none_if_it_does_not_answer_as_one(fake: Importing) -> None:
    with fake.device(*KHR, answers=TAKES_DMA_BUF) as device:
        fake.refuse_sync(True)
        with pytest.raises(UnusableMemory, match="not sealed against shrinking and can never be"), dma_buf(device):
            pass
        fake.refuse_sync(False)


# --- inferences ---


@contextlib.contextmanager
def graph_on(fake: Importing, device: Device, folder: Path) -> Iterator[Graph]:
    with fake.native.open(doubling_context(folder / "a.bin")) as file, device.load(file) as graph:
        yield graph


def maps(graph: Graph) -> list[int]:
    """Return how often x and y were given to the device and back in the last inference."""
    return [tensor_counters(graph.native.call, graph.pointer, output, 0)[2]["maps"] for output in (False, True)]


@pytest.mark.parametrize("offset", [0, 256])
def test_launches_on_external_memory_stand_between_acquire_and_release(
    fake: Importing, tmp_path: Path, offset: int
) -> None:
    values = np.arange(ELEMENTS, dtype=np.float32)
    with fake.device(*KHR, answers=TAKES_DMA_BUF) as device, graph_on(fake, device, tmp_path) as graph:
        fake.told()
        with dma_buf(device, NBYTES, offset) as x, dma_buf(device, NBYTES, offset) as y:
            cut = [call[1] for call in fake.told() if call[0] == "clCreateSubBuffer"]
            for _ in range(2):
                x.array("float32", (ELEMENTS,))[...] = values
                fake.told()
                fake.synchronised()
                graph.run({"x": x}, {"y": y})
                np.testing.assert_array_equal(y.array("float32", (ELEMENTS,)), values * 2**STAGES)
                assert fake.synchronised() == [*(2 * [READ | WRITE | END]), *(2 * [READ | WRITE])]
                calls = [call for call in fake.told() if "External" in call[0] or "NDRange" in call[0]]
                wholes = cut or [call[1][0] for call in calls[:2]]
                assert len({*wholes}) == 2
                assert calls == [
                    *(["clEnqueueAcquireExternalMemObjectsKHR", [whole]] for whole in wholes),
                    *(STAGES * [["clEnqueueNDRangeKernel"]]),
                    *(["clEnqueueReleaseExternalMemObjectsKHR", [whole]] for whole in wholes),
                ]
                assert maps(graph) == [1, 1]


@pytest.mark.parametrize("call", ["clEnqueueAcquireExternalMemObjectsKHR", "clEnqueueReleaseExternalMemObjectsKHR"])
def test_memory_that_cannot_be_acquired_or_released_is_named(fake: Importing, tmp_path: Path, call: str) -> None:
    ones = np.ones(ELEMENTS, np.float32)
    with fake.device(*KHR, answers=TAKES_DMA_BUF) as device, graph_on(fake, device, tmp_path) as graph:
        with dma_buf(device, NBYTES) as y:
            fake.fail({call: -38})
            with pytest.raises(LaunchFailed, match=f"{call} failed: CL_INVALID_MEM_OBJECT"):
                graph.run({"x": ones}, {"y": y})
            fake.fail({})
            graph.run({"x": ones}, {"y": y})
            assert set(y.array("float32", (ELEMENTS,))) == {2.0**STAGES}
        graph.run({"x": ones}, {})


def test_what_is_copied_is_said_with_pythons_words(fake: Importing, tmp_path: Path) -> None:
    with fake.device() as device, graph_on(fake, device, tmp_path) as graph, array(device, 0, NBYTES) as x:
        told = graph.warnings
        for _ in range(2):
            graph.run({"x": x})
        assert graph.warnings == [*told, f"input 'x' is copied: {x.kind}"]
        assert tensor_counters(graph.native.call, graph.pointer, False, 0)[2]["reason"] == x.kind


def test_memory_of_a_descriptor_is_given_to_others_by_it(fake: Importing) -> None:
    with fake.device(answers=UNIFIED) as device, device.allocate(4096) as memory:
        memory.array("uint8", (4096,))[...] = 7
        with MemHandle.from_fd(memory.descriptor, 0, 4096) as handle:
            assert set(handle.view("uint8", (4096,))) == {7}
