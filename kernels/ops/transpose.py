"""Convert rank-4 tensors from NCHW to NHWC and back, by transposing matrices one by one. See transpose_layout.cl."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, FLOATS, check_dtype
from gputune.kernels.family import (
    ALONE,
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
from gputune.kernels.hard_values import MOVES
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.template import build_options, moved, template
from gputune.kernels.tiling.streaming import (
    VECTOR_WIDTHS,
    Declared,
    busy,
    ceil_div,
    check_indices,
    default_group,
    fits,
    group_constraints,
    group_parameters,
    local_bytes,
    power_at_most,
    round_up,
)

BLOCK_SIDES = (1, 2, 3, 4, 8, 16)
"""Sides of a work-item's block; 3 is for pictures, which have three channels."""
MOST_IN_BLOCK = 128
MOST_STORED = 16
"""Elements that are stored at once at most."""
CPU_WRITES = 16
CPU_GROUP = 16


@dataclass(frozen=True)
class TransposeProblem:
    """The same tensor in the layout `target` instead of `source`; both are NCHW or NHWC, and they differ."""

    batch: int
    channels: int
    height: int
    width: int
    source: str
    target: str
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        if {self.source, self.target} != {"NCHW", "NHWC"}:
            raise ValueError(f"Transpose knows NCHW to NHWC and back, not {self.source} to {self.target}")
        if min(self.batch, self.channels, self.height, self.width) < 1:
            raise ValueError("Transpose needs positive sizes")
        check_dtype("Transpose", self.dtype)
        check_indices("Transpose", (self.batch, self.channels, self.height, self.width))

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of the matrix that each map is, before the conversion."""
        pixels = self.height * self.width
        return (self.channels, pixels) if self.source == "NCHW" else (pixels, self.channels)

    def shape(self, layout: str) -> tuple[int, ...]:
        """Return the tensor's shape in a layout."""
        sizes = {"N": self.batch, "C": self.channels, "H": self.height, "W": self.width}
        return tuple(sizes[letter] for letter in layout)


STAGE = ("VR", "VC", "DIMX", "DIMY", "STAGED", "PAD")
"""The parameters that decide the local memory of a work-group."""


