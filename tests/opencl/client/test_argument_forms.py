"""Test that contexts compute the same bits in whichever form launches are given what lies in arenas."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import PerformanceCache
from gputune.client.context.argument_form import DeviceChoices, FormChoice
from gputune.client.context.builder import Built
from gputune.client.context.context_runner import ContextRunner
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import ARGUMENT_FORMS, Launch, Needs
from gputune.kernels.offset_arguments import with_offsets
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import OFFSETS, Context
from gputune.runtime.executor import Executor
from gputune.runtime.native.binding import Native
from tests.native.conftest import c_compiler, native
from tests.opencl.contexts import MODELS, compiling, inputs_of, loaded, outputs, written
from tests.shared_server import SharedServer

__all__ = ["c_compiler", "native"]

NIGHT = pytest.mark.night
NAMES = [pytest.param(name, marks=[NIGHT] * (name not in ("products", "GRU"))) for name in MODELS]
FUSED = ("blocks", "inverted residual")


def offsets_of(executor: Executor, *kinds: str) -> set[int]:
    return {ref.offset for launch in executor.graph.launches for ref in launch.refs if ref.kind in kinds}


@pytest.mark.parametrize("name", NAMES)
def test_all_kinds_of_contexts_compute_the_same(native: Native, backend: Backend, tmp_path: Path, name: str) -> None:
    """The same bits packed and compact, alone and in a group, in each form of arguments."""
    results: list[Sequence[Any]] = []
    for form in ARGUMENT_FORMS:
        model, maker = {"model": MODELS[name]()}, compiling(backend)
        packed, compact = written(tmp_path, model, maker, backend, fused=name in FUSED, form=form)
        for path in (packed, compact):
            with loaded(backend, path) as executor:
                assert bool(executor.header.packing) == (path == compact)
                assert (OFFSETS in executor.header.requires) == (form == "offsets")
                results.append([outputs(executor, seed) for seed in range(2)])
                inputs = [inputs_of(executor, seed) for seed in range(2)]
                if form in ("buffers", "svm") and path == packed:
                    assert offsets_of(executor, "weights") == {0}, "no launch needs a part of a buffer"
                if form == "buffers":
                    assert offsets_of(executor, "arena") <= {0}
            results += in_c(native, backend, path, inputs)
    assert all(each == results[0] for each in results)


def in_c(native: Native, backend: Backend, path: Path, inputs: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the bits that the C runtime computes, in arenas of its own and in those of a group."""
    found: list[Sequence[Any]] = []
    with (
        native.open(path) as file,
        native.device(file, backend.identity.name) as device,
        device.group([file]) as group,
    ):
        for shared in (None, group):
            with device.load(file, graph="model", group=shared) as graph:
                got = [graph.run(one) for one in inputs]
                found.append([{key: value.tobytes() for key, value in one.items()} for one in got])
    return found


def test_only_kernels_whose_needs_are_known_take_offsets() -> None:
    local = Needs(local_bytes=64, cooperates=True)
    pooled = Launch("__kernel void f(__global float *a LOCAL_POOL) {}", "f", "", (4,), (4,), ("output",), needs=local)
    assert with_offsets(pooled).arguments == ("output", 0)
    for launch in (replace(pooled, needs=None), replace(pooled, source="__kernel void f(__global float *a) {}")):
        assert with_offsets(launch) is launch


def test_forms_are_measured_on_a_target(server: SharedServer, tmp_path: Path) -> None:
    """As on a GPU; a CPU is not asked."""
    with (
        server.connect() as client,
        PerformanceCache.open(tmp_path / "a.gtperf", secret=b"s" * 32) as cache,
    ):
        device = replace(DeviceIdentity.from_dict(client.device), device_type="gpu")

        def write(built: Built, path: Path) -> None:
            write_context(path, Context(built.graphs, built.programs, built.weights, client.device, "test", {}, {}))

        choice = FormChoice(DeviceChoices(cache, device, {}, frozen=False))
        assert choice.chosen(ContextRunner(client, client, write)) in ARGUMENT_FORMS
        ((record, _),) = cache.contents_of_chains().values()
        assert set(record.times_ns) == {*ARGUMENT_FORMS}
        assert record.measured["argument_form"] == choice.remembered()
