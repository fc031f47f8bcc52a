"""List the models and tasks for `scripts/bench tune`."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from gputune.client.model.alternatives import Alternatives
from gputune.client.model.graph import Graph
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.plan import Plan, Task
from gputune.client.tuning.search.task_search import task_key
from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.transpose import TransposeProblem
from models import material
from models.architectures import efficientnet

DETECTOR_SIDE = 640


@dataclass(frozen=True)
class Model:
    """A model file, the shapes of its inputs, and what has to be known of it."""

    title: str
    path: Path
    dimensions: Mapping[str, tuple[int, ...]]

    def graph(self) -> Graph:
        """What it is imported as. Raises ModelError."""
        return read_model(self.path, self.dimensions)

    def plan(self) -> Plan:
        """What it is lowered to. Raises ModelError."""
        return lower(self.graph())


def tasks_by_key(model: Model) -> dict[str, Task]:
    """The tasks of all plans of a model by the keys that summaries name them with."""
    return {task_key(task).digest: task for task in Alternatives(model.graph()).tasks}


def demo() -> Model:
    """The demo's model."""
    return Model("page orientation", material.orientation_model(), {"x": material.ORIENTATION_SHAPE})


def detector() -> Model:
    """The text detector for maps of one size."""
    dimensions = {"x": (1, 3, DETECTOR_SIDE, DETECTOR_SIDE)}
    return Model(f"text detector at {DETECTOR_SIDE}", material.detector_model(), dimensions)


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
