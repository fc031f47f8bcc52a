"""Test the memory report: lifetimes from a context's file alone, the page, and the command."""

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from gputune.client.context.memory.memory_planner import Lifetime
from gputune.client.context.memory.storage import arena_lifetimes
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.plan import Plan
from gputune.client.pages.scales import bytes_text
from gputune.client.report.memory import (
    ArenaTensor,
    GraphMemory,
    MemoryReport,
    graph_memory,
    read_memory,
)
from gputune.client.report.sections.memory import memory_sections
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.task_search import device_limits
from gputune.kernels.catalogue import family_of
from gputune.runtime.context.records import BufferRef, GraphRecord, LaunchRecord, TensorRecord
from gputune.runtime.context.states import StatePair, StateRecord
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.client import models
from tests.client.commands import Generate, Gputune
from tests.client.pages.reading import of_kind, words

WRITES = {"copy": (1,), "add": (2,)}
"""Places of arguments."""


def ref(offset: int, nbytes: int = 64, arena: int = 0) -> BufferRef:
    return BufferRef("arena", arena, offset, nbytes)


def launch(operation: str, entry: str, *arguments: object) -> LaunchRecord:
    return LaunchRecord(operation, "", 0, entry, (1,), (1,), tuple(arguments), WRITES.get(entry, ()))  # type: ignore[arg-type]


def tensors(*launches: LaunchRecord) -> list[tuple[str, int, int, int]]:
    """Name, offset, first and last use of each."""
    found = graph_memory(GraphRecord("g", (), (), launches, (256,))).tensors
    return [(each.name, each.offset, each.first_use, each.last_use) for each in found]


def test_a_tensor_is_held_from_what_writes_it_to_what_reads_it_last() -> None:
    one, two, three = ref(0), ref(64), ref(128)
    given, taken = BufferRef("input", 0, 0, 64), BufferRef("output", 0, 0, 64)
    found = tensors(
        launch("first", "copy", given, one),
        launch("second", "copy", one, two),
        launch("third", "add", one, two, three, two, 16),
        launch("fourth", "copy", three, one),  # the same bytes as the first
        launch("last", "add", three, one, taken, one, 16),
    )
    assert found == [("first", 0, 0, 2), ("second", 64, 1, 2), ("third", 128, 2, 4), ("fourth", 0, 3, 4)]


def test_several_launches_of_an_operation_are_one_and_its_scratch_is_its_own() -> None:
    found = tensors(
        launch("first", "copy", BufferRef("input", 0, 0, 64), ref(0)),
        launch("second", "copy", ref(0), ref(64)),
        launch("second", "copy", ref(64), ref(128)),
        launch("last", "copy", ref(128), BufferRef("output", 0, 0, 64)),
    )
    assert found == [("first", 0, 0, 1), ("second", 64, 1, 1), ("second", 128, 1, 2)]


def test_in_an_older_file_bytes_are_new_when_others_overlap_them() -> None:
    found = tensors(
        launch("first", "unknown", BufferRef("input", 0, 0, 64), ref(0)),
        launch("second", "unknown", ref(0), ref(64)),
        launch("third", "unknown", ref(64), ref(32, 16)),
        launch("fourth", "unknown", ref(32, 16), ref(0)),
    )
    assert found == [("first", 0, 0, 1), ("second", 64, 1, 2), ("third", 32, 2, 3), ("fourth", 0, 3, 3)]


@pytest.mark.parametrize(
    "model", [models.conv_relu_gemm, models.residual_block, models.projected_residual, models.squeeze_excite]
)
@pytest.mark.parametrize("steps", [0, 400])
def test_what_the_file_says_is_what_was_planned(
    generate: Generate, model: Callable[[], onnx.ModelProto], steps: int
) -> None:
    path = generate(model=model(), memory_search_steps=steps).context
    (graph,) = read_memory(path).graphs
    planned = planned_lifetimes(lower(read_model(generate.folder / "model.onnx", {})))
    told = [Lifetime("", each.nbytes, each.first_use, each.last_use) for each in graph.tensors]
    assert sorted(told, key=repr) == sorted(planned, key=repr)
    assert 0 < graph.bound_bytes <= graph.total_bytes
    assert max(graph.alive_bytes) <= graph.total_bytes


