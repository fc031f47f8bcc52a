"""Test compact contexts on a real device: what it packs on loading equals a packed context, bit for bit."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import onnx
import pytest

from gputune.client.context.builder import Maker, Wanted, build_all
from gputune.client.context.memory import weights
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.graph import Precision
from gputune.client.model.importer import import_model
from gputune.client.model.plan import Task
from gputune.client.run.local_device import LocalDevice
from gputune.client.tuning.outcome import Outcome, untuned
from gputune.client.tuning.search.task_search import device_limits
from gputune.core.quirks import groups_at_once
from gputune.kernels.catalogue import family_of
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import FORMAT_VERSION, REQUIRING_VERSION, open_context, version_of, write_context
from gputune.runtime.context.records import Context
from gputune.runtime.execution.executor import Executor
from gputune.runtime.execution.loading import executor_on
from gputune.runtime.execution.programs import SharedParts
from tests.client.model.test_alternatives import block, two_blocks
from tests.client.model.test_recurrent import case
from tests.client.models import build
from tests.opencl.client.test_persistent_contexts import Compiling, inputs_of

CONVOLUTION = ("(float[1,16,12,12] x) => (float[1,24,12,12] y)", "y = Conv<pads=[1,1,1,1]>(x, w, b)")
MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "convolution": lambda: build(*CONVOLUTION, {"w": (24, 16, 3, 3), "b": (24,)}),
    "groups": lambda: build(
        "(float[1,16,9,9] x) => (float[1,24,7,7] y)", "y = Conv<group=4>(x, w)", {"w": (24, 4, 3, 3)}
    ),
    "transposed": lambda: build(
        "(float[1,6,5,5] x) => (float[1,5,11,11] y)", "y = ConvTranspose<strides=[2,2]>(x, w, b)",
        {"w": (6, 5, 3, 3), "b": (5,)},
    ),
    "products": lambda: build(
        "(float[7,40] x) => (float[7,9] y)", "a = MatMul(x, v) c = Add(a, b) y = MatMul(c, w)",
        {"v": (40, 30), "b": (30,), "w": (30, 9)},
    ),
    "blocks": two_blocks,
    "inverted residual": block,
    "GRU": lambda: case("GRU", "B h")[0],
    "LSTM": lambda: case("LSTM", "B h c P", direction="bidirectional")[0],
}  # fmt: skip


def tuned(task: Task, backend: Backend, algorithm: int) -> Outcome:
    """A task with its default configuration, or where there is one with the first that has this algorithm."""
    limits = device_limits(backend.identity)
    found = untuned(task, limits)
    listed = islice(family_of(task.op).space(task.problem, limits).configurations(), 20_000)
    others = (one for one in listed if algorithm and one.get("ALG") == algorithm)
    return replace(found, configuration=next(others, found.configuration))


def written(
    folder: Path,
    models: Mapping[str, onnx.ModelProto],
    maker: Maker,
    backend: Backend,
    *,
    fused: bool = False,
    algorithm: int = 0,
    persistent: bool = False,
    precision: Precision | None = None,
) -> list[Path]:
    """A packed and a compact context of the models."""
    wanted = []
    for name, model in models.items():
        graph = import_model(model, Path(f"{name}.onnx"), {})
        both = Alternatives(replace(graph, name=name, precision=precision or graph.precision))
        plan = both.plan_with(both.likely(device_limits(backend.identity))) if fused else both.plan
        outcomes = {one.key: one for one in (tuned(task, backend, algorithm) for task in plan.tasks)}
        wanted.append(Wanted(plan, outcomes, persistent))
    paths = []
    for form in ("packed", "compact"):
        built = build_all(wanted, maker, compact=form == "compact")
        paths.append(folder / f"{form}.bin")
        device: Any = maker.device
        content = Context(built.graphs, built.programs, built.weights, device, "test", {}, {}, packing=built.packing)
        write_context(paths[-1], content)
    return paths


def opened(path: Path, backend: Backend, *, binaries: bool = False, graph: int = 0) -> Executor:
    with open_context(path) as file:
        return Executor(backend, file, file.header.graphs[graph], binaries, strict=binaries)


def outputs(executor: Executor, seed: int) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in executor.run(inputs_of(executor, seed)).items()}


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_a_packed_context(backend: Backend, tmp_path: Path, name: str) -> None:
    fused = name in ("blocks", "inverted residual")
    paths = written(tmp_path, {"model": MODELS[name]()}, LocalDevice(backend), backend, fused=fused)
    packed, compact = (opened(path, backend) for path in paths)
    assert packed.header.packing == () and len(compact.header.packing) == 1
    assert [outputs(packed, seed) for seed in range(2)] == [outputs(compact, seed) for seed in range(2)]


@pytest.mark.parametrize("algorithm", [2, 4])
def test_filters_are_transformed_as_winograd_has_them(backend: Backend, tmp_path: Path, algorithm: int) -> None:
    models = {"model": MODELS["convolution"]()}
    packed, compact = written(tmp_path, models, LocalDevice(backend), backend, algorithm=algorithm)
    assert compact.stat().st_size < packed.stat().st_size
    with open_context(compact) as file:
        assert [one.entry for one in file.header.packing[0].launches] == ["pack_winograd"]
    assert outputs(opened(packed, backend), 1) == outputs(opened(compact, backend), 1)


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PART_BYTES", 1)


def test_binaries_pack_and_persistent_kernels_read_what_was_packed(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    models = {"model": two_blocks()}
    packed, compact = written(tmp_path, models, Compiling(backend), backend, persistent=True)
    one, other = (opened(path, backend, binaries=True) for path in (packed, compact))
    assert len(other.header.packing) > 1, "each operation has a part of its own"
    assert not other.warnings
    assert bool(other.graph.persistent) == bool(groups_at_once(backend.identity))
    for seed in range(2):
        for persistent in (True, False):
            one.persistent_kernels = other.persistent_kernels = persistent
            assert outputs(one, seed) == outputs(other, seed)


def test_graphs_share_sources_and_what_is_packed(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {"a": MODELS["products"](), "b": MODELS["products"]()}
    packed, compact = written(tmp_path, models, LocalDevice(backend), backend)
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


def test_compact_contexts_have_a_version_of_their_own(backend: Backend, tmp_path: Path) -> None:
    packed, compact = written(tmp_path, {"model": MODELS["products"]()}, LocalDevice(backend), backend)
    for path, version in ((packed, FORMAT_VERSION), (compact, REQUIRING_VERSION)):
        with open_context(path) as file:
            assert version_of(file.head) == version
