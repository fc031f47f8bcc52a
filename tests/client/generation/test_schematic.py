"""Compare schematics with what was built and with the ONNX graph, and test where generations write them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.cache import PerformanceCache
from gputune.client.context.builder import Built, Wanted, build_all
from gputune.client.context.choice import Decision
from gputune.client.generation.schematic import Source, peaks_of, schematic_of
from gputune.client.model.graphs import Graphs, read_graphs
from gputune.client.model.model_files import ModelFile
from gputune.client.model.plan import Task
from gputune.client.tuning.measuring import peaks
from gputune.client.tuning.measuring.runner import TaskRunner
from gputune.client.tuning.outcome import Outcome, untuned
from gputune.client.tuning.search.task_search import device_limits, task_key
from gputune.client.viewer.schematic import GraphPlan, RooflinePeaks, Schematic, read_schematic, write_schematic
from gputune.kernels.catalogue import family_of
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.runtime.context.format import read_header
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.profiling.levels import LOG_NAME
from gputune.runtime.profiling.log import read_log
from gputune.runtime.profiling.records import DEINIT, FINALIZE, INIT, NODE, digest_of, logged_launches
from tests.client import models
from tests.client.answering_target import AnsweringTarget, by_width
from tests.client.commands import Generate, Ran, config_file
from tests.client.context.test_builder import FakeTarget

assert NULL_REPORT.identity is not None
DEVICE = NULL_REPORT.identity
LIMITS = device_limits(DEVICE)
SHAPES = ({"x": (1, 16, 8, 8)}, {"x": (1, 16, 8, 12)})
PEAKS = RooflinePeaks(100.0, 10.0, "of a test")


def model() -> onnx.ModelProto:
    """Branches, fused steps, operations that may be fused, a conversion of the layout, a view, and a constant node."""
    return models.build(
        "(float[1,16,h,w] x) => (float[1,n] y, float[1,16,h,w] z)",
        """a = Conv<pads=[1,1,1,1]>(x, k1)
           r = Relu(a)
           d = Conv<pads=[1,1,1,1], group=16>(r, k2)
           p = Conv(d, k3)
           s = Add(p, r)
           z = Tanh(s)
           t = Reshape(s, line)
           e = Softmax(t)
           q = Exp(t)
           y = Add(e, q)""",
        {"k1": (16, 16, 3, 3), "k2": (16, 1, 3, 3), "k3": (16, 16, 1, 1), "line": models.integers(1, -1)},
    )


def outcome_of(task: Task) -> Outcome:
    """The default, but for convolutions an algorithm of two stages where there is one."""
    found = replace(untuned(task, LIMITS), tuned_ns=2000.0, default_ns=3000.0)
    if task.op != "Conv":
        return found
    configurations = family_of(task.op).space(task.problem, LIMITS).configurations()
    return replace(found, configuration=next(one for one in configurations if one["ALG"] > 0))


def made(folder: Path, fused: bool) -> tuple[Schematic, Built, Path]:
    """The schematic of two graphs as it is read again, and what was built."""
    path = models.save(model(), folder)
    sources = []
    for one in Graphs(read_graphs([ModelFile(path, SHAPES)])).models:
        plan = one.plan_with(one.groups) if fused else one.plan
        outcomes = {task_key(task).digest: outcome_of(task) for task in plan.tasks}
        sources.append(Source(Decision(plan, outcomes), one.node_ops))
    target: Any = FakeTarget()
    wanted = [Wanted(one.decision.plan, one.decision.outcomes) for one in sources]
    built = build_all(wanted, target)
    file = folder / "small_schematic.bin"
    write_schematic(file, schematic_of([path], folder / "small.bin", "tier", DEVICE, sources, built, PEAKS, LIMITS))
    return read_schematic(file), built, path


@pytest.fixture(params=[False, True], ids=["apart", "fused"], scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Schematic, Built, Path]:
    return made(tmp_path_factory.mktemp("schematic"), request.param)


def labels(path: Path) -> dict[str, str]:
    """The types of the nodes by what the importer calls them."""
    return {f"{node.op_type}_{place}": node.op_type for place, node in enumerate(onnx.load(path).graph.node)}


def contracted(edges: Iterable[tuple[str, str]], owner: Mapping[str, str]) -> set[tuple[str, str]]:
    """Edges between owners, of which there are none within one; what has none is passed through."""
    after: dict[str, set[str]] = {}
    for before, behind in edges:
        after.setdefault(before, set()).add(behind)

    def reached(node: str) -> set[str]:
        found = after.get(node, set())
        return {owner[one] for one in found if one in owner}.union(*(reached(one) for one in found if one not in owner))

    return {(owner[one], other) for one in after if one in owner for other in reached(one) if other != owner[one]}


def test_every_launch_belongs_to_one_operation(both: tuple[Schematic, Built, Path]) -> None:
    schematic, built, _ = both
    for plan, graph in zip(schematic.graphs, built.graphs, strict=True):
        places = [place for one in plan.operations for place in one.launches]
        assert places == list(range(len(graph.launches)))
        assert len(places) > len(plan.operations), "a convolution has stages"
        for one in plan.operations:
            assert {(graph.launches[place].operation, graph.launches[place].task) for place in one.launches} == {
                (one.name, one.task)
            }
        assert plan.digest == digest_of(logged_launches(graph))
    assert len({plan.digest for plan in schematic.graphs}) == 2


def test_edges_are_those_of_the_model(both: tuple[Schematic, Built, Path]) -> None:
    schematic, _, path = both
    nodes = labels(path)
    writers = {node.output[0]: name for name, node in zip(nodes, onnx.load(path).graph.node, strict=True)}
    in_model = [
        (writers[tensor], name)
        for name, node in zip(nodes, onnx.load(path).graph.node, strict=True)
        for tensor in node.input
        if tensor in writers
    ]
    for plan in schematic.graphs:
        names = [one.name for one in plan.operations]
        own = {one.name: one.name for one in plan.operations if one.nodes}
        assert len(own) < len(names), "conversions stand for no node"
        edges = [(names[before], names[behind]) for before, behind, _ in plan.edges()]
        by_node = {node: one.name for one in plan.operations for node in one.nodes}
        assert contracted(edges, own) == contracted(in_model, by_node) != set()
        assert plan.nodes == nodes
        assert set(nodes) - set(by_node) == {"Reshape_6"}


def test_memory_is_where_launches_have_it(both: tuple[Schematic, Built, Path]) -> None:
    """A launch reads and writes in arenas what its operation needs, and nothing that is there shares its bytes."""
    schematic, built, _ = both
    for plan, graph in zip(schematic.graphs, built.graphs, strict=True):
        tensors = {one.name: one for one in plan.tensors}
        arena = [one for one in plan.tensors if one.kind == "arena" and one.name not in plan.aliases]
        for place, one in enumerate(plan.operations):
            named = {*one.inputs.values(), one.output}
            assert all(tensors[name].first <= place <= tensors[name].last for name in named)
            scratch = {each.name for each in arena if each.first == each.last == place} - named
            there = {(tensors[name].arena, tensors[name].offset, tensors[name].nbytes) for name in named | scratch}
            refs = {ref for launch in one.launches for ref in graph.launches[launch].refs if ref.kind == "arena"}
            assert {(ref.index, ref.offset, ref.nbytes) for ref in refs} <= there
        for number, one_tensor in enumerate(arena):
            assert one_tensor.offset + one_tensor.nbytes <= plan.arena_bytes[one_tensor.arena]
            for other in arena[:number]:
                together = one_tensor.first <= other.last and other.first <= one_tensor.last
                apart = one_tensor.offset >= other.offset + other.nbytes or other.offset >= (
                    one_tensor.offset + one_tensor.nbytes
                )
                assert apart or not together or one_tensor.arena != other.arena
        assert any(one.dtype == "uint8" for one in arena), "scratch"
        check_ends(plan)


def check_ends(plan: GraphPlan) -> None:
    """What the application has is there before, or kept behind; a view has the life time of its memory."""
    tensors = {one.name: one for one in plan.tensors}
    assert tensors["x"].first == -1 and tensors["x"].last == 0
    assert [tensors[name].last for name in ("y", "z")] == [len(plan.operations)] * 2
    assert plan.aliases == {"t": "s/NCHW"}
    assert replace(tensors["t"], name="", shape=()) == replace(tensors["s/NCHW"], name="", shape=())


def test_operations_say_what_runs_and_what_it_takes(both: tuple[Schematic, Built, Path]) -> None:
    schematic, _, path = both
    conv = next(one for one in schematic.graphs[0].operations if one.op == "Conv")
    assert (conv.op, conv.nodes, conv.alone_ns, conv.default_ns) == ("Conv", ("Conv_0", "Relu_1"), 2000.0, 3000.0)
    outputs, products = 16 * 8 * 8, 16 * 3 * 3
    assert 2 * outputs * products <= conv.flops <= 2 * outputs * (products + 1)
    assert conv.nbytes == 4 * (2 * outputs + 16 * products)
    assert conv.configuration["ALG"] > 0 == conv.default["ALG"]
    assert (schematic.model, schematic.context, schematic.peaks) == (path.name, "small.bin", PEAKS)


def test_a_node_is_of_the_type_that_the_model_says(tmp_path: Path) -> None:
    """Also where it is replaced by what it stands for."""
    branches = """y = If (yes) <
        then_branch = g1 () => (float[4] t) { u = Exp(x) t = Tanh(u) },
        else_branch = g2 () => (float[4] e) { e = Relu(x) }>"""
    path = models.save(models.build("(float[4] x) => (float[4] y)", branches, {"yes": np.array(True)}), tmp_path)
    (one,) = Graphs(read_graphs([ModelFile(path)])).models
    assert one.node_ops == {"If_0": "If"}
    assert {node for operation in one.plan.operations for node in operation.nodes} == {"If_0"}


def test_peaks_are_the_best_that_was_measured(cache: PerformanceCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the context's tasks where they are faster, else by tasks for this that are measured once."""
    monkeypatch.setattr(peaks, "ARITHMETIC", Task("MatMul", MatMulProblem(64, 64, 64), 1))
    monkeypatch.setattr(peaks, "MEMORY", Task("MatMul", MatMulProblem(256, 4, 4), 1))
    target: Any = AnsweringTarget(by_width)
    first = peaks_of([], target, cache, frozen=False)
    assert first is not None and target.requests
    least_ns = min(sum(by_width(dict(one)).samples_ns) / 3 for one in map(eval, target.measured))
    assert first.flops_per_ns == pytest.approx(2 * 64**3 / least_ns)
    assert first.bytes_per_ns == pytest.approx(4 * 3 * 64 * 64 / least_ns)
    count = len(target.requests)
    assert peaks_of([], target, cache, frozen=False) == first and len(target.requests) == count
    assert peaks_of([], target, cache, frozen=True) is None
    task = Task("MatMul", MatMulProblem(8, 8, 8), 1)
    own: Any = SimpleNamespace(
        plan=SimpleNamespace(tasks=[task]),
        outcomes={task_key(task).digest: replace(untuned(task, LIMITS), tuned_ns=0.1)},
    )
    fast = peaks_of([own], target, cache, frozen=False)
    assert fast is not None and fast.flops_per_ns == 2 * 8**3 / 0.1 > first.flops_per_ns


