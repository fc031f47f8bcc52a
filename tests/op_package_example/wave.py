"""Compute com.example.Wave: output = amplitude * sin(input) + shift[c], over rows [rows, columns]; the shift is a
constant.

The operator has the inputs X (float32, any rank) and shift [last axis of X], and the attribute amplitude, 1 by default.
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
    TensorSpec,
    Tolerance,
    Work,
)
from gputune.kernels.space import Configuration, TuningSpace
from gputune.kernels.template import build_options, template
from gputune.kernels.tiling.streaming import check_indices, default_group, group_constraints, group_parameters, round_up

OPERATOR = "com.example.Wave"


@dataclass(frozen=True)
class WaveProblem:
    """output[r, c] = amplitude * sin(input[r, c]) + shift[c]."""

    rows: int
    columns: int
    amplitude: float
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1:
            raise ValueError(f"Wave needs positive sizes, not [{self.rows}, {self.columns}]")
        check_indices("Wave", (self.rows, self.columns))


class WaveFamily(KernelFamily):
    """One template: a work-item for each element."""

    op = "Wave"

    def inputs(self, problem: WaveProblem) -> tuple[TensorSpec, ...]:
        shift = TensorSpec("shift", (problem.columns,), constant=True)
        return TensorSpec("input", (problem.rows, problem.columns)), shift

    def output(self, problem: WaveProblem) -> TensorSpec:
        return TensorSpec("output", (problem.rows, problem.columns))

    def space(self, problem: WaveProblem, limits: DeviceLimits) -> TuningSpace:
        return TuningSpace(group_parameters(), tuple(group_constraints(limits)))

    def default(self, problem: WaveProblem, limits: DeviceLimits) -> dict[str, int]:
        across, down = default_group(limits, problem.columns, problem.rows)
        return {"DIMX": across, "DIMY": down}

    def guesses(self, problem: WaveProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        wanted, space = [{"DIMX": 16, "DIMY": 1}], self.space(problem, limits)
        return [one for one in wanted if one != self.default(problem, limits) and not space.violations(one)]

    def render(self, problem: WaveProblem, configuration: Configuration) -> Instance:
        across, down = configuration["DIMX"], configuration["DIMY"]
        sizes: dict[str, int | str] = {"ROWS": problem.rows, "COLUMNS": problem.columns}
        amplitude = {"AMPLITUDE": f"{float(np.float32(problem.amplitude)).hex()}f"}
        main = Launch(
            source=template("wave_elements.cl", __package__),
            entry="wave_elements",
            options=build_options(sizes | amplitude | dict(configuration)),
            global_size=(round_up(problem.columns, across), round_up(problem.rows, down)),
            local_size=(across, down),
            arguments=("input", "shift", "output"),
        )
        return Instance(main)

    def reference(self, problem: WaveProblem, inputs: Mapping[str, Array]) -> Array:
        waves = problem.amplitude * np.sin(inputs["input"].astype(np.float64)) + inputs["shift"]
        return np.asarray(waves, np.float32)

    def work(self, problem: WaveProblem) -> Work:
        elements = problem.rows * problem.columns
        return Work(3 * elements, 4 * (2 * elements + problem.columns))

    def tolerance(self, problem: WaveProblem) -> Tolerance:
        return Tolerance(relative=1e-5, absolute=1e-6)


def lower(lowering: Lowering, node: Node) -> None:
    shape = lowering.graph.shape(node.inputs[0])
    shift = lowering.constant(node, 1, "shift")
    problem = WaveProblem(math.prod(shape[:-1]), shape[-1], float(node.attributes.get("amplitude", 1.0)))
    source = lowering.layouts.get(node.inputs[0], on_device=False)
    lowering.run(node, "Wave", problem, {"input": source, "shift": shift}, on_device=False)


def shapes(node: Node, tensors: Mapping[str, TensorInfo], constants: Mapping[str, Value]) -> Sequence[TensorInfo]:
    given, shift = (tensors[name] for name in node.inputs)
    if given.dtype != "float32" or shift.shape != given.shape[-1:]:
        raise ValueError(f"Wave takes float32 [..., n] and [n], not {given.dtype} {given.shape} and {shift.shape}")
    return (given,)


FAMILY = WaveFamily()
LOWERINGS = {OPERATOR: lower}
SHAPES = {OPERATOR: shapes}
