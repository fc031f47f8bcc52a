"""List models and tasks for benchmarks."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from gputune.client.model.graph import Graph
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.plan import Plan, Task
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from models import material
from models.architectures import efficientnet

DETECTOR_SIDE = 640


@dataclass(frozen=True)
class Model:
    """A model file, the shapes of its inputs, and what has to be known of it."""

    title: str
    path: Path
    dimensions: Mapping[str, tuple[int, ...]]

    @property
    def shapes(self) -> str:
        """The shapes of its inputs as --input_dimensions takes them."""
        return ";".join(f"{name}={','.join(map(str, shape))}" for name, shape in self.dimensions.items())

    def graph(self) -> Graph:
        """What it is imported as. Raises ModelError."""
        return read_model(self.path, self.dimensions)

    def plan(self) -> Plan:
        """What it is lowered to. Raises ModelError."""
        return lower(self.graph())


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


def three_tasks() -> tuple[Task, ...]:
    """Return a convolution and a product of the detector, and a depthwise convolution of the demo's model."""
    square, around = (3, 3), (1, 1, 1, 1)
    problems = (
        ("Conv", ConvProblem(1, 40, 40, 96, 24, square, pads=around)),
        ("DepthwiseConv", DepthwiseProblem(1, 14, 14, 256, (5, 5), pads=(2, 2, 2, 2), bias=True)),
        ("MatMul", MatMulProblem(6400, 48, 12, bias=True)),
    )
    return tuple(Task(op, problem, 1) for op, problem in problems)


MODELS: Mapping[str, Callable[[], Model]] = {
    "demo": demo,
    "detector": detector,
    "efficientnet": classifier,
    "small": small,
}
