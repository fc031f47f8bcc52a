"""Count what preparation and execution allocate, copy and map on a real device, number by number."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from gputune.runtime.backends import Backend
from gputune.runtime.context.records import MemoryType, TensorRecord
from gputune.runtime.counters import TensorCounters
from gputune.runtime.memory.handles import MemHandle
from tests.opencl.contexts import loaded
from tests.opencl.runtime import made

ELEMENTS, NBYTES = 1024, 4096
X = np.arange(ELEMENTS, dtype=np.float32)


def numbers(counted: TensorCounters) -> tuple[int, int, int, int, int]:
    """Bytes copied, writes, reads, maps and allocations."""
    return counted.bytes_copied, counted.writes, counted.reads, counted.maps, counted.allocations


def wrapped(tensor: TensorRecord) -> MemHandle:
    """An array that is aligned for any device."""
    room = np.zeros(tensor.nbytes + 4096, np.uint8)
    return MemHandle.from_array(room[-room.ctypes.data % 4096 :][: tensor.nbytes])


@pytest.fixture(scope="module")
def paths(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> dict[MemoryType, Path]:
    """A context for each way to prepare it."""
    folder = tmp_path_factory.mktemp("copies")
    kinds: tuple[MemoryType, ...] = ("raw", "memhandle")
    return {kind: made.write(folder / f"{kind}.bin", backend, ELEMENTS, NBYTES, kind) for kind in kinds}


@pytest.mark.parametrize("prepared", ["raw", "memhandle"])
@pytest.mark.parametrize("given", ["arrays", "memfd", "own", "wrapped"])
def test_each_combination_costs_what_the_table_says(
    backend: Backend, paths: dict[MemoryType, Path], prepared: MemoryType, given: str
) -> None:
    executor = loaded(backend, paths[prepared])
    at_load = 1 if prepared == "raw" else 0
    assert [numbers(executor.counters.load[name]) for name in "xy"] == [(0, 0, 0, 0, at_load)] * 2
    handles: list[MemHandle] = []
    if given != "arrays":
        own = executor.graph.inputs[0], executor.graph.outputs[0]
        made_by = {
            "memfd": lambda one: MemHandle.allocate(one.nbytes),
            "own": executor.allocate_for,
            "wrapped": wrapped,
        }
        handles = [made_by[given](one) for one in own]
        maps = 0 if all(one.kind == "svm" or executor.backend.import_memory(one).coherent for one in handles) else 1
        handles[0].view("float32", (ELEMENTS,))[...] = X
    for number in range(3):
        late = 1 - at_load if number == 0 else 0
        if handles:
            y = executor.run({"x": handles[0]}, {"y": handles[1]})["y"]
            assert y.ctypes.data == handles[1].address
            want = [(0, 0, 0, maps, 0)] * 2
        else:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                y = executor.run({"x": X})["y"]
            assert len(told) == 2 * late
            want = [(NBYTES, 1, 0, 0, late), (NBYTES, 0, 1, 0, late)]
        np.testing.assert_array_equal(y, made.expected(X))
        assert [numbers(executor.counters.last[name]) for name in "xy"] == want
    executor.close()
    for handle in handles:
        handle.close()
