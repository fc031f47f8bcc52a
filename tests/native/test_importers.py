"""Test each importer's calls on a library that records them; the importers for hardware have run nowhere else."""

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gputune.runtime.memory.handles import PAGE, MemHandle
from gputune.runtime.native.binding import Device
from gputune.runtime.native.memory import Memory
from tests.native.importing import DMA_BUF_BYTES, UNIFIED, Answers, Importing, dma_buf, importing_library

pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")
READ_WRITE, USE_HOST_PTR, ALLOC_HOST_PTR, SVM, EXT_HOST_PTR = 1, 1 << 3, 1 << 4, 1 << 10, 1 << 29
MAP = 3
KHR = "cl_khr_external_memory", "cl_khr_external_memory_dma_buf"
TAKES_DMA_BUF: Answers = {0x204F: [0x2060, 0x2067]}
ARM, QUALCOMM = "cl_arm_import_memory", "cl_qcom_ext_host_ptr"
QUALCOMM_ASKS: Answers = {0x40A0: 128, 0x40A1: 4096}
IN_QUALCOMM = DMA_BUF_BYTES - 128
BUFFER = 0x777
Make = Callable[[Device], contextlib.AbstractContextManager[Memory]]
Calls = Callable[[Memory], list[list[Any]]]


@pytest.fixture(scope="module")
def fake(c_compiler: str) -> Importing:
    return Importing(importing_library())


@dataclass(frozen=True)
class Case:
    """Memory that a device takes by an importer. calls: what is called for it; by: the name of the importer."""

    by: str
    kind: str
    make: Make
    calls: Calls
    extensions: tuple[str, ...] = ()
    answers: Answers = field(default_factory=dict)
    cpu: bool = False


@contextlib.contextmanager
def memfd(device: Device, nbytes: int, offset: int = 0) -> Iterator[Memory]:
    """Import a part of three pages of a memory file."""
    with MemHandle.allocate(3 * PAGE) as room, device.import_(room.fileno(), nbytes, offset) as memory:
        yield memory


@contextlib.contextmanager
def pages(device: Device, nbytes: int) -> Iterator[Memory]:
    """Wrap an array that begins at a page."""
    room = np.zeros(nbytes + 2 * PAGE, np.uint8)
    begin = -room.ctypes.data % PAGE
    with device.wrap(room[begin : begin + nbytes]) as memory:
        yield memory


def allocated(device: Device) -> Memory:
    return device.allocate(4096)


def buffer(device: Device) -> Memory:
    return device.import_hardware_buffer(BUFFER, 4096)


def mapped(memory: Memory, number: int, nbytes: int) -> list[list[Any]]:
    return [["clEnqueueMapBuffer", number, nbytes, MAP]]


def created(memory: Memory, flags: int, nbytes: int, told: Any) -> list[Any]:
    return ["clCreateBuffer", READ_WRITE | flags, nbytes, told]


def by_qualcomm(kind: int, policy: int) -> Calls:
    return lambda memory: [
        created(memory, USE_HOST_PTR | EXT_HOST_PTR, IN_QUALCOMM, [kind, policy, memory.descriptor, memory.address]),
        *mapped(memory, 1, IN_QUALCOMM),
    ]


