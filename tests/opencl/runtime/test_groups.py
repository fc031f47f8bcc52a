"""Test groups of contexts on a real device: results equal private contexts', whichever used the arenas before."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.core.launches import Launch, Variant
from gputune.runtime.backends import Backend, ProgramCache
from gputune.runtime.context.format import open_context, read_header, write_context
from gputune.runtime.context.records import BufferRef, Context, GraphRecord, LaunchRecord, ProgramRecord, TensorRecord
from gputune.runtime.contexts.device import beside
from gputune.runtime.loading.groups import ContextGroup
from gputune.runtime.measuring.launching import compile_variant
from tests.client import models
from tests.client.model.test_alternatives import two_blocks
from tests.opencl.contexts import contexts, inputs_of, loaded

pytestmark = pytest.mark.night  # test_pipeline.py has a group of two, and C one in both forms
Wanted = dict[tuple[str, int], dict[str, np.ndarray]]
POISON = """
__kernel void pour(__global int *arena, __global int *found) {
    found[get_global_id(0)] = arena[get_global_id(0)];
    arena[get_global_id(0)] = -1;
}
"""  # the bits of a NaN
MODELS = {
    "conv_relu_gemm": models.conv_relu_gemm,
    "residual_block": models.residual_block,
    "two_blocks": two_blocks,
    "squeeze_excite": models.squeeze_excite,
}
NAMES = tuple(MODELS)


@pytest.fixture(scope="module")
def paths(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four contexts, the one with the largest arenas in the middle; one has persistent kernels."""
    folder = tmp_path_factory.mktemp("group")
    found = []
    for name, model in MODELS.items():
        (folder / name).mkdir()
        plan = lower(read_model(models.save(model(), folder / name)))
        found.append(contexts(backend, plan, folder / f"{name}.bin"))
    return found


@pytest.fixture(scope="module")
def wanted(backend: Backend, paths: list[Path]) -> Wanted:
    """What each context makes of five inputs in arenas of its own."""
    results = {}
    for name, path in zip(MODELS, paths, strict=True):
        executor = loaded(backend, path)
        for seed in range(5):
            results[name, seed] = executor.run(inputs_of(executor, seed))
    return results


@pytest.fixture(scope="module")
def pour(
    backend: Backend, programs: ProgramCache, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[ContextGroup], np.ndarray]:
    """Provide what has a member of a group fill its arena with NaNs, and returns what was there."""

    def poison(nbytes: int) -> Path:
        main = Launch(POISON, "pour", "", (nbytes // 4,), (1,), ("arena", "found"))
        binary = compile_variant(programs, Variant({}, (), main, {}), {"arena": nbytes, "found": nbytes}).binary
        refs = BufferRef("arena", 0, 0, nbytes), BufferRef("output", 0, 0, nbytes)
        launch = LaunchRecord("pour", "0" * 64, 0, "pour", (nbytes // 4,), (1,), refs)
        graph = GraphRecord("main", (), (TensorRecord("found", (nbytes // 4,), "int32"),), (launch,), (nbytes,))
        path = tmp_path_factory.mktemp("poison") / "poison.bin"
        device = backend.identity.to_dict()
        write_context(path, Context((graph,), [ProgramRecord(bytes(binary), POISON, "")], (), device, "test", {}, {}))
        return path

    def poured(group: ContextGroup) -> np.ndarray:
        (nbytes,) = group.memory.arenas
        if (name := f"poison of {nbytes} bytes") not in group:
            group.add(poison(nbytes), name)
        return group[name].run({})["found"]

    return poured


def group_of(backend: Backend, paths: list[Path], streams: int = 1) -> ContextGroup:
    group = ContextGroup(beside(backend), streams, strict=True)
    for path in paths:
        with open_context(path) as file:
            group.load(path.stem, file)
    return group


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 4)), min_size=1, max_size=24))
def test_any_interleaving_gives_what_private_arenas_give_bit_by_bit(
    backend: Backend,
    paths: list[Path],
    wanted: Wanted,
    pour: Callable[[ContextGroup], np.ndarray],
    order: list[tuple[str, int]],
) -> None:
    with group_of(backend, paths) as group:
        pour(group)
        for name, seed in order:
            outputs = group[name].run(inputs_of(group[name], seed))
            for output, value in wanted[name, seed].items():
                np.testing.assert_array_equal(outputs[output], value)
            assert (pour(group) != -1).any(), "all use the same arena"


@pytest.mark.parametrize("streams", [1, 2])
def test_threads_take_turns_without_wrong_results(
    backend: Backend, paths: list[Path], wanted: Wanted, streams: int
) -> None:
    failures: list[BaseException] = []
    with group_of(backend, paths, streams) as group:

        def work(first: int) -> None:
            try:
                for number in range(first, first + 20):
                    name, seed = NAMES[number % 4], number % 5
                    outputs = group.run(name, inputs_of(group[name], seed))
                    for output, value in wanted[name, seed].items():
                        np.testing.assert_array_equal(outputs[output], value)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(first,)) for first in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_members_keep_their_results_when_arenas_grow(
    backend: Backend, paths: list[Path], wanted: Wanted, pour: Callable[[ContextGroup], np.ndarray]
) -> None:
    sizes = {path: max(sum(graph.arena_bytes) for graph in read_header(path).graphs) for path in paths}
    smallest, *others = sorted(paths, key=sizes.__getitem__)
    with group_of(backend, [smallest]) as group:
        for path in others:
            group.add(path, grow=True)
            for name in [name for name in group if name in NAMES]:
                pour(group)
                outputs = group[name].run(inputs_of(group[name], 1))
                for output, value in wanted[name, 1].items():
                    np.testing.assert_array_equal(outputs[output], value)
        assert group.memory.arenas == (max(sizes.values()),)
