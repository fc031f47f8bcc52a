"""Convert rank-4 tensors from NCHW to NHWC and back, by transposing matrices one by one. See transpose_layout.cl."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ANY, ELEMENT_TYPES, FLOAT
from gputune.kernels.family import ALONE, Array, DeviceLimits, Needs, Problem, TensorSpec
from gputune.kernels.hard_values import MOVES
from gputune.kernels.indexing.maps import MapFamily
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Constraint, Parameter
from gputune.kernels.tiling.streaming import (
    DIMX,
    DIMY,
    VECTOR_WIDTHS,
    Declared,
    busy,
    ceil_div,
    check_indices,
    default_group,
    fits,
    local_bytes,
    power_at_most,
)

BLOCK_SIDES = (1, 2, 3, 4, 8, 16)
"""Sides of a work-item's block; 3 is for pictures, which have three channels."""
MOST_IN_BLOCK = 128
MOST_STORED = 16
"""Elements that are stored at once at most."""
CPU_WRITES = 16
CPU_GROUP = 16


@dataclass(frozen=True)
class TransposeProblem(Problem):
    """The same tensor in the layout `target` instead of `source`; both are NCHW or NHWC, and they differ."""

    op = "Transpose"
    types = ANY

    batch: int
    channels: int
    height: int
    width: int
    source: str
    target: str
    dtype: str = FLOAT

    def check(self) -> None:
        if {self.source, self.target} != {"NCHW", "NHWC"}:
            raise ValueError(f"Transpose knows NCHW to NHWC and back, not {self.source} to {self.target}")
        if min(self.batch, self.channels, self.height, self.width) < 1:
            raise ValueError("Transpose needs positive sizes")
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


class TransposeFamily(MapFamily):
    """One template: blocks turned in registers, and through local memory where that pays."""

    op = TransposeProblem.op
    template = "transpose_layout.cl"
    parameters = (
        Parameter("VR", BLOCK_SIDES, "rows of a block, and the vector width of writes"),
        Parameter("VC", BLOCK_SIDES, "columns of a block, and the vector width of reads"),
        DIMX,
        DIMY,
        Parameter("STAGED", (0, 1), "1: the work-group's blocks change hands in local memory"),
        Parameter("PAD", (0, 1), "elements between the rows in local memory"),
    )
    guessed = (
        {"VR": 8, "VC": 8, "DIMX": 1, "DIMY": 4},
        {"VR": 16, "VC": 4, "DIMX": 1, "DIMY": 4},
        {"VC": 16, "DIMX": 16, "DIMY": 1},
        {"VR": 16, "DIMX": 1, "DIMY": 16},
    )
    guessed_beyond_cpus = (  # a CPU has no local memory to gain from
        {"VR": 2, "VC": 2, "DIMX": 16, "DIMY": 16, "STAGED": 1, "PAD": 1},
        {"VR": 1, "VC": 1, "DIMX": 16, "DIMY": 16, "STAGED": 1, "PAD": 1},
    )
    moves = True
    survives = MOVES

    def inputs(self, problem: TransposeProblem) -> tuple[TensorSpec, ...]:
        return (problem.tensor("input", problem.shape(problem.source)),)

    def output(self, problem: TransposeProblem) -> TensorSpec:
        return problem.tensor("output", problem.shape(problem.target))

    def rules(self, problem: TransposeProblem) -> tuple[Constraint, ...]:
        rows, columns = problem.matrix
        return (
            fits(rows, "a column", "VR"),
            fits(columns, "a row", "VC"),
            Constraint(
                ("VR", "VC"),
                lambda down, across: down * across <= MOST_IN_BLOCK,
                f"VR*VC must not exceed {MOST_IN_BLOCK}, or a block does not stay in registers",
            ),
            busy(("VC", "DIMX"), columns * problem.batch, "the length of all rows beside each other"),
            busy(("VR", "DIMY"), rows, "the length of a column"),
            Constraint(
                ("DIMX", "DIMY", "STAGED"),
                lambda x, y, staged: not staged or x * y > 1,
                "STAGED needs more than one work-item in a work-group",
            ),
            Constraint(("STAGED", "PAD"), lambda staged, pad: staged or not pad, "PAD is of use only with STAGED"),
        )

    def needs(self, problem: TransposeProblem) -> Declared:
        nbytes = ELEMENT_TYPES[self.seen(problem)].sum_bytes

        def needs(down: int, across: int, x: int, y: int, staged: int, pad: int) -> Needs:
            return Needs(local_bytes(nbytes * y * down * (x * across + pad)), cooperates=True) if staged else ALONE

        return Declared(("VR", "VC", "DIMX", "DIMY", "STAGED", "PAD"), needs, "the blocks of a work-group")

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

    def grid(self, problem: TransposeProblem, configuration: Configuration) -> tuple[int, int, int]:
        """Return blocks across and down, and maps: with STAGED in a dimension of their own, else beside each other."""
        rows, columns = problem.matrix
        beside = 1 if configuration["STAGED"] else problem.batch
        across, down = ceil_div(columns, configuration["VC"]), ceil_div(rows, configuration["VR"])
        return across * beside, down, problem.batch // beside

    def sizes(self, problem: TransposeProblem) -> Mapping[str, int]:
        rows, columns = problem.matrix
        return {"ROWS": rows, "COLUMNS": columns, "MAPS": problem.batch}

    def macros(self, problem: TransposeProblem, configuration: Configuration) -> dict[str, int]:
        """Say also how many elements a block has that is stored as one vector."""
        down, block = configuration["VR"], configuration["VR"] * configuration["VC"]
        whole = not configuration["STAGED"] and down == problem.matrix[0] and block in VECTOR_WIDTHS[1:]
        return super().macros(problem, configuration) | {"WHOLE": block if whole else 0}

    def aligned(self, problem: TransposeProblem, configuration: Configuration) -> bool:
        rows, columns = problem.matrix
        return aligned(configuration["VC"], columns) and aligned(configuration["VR"], rows)

    def reference(self, problem: TransposeProblem, inputs: Mapping[str, Array]) -> Array:
        order = [problem.source.index(letter) for letter in problem.target]
        return np.ascontiguousarray(inputs["input"].transpose(order))


FAMILY = TransposeFamily()
