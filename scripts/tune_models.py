"""The models and tasks that `scripts/bench tune` works on."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import efficientnet
import material
from gputune.client.importer import read_model
from gputune.client.lowering import lower
from gputune.client.plan import Plan, Task
from gputune.client.tuning.task_search import task_key
from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.transpose import TransposeProblem

DETECTOR_SIDE = 320
NOT_LOWERED = ("Resize", "Concat", "ConvTranspose")
"""Operators of the text detector for which there are no kernels yet."""


@dataclass(frozen=True)
class Model:
    """A model file, the shapes of its inputs, and what has to be known of it."""

    title: str
    path: Path
    dimensions: Mapping[str, tuple[int, ...]]

    def plan(self) -> Plan:
        """What it is lowered to. Raises ModelError."""
        return lower(read_model(self.path, self.dimensions))


def tasks_by_key(plan: Plan) -> dict[str, Task]:
    """The plan's tasks by the keys that summaries name them with."""
    return {task_key(task).digest: task for task in plan.tasks}


def demo() -> Model:
    """The demo's model."""
    return Model("page orientation", material.orientation_model(), {"x": material.ORIENTATION_SHAPE})


def detector() -> Model:
    """The text detector without the operators that have no kernels yet: where they were, the graph ends and begins
    again, so that all others work on the same shapes as in the whole model."""
    whole = material.detector_model()
    path = whole.with_name(f"{whole.stem}_{DETECTOR_SIDE}_cut.onnx")
    model = onnx.load(whole)
    batch = model.graph.input[0].type.tensor_type.shape.dim
    for dimension, size in zip(batch, (1, 3, DETECTOR_SIDE, DETECTOR_SIDE), strict=True):
        dimension.dim_value = size
    cut, removed = without(model, NOT_LOWERED)
    title = f"text detector at {DETECTOR_SIDE}, less {removed} nodes ({', '.join(NOT_LOWERED)})"
    return _saved(title, cut, path)


def classifier() -> Model:
    """EfficientNet-Lite0."""
    path = material.MATERIAL / "efficientnet_lite0" / "efficientnet_lite0.onnx"
    return _saved("EfficientNet-Lite0", efficientnet.model(), path)


def small() -> Model:
    """A convolution and a matrix product, for trying the tools out."""
    numbers = np.random.default_rng(3)
    weights = {"w": (8, 3, 3, 3), "m": (8 * 16 * 16, 10)}
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4),
        onnx.helper.make_node("Flatten", ["c"], ["f"], "flatten"),
        onnx.helper.make_node("Gemm", ["f", "m"], ["y"], "gemm"),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "small",
        [value("x", onnx.TensorProto.FLOAT, [1, 3, 16, 16])],
        [value("y", onnx.TensorProto.FLOAT, [1, 10])],
        [
            onnx.numpy_helper.from_array(np.float32(0.1) * numbers.standard_normal(shape, dtype=np.float32), name)
            for name, shape in weights.items()
        ],
    )
    path = material.MATERIAL / "small.onnx"
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    return _saved("a small model", model, path)


def _saved(title: str, model: onnx.ModelProto, path: Path) -> Model:
    """A model of static shapes in a file, which others may be reading."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    onnx.save(model, partial)
    partial.replace(path)
    return Model(title, path, {})


def ten_tasks() -> tuple[Task, ...]:
    """Tasks of those models, of five families, whose spaces have at least 500 configurations on a CPU."""
    relu6, square = Chain((Step("clip", (0.0, 6.0)),)), (3, 3)
    around, below = (1, 1, 1, 1), (0, 0, 1, 1)
    blend = Chain((Step("mul", operand=0), Step("add", operand=1), Step("add", operand=2)))
    map_of = (1, 80, 80, 96)
    problems = (
        ("Conv", ConvProblem(1, 224, 224, 3, 16, square, (2, 2), around, bias=True)),  # demo
        ("Conv", ConvProblem(1, 224, 224, 3, 32, square, (2, 2), below, bias=True, epilogue=relu6)),  # efficientnet
        ("Conv", ConvProblem(1, 40, 40, 96, 24, square, pads=around)),  # detector
        ("DepthwiseConv", DepthwiseProblem(1, 56, 56, 64, square, pads=around, bias=True)),  # demo
        ("DepthwiseConv", DepthwiseProblem(1, 14, 14, 256, (5, 5), pads=(2, 2, 2, 2), bias=True)),  # demo
        ("MatMul", MatMulProblem(6400, 48, 12, bias=True)),  # detector
        ("MatMul", MatMulProblem(1, 512, 1280)),  # demo
        ("MatMul", MatMulProblem(196, 256, 256, bias=True)),  # demo
        ("Transpose", TransposeProblem(1, 3, 224, 224, "NCHW", "NHWC")),  # demo and efficientnet
        ("Elementwise", ElementwiseProblem(map_of, ((1, 1, 1, 96), map_of, map_of), map_of, blend)),  # detector
    )
    return tuple(Task(op, problem, 1) for op, problem in problems)


def peer_task() -> Task:
    """A 3x3 convolution of 64 channels to 64 on a map of 28 x 28."""
    return Task("Conv", ConvProblem(1, 28, 28, 64, 64, (3, 3), pads=(1, 1, 1, 1)), 1)


MODELS: Mapping[str, Callable[[], Model]] = {
    "demo": demo,
    "detector": detector,
    "efficientnet": classifier,
    "small": small,
}


def without(model: onnx.ModelProto, operators: Sequence[str]) -> tuple[onnx.ModelProto, int]:
    """The model less all nodes of these operators, and how many those were: what they read becomes an output, what they
    write an input. Shapes must be static."""
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    graph = model.graph
    kept = [node for node in graph.node if node.op_type not in operators]
    removed = [node for node in graph.node if node.op_type in operators]
    read, made = {name for node in kept for name in node.input}, {value.name for value in graph.input}
    for node in graph.node:  # in the order in which they can be computed
        if node.op_type != "Shape" and made.intersection(node.input):  # else it is a constant
            made.update(node.output)
    made.difference_update(name for node in removed for name in node.output)
    values = {value.name: value for value in (*graph.value_info, *graph.output)}
    entries = [name for node in removed for name in node.output if name in read]
    exits = [name for node in removed for name in node.input if name in made]
    exits += [value.name for value in graph.output if value.name in made]
    inputs = [*(value for value in graph.input if value.name in read), *(values[name] for name in entries)]
    outputs = [values[name] for name in dict.fromkeys(exits)]
    cut = onnx.helper.make_graph(kept, graph.name, inputs, outputs, graph.initializer)
    return onnx.helper.make_model(cut, opset_imports=model.opset_import, ir_version=model.ir_version), len(removed)
