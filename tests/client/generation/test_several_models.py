"""Test several models in one context: each has its own graphs, and common parts are kept once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from gputune.client.model.graphs import Graphs, read_graphs
from gputune.client.model.model_files import ModelFile
from gputune.client.options.config import KEYS
from gputune.client.viewer.schematic import read_schematic
from gputune.runtime.context.ep_context import ep_contexts
from gputune.runtime.context.records import BufferRef, ContextHeader, GraphRecord
from tests.client import models
from tests.client.commands import Generate, Generated, Gputune
from tests.client.model.test_alternatives import two_blocks

SHARED = models.positive(12, 5)
"""Weights of both models."""


@pytest.fixture
def two(tmp_path: Path) -> str:
    """a.onnx and b.onnx: the same product, behind one operation, or in front of others."""
    bodies = {
        "a": ("(float[n,12] x) => (float[n,5] y)", "e = Exp(x) y = MatMul(e, m)"),
        "b": (
            "(float[n,12] x, float[n,5] z) => (float[n,5] y)",
            "p = MatMul(x, m) s = Softmax(p) t = Softmax<axis=0>(s) u = Softmax(t) y = Add(u, z)",
        ),
    }
    for name, (signature, body) in bodies.items():
        onnx.save(models.build(signature, body, {"m": SHARED}), tmp_path / f"{name}.onnx")
    return ",".join(str(tmp_path / f"{name}.onnx") for name in bodies)


@pytest.fixture
def generate(generate: Generate, two: str) -> Callable[..., Generated]:
    def run(*arguments: object, dimensions: str = "x=2,12;z=2,5", **how: Any) -> Generated:
        return generate("--model", two, "--input_dimensions", dimensions, *arguments, **how)

    return run


def weights_of(header: ContextHeader) -> list[set[BufferRef]]:
    return [
        {ref for launch in graph.launches for ref in launch.refs if ref.kind == "weights"} for graph in header.graphs
    ]


def places(graph: GraphRecord) -> set[tuple[int, int]]:
    """Where in arenas something lies."""
    return {(ref.index, ref.offset) for launch in graph.launches for ref in launch.refs if ref.kind == "arena"}


def test_graphs_are_named_after_files_and_share_tasks_programs_and_weights(generate: Any) -> None:
    ran = generate(effort="quick")
    header = ran.header
    assert [graph.name for graph in header.graphs] == ["a", "b"]
    assert [len(graph.inputs) for graph in header.graphs] == [1, 2]
    products = [task for task in ran.summary["tasks"] if task["op"] == "MatMul"]
    assert [task["weight"] for task in products] == [2], "it is tuned once"
    of_products = {
        launch.program for graph in header.graphs for launch in graph.launches if launch.task == products[0]["key"]
    }
    assert len(of_products) == 1
    one, other = weights_of(header)
    assert one == other != set()
    assert header.configuration["models"] == ["a.onnx", "b.onnx"]


def test_shapes_go_to_the_model_that_is_named_or_to_each_that_has_the_input(generate: Any) -> None:
    header = generate(dimensions="a:x=3,12;a:x=7,12;b:x=2,12;z=2,5").header
    assert [graph.name for graph in header.graphs] == ["a_3x12", "a_7x12", "b"]
    assert [graph.inputs[0].shape for graph in header.graphs] == [(3, 12), (7, 12), (2, 12)]


@pytest.mark.parametrize(
    ("dimensions", "complaint"),
    [
        ("x=2,12;y=2,5", "none of the models a, b has an input or dimension 'y'; there are 'x', 'n', 'z', "),
        ("x=2,12;c:z=2,5", "none of the models a, b has an input or dimension 'c:z'; did you mean 'b:z'?"),
        ("b:x=2,12;b:x=3,12;b:z=2,5;b:z=3,5;b:z=4,5;a:x=1,12", "'x' of model 'b' has 2 shapes, another name has 3"),
    ],
)
def test_shapes_of_no_model_are_an_error(generate: Any, dimensions: str, complaint: str) -> None:
    ran = generate(dimensions=dimensions)
    assert ran.code == 2
    assert complaint in ran.last_line


def test_two_files_of_one_name_are_an_error(generate: Any, gputune: Gputune, two: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "a.onnx"
    twin.write_bytes((tmp_path / "a.onnx").read_bytes())
    ran = gputune("context-binary-generator", "--model", f"{two},{twin}", "--binary_file", "two", "--device", "null")
    assert ran.code == 2
    assert "would both be graph 'a'" in ran.last_line and str(twin) in ran.last_line


def test_what_lies_beside_the_context_knows_its_graphs(generate: Any, tmp_path: Path) -> None:
    """An ONNX file, a schematic, memory types and further outputs of single graphs."""
    beside = tmp_path / "output" / "two.onnx"
    ran = generate(
        "--ep_context", beside, "--profiling_level", "basic", "--set_output_tensors", "b:p",
        "--input_output_tensor_mem_type", "y=memhandle,a:y=raw",
    )  # fmt: skip
    header = ran.header
    assert [node.name for node in ep_contexts(beside)] == ["a", "b"]
    schematic = read_schematic(tmp_path / "output" / "small_schematic.bin")
    assert schematic.model == "a.onnx,b.onnx" and [graph.name for graph in schematic.graphs] == ["a", "b"]
    types = [{tensor.name: tensor.memory_type for tensor in graph.outputs} for graph in header.graphs]
    assert types == [{"y": "raw"}, {"y": "memhandle", "p": "raw"}]


def test_a_graph_name_before_a_tensor_has_to_be_one(generate: Any) -> None:
    ran = generate("--input_output_tensor_mem_type", "c:z=memhandle")
    assert ran.code == 2 and "no input or output 'c:z'" in ran.last_line and "did you mean 'b:z'?" in ran.last_line


def test_only_enabled_graphs_are_made(generate: Any) -> None:
    header = generate(context_configs={"enable_graphs": ["b"]}).header
    assert [graph.name for graph in header.graphs] == ["b"]
    assert header.configuration["enable_graphs"] == ["b"]


def test_settings_of_single_graphs(generate: Any) -> None:
    """graph_names says for which graph tensors stay apart; the other one shares its arena."""
    plain = generate().header
    apart = generate(effort="quick", graph_names=["b"], disable_memory_optimizations=True).header
    assert apart.graphs[0].arena_bytes == plain.graphs[0].arena_bytes
    tensors, shared = (len(places(header.graphs[1])) for header in (apart, plain))
    assert tensors > shared, "where memory is shared, an early and a late tensor have one place"
    assert [graph["shared_memory"] for graph in apart.configuration["graphs"].values()] == [True, False]


def test_a_graph_that_is_not_there_is_an_error_with_the_nearest(generate: Any) -> None:
    ran = generate(effort="quick", graph_names=["bb"], disable_node_optimizations=True)
    assert ran.code == 2
    assert "graph_names: there is no graph 'bb'; did you mean 'b'?" in ran.last_line


def test_a_context_says_what_every_key_has_come_to(generate: Any) -> None:
    """But for where targets are, a report, a wait and a gate. Keys of single graphs are said graph by graph."""
    configuration = generate().header.configuration
    of_graphs = {"graph_names", *(key for key in KEYS.of("file") if key.startswith("disable_"))}
    told = {*configuration, *(key.removesuffix("_seconds") for key in configuration)}
    unsaid = {"target", "report", "wait_for_quiet", "fail_under"}
    default = {
        "weights",
        "unsupported",
        "io_type",
        "keep_float32",
        "float64",
        "state",
        "state_capacity",
    }  # said if they are not as usual
    default.add("quantised")  # said of models with such nodes
    assert set(KEYS.of("file")) - told - of_graphs == unsaid | default
    assert set(KEYS.of("context")) <= told
    settings = {"persistent_kernels": True, "queue_recording": True, "fusion": True, "shared_memory": True}
    assert configuration["graphs"] == {"a": settings, "b": settings}


def test_operations_stay_apart_where_nodes_are_not_to_be_optimised(tmp_path: Path) -> None:
    """Nothing is there to be chosen, so that no tuning can fuse them."""
    (graph,) = read_graphs([ModelFile(models.save(two_blocks(), tmp_path))])
    other = replace(graph, name="other")
    assert [len(one.groups) > 0 for one in Graphs([graph, other], ["other"]).models] == [True, False]
    assert len(Graphs([other], ["other"]).tasks(fused=True)) < len(Graphs([graph]).tasks(fused=True))
