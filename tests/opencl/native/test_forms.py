"""Test in which form inferences in C run, and that what runs in place copies nothing in any of them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.core.quirks import groups_at_once
from gputune.runtime.backends import Backend
from gputune.runtime.native.binding import Graph, Native
from tests.client import models
from tests.client.model.test_alternatives import two_blocks
from tests.opencl.contexts import contexts, inputs_of, loaded

BEGUN = ("persistent", "aborted")
"""Forms of an inference that persistent kernels begin; a busy machine ends some of them by launches."""


@pytest.fixture
def path(backend: Backend, tmp_path: Path) -> Path:
    """A context with persistent kernels, where the driver can run them."""
    return contexts(backend, lower(read_model(models.save(two_blocks(), tmp_path))), tmp_path / "blocks.bin")


@pytest.fixture
def graph(native: Native, backend: Backend, path: Path) -> Iterator[Graph]:
    with (
        native.open(path) as file,
        native.device(file, backend.identity.name) as device,
        device.load(file) as graph,
    ):
        yield graph


def test_each_inference_runs_in_the_form_that_is_wanted(backend: Backend, path: Path, graph: Graph) -> None:
    with loaded(backend, path) as executor:
        assert graph.has_persistent == executor.has_persistent == bool(groups_at_once(backend.identity))
        assert graph.last_form == executor.last_form == "launches"
        inputs, bits = inputs_of(executor, 1), set()
        for one_by_one in (True, False, True):
            graph.set_one_by_one(one_by_one)
            before = graph.counters()[0]
            bits.add(b"".join(each.tobytes() for each in graph.run(inputs).values()))
            total, last = graph.counters()
            by_launches = one_by_one or not graph.has_persistent
            assert (graph.last_form in BEGUN) != by_launches
            assert last[graph.last_form] == total[graph.last_form] - before[graph.last_form] == 1
            assert last["attempts"] == 0
        assert bits == {b"".join(each.tobytes() for each in executor.run(inputs).values())}


def test_what_is_loaded_without_persistent_kernels_has_none(native: Native, backend: Backend, path: Path) -> None:
    with (
        native.open(path) as file,
        native.device(file, backend.identity.name) as device,
        device.load(file, one_by_one=True) as graph,
        loaded(backend, path) as executor,
    ):
        graph.set_one_by_one(False)
        graph.run(inputs_of(executor, 1))
        assert (graph.has_persistent, graph.last_form) == (False, "launches")


@pytest.mark.parametrize("one_by_one", [False, True])
def test_what_runs_in_place_copies_nothing(native: Native, backend: Backend, path: Path, one_by_one: bool) -> None:
    with (
        native.open(path) as file,
        native.device(file, backend.identity.name) as device,
        device.load(file) as graph,
        loaded(backend, path) as executor,
    ):
        graph.set_one_by_one(one_by_one)
        tensors = graph.info.inputs, graph.info.outputs
        given, taken = ({one.name: device.allocate(one.nbytes) for one in each} for each in tensors)
        memory = given | taken
        seen = {one.name: memory[one.name].array(one.dtype, one.shape) for each in tensors for one in each}
        for seed in range(4):
            inputs = inputs_of(executor, seed)
            for name, array in inputs.items():
                seen[name][...] = array
            graph.run(given, taken)
            for name, array in executor.run(inputs).items():
                np.testing.assert_array_equal(seen[name], array)
            last = graph.counters()[1]
            assert [last[name] for name in ("bytes_copied", "writes", "reads", "allocations")] == 4 * [0]
        for each in memory.values():
            each.close()
