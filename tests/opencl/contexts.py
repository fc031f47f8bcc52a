"""Make contexts of small models on the device of the tests, and open them there.

All that compile for a device share the programs of a process of pytest, so that only the first one of a kernel takes
its time.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.context.builder import Maker, Wanted, build, build_all
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.graph import Precision
from gputune.client.model.importer import import_model, read_model
from gputune.client.model.lowering import lower
from gputune.client.model.plan import Plan, Task
from gputune.client.run.local_device import LocalDevice
from gputune.client.tuning.outcome import Outcome, untuned
from gputune.client.tuning.search.task_search import device_limits
from gputune.core.batches import Compiled
from gputune.core.launches import ArgumentForm
from gputune.kernels.catalogue import family_of
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import Context
from gputune.runtime.executor import Executor
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.measuring.launching import compile_variant
from gputune.server.protocol.messages import CompileKernel
from tests.client.model.test_alternatives import block, two_blocks
from tests.client.model.test_recurrent import case
from tests.client.models import build as build_model
from tests.client.models import save

MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "convolution": lambda: build_model(
        "(float[1,16,12,12] x) => (float[1,24,12,12] y)", "y = Conv<pads=[1,1,1,1]>(x, w, b)",
        {"w": (24, 16, 3, 3), "b": (24,)},
    ),
    "groups": lambda: build_model(
        "(float[1,16,9,9] x) => (float[1,24,7,7] y)", "y = Conv<group=4>(x, w)", {"w": (24, 4, 3, 3)}
    ),
    "transposed": lambda: build_model(
        "(float[1,6,5,5] x) => (float[1,5,11,11] y)", "y = ConvTranspose<strides=[2,2]>(x, w, b)",
        {"w": (6, 5, 3, 3), "b": (5,)},
    ),
    "products": lambda: build_model(
        "(float[7,40] x) => (float[7,9] y)", "a = MatMul(x, v) c = Add(a, b) y = MatMul(c, w)",
        {"v": (40, 30), "b": (30,), "w": (30, 9)},
    ),
    "blocks": two_blocks,
    "inverted residual": block,
    "GRU": lambda: case("GRU", "B h")[0],
    "LSTM": lambda: case("LSTM", "B h c P", direction="bidirectional")[0],
}  # fmt: skip


class _Compiling(LocalDevice):
    """Give binaries, too."""

    def compile_kernels(self, requests: Sequence[CompileKernel], compiled: Callable[[int, Compiled], object]) -> None:
        for place, request in enumerate(requests):
            compiled(place, Compiled(compile_variant(self._programs, request.variant, request.buffers).binary, 0, 0))


@functools.cache
def compiling(backend: Backend) -> LocalDevice:
    """Return what makes contexts with binaries."""
    return _Compiling(backend)


def tuned(task: Task, backend: Backend, algorithm: int) -> Outcome:
    """Return a task with its default configuration, or where there is one with the first that has this algorithm."""
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
    form: ArgumentForm | None = None,
    kinds: Sequence[str] = ("packed", "compact"),
) -> list[Path]:
    """Write a packed and a compact context of models. form: of arguments, else the device's usual one."""
    wanted = []
    for name, model in models.items():
        graph = import_model(model, Path(f"{name}.onnx"), {})
        both = Alternatives(replace(graph, name=name, precision=precision or graph.precision))
        plan = both.plan_with(both.likely(device_limits(backend.identity))) if fused else both.plan
        outcomes = {one.key: one for one in (tuned(task, backend, algorithm) for task in plan.tasks)}
        wanted.append(Wanted(plan, outcomes, persistent, form=form))
    paths = []
    for name in kinds:
        built = build_all(wanted, maker, compact=name == "compact")
        paths.append(folder / f"{name}.bin")
        device: Any = maker.device
        content = Context(built.graphs, built.programs, built.weights, device, "test", {}, {}, packing=built.packing)
        write_context(paths[-1], content)
    return paths


def contexts(backend: Backend, plan: Plan, path: Path, persistent: bool = True) -> Path:
    """Write a context of a plan. persistent: with persistent kernels."""
    limits = device_limits(backend.identity)
    outcomes = {one.key: one for one in (untuned(task, limits) for task in plan.tasks)}
    built = build(plan, outcomes, compiling(backend), persistent=persistent)
    device = backend.identity.to_dict()
    own_kernels: dict[str, Any] = {"op_packages": []}
    write_context(path, Context((built.graph,), built.programs, built.weights, device, "test", own_kernels, {}))
    return path


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return lower(read_model(save(two_blocks(), tmp_path)))


def loaded(backend: Backend, path: Path, graph: str | None = None) -> Executor:
    """Open a graph of a context by its binaries."""
    with open_context(path) as file:
        return executor_on(backend, file, graph, strict=True)


def inputs_of(executor: Executor, seed: int) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(seed)
    return {t.name: numbers.standard_normal(t.shape).astype(t.dtype) for t in executor.graph.inputs}


def outputs(executor: Executor, seed: int) -> dict[str, bytes]:
    """Return the bits that a context computes of random inputs."""
    return {name: value.tobytes() for name, value in executor.run(inputs_of(executor, seed)).items()}
