"""Test on a real device that launches complete what groups of persistent kernels have given up."""

import ctypes
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from gputune.client.context import persistent
from gputune.client.model.plan import Plan
from gputune.client.model.reference import evaluate
from gputune.core.quirks import groups_at_once
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.native.binding import Graph, Native
from tests.native.compiling import OPTIMISED, SOURCES, compiled, driver, sanitizers
from tests.opencl.client.test_persistent_contexts import rewritten
from tests.opencl.contexts import contexts, plan
from tests.opencl.known import has_ticks

__all__ = ["plan"]

INFERENCES = 60
"""Fewer than a quiet process makes before it compares the forms."""
IMPATIENT = (*OPTIMISED, "-shared", "-DMOST_ROUNDS=0.0", *sanitizers())


@pytest.fixture(scope="module")
def impatient(native: Native) -> Native:
    """Provide the library whose groups do not wait for each other; `native` says where OpenCL is."""
    return Native(compiled("libgputune_impatient.so", SOURCES, IMPATIENT))


def assert_right(graph: Graph, plan: Plan, random: np.random.Generator) -> None:
    inputs = {one.name: random.standard_normal(one.shape).astype(one.dtype) for one in graph.info.inputs}
    (want,) = evaluate(plan, inputs).values()
    (got,) = graph.run(inputs).values()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("marks", [False, True])
def test_what_is_given_up_is_run_again_by_launches(
    impatient: Native, backend: Backend, plan: Plan, tmp_path: Path, marks: bool
) -> None:
    if marks and not has_ticks(backend.identity):
        pytest.skip("this driver has no clock for kernels")
    path = contexts(backend, plan, tmp_path / "model.bin")
    random = np.random.default_rng(1)
    with (
        impatient.open(path) as file,
        impatient.device(file, backend.identity.name) as device,
        device.load(file) as graph,
        device.profile(None, "qhas") as profile,
    ):
        if not graph.has_persistent:
            pytest.skip("groups do not run at the same time here")
        if marks:
            graph.record_marked(profile)
        for _ in range(INFERENCES):
            assert_right(graph, plan, random)
        total = graph.counters()[0]
        assert total["aborted"] > 0, "two groups seldom arrive at the same moment"
        assert sum(total[name] for name in ("persistent", "aborted", "launches", "recorded")) == INFERENCES
        assert not graph.warnings


def test_what_is_given_up_runs_from_source_where_the_binary_is_refused(
    impatient: Native, backend: Backend, plan: Plan, tmp_path: Path
) -> None:
    path, random = contexts(backend, plan, tmp_path / "model.bin"), np.random.default_rng(1)
    context = rewritten(path, lambda graph: graph)
    (record,), programs = context.graphs, [*context.programs]
    first = min({each.program for each in record.launches} - {each.program for each in record.persistent})
    programs[first] = replace(programs[first], binary=b"nothing")
    write_context(path, replace(context, programs=programs))
    with impatient.device(name=backend.identity.name) as device:
        with impatient.open(path) as file:
            graph = device.load(file)
        path.write_bytes(bytes(path.stat().st_size))  # a loaded graph needs it no more
        with graph:
            if not graph.has_persistent:
                pytest.skip("groups do not run at the same time here")
            assert not graph.warnings
            for _ in range(20):
                assert_right(graph, plan, random)
            assert graph.counters()[0]["aborted"] > 0
            assert graph.warnings == [f"the driver refuses the binary of program {first}; building it from source"]


@dataclass(frozen=True)
class Part:
    """A persistent kernel: its place in the persistent form, where its counters lie, the place of its first launch
    among the launches, and for how many it stands."""

    kernel: int
    counters: int
    begin: int
    launches: int


def parts_of(graph: GraphRecord) -> list[Part]:
    """Return the persistent kernels of a graph."""
    found, begin = [], 0
    for place, kernel in enumerate(graph.persistent):
        if kernel.counts:
            (counters,) = (ref.offset for ref in kernel.refs if ref.kind == "counters")
            found.append(Part(place, counters, begin, kernel.stands_for))
        begin += kernel.stands_for
    assert begin == len(graph.launches)
    return found


def arrivals(graph: GraphRecord, given_up: Part, complete: int) -> npt.NDArray[np.int32]:
    """Return counters with which one group alone gives up a part behind so many of its launches, and no other part."""
    found = np.zeros(graph.counter_bytes // 4, np.int32)
    for part in parts_of(graph):
        found[part.counters // 4] = complete - 1 if part == given_up else part.launches  # the other group's
    return found


def cases(graph: GraphRecord) -> Iterator[tuple[Part, int, bool]]:
    """Yield each launch behind which a part can be given up, with and without the next launch begun."""
    for part in parts_of(graph):
        for complete, begun in itertools.product(range(1, part.launches), (False, True)):
            yield part, complete, begun


@pytest.mark.parametrize(
    ("characters", "plain"),
    [(1 << 19, False), *(pytest.param(*each, marks=pytest.mark.night) for each in ((34_000, False), (1 << 19, True)))],
    ids=["one kernel", "several kernels", "plain launches between"],
)
def test_it_is_resumed_behind_each_launch(
    native: Native,
    backend: Backend,
    plan: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    characters: int,
    plain: bool,
) -> None:
    """Plain launches behind a part that is given up run anyway, on what is not complete."""
    if groups_at_once(backend.identity) != 2:
        pytest.skip("written for two groups that run at the same time")
    monkeypatch.setattr(persistent, "CHARACTERS_AT_MOST", characters)
    if plain:
        original, count = persistent._part, itertools.count(1)
        monkeypatch.setattr(persistent, "_part", lambda *both: original(*both) if next(count) % 4 else None)
    path = contexts(backend, plan, tmp_path / "model.bin")
    with open_context(path) as read:
        (record,) = read.header.graphs
    own = driver("given_up", *(each.stem for each in SOURCES if each.stem != "persistent"))
    own.resumed_from.restype = ctypes.c_size_t
    alone, random = Native(Path(own._name)), np.random.default_rng(1)
    with alone.open(path) as file, alone.device(file, backend.identity.name) as device, device.load(file) as graph:
        graph.set_one_by_one(True)
        assert_right(graph, plan, random)  # drivers load code at a first launch, all at once
        graph.set_one_by_one(False)
        for part, complete, begun in cases(record):
            counters, behind = arrivals(record, part, complete), part.begin + complete
            own.give_up(
                ctypes.c_void_p(graph.pointer),
                ctypes.c_void_p(counters.ctypes.data),
                ctypes.c_size_t(part.kernel if begun else -1),
                ctypes.c_size_t(behind),
            )
            assert_right(graph, plan, random)
            is_last = all(launch.counts for launch in record.persistent[part.kernel :])
            first = own.resumed_from()
            assert first == behind or (not is_last and first < behind)
        total = graph.counters()[0]
        assert (total["persistent"], total["aborted"]) == (0, len([*cases(record)]))
