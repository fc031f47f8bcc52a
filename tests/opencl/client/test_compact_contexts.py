"""Test compact contexts on a real device: what it packs on loading equals a packed context, bit for bit.

test_argument_forms.py has the outputs of each kind of model.
"""

from pathlib import Path
from typing import Any

import pytest

from gputune.client.context.memory import weights
from gputune.client.run.local_device import LocalDevice
from gputune.core.quirks import groups_at_once
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import FORMAT_VERSION, REQUIRING_VERSION, open_context, version_of
from gputune.runtime.executor import Executor
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.sharing import SharedParts
from tests.opencl.contexts import MODELS, compiling, opened, outputs, written
from tests.runtimes import in_python


@pytest.mark.parametrize("algorithm", [2, pytest.param(4, marks=pytest.mark.night)])
def test_filters_are_transformed_as_winograd_has_them(backend: Backend, tmp_path: Path, algorithm: int) -> None:
    models = {"model": MODELS["convolution"]()}
    packed, compact = written(tmp_path, models, compiling(backend), backend, algorithm=algorithm)
    with open_context(packed) as wide, open_context(compact) as file:
        nbytes = [sum(one.header.sections[index].length for index in one.header.weights) for one in (wide, file)]
        assert nbytes[1] < nbytes[0]
        assert [one.entry for one in file.header.packing[0].launches] == ["pack_winograd"]
    one, other = (opened(path, backend, binaries=True) for path in (packed, compact))
    assert outputs(one, 1) == outputs(other, 1)


def test_binaries_pack_and_persistent_kernels_read_what_was_packed(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "PART_BYTES", 1)
    models = {"model": MODELS["blocks"]()}
    packed, compact = written(tmp_path, models, compiling(backend), backend, persistent=True)
    one, other = (opened(path, backend, binaries=True) for path in (packed, compact))
    assert len(other.header.packing) > 1, "each operation has a part of its own"
    assert not other.warnings
    assert bool(other.graph.persistent) == bool(groups_at_once(backend.identity))
    for seed in range(2):
        for persistent in (True, False):
            one.persistent_kernels = other.persistent_kernels = persistent
            assert outputs(one, seed) == outputs(other, seed)


@in_python  # in C, graphs of a group share them (tests/opencl/native/test_compact.py)
def test_graphs_share_sources_and_what_is_packed(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compact contexts have a version of their own. Without binaries, sources are built."""
    models = {"a": MODELS["products"](), "b": MODELS["products"]()}
    packed, compact = written(tmp_path, models, LocalDevice(backend), backend)
    for path, version in ((packed, FORMAT_VERSION), (compact, REQUIRING_VERSION)):
        with open_context(path) as file:
            assert version_of(file.head) == version
    with open_context(compact) as file:
        assert [graph.constants("packed") for graph in file.header.graphs] == [[0], [0]]
        assert len(file.header.weights) == 3, "two matrices and a bias"
        runs: list[str] = []
        run = Executor.run

        def noted(executor: Executor, *given: Any) -> dict[str, Any]:
            runs.append(executor.graph.name)
            return run(executor, *given)

        monkeypatch.setattr(Executor, "run", noted)
        shared = SharedParts()
        kept = [executor_on(backend, file, name, strict=False, shared=shared) for name in ("a", "b")]
        assert runs == [file.header.packing[0].name], "the second finds what the first has packed"
        monkeypatch.undo()
    assert len(shared.weights) == 1, "sources are given back"
    assert outputs(kept[1], 1) == outputs(opened(packed, backend, graph=1), 1)
