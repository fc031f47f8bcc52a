"""List models and tasks for benchmarks, and keep models that are made here in build/models."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

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
from tests.client.models import build


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


def saved(title: str, stem: str, make: Callable[[], onnx.ModelProto]) -> Model:
    """Return a model of static shapes in build/models, made anew; a file with the same contents is left alone."""
    path = material.MATERIAL / "classic" / f"{stem}.onnx"
    content = make().SerializeToString(deterministic=True)
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")  # others may be reading the file
        partial.write_bytes(content)
        partial.replace(path)
    return Model(title, path, {})


def demo() -> Model:
    """The demo's model."""
    return Model("page orientation", material.orientation_model(), {"x": material.ORIENTATION_SHAPE})


def classifier() -> Model:
    """EfficientNet-Lite0."""
    return saved("EfficientNet-Lite0", "efficientnet_lite0", efficientnet.model)


def small() -> Model:
    """A convolution and a matrix product, for trying the tools out."""
    return saved("a small model", "small", lambda: small_network(3, 16, 8))


def small_network(channels: int, side: int, filters: int, stride: int = 1) -> onnx.ModelProto:
    """Return a convolution of a square map, and a matrix product to ten numbers."""
    after = -(-side // stride)
    return build(
        f"(float[1,{channels},{side},{side}] x) => (float[1,10] y)",
        f"""c = Conv<pads=[1,1,1,1], strides=[{stride},{stride}]>(x, w)
            f = Flatten(c)
            y = Gemm(f, m)""",
        {"w": (filters, channels, 3, 3), "m": (filters * after**2, 10)},
    )


def three_tasks() -> tuple[Task, ...]:
    """Return a convolution and a product of the detector, and a depthwise convolution of the demo's model."""
    square, around = (3, 3), (1, 1, 1, 1)
    problems = (
        ("Conv", ConvProblem(1, 40, 40, 96, 24, square, pads=around)),
        ("DepthwiseConv", DepthwiseProblem(1, 14, 14, 256, (5, 5), pads=(2, 2, 2, 2), bias=True)),
        ("MatMul", MatMulProblem(6400, 48, 12, bias=True)),
    )
    return tuple(Task(op, problem, 1) for op, problem in problems)