def planned_lifetimes(plan: Plan) -> list[Lifetime]:
    assert NULL_REPORT.identity is not None
    limits = device_limits(NULL_REPORT.identity)
    instances = [
        family_of(each.task.op).render(each.task.problem, untuned(each.task, limits).configuration)
        for each in plan.operations
    ]
    lives = arena_lifetimes(plan, instances)
    return [Lifetime("", each.nbytes, each.first_use, each.last_use) for each in lives]


def test_files_that_do_not_say_their_bound_get_it_from_their_tensors() -> None:
    launches = (
        launch("a", "copy", BufferRef("input", 0, 0, 8), ref(0, 100)),
        launch("b", "copy", ref(0, 100), ref(128)),
    )
    graph = GraphRecord("g", (), (), launches, (300,))
    assert graph_memory(graph).bound_bytes == 128 + 64
    known = GraphRecord("g", (), (), launches, (300,), arena_bound_bytes=250)
    assert graph_memory(known).ratio == 1.2


def made_up(name: str = "net", arenas: tuple[int, ...] = (3000,)) -> MemoryReport:
    drawn = (ArenaTensor(f"<b>{name}", 0, 0, 1000, 0, 2), ArenaTensor("two", len(arenas) - 1, 1024, 1976, 1, 1))
    graph = GraphMemory(name, ("<b>one", "two", "three"), arenas, 2_000, drawn)
    return MemoryReport("c.bin", "a device", 5_000_000, (graph, GraphMemory("empty", ("only",), (), 0, (), 4096)))


@pytest.mark.parametrize("arenas", [(3000,), (1000, 3000)])
def test_the_page_says_all(arenas: tuple[int, ...]) -> None:
    blocks = memory_sections(made_up("net", arenas))
    assert f"{sum(arenas) / 2000:.3f}×" in words(blocks)
    maps = [drawn for drawn in of_kind(blocks, "drawing") if "tensors of arena" in drawn["label"]]
    boxes = [path for drawn in maps for path in drawn["paths"] if "box" in path["style"]]
    assert [path["link"] for path in boxes] == of_kind(blocks, "table")[0]["ids"]
    assert len(maps) == len(arenas)
    assert "This graph has no tensors between operations" in words(blocks)
    assert words(blocks).count("4,096 bytes beside the arenas") == words(blocks).count("Each state") == 1


def test_graphs_of_one_state_have_the_memory_of_the_largest() -> None:
    graphs = []
    for rows in (4, 16):
        states = StateRecord("length", 1, rows, (), (), (StatePair("past", "present", 0),))
        graphs.append(GraphRecord(f"of {rows}", (TensorRecord("past", (rows, 8)),), (), (), (), states=states))
    plain = GraphRecord("plain", (), (), (), ())
    found = [graph_memory(one, [*graphs, plain]).state_bytes for one in (*graphs, plain)]
    assert found == [2 * 4 * 16 * 8, 2 * 4 * 16 * 8, 0]


def test_bytes_are_told_in_their_best_unit() -> None:
    joined = [bytes_text(nbytes).replace("\u00a0", " ") for nbytes in (0, 12, 999_900, 5_726_592, 3 * 10**9)]
    assert joined == ["0 B", "12 B", "1 MB", "5.73 MB", "3 GB"]


def test_the_command_writes_the_page_and_its_numbers(gputune: Gputune, generate: Generate, tmp_path: Path) -> None:
    path, output = generate(model=models.residual_block()).context, tmp_path / "new" / "memory.html"
    ran = gputune("memory-report", "--context_binary", path, "--output", output, "--json")
    assert ran.code == 0, ran.err
    content = json.loads(ran.out)
    assert content == json.loads(json.dumps(read_memory(path).to_dict()))
    assert {"name", "arena_bytes", "total_bytes", "bound_bytes", "ratio", "tensors"} <= content["graphs"][0].keys()
    assert output.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
