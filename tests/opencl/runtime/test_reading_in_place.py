"""Test inputs that kernels read in the application's memory: what is copied, what is found, and what is not read."""

import ctypes
import gc
import mmap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context
from gputune.runtime.executor import Executor
from gputune.runtime.loading.executors import executor_on
from tests.client import models
from tests.opencl.contexts import loaded
from tests.opencl.known import reads_in_place
from tests.opencl.runtime import made

Array = npt.NDArray[Any]
LEAST_LENT, MOST_LENT = 1 << 16, 8
ELEMENTS, NBYTES = LEAST_LENT // 4, LEAST_LENT
PROTECTED, READ_ONLY = 0, 1


@pytest.fixture
def executor(backend: Backend, tmp_path: Path) -> Iterator[Executor]:
    """Of an input of just so many bytes that it is read in place."""
    executor = loaded(backend, made.write(tmp_path / "large.bin", backend, ELEMENTS, NBYTES))
    yield executor
    executor.close()


def numbers(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(ELEMENTS).astype(np.float32)


def copied(executor: Executor) -> tuple[int, int]:
    counted = executor.counters.last["x"]
    return counted.bytes_copied, counted.writes


def test_a_large_input_is_not_copied_and_what_is_written_to_it_is_found(executor: Executor) -> None:
    in_place = reads_in_place(executor.device)
    x = numbers(1)
    for seed in range(3):
        x[...] = numbers(seed)
        np.testing.assert_array_equal(executor.run({"x": x})["y"], made.expected(numbers(seed)))
        assert copied(executor) == ((0, 0) if in_place else (NBYTES, 1))


def test_arrays_come_and_go(executor: Executor) -> None:
    gc.freeze()  # what is there by now is not looked at below
    for seed in range(3 * MOST_LENT):
        x = numbers(seed)
        np.testing.assert_array_equal(executor.run({"x": x})["y"], made.expected(x))
        del x
        gc.collect()
    kept = [numbers(seed) for seed in range(2 * MOST_LENT)]
    for _ in range(2):
        for x in kept:
            np.testing.assert_array_equal(executor.run({"x": x})["y"], made.expected(x))


def test_an_array_is_not_kept(executor: Executor) -> None:
    pages = mmap.mmap(-1, NBYTES)
    x = np.frombuffer(pages, np.float32)
    x[...] = numbers(5)
    np.testing.assert_array_equal(executor.run({"x": x})["y"], made.expected(numbers(5)))
    del x
    pages.close()  # refuses while anything has its memory
    executor.run({"x": numbers(6)})


def test_other_memory_goes_before_and_behind(executor: Executor) -> None:
    x, y = numbers(7), numbers(8)
    with executor.allocate_for(executor.graph.inputs[0]) as handle:
        handle.view("float32", (ELEMENTS,))[...] = y
        for _ in range(2):
            np.testing.assert_array_equal(executor.run({"x": x})["y"], made.expected(x))
            np.testing.assert_array_equal(executor.run({"x": handle})["y"], made.expected(y))
        executor.run({"x": x})
        executor.release(handle)
    if "x" in executor.shared_inputs:
        executor.shared_inputs["x"][...] = y
        executor.run_in_place()
        np.testing.assert_array_equal(executor.shared_outputs["y"], made.expected(y))


@pytest.mark.parametrize("kind", ["unaligned", "aligned to its elements", "strided", "read only"])
def test_what_cannot_be_read_in_place_is_copied_and_what_can_is_not_written(executor: Executor, kind: str) -> None:
    x = numbers(9)
    given: Any = x
    if kind == "unaligned":
        given = np.frombuffer(b"?" + x.tobytes(), np.float32, offset=1)
    elif kind == "strided":
        given = np.repeat(x, 2)[::2]
    elif kind == "read only":
        given = np.frombuffer(x.tobytes(), np.float32)
    else:
        given = np.append(x[:1], x)[1:]
    before = np.array(given)
    np.testing.assert_array_equal(executor.run({"x": given})["y"], made.expected(x))
    np.testing.assert_array_equal(given, before)
    assert copied(executor)[1] == (kind == "unaligned" or not reads_in_place(executor.device))


def test_an_input_that_lies_in_an_output_is_read_before_that_is_written(executor: Executor) -> None:
    x = numbers(10)
    shared = executor.shared_outputs.get("y")
    if shared is not None:
        shared[...] = x
        np.testing.assert_array_equal(executor.run({"x": shared})["y"], made.expected(x))
    with executor.allocate_for(executor.graph.outputs[0]) as handle:
        executor.run({"x": x}, {"y": handle})
        view = handle.view("float32", (ELEMENTS,))
        given = view.copy()
        executor.run({"x": view}, {"y": handle})
        np.testing.assert_array_equal(view, made.expected(given))
        executor.release(handle)


@pytest.mark.parametrize(("op_packages", "device_type"), [(["ours 1.0"], "cpu"), ([], "gpu"), ([], "accelerator")])
def test_kernels_with_pointers_to_vectors_get_addresses_that_the_device_asks_for(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op_packages: list[str], device_type: str
) -> None:
    monkeypatch.setattr(made, "CONFIGURATION", {"op_packages": op_packages})
    made_for = replace(backend.identity, device_type=device_type)
    with open_context(made.write(tmp_path / "pointers.bin", backend, ELEMENTS, NBYTES, device=made_for)) as file:
        executor = executor_on(backend, file, None, strict=False)
    alignment = backend.identity.base_address_alignment_bytes
    room = np.zeros(NBYTES + 2 * alignment, np.uint8)
    start = -room.ctypes.data % alignment
    for offset in (start, start + 4):
        x = room[offset : offset + NBYTES].view(np.float32)
        x[...] = numbers(11)
        np.testing.assert_array_equal(executor.run({"x": x})["y"], made.expected(x))
        in_place = reads_in_place(backend.identity) and offset == start
        assert copied(executor) == ((0, 0) if in_place else (NBYTES, 1))
    executor.close()


def test_a_stage_that_returns_nothing_has_read_its_input(backend: Backend, tmp_path: Path) -> None:
    first, second = (
        loaded(backend, made.write(tmp_path / f"{name}.bin", backend, ELEMENTS, NBYTES)) for name in ("a", "b")
    )
    first.join_output("y", second, "x")
    x = np.zeros(2 * ELEMENTS, np.float32)
    for seed in range(20):
        x[::2] = numbers(seed)
        first.run({"x": x[::2]})  # made contiguous, which is gone when this returns
        np.testing.assert_array_equal(second.run()["y"], made.expected(made.expected(numbers(seed))))
    first.close()
    second.close()


def test_a_smaller_input_is_copied(backend: Backend, tmp_path: Path) -> None:
    executor = loaded(backend, made.write(tmp_path / "small.bin", backend, ELEMENTS // 2, NBYTES // 2))
    executor.run({"x": numbers(0)[: ELEMENTS // 2]})
    assert copied(executor) == (NBYTES // 2, 1)
    executor.close()


class Fenced:
    """An array between two pages that end a process which touches them; it begins or ends at such a page, and can only
    be read."""

    def __init__(self, content: Array, at_end: bool) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        page = mmap.PAGESIZE
        room = -(-content.nbytes // page) * page
        self._pages = mmap.mmap(-1, room + 2 * page)
        begin = page + (room - content.nbytes if at_end else 0)
        self.array = np.frombuffer(self._pages, content.dtype, content.size, begin).reshape(content.shape)
        self.array[...] = content
        base = self.array.__array_interface__["data"][0] - begin
        for offset, nbytes, access in ((0, page, PROTECTED), (page, room, READ_ONLY), (page + room, page, PROTECTED)):
            assert not libc.mprotect(base + offset, nbytes, access)


MODELS: list[Callable[[], onnx.ModelProto]] = [
    models.conv_relu_gemm,
    models.squeeze_excite,
    models.pooling,
    models.gemms,
    models.elementwise_chain,
    models.scaled_convolution,
]