class TransposeFamily(KernelFamily):
    """One template: blocks turned in registers, and through local memory where that pays."""

    op = "Transpose"
    floats = FLOATS
    survives = MOVES

    def inputs(self, problem: TransposeProblem) -> tuple[TensorSpec, ...]:
        return (TensorSpec("input", problem.shape(problem.source), dtype=problem.dtype),)

    def output(self, problem: TransposeProblem) -> TensorSpec:
        return TensorSpec("output", problem.shape(problem.target), dtype=problem.dtype)

    def space(self, problem: TransposeProblem, limits: DeviceLimits) -> TuningSpace:
        rows, columns = problem.matrix
        return TuningSpace(
            (
                Parameter("VR", BLOCK_SIDES, "rows of a block, and the vector width of writes"),
                Parameter("VC", BLOCK_SIDES, "columns of a block, and the vector width of reads"),
                *group_parameters(),
                Parameter("STAGED", (0, 1), "1: the work-group's blocks change hands in local memory"),
                Parameter("PAD", (0, 1), "elements between the rows in local memory"),
            ),
            (
                fits(rows, "a column", "VR"),
                fits(columns, "a row", "VC"),
                Constraint(
                    ("VR", "VC"),
                    lambda down, across: down * across <= MOST_IN_BLOCK,
                    f"VR*VC must not exceed {MOST_IN_BLOCK}, or a block does not stay in registers",
                ),
                busy(("VC", "DIMX"), columns * problem.batch, "the length of all rows beside each other"),
                busy(("VR", "DIMY"), rows, "the length of a column"),
                *group_constraints(limits),
                Constraint(
                    ("DIMX", "DIMY", "STAGED"),
                    lambda x, y, staged: not staged or x * y > 1,
                    "STAGED needs more than one work-item in a work-group",
                ),
                Constraint(("STAGED", "PAD"), lambda staged, pad: staged or not pad, "PAD is of use only with STAGED"),
                _needs(problem).limit(limits),
            ),
        )

    def default(self, problem: TransposeProblem, limits: DeviceLimits) -> dict[str, int]:
        rows, columns = problem.matrix
        down = 3 if rows == 3 else power_at_most(min(4, rows))
        across = 3 if columns == 3 else power_at_most(min(4, columns))
        if limits.device_type == "cpu" and rows >= max(columns, CPU_WRITES) and columns > 3:
            # neighbouring vectors of one line are written by one work-group, each a whole line of the cache
            most = min(limits.max_work_item_sizes[1], limits.max_work_group_size, ceil_div(rows, CPU_WRITES))
            down, x, y = CPU_WRITES, 1, power_at_most(min(CPU_GROUP, most))
        elif limits.device_type == "cpu" and problem.batch > 1 and rows > 1 and MOST_STORED % rows == 0:
            across = min(MOST_STORED // rows, power_at_most(columns))  # a block is one vector of what is written
            x, y = default_group(limits, columns * problem.batch // across, 1)
            down = rows
        else:
            x, y = default_group(limits, max(columns * problem.batch // across, 1), ceil_div(rows, down))
        return {"VR": down, "VC": across, "DIMX": x, "DIMY": y, "STAGED": 0, "PAD": 0}

    def guesses(self, problem: TransposeProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        default = self.default(problem, limits)
        wanted = [
            default | {"VR": 8, "VC": 8, "DIMX": 1, "DIMY": 4},
            default | {"VR": 16, "VC": 4, "DIMX": 1, "DIMY": 4},
            default | {"VC": 16, "DIMX": 16, "DIMY": 1},
            default | {"VR": 16, "DIMX": 1, "DIMY": 16},
        ]
        if limits.device_type != "cpu":  # a CPU has no local memory to gain from
            staged = {"DIMX": 16, "DIMY": 16, "STAGED": 1, "PAD": 1}
            wanted += [default | {"VR": side, "VC": side} | staged for side in (2, 1)]
        return wanted

    def render(self, problem: TransposeProblem, configuration: Configuration) -> Instance:
        rows, columns = problem.matrix
        x, y = configuration["DIMX"], configuration["DIMY"]
        staged, block = configuration["STAGED"], configuration["VR"] * configuration["VC"]
        is_vector = not staged and configuration["VR"] == rows and block in VECTOR_WIDTHS[1:]
        macros = {"ROWS": rows, "COLUMNS": columns, "MAPS": problem.batch, "WHOLE": block if is_vector else 0}
        beside = 1 if staged else problem.batch
        main = Launch(
            source=template("transpose_layout.cl", dtype=moved(problem.dtype)),
            entry="transpose_layout",
            needs=_needs(problem).of(configuration),
            writes=("output",),
            aligned=aligned(configuration["VC"], columns) and aligned(configuration["VR"], rows),
            options=build_options(macros | dict(configuration)),
            global_size=(
                round_up(ceil_div(columns, configuration["VC"]) * beside, x),
                round_up(ceil_div(rows, configuration["VR"]), y),
                problem.batch // beside,
            ),
            local_size=(x, y, 1),
            arguments=("input", "output"),
        )
        return Instance(main)

    def reference(self, problem: TransposeProblem, inputs: Mapping[str, Array]) -> Array:
        order = [problem.source.index(letter) for letter in problem.target]
        return np.ascontiguousarray(inputs["input"].transpose(order))

    def work(self, problem: TransposeProblem) -> Work:
        return Work(0, 2 * self.output(problem).nbytes)

    def tolerance(self, problem: TransposeProblem) -> Tolerance:
        return Tolerance(relative=0.0, absolute=0.0)


def _needs(problem: TransposeProblem) -> Declared:
    def needs(down: int, across: int, x: int, y: int, staged: int, pad: int) -> Needs:
        each = ELEMENT_TYPES[moved(problem.dtype)].sum_bytes
        return Needs(local_bytes(each * y * down * (x * across + pad)), cooperates=True) if staged else ALONE

    return Declared(STAGE, needs, "the blocks of a work-group")


FAMILY = TransposeFamily()
