"""Test groups of contexts on a real device: results equal private contexts', whichever used the arenas before."""

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.runtime.backends import Backend
from gputune.runtime.context.memory_need import largest_arenas
from gputune.runtime.loading.groups import ContextGroup
from gputune.runtime.loading.model import ContextSource
from tests.client import models
from tests.client.model.test_alternatives import two_blocks
from tests.opencl.contexts import contexts, inputs_of, loaded

pytestmark = pytest.mark.night  # test_pipeline.py has a group of two, and C one in both forms
Wanted = dict[tuple[str, int], dict[str, np.ndarray]]
POISON = 0xFF  # bytes of a NaN
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


def group_of(backend: Backend, paths: list[Path], streams: int = 1) -> ContextGroup:
    sources = [ContextSource(path.stem, path, path) for path in paths]
    needs = [source.need() for source in sources]
    group = ContextGroup(backend, largest_arenas(need.arena_bytes for need in needs), streams, strict=True)
    for source, need in zip(sources, needs, strict=True):
        group.load(source, need)
    return group


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 4)), min_size=1, max_size=24))
def test_any_interleaving_gives_what_private_arenas_give_bit_by_bit(
    backend: Backend, paths: list[Path], wanted: Wanted, order: list[tuple[str, int]]
) -> None:
    with group_of(backend, paths) as group:
        for name, seed in order:
            outputs = group[name].run(inputs_of(group[name], seed))
            for output, value in wanted[name, seed].items():
                np.testing.assert_array_equal(outputs[output], value)


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


def test_members_keep_their_results_when_arenas_grow(backend: Backend, paths: list[Path], wanted: Wanted) -> None:
    sizes = {path: max(map(sum, [ContextSource("a", path, path).need().arena_bytes])) for path in paths}
    smallest, *others = sorted(paths, key=sizes.__getitem__)
    with group_of(backend, [smallest]) as group:
        for path in others:
            group.add(path, grow=True)
            for name in [name for name in group if "/" not in name]:
                outputs = group[name].run(inputs_of(group[name], 1))
                for output, value in wanted[name, 1].items():
                    np.testing.assert_array_equal(outputs[output], value)
        assert group.memory.arenas == (max(sizes.values()),)
