"""Test that contexts compute the same bits in whichever form launches are given what lies in arenas."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.cache import PerformanceCache
from gputune.client.context.argument_form import FormChoice
from gputune.client.context.builder import Built, Wanted, build_all
from gputune.client.context.context_runner import ContextRunner
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.importer import import_model
from gputune.client.target.client import TargetClient
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.target.transport.credentials import Credentials
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import ARGUMENT_FORMS, ArgumentForm, Launch, Needs
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import KernelFamily
from gputune.kernels.offset_arguments import with_offsets
from gputune.kernels.space import Configuration
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import OFFSETS, Context
from gputune.runtime.execution.executor import Executor
from tests.kernels.drawing import drawn
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.native.binding import Native
from tests.native.conftest import c_compiler, native
from tests.opencl.client.test_compact_contexts import MODELS, opened, outputs, tuned
from tests.opencl.client.test_persistent_contexts import Compiling, inputs_of
from tests.opencl.conftest import KernelBench

__all__ = ["c_compiler", "native"]

HAVE_LOCAL_MEMORY = frozenset(
    {
        "ArgMax",
        "InvertedResidual",
        "MatMul",
        "Normalise",
        "Recurrent",
        "Reduce",
        "SeparableConv",
        "Softmax",
        "Transpose",
    }
)
DRAWN, TRIED = 2000, 3

NAMES = ("blocks", "inverted residual", "products", "groups", "LSTM")


def written(path: Path, model: onnx.ModelProto, backend: Backend, form: ArgumentForm) -> Path:
    plan = Alternatives(replace(import_model(model, Path("model.onnx"), {}), name="model")).plan
    outcomes = {one.key: one for one in (tuned(task, backend, 0) for task in plan.tasks)}
    maker = Compiling(backend)
    built = build_all([Wanted(plan, outcomes, form=form)], maker)
    device: Any = maker.device
    write_context(path, Context(built.graphs, built.programs, built.weights, device, "test", {}, {}))
    return path


def offsets_of(executor: Executor, *kinds: str) -> set[int]:
    return {ref.offset for launch in executor.graph.launches for ref in launch.refs if ref.kind in kinds}


@pytest.mark.parametrize("name", NAMES)
def test_all_forms_compute_the_same(backend: Backend, tmp_path: Path, name: str) -> None:
    results: list[Sequence[Any]] = []
    for form in ARGUMENT_FORMS:
        path = written(tmp_path / f"{form}.bin", MODELS[name](), backend, form)
        with open_context(path) as file:
            assert file.header.requires == ((OFFSETS,) if form == "offsets" else ())
        with opened(path, backend, binaries=True) as executor:
            results.append([outputs(executor, seed) for seed in range(3)])
            if form in ("buffers", "svm"):
                assert offsets_of(executor, "weights") == {0}, "no launch needs a part of a buffer"
            if form == "buffers":
                assert offsets_of(executor, "arena") <= {0}
    assert all(each == results[0] for each in results)


@pytest.mark.parametrize("form", ARGUMENT_FORMS)
def test_both_runtimes_compute_the_same(native: Native, backend: Backend, tmp_path: Path, form: ArgumentForm) -> None:
    path = written(tmp_path / "model.bin", MODELS["blocks"](), backend, form)
    with opened(path, backend, binaries=True) as executor:
        wanted = [outputs(executor, seed) for seed in range(3)]
        inputs = [inputs_of(executor, seed) for seed in range(3)]
    with (
        native.open(path) as file,
        native.device(file, backend.identity.name) as device,
        device.group([file]) as group,
    ):
        for shared in (None, group):
            graph = device.load(file, graph="model", group=shared)
            got = [graph.run(one) for one in inputs]
            assert [{key: value.tobytes() for key, value in one.items()} for one in got] == wanted
            graph.close()


@pytest.mark.parametrize("op", ONE_OF_EACH)
def test_kernels_of_every_family_take_offsets(op: str, bench: KernelBench) -> None:
    family, problem = family_of(op), ONE_OF_EACH[op]
    gpu = replace(bench.limits, device_type="gpu", argument_form="offsets")
    legal = drawn(family, problem, gpu, DRAWN)
    with_local = list(islice((one for one in legal if has_local(family, problem, one)), TRIED))
    assert with_local or op not in HAVE_LOCAL_MEMORY
    tried = [family.default(problem, bench.limits), *with_local]
    for one in tried:
        before, after = family.render(problem, one).main, family.rendered(problem, one, gpu).main
        assert len(before.arguments) < len(after.arguments)
    taking = replace(bench, limits=replace(bench.limits, argument_form="offsets"))
    taking.compare(family, problem, tried, family.sample_inputs(problem, np.random.default_rng(1)))


def has_local(family: KernelFamily, problem: Any, configuration: Configuration) -> bool:
    main = family.render(problem, configuration).main
    return any(kernel.needs and kernel.needs.local_bytes for kernel in main.sequence)


def test_only_kernels_whose_needs_are_known_take_offsets() -> None:
    local = Needs(local_bytes=64, cooperates=True)
    pooled = Launch("__kernel void f(__global float *a LOCAL_POOL) {}", "f", "", (4,), (4,), ("output",), needs=local)
    assert with_offsets(pooled).arguments == ("output", 0)
    for launch in (replace(pooled, needs=None), replace(pooled, source="__kernel void f(__global float *a) {}")):
        assert with_offsets(launch) is launch


def test_forms_are_measured_on_a_target(server: EmbeddedServer, tmp_path: Path) -> None:
    """As on a GPU; a CPU is not asked."""
    with (
        TargetClient.connect(server.host, server.port, Credentials(token=server.token)) as client,
        PerformanceCache.open(tmp_path / "a.gtperf", secret=b"s" * 32) as cache,
    ):
        device = replace(DeviceIdentity.from_dict(client.device), device_type="gpu")

        def write(built: Built, path: Path) -> None:
            write_context(path, Context(built.graphs, built.programs, built.weights, client.device, "test", {}, {}))

        choice = FormChoice(cache, device, {}, frozen=False)
        assert choice.chosen(ContextRunner(client, client, write)) in ARGUMENT_FORMS
        ((record, _),) = cache.contents_of_chains().values()
        assert set(record.times_ns) == {*ARGUMENT_FORMS}
        assert record.measured["argument_form"] == choice.remembered()
