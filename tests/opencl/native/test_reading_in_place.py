"""Test that C reads in place the same arrays by both ways to call it, with equal counts and bits."""

import gc
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.runtime.backends import Backend
from gputune.runtime.counters import TensorCounters
from gputune.runtime.executor import Executor
from gputune.runtime.native.binding import Device, Graph, Native
from gputune.runtime.native.counting import tensor_counters
from gputune.runtime.native.memory import Array
from tests.client import models
from tests.native.compiling import OPTIMISED, SOURCES, compiled, sanitizers
from tests.opencl.contexts import contexts, inputs_of, loaded
from tests.opencl.known import reads_in_place
from tests.opencl.runtime import made
from tests.opencl.runtime.test_reading_in_place import Fenced

LEAST_LENT, MOST_LENT = 1 << 16, 8
ELEMENTS, NBYTES = LEAST_LENT // 4, LEAST_LENT
ALIGNED, ODD = 0, 4
"""How far from a multiple of the device's alignment an array begins."""


@pytest.fixture
def device(native: Native, backend: Backend) -> Iterator[Device]:
    with native.device(name=backend.identity.name) as device:
        yield device


def both(backend: Backend, native: Native, device: Device, path: Path) -> tuple[Executor, Graph]:
    with native.open(path) as file:
        return loaded(backend, path), device.load(file)


def array(seed: int, elements: int = ELEMENTS, offset: int = ALIGNED) -> Array:
    """Return numbers in memory of their own."""
    room = np.zeros(4 * elements + 8192, np.uint8)
    begin = -room.ctypes.data % 4096 + offset
    found: Array = room[begin : begin + 4 * elements].view(np.float32)
    found[...] = np.random.default_rng(seed).standard_normal(elements)
    return found


def copied(graph: Graph) -> TensorCounters:
    """Return what the last inference did for the first input."""
    return TensorCounters(**tensor_counters(graph.native.call, graph.pointer, False, 0)[2])


@pytest.mark.parametrize("op_packages", [[], ["ours 1.0"]])
@pytest.mark.parametrize("offset", [ALIGNED, ODD])
@pytest.mark.parametrize("elements", [ELEMENTS, ELEMENTS // 2, 3 * ELEMENTS])
def test_the_same_arrays_are_read_in_place_as_in_python(
    backend: Backend,
    native: Native,
    device: Device,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    op_packages: list[str],
    offset: int,
    elements: int,
) -> None:
    monkeypatch.setattr(made, "CONFIGURATION", {"op_packages": op_packages})
    executor, graph = both(backend, native, device, made.write(tmp_path / "a.bin", backend, elements, 4 * elements))
    for seed in range(3):
        x = array(seed, elements, offset)
        for _ in range(2):
            want = executor.run({"x": x})["y"]
            assert graph.run({"x": x})["y"].tobytes() == want.tobytes()
            assert copied(graph) == executor.counters.last["x"]
            x += 1  # which is found without a word to the driver
    if elements >= ELEMENTS and not (op_packages and offset):
        assert copied(graph).writes == (not reads_in_place(backend.identity))
    graph.close()
    executor.close()


def test_arrays_come_and_go(backend: Backend, native: Native, device: Device, tmp_path: Path) -> None:
    executor, graph = both(backend, native, device, made.write(tmp_path / "a.bin", backend, ELEMENTS, NBYTES))
    executor.close()
    for seed in range(3 * MOST_LENT):
        pages = mmap.mmap(-1, NBYTES)
        x = np.frombuffer(pages, np.float32)
        x[...] = array(seed)
        np.testing.assert_array_equal(graph.run({"x": x})["y"], made.expected(array(seed)))
        del x
        gc.collect()
        pages.close()  # refuses while anything has its memory; what launches read is gone now
    with device.allocate(NBYTES) as memory, device.allocate(NBYTES) as y:
        memory.array("float32", (ELEMENTS,))[...] = array(1)
        for _ in range(2):
            graph.run({"x": memory}, {"y": y})
            np.testing.assert_array_equal(y.array("float32", (ELEMENTS,)), made.expected(array(1)))
            np.testing.assert_array_equal(graph.run({"x": array(2)})["y"], made.expected(array(2)))
            graph.run({"x": array(3)}, {"y": y})
            np.testing.assert_array_equal(y.array("float32", (ELEMENTS,)), made.expected(array(3)))
            assert copied(graph).writes == 1, "memory that is written may be the array's"
    graph.close()


MODELS: list[Callable[[], onnx.ModelProto]] = [models.conv_relu_gemm, models.squeeze_excite, models.gemms]


@pytest.mark.parametrize("model", [MODELS[0], *(pytest.param(one, marks=pytest.mark.night) for one in MODELS[1:])])
def test_kernels_of_both_forms_read_an_input_and_nothing_beside_it(
    backend: Backend, tmp_path: Path, model: Callable[[], onnx.ModelProto]
) -> None:
    if not reads_in_place(backend.identity):
        pytest.skip("this driver does not read inputs in place")
    lends = Native(compiled("libgputune_small.so", SOURCES, (*OPTIMISED, "-shared", "-DLEAST_LENT=1", *sanitizers())))
    path = contexts(backend, lower(read_model(models.save(model(), tmp_path))), tmp_path / "model.bin")
    executor = loaded(backend, path)
    inputs = inputs_of(executor, 3)
    with lends.open(path) as file, lends.device(file, backend.identity.name) as device:
        for one_by_one in (False, True):
            executor.persistent_kernels = not one_by_one
            want = executor.run(inputs)
            with device.load(file, one_by_one=one_by_one) as graph:
                for at_end in (False, True, False):
                    fenced = {name: Fenced(value, at_end) for name, value in inputs.items()}
                    found = graph.run({name: one.array for name, one in fenced.items()})
                    assert {name: one.tobytes() for name, one in found.items()} == {
                        name: one.tobytes() for name, one in want.items()
                    }
                    assert graph.counters()[1]["writes"] == 0
    executor.close()