@pytest.fixture
def recorded(generate: Generate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Generates two graphs of one operation in the folder `here`."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = models.save(models.build("(float[1,n] x) => (float[1,n] y)", "y = Tanh(x)"), tmp_path)

    def run(*arguments: object, effort: str = "none") -> Ran:
        tuned = () if effort == "none" else ("--config_file", config_file(tmp_path))
        return generate.gputune(
            "context-binary-generator", "--model", path, *generate.target, *tuned, "--tuning_effort", effort,
            "--binary_file", "net", "--input_dimensions", "x=1,8;x=1,12", *arguments,
        )  # fmt: skip

    return run


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_schematic_lies_beside_its_context_and_the_log_in_the_folder_asked_for(recorded: Any, tmp_path: Path) -> None:
    ran = recorded("--output_dir", "out", "--profiling_level", "linting", effort="quick")
    assert ran.code == 0, ran.err
    assert files(tmp_path / "here") == {"out/net.bin", "out/net_schematic.bin", f"out/profilelogs/{LOG_NAME}"}
    folder = tmp_path / "here" / "out"
    schematic, header = read_schematic(folder / "net_schematic.bin"), read_header(folder / "net.bin")
    assert [one.digest for one in schematic.graphs] == [digest_of(logged_launches(one)) for one in header.graphs]
    assert schematic.peaks is None, "the device computes nothing"
    log = read_log(folder / "profilelogs" / LOG_NAME)
    assert (log.complete, log.header.level, log.header.device) == (True, "qhas", dict(schematic.device))
    named = {span.name: span.identifier for span in log.spans}
    assert named["init"] == INIT and named["finalize"] == FINALIZE and named["deinit"] == DEINIT
    phases = ("import", "lower", "tune", "chain", "write", "verify")
    assert {named[name] for name in phases} == {NODE} == {named[name] for name in named if "/" in name}
    assert {"init/connect", "tune/tuning", "finalize/compiling"} <= set(named)
    for span in log.spans:
        outer = span.name.rpartition("/")[0]
        around = [one for one in log.spans if one.name == outer and one.begun_ns <= span.begun_ns]
        assert not outer or any(span.ended_ns <= one.ended_ns for one in around)
    order = sorted((span for span in log.spans if "/" not in span.name), key=lambda span: span.begun_ns)
    assert all(one.ended_ns <= other.begun_ns for one, other in pairwise(order))


@pytest.mark.parametrize(
    ("options", "level"),
    [
        (("--profiling_level", "basic"), "basic"),
        (("--profiling_option", "optrace"), "detailed"),
        (("--profiling_level", "basic", "--profiling_option", "optrace"), "detailed"),
        (("--profiling_level", "qhas", "--profiling_option", "optrace"), "qhas"),
    ],
)
def test_levels(recorded: Any, tmp_path: Path, options: tuple[str, ...], level: str) -> None:
    ran = recorded("--binary_file", tmp_path / "there" / "net", *options)
    assert ran.code == 0, ran.err
    assert files(tmp_path / "there") == {"net.bin", "net_schematic.bin"}
    log = read_log(tmp_path / "here" / "profilelogs" / LOG_NAME)
    assert log.header.level == level
    assert any("/" in span.name for span in log.spans) == (level != "basic")


def test_nothing_is_recorded_unasked(recorded: Any, tmp_path: Path) -> None:
    assert recorded().code == 0
    assert files(tmp_path / "here") == {"output/net.bin"}


def test_a_generation_that_fails_says_how_far_it_came(
    recorded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "here" / "profilelogs" / LOG_NAME
    asked = ("--profiling_level", "basic")
    assert recorded(*asked, "--input_dimensions", "nothing=1").code == 3
    log = read_log(path)
    assert (
        log.complete
        and not log.header.device
        and [span.name for span in log.spans] == ["init", "init", "import", "deinit"]
    )
    monkeypatch.setattr(TaskRunner, "measure", broken)
    assert recorded(*asked, effort="quick").code == 130
    log = read_log(path)
    assert log.complete and log.header.device
    names = ["import", "lower", "init", "init", "init", "tune", "deinit"]
    assert [span.name for span in log.spans] == ["init", "init", *names]
    assert files(tmp_path / "here") == {f"profilelogs/{LOG_NAME}"}


def test_a_schematic_that_cannot_be_written_is_said_before_anything_is_done(recorded: Any, tmp_path: Path) -> None:
    (tmp_path / "here" / "output" / "net_schematic.bin").mkdir(parents=True)
    ran = recorded("--profiling_level", "basic")
    assert ran.code != 0 and "net_schematic.bin cannot be written" in ran.last_line
    assert files(tmp_path / "here") == set()