CASES: Mapping[str, Case] = {
    "a dma-buf by Khronos": Case(
        KHR[1],
        "synchronised",
        dma_buf,
        lambda memory: [
            ["clCreateBufferWithProperties", [0x2067, memory.descriptor, 0], READ_WRITE, DMA_BUF_BYTES],
            ["clFinish"],
        ],
        KHR,
        TAKES_DMA_BUF,
    ),
    "a part of a dma-buf by Khronos": Case(
        KHR[1],
        "synchronised",
        lambda device: dma_buf(device, 1000, 256),
        lambda memory: [
            ["clCreateBufferWithProperties", [0x2067, memory.descriptor, 0], READ_WRITE, 1256],
            ["clCreateSubBuffer", 1, READ_WRITE, 256, 1000],
            ["clReleaseMemObject", 1],
            ["clFinish"],
        ],
        KHR,
        TAKES_DMA_BUF,
    ),
    "a dma-buf by Arm": Case(
        "cl_arm_import_memory_dma_buf",
        "synchronised",
        dma_buf,
        lambda memory: [
            ["clImportMemoryARM", READ_WRITE, [0x40B2, 0x40B4, 0x41E3, 1, 0], memory.descriptor, DMA_BUF_BYTES],
            ["clFinish"],
        ],
        (ARM, "cl_arm_import_memory_dma_buf"),
    ),
    "memory of the process by Arm": Case(
        "cl_arm_import_memory_host",
        "shared",
        lambda device: memfd(device, 1000),
        lambda memory: [["clImportMemoryARM", READ_WRITE, [0x40B2, 0x40B3, 0], memory.address, 1000]],
        (ARM, "cl_arm_import_memory_host"),
    ),
    "a hardware buffer by Arm": Case(
        "cl_arm_import_memory_android_hardware_buffer",
        "shared",
        buffer,
        lambda memory: [["clImportMemoryARM", READ_WRITE, [0x40B2, 0x41E2, 0], BUFFER, 4096]],
        (ARM, "cl_arm_import_memory_android_hardware_buffer"),
    ),
    **{
        f"a dma-buf by Qualcomm's {extension}{', coherent' if coherent else ''}": Case(
            extension,
            "mapped",
            lambda device: dma_buf(device, IN_QUALCOMM),
            by_qualcomm(kind, 0x40A9 if coherent else 0x40A5),
            (QUALCOMM, extension, *coherent),
            QUALCOMM_ASKS,
        )
        for extension, kind in (("cl_qcom_dmabuf_host_ptr", 0x411D), ("cl_qcom_ion_host_ptr", 0x40A8))
        for coherent in ((), ("cl_qcom_ext_host_ptr_iocoherent",))
    },
    "a hardware buffer by Qualcomm": Case(
        "cl_qcom_android_ahardwarebuffer_host_ptr",
        "shared",
        buffer,
        lambda memory: [created(memory, USE_HOST_PTR | EXT_HOST_PTR, 4096, [0x4119, 0x40A5, BUFFER])],
        (QUALCOMM, "cl_qcom_android_ahardwarebuffer_host_ptr"),
    ),
    "unified shared memory of Intel": Case(
        "cl_intel_unified_shared_memory",
        "mapped",
        allocated,
        lambda memory: [
            ["clHostMemAllocINTEL", 0, 4096, 0],
            created(memory, USE_HOST_PTR, 4096, memory.address),
            *mapped(memory, 1, 4096),
        ],
        ("cl_intel_unified_shared_memory",),
        {0x4190: 1},
    ),
    "fine-grain buffers": Case(
        "fine-grain SVM buffer",
        "shared",
        allocated,
        lambda memory: [
            ["clSVMAlloc", READ_WRITE | SVM, 4096, 0],
            created(memory, USE_HOST_PTR, 4096, memory.address),
        ],
        answers={0x1053: 3},
    ),
    "the address space of the host": Case(
        "fine-grain SVM system",
        "shared",
        lambda device: memfd(device, 100),
        lambda memory: [created(memory, USE_HOST_PTR, 100, memory.address)],
        answers={0x1053: 7},
    ),
    "a host pointer on a CPU": Case(
        "CL_MEM_USE_HOST_PTR",
        "mapped",
        lambda device: memfd(device, 1000, PAGE + 256),
        lambda memory: [created(memory, USE_HOST_PTR, 1000, memory.address), *mapped(memory, 1, 1000)],
        cpu=True,
    ),
    "whole pages on a GPU": Case(
        "CL_MEM_USE_HOST_PTR",
        "mapped",
        lambda device: memfd(device, 1000, PAGE + 256),
        lambda memory: [
            created(memory, USE_HOST_PTR, PAGE, memory.address - 256),
            ["clCreateSubBuffer", 1, READ_WRITE, 256, 1000],
            ["clReleaseMemObject", 1],
            *mapped(memory, 2, 1000),
        ],
        answers=UNIFIED,
    ),
    "an array of whole pages on a GPU": Case(
        "CL_MEM_USE_HOST_PTR",
        "mapped",
        lambda device: pages(device, PAGE + 128),
        lambda memory: [created(memory, USE_HOST_PTR, PAGE + 128, memory.address), *mapped(memory, 1, PAGE + 128)],
        answers=UNIFIED | {0x101D: 128},
    ),
    "the best memory is a memfd if the device takes it": Case(
        "CL_MEM_USE_HOST_PTR",
        "mapped",
        allocated,
        lambda memory: [created(memory, USE_HOST_PTR, 4096, memory.address), *mapped(memory, 1, 4096)],
        answers=UNIFIED,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_memory_is_taken_by_these_calls(fake: Importing, case: Case) -> None:
    with fake.device(*case.extensions, answers=case.answers, cpu=case.cpu) as device, case.make(device) as memory:
        assert (memory.importer, memory.kind, fake.told()) == (case.by, case.kind, case.calls(memory))
        assert memory.cl_mem


@pytest.mark.parametrize(
    ("version", "answers", "taken"),
    [
        ("OpenCL 3.0 fake", TAKES_DMA_BUF, True),
        ("OpenCL 2.0 fake", TAKES_DMA_BUF, False),
        ("OpenCL 3.0 fake", {}, False),
    ],
)
def test_a_listed_importer_is_one_that_takes_memory(
    fake: Importing, version: str, answers: Answers, taken: bool
) -> None:
    with fake.device(*KHR, answers=answers, version=version) as device:
        assert (dict(device.importers())[KHR[1]] == "") == taken
        with dma_buf(device) as memory:
            assert (memory.importer == KHR[1]) == taken


# --- memory that is allocated to be mapped ---


@contextlib.contextmanager
def copying(fake: Importing, *extensions: str, answers: Answers | None = None, moves: int = 0) -> Iterator[Device]:
    """Open a device without memory of its own whose driver copies what it has not allocated, which is known already."""
    with fake.device(*extensions, answers=UNIFIED | dict(answers or {})) as device:
        fake.opencl.fake_move(4096, 0)
        with memfd(device, PAGE) as memory:
            assert "CL_MEM_USE_HOST_PTR: the driver copies: what it maps lies elsewhere" in memory.kind
        fake.opencl.fake_move(4096, moves)
        fake.told()
        yield device


def test_memory_that_is_allocated_to_be_mapped_if_nothing_else_is_taken(fake: Importing) -> None:
    with copying(fake) as device, device.allocate(4096) as memory:
        assert (memory.importer, memory.kind, memory.descriptor) == ("CL_MEM_ALLOC_HOST_PTR", "mapped", -1)
        number = fake.told()
        assert [call[0] for call in number] == [
            "clCreateBuffer",
            *(2 * ["clEnqueueMapBuffer", "clEnqueueUnmapMemObject"]),
            "clRetainMemObject",
            "clEnqueueMapBuffer",
        ]
        assert number[0][1:] == [READ_WRITE | ALLOC_HOST_PTR, 4096, 0]
        with device.allocate(4096) as another:
            assert another.kind == "mapped"
    assert fake.names().count("clReleaseMemObject") == 4, "each time the import's and its own"


def test_memory_that_moves_from_map_to_map_is_not_used(fake: Importing) -> None:
    with copying(fake, moves=4096) as device, device.allocate(4096) as memory:
        assert memory.descriptor >= 0 and memory.importer == ""  # copied, but it can be given to others
        memory.array("uint8", (4096,))[...] = 1


def test_memory_that_is_mapped_is_not_allocated_on_a_device_with_memory_of_its_own(fake: Importing) -> None:
    """There it is a copy, and mapping it overwrites what the host has written into it before."""
    with fake.device() as device, device.allocate(4096) as memory:
        assert memory.descriptor >= 0 and fake.told() == []
        assert "CL_MEM_USE_HOST_PTR, CL_MEM_ALLOC_HOST_PTR: the device has memory of its own" in memory.kind


@pytest.mark.parametrize(
    ("call", "answers", "extensions"),
    [
        ("clSVMAlloc", {0x1053: 3}, ()),
        ("clHostMemAllocINTEL", {0x4190: 1}, ("cl_intel_unified_shared_memory",)),
        ("clCreateBuffer", {}, ()),
        ("clEnqueueMapBuffer", {}, ()),
    ],
)
def test_memory_that_cannot_be_allocated_is_looked_for_elsewhere(
    fake: Importing, call: str, answers: Answers, extensions: tuple[str, ...]
) -> None:
    with copying(fake, *extensions, answers=answers) as device:
        fake.fail({call: -6})
        with device.allocate(4096) as memory:
            assert memory.kind == "mapped" or call in ("clCreateBuffer", "clEnqueueMapBuffer")
            assert (memory.descriptor >= 0) == (memory.kind != "mapped")
        fake.fail({})


# --- an application's own cl_mem ---


@pytest.fixture
def own(fake: Importing) -> Iterator[tuple[tuple[int, int], int]]:
    """Make a context of the application with its device, and a cl_mem of 64 bytes there."""
    given = fake.made_context()
    memory = fake.made_buffer(given[0], 64)
    yield given, memory
    fake.opencl.clReleaseMemObject(ctypes.c_void_p(memory))
    fake.opencl.clReleaseContext(ctypes.c_void_p(given[0]))


def test_an_own_cl_mem_is_shared(fake: Importing, own: tuple[tuple[int, int], int]) -> None:
    given, pointer = own
    with fake.device(given=given) as device, device.import_cl_mem(pointer, 64) as memory:
        assert (memory.importer, memory.cl_mem, memory.address) == ("cl_mem", pointer, 0)
        assert fake.names() == ["clRetainMemObject"]


@pytest.mark.parametrize(
    ("answers", "nbytes", "reason"),
    [
        ({0x1100: 0x10F1}, 64, "the cl_mem is an image or a pipe, no buffer"),
        ({0x1106: 7}, 64, "the cl_mem belongs to another context"),
        ({}, 65, "the cl_mem has 64 bytes, the handle 65"),
    ],
)
def test_a_cl_mem_that_does_not_fit_is_refused(
    fake: Importing, own: tuple[tuple[int, int], int], answers: Answers, nbytes: int, reason: str
) -> None:
    given, pointer = own
    with fake.device(given=given, answers=answers) as device:
        with pytest.raises(Exception, match=f"cl_mem: {reason}") as refused:
            device.import_cl_mem(pointer, nbytes)
        assert type(refused.value).__name__ == "CannotImport"
        assert str(refused.value).startswith(f"Fake GPU cannot use cl_mem memory of {nbytes} bytes without a copy (")
        assert fake.told() == []
