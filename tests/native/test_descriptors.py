"""Test which memory C imports by a descriptor: from an offset on; what it refuses, and which ranges meet."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import UnusableMemory
from gputune.runtime.memory.handles import PAGE, MemHandle
from gputune.runtime.native.binding import Device, File, Native
from tests.native.fake import ELEMENTS, NBYTES, STAGES, Fake, doubling_context

pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")
ONES = np.ones(ELEMENTS, np.float32)


@pytest.fixture(scope="module")
def fake(native: Native) -> Iterator[Fake]:
    made = Fake()
    made.is_cpu(True)  # which uses what lies at multiples of its alignment in place
    yield made
    made.is_cpu(False)
    assert made.alive == 0


@pytest.fixture
def opened(native: Native, fake: Fake, tmp_path: Path) -> Iterator[tuple[File, Device]]:
    with (
        native.open(doubling_context(tmp_path / "a.bin")) as file,
        native.device(file, opencl=str(fake.path)) as device,
    ):
        yield file, device


@pytest.mark.parametrize(
    ("offset", "kind"), [(0, "mapped"), (128, "mapped"), (PAGE + 256, "mapped"), (PAGE + 4, "its address is no")]
)
def test_a_range_is_used_and_nothing_beside_it(opened: tuple[File, Device], offset: int, kind: str) -> None:
    file, device = opened
    with MemHandle.allocate(3 * PAGE) as room, device.load(file) as graph:
        whole = room.view("uint8", (3 * PAGE,))
        with device.import_(room.fileno(), NBYTES, offset) as y:
            assert kind in y.kind
            graph.run({"x": ONES}, {"y": y})
        assert set(whole[offset : offset + NBYTES].view(np.float32)) == {2.0**STAGES}
        assert not whole[:offset].any() and not whole[offset + NBYTES :].any()


@pytest.mark.parametrize(
    ("offset", "nbytes", "message"),
    [
        (1, 2 * PAGE, f"bytes 1 to {2 * PAGE + 1} are asked for, the descriptor's memory has {2 * PAGE}"),
        (2 * PAGE, 1, f"bytes {2 * PAGE} to {2 * PAGE + 1} are asked for"),
        (2**64 - 1, 2, "are asked for"),
        (0, 0, "memory of 0 bytes, at least 1 is needed"),
    ],
)
def test_ranges_outside_of_the_memory_are_refused(
    opened: tuple[File, Device], offset: int, nbytes: int, message: str
) -> None:
    with MemHandle.allocate(2 * PAGE) as room, pytest.raises(UnusableMemory, match=message):
        opened[1].import_(room.fileno(), nbytes, offset)


def unsealed(folder: Path) -> int:
    fd = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, PAGE)
    return fd


def regular(folder: Path) -> int:
    (folder / "data").write_bytes(bytes(PAGE))
    return os.open(folder / "data", os.O_RDWR)


def pipe(folder: Path) -> int:
    read, write = os.pipe()
    os.close(write)
    return read


def never(folder: Path) -> int:
    fd = os.memfd_create("never")
    os.ftruncate(fd, PAGE)
    return fd


REFUSED: list[tuple[Callable[[Path], int], str]] = [
    (unsealed, "the descriptor's memory is not sealed against shrinking: "),
    (never, "the descriptor's memory is not sealed against shrinking and can never be: "),
    (regular, "the descriptor is a regular file (/"),
    (lambda folder: os.open(folder, os.O_RDONLY), "the descriptor is a folder (/"),
    (lambda folder: socket.socket().detach(), "the descriptor is a socket; a sealed memfd or a dma-buf is needed"),
    (lambda folder: os.open("/dev/null", os.O_RDWR), "the descriptor is a character device (/dev/null); "),
    (pipe, "the descriptor is a pipe; a sealed memfd"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_other_descriptors_are_refused_with_the_words_of_python(
    opened: tuple[File, Device], tmp_path: Path, make: Callable[[Path], int], message: str
) -> None:
    fd = make(tmp_path)
    with pytest.raises(UnusableMemory) as python:
        MemHandle.from_fd(fd, 0, PAGE)
    with pytest.raises(UnusableMemory) as native:
        opened[1].import_(fd, PAGE)
    os.close(fd)
    for told in (str(python.value), str(native.value)):
        assert told.startswith(message)


@pytest.mark.parametrize("fd", [-1, 1 << 20])
def test_what_is_no_descriptor_is_refused(opened: tuple[File, Device], fd: int) -> None:
    with pytest.raises(UnusableMemory) as python:
        MemHandle.from_fd(fd, 0, PAGE)
    with pytest.raises(UnusableMemory) as native:
        opened[1].import_(fd, PAGE)
    assert str(native.value) == str(python.value)


@pytest.mark.parametrize(("first", "second", "apart"), [(0, NBYTES, True), (0, NBYTES - 128, False), (128, 0, False)])
def test_ranges_of_one_descriptor_may_be_input_and_output_if_they_are_apart(
    opened: tuple[File, Device], first: int, second: int, apart: bool
) -> None:
    file, device = opened
    with (
        MemHandle.allocate(4 * NBYTES) as room,
        device.load(file) as graph,
        device.import_(room.fileno(), NBYTES, first) as x,
        device.import_(room.fileno(), NBYTES, second) as y,
    ):
        if not apart:
            with pytest.raises(ValueError, match="would share memory"):
                graph.run({"x": x}, {"y": y})
            return
        x.array("float32", ONES.shape)[...] = ONES
        graph.run({"x": x}, {"y": y})
        assert set(y.array("float32", ONES.shape)) == {2.0**STAGES}
