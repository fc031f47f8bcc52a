"""Test groups of the C runtime on a real device: results equal Python's in private arenas, whichever ran before."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.core.quirks import groups_at_once
from gputune.runtime.backends import Backend
from gputune.runtime.native.binding import Device, File, Graph, Native
from tests.client import models
from tests.client.model.test_alternatives import two_blocks
from tests.opencl.contexts import contexts, inputs_of, loaded

SEEDS = 3


@dataclass(frozen=True)
class Wanted:
    """An open context, and by seed what Python takes and gives."""

    file: File
    arenas: Sequence[int]
    inputs: Sequence[dict[str, np.ndarray]]
    outputs: Sequence[dict[str, np.ndarray]]

    def check(self, graph: Graph, seed: int) -> None:
        for name, array in graph.run(self.inputs[seed % SEEDS]).items():
            np.testing.assert_array_equal(array, self.outputs[seed % SEEDS][name])


@pytest.fixture(scope="module")
def wanted(native: Native, backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Wanted]]:
    """Contexts of different arenas; one has persistent kernels where the driver can run them."""
    folder = tmp_path_factory.mktemp("group")
    found = []
    with contextlib.ExitStack() as files:
        for model in (two_blocks, models.conv_relu_gemm, models.residual_block):
            (folder / model.__name__).mkdir()
            plan = lower(read_model(models.save(model(), folder / model.__name__)))
            path = contexts(backend, plan, folder / f"{model.__name__}.bin")
            file = files.enter_context(native.open(path))
            with loaded(backend, path) as executor:
                inputs = [inputs_of(executor, seed) for seed in range(SEEDS)]
                outputs = [executor.run(each) for each in inputs]
                found.append(Wanted(file, executor.graph.arena_bytes, inputs, outputs))
        yield found


@pytest.fixture
def device(native: Native, backend: Backend) -> Iterator[Device]:
    with native.device(name=backend.identity.name) as device:
        yield device


@pytest.mark.parametrize("streams", [1, 2])
def test_threads_take_turns_without_wrong_results(device: Device, wanted: list[Wanted], streams: int) -> None:
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(device.group([each.file for each in wanted], streams))
        graphs = [
            (each, stack.enter_context(device.load(each.file, group=group, stream=stream)))
            for stream in range(streams)
            for each in wanted
        ]
        assert graphs[0][1].has_persistent == (streams == 1 and bool(groups_at_once(device.identity())))

        def work(first: int) -> None:
            for number in range(first, first + 12):
                one, graph = graphs[number % len(graphs)]
                one.check(graph, number)

        with ThreadPoolExecutor(4) as threads:
            for run in [threads.submit(work, first) for first in range(4)]:
                run.result()


@pytest.mark.parametrize("streams", [1, 2])
def test_members_keep_their_results_when_arenas_grow(device: Device, wanted: list[Wanted], streams: int) -> None:
    smallest, *others = sorted(wanted, key=lambda each: sum(each.arenas))
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(device.group([smallest.file], streams))
        members = [(smallest, stack.enter_context(device.load(smallest.file, group=group)))]
        members[0][0].check(members[0][1], 0)
        for other in others:
            group.grow(other.file)
            graph = device.load(other.file, group=group, stream=streams - 1)
            members.append((other, stack.enter_context(graph)))
            for seed in range(SEEDS):
                for one, graph in members:
                    one.check(graph, seed)
        places = range(max(len(each.arenas) for each in wanted))
        assert group.arenas == tuple(
            max(each.arenas[place] for each in wanted if place < len(each.arenas)) for place in places
        )
