"""Test several shapes of one model in one context: tasks merge, constants and programs are kept once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputune.client.model.graphs import Graphs, read_graphs
from gputune.client.model.lowering import lower
from gputune.client.model.model_files import ModelFile
from gputune.client.tuning.search.task_search import task_key
from gputune.runtime.context.format import read_header
from gputune.runtime.context.records import BufferRef
from tests.client import models
from tests.client.commands import Gputune, config_file, read_json

SHAPES = ({"x": (1, 3, 6, 5)}, {"x": (1, 3, 6, 7)})


def model() -> Any:
    """What behind the pooling is the same for each width, as a task and by its weights."""
    return models.build(
        "(float[1,3,h,w] x) => (float[1,5] y)",
        """c = Conv<pads=[1,1,1,1]>(x, k)
           p = GlobalMaxPool(c)
           f = Flatten(p)
           y = Gemm<transB=1>(f, m, n)""",
        {"k": (4, 3, 3, 3), "m": (5, 4), "n": (5,)},
    )


def test_equal_problems_are_one_task_with_the_weight_of_both(tmp_path: Path) -> None:
    graphs = Graphs(read_graphs([ModelFile(models.save(model(), tmp_path), SHAPES)]))
    assert [one.plan.name for one in graphs.models] == ["small_1x3x6x5", "small_1x3x6x7"]
    weights = {(task.op, task.problem): task.weight for task in graphs.tasks(fused=False)}
    products = [weight for (op, _), weight in weights.items() if op == "MatMul"]
    assert products == [2]
    assert sum(weights.values()) == sum(len(one.plan.operations) for one in graphs.models)
    assert len(weights) == 2 * len(graphs.models[0].plan.tasks) - 1
    shared = next(task for task in graphs.tasks(fused=True) if task.op == "MatMul")
    assert graphs.nodes_of[shared] == ("Gemm_3",)
    of_one = next(task for task in graphs.models[0].tasks if task.op == "MatMul")
    assert of_one.weight == 1 and graphs.nodes_of[of_one] == ("Gemm_3",), "a pin by node reaches each graph"


def test_one_graph_keeps_the_models_name(tmp_path: Path) -> None:
    (graph,) = read_graphs([ModelFile(models.save(model(), tmp_path), SHAPES[:1])])
    assert graph.name == "small"


@pytest.fixture
def generate(gputune: Gputune, tmp_path: Path) -> Callable[..., Any]:
    def run(target: tuple[object, ...], effort: str) -> Any:
        ran = gputune(
            "context-binary-generator", "--model", models.save(model(), tmp_path), "--binary_file", "two",
            "--output_dir", tmp_path, *target, "--tuning_effort", effort,
            "--input_dimensions", "x=1,3,6,5;x=1,3,6,7", "--summary_json", tmp_path / "summary.json",
            *(("--config_file", config_file(tmp_path)) if effort != "none" else ()),
        )  # fmt: skip
        assert ran.code == 0, ran.err
        return read_json(tmp_path / "summary.json")

    return run


@pytest.mark.slow
@pytest.mark.parametrize("effort", ["none", "quick"])
def test_a_context_of_two_graphs(
    generate: Any, gputune: Gputune, null_target: tuple[object, ...], tmp_path: Path, effort: str
) -> None:
    summary = generate(null_target, effort)
    plans = [lower(graph) for graph in read_graphs([ModelFile(tmp_path / "model.onnx", SHAPES)])]
    keys = {task_key(task).digest for plan in plans for task in plan.tasks}
    assert {task["key"] for task in summary["tasks"] if task["weight"]} == keys
    assert [task["weight"] for task in summary["tasks"] if task["op"] == "MatMul"] == [2]
    header = read_header(tmp_path / "two.bin")
    assert [graph.name for graph in header.graphs] == ["small_1x3x6x5", "small_1x3x6x7"]
    assert [graph.inputs[0].shape for graph in header.graphs] == [(1, 3, 6, 5), (1, 3, 6, 7)]
    assert len(header.programs) == len(keys), "a program that both run is there once"
    products = [
        [each for launch in graph.launches if "Gemm" in launch.operation for each in launch.arguments]
        for graph in header.graphs
    ]
    weights = [[one for one in each if isinstance(one, BufferRef) and one.kind == "weights"] for each in products]
    assert weights[0] == weights[1] != []


@pytest.mark.parametrize(
    ("dimensions", "complaint"),
    [
        (("x=1,3,6,5;x=1,3,6,5",), "two graphs would have the same shapes"),
        (("x=1,3,6,5;x=1,3,6,7", "y=1;y=2;y=3"), "'x' has 2 shapes, another name has 3"),
        (("x=1,3,6,5;",), "'' is not of the form"),
    ],
)
def test_shapes_that_mean_nothing(
    gputune: Gputune, tmp_path: Path, dimensions: tuple[str, ...], complaint: str
) -> None:
    options = [word for text in dimensions for word in ("--input_dimensions", text)]
    ran = gputune("model-check", tmp_path / "m.onnx", *options)
    assert ran.code == 2
    assert complaint in ran.err
