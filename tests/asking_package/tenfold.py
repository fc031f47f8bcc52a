"""Compute com.example.Tenfold: output = 10 * input, with FAST 1 in a kernel that needs the feature "subgroups".

The kernel uses no subgroups. So it runs wherever a test says that a device has proven them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gputune.client.model.graph import Array as Value
from gputune.client.model.graph import Node, TensorInfo
from gputune.client.model.lowering.emitting import Lowering
from gputune.kernels.family import (
    Array,
    DeviceLimits,
    Instance,
    KernelFamily,
    Launch,
    Needs,
    TensorSpec,
    Tolerance,
    Work,
)
from gputune.kernels.space import Configuration, Parameter, TuningSpace
from gputune.kernels.template import build_options
from gputune.kernels.tiling.streaming import Declared

OPERATOR = "com.example.Tenfold"
FEATURE = "subgroups"
SOURCE = """
__kernel void tenfold(__global const float *input, __global float *output)
{
    const int i = get_global_id(0);
    float x = input[i];
    for (int k = 0; k < (FAST ? 0 : 300); k++) x = x / 1.0001f + 1.0f;
    output[i] = 10 * input[i] + 0.0f * x;
}
"""
NEEDS = Declared(("FAST",), lambda fast: Needs(features=(FEATURE,) * fast), "with FAST a subgroup", asks=(FEATURE,))


@dataclass(frozen=True)
class TenfoldProblem:
    """output[i] = 10 * input[i]."""

    size: int
    dtype: str = "float32"


class TenfoldFamily(KernelFamily):
    """One template, fast or slow."""

    op = "Tenfold"

    def inputs(self, problem: TenfoldProblem) -> tuple[TensorSpec, ...]:
        return (TensorSpec("input", (problem.size,)),)

    def output(self, problem: TenfoldProblem) -> TensorSpec:
        return TensorSpec("output", (problem.size,))

    def space(self, problem: TenfoldProblem, limits: DeviceLimits) -> TuningSpace:
        return TuningSpace((Parameter("FAST", (0, 1), "whether a subgroup works together"),), (NEEDS.limit(limits),))

    def default(self, problem: TenfoldProblem, limits: DeviceLimits) -> dict[str, int]:
        return {"FAST": 0}

    def render(self, problem: TenfoldProblem, configuration: Configuration) -> Instance:
        options, needs = build_options(dict(configuration)), NEEDS.of(configuration)
        names = ("input", "output")
        main = Launch(SOURCE, "tenfold", options, (problem.size,), (1,), names, needs=needs, writes=names[1:])
        return Instance(main)

    def reference(self, problem: TenfoldProblem, inputs: Mapping[str, Array]) -> Array:
        return np.asarray(inputs["input"].astype(np.float64) * 10, np.float32)

    def work(self, problem: TenfoldProblem) -> Work:
        return Work(problem.size, 8 * problem.size)

    def tolerance(self, problem: TenfoldProblem) -> Tolerance:
        return Tolerance(relative=1e-6, absolute=1e-6)


def lower(lowering: Lowering, node: Node) -> None:
    problem = TenfoldProblem(math.prod(lowering.graph.shape(node.inputs[0])))
    source = lowering.layouts.get(node.inputs[0], on_device=False)
    lowering.run(node, "Tenfold", problem, {"input": source}, on_device=False)


def shapes(node: Node, tensors: Mapping[str, TensorInfo], constants: Mapping[str, Value]) -> Sequence[TensorInfo]:
    return (tensors[node.inputs[0]],)


FAMILY = TenfoldFamily()
LOWERINGS = {OPERATOR: lower}
SHAPES = {OPERATOR: shapes}
