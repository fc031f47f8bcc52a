"""Define families whose work-items share rows, for which templates include rows.cl."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gputune.core.dtypes import ELEMENT_TYPES
from gputune.kernels.family import ALONE, DeviceLimits, Needs
from gputune.kernels.indexing.loops import Loops
from gputune.kernels.indexing.maps import Guesses, MapFamily, Parameters
from gputune.kernels.space import Configuration, Constraint, Parameter
from gputune.kernels.tiling.streaming import (
    GROUP_SIZES,
    VW,
    Declared,
    ceil_div,
    default_width,
    fits,
    idle_beyond,
    local_bytes,
    power_at_least,
    power_at_most,
)

ACC = Parameter("ACC", (1, 2, 4, 8), "accumulators of a work-item")
LANES = Parameter("LANES", GROUP_SIZES, "work-items that share a row", of_group=True)
DIMY = Parameter("DIMY", GROUP_SIZES, "rows of a work-group", of_group=True)

GPU_ITEMS_PER_UNIT = 64
"""So many work-items a compute unit of a GPU gets by default, where the rows have enough vectors."""

MANY_ROWS_LANES = 32
"""If there are rows for all work-items, neighbours still read neighbouring vectors of a row."""

GROUP = 64
"""Work-items of a work-group, unless a row takes more or there would be fewer groups than compute units."""

SHARED = ("VW", "LANES", "DIMY")
"""The parameters that decide the local memory of a work-group."""


class RowFamily(MapFamily):
    """A family that reads each row of its problem's `loops`. LANES work-items share a row, and hand over what each of
    them has made of its part in local memory."""

    parameters: ClassVar[Parameters] = (VW, ACC, LANES, DIMY)
    group = ("LANES", "DIMY")
    guessed: ClassVar[Guesses] = ({"ACC": 1}, {"ACC": 8}, {"DIMY": 4})
    guessed_on_cpus: ClassVar[Guesses] = ({"LANES": 4, "ACC": 1, "DIMY": 1},)
    guessed_beyond_cpus: ClassVar[Guesses] = (
        {"VW": 4, "ACC": 1, "LANES": 32, "DIMY": 4},
        {"VW": 1, "ACC": 1, "LANES": 128, "DIMY": 1},
        {"VW": 1, "ACC": 4, "LANES": 1, "DIMY": 64},
    )

    def handed(self, problem: Any) -> tuple[int, ...]:
        """Return the bytes of each number that a work-item hands over for a result."""
        return (problem.element.sum_bytes,)

    def rules(self, problem: Any) -> tuple[Constraint, ...]:
        loops = problem.loops
        return (
            fits(loops.extent, "the innermost loop"),
            Constraint(
                ("VW", "ACC"),
                lambda width, parts: parts == 1 or parts <= loops.steps(width),
                "ACC must not exceed the vectors of a row",
            ),
            Constraint(
                ("VW", "ACC", "LANES"),
                lambda width, parts, lanes: lanes == 1 or parts * lanes < 2 * loops.steps(width),
                "ACC*LANES must stay below twice the vectors of a row; more would have nothing to do",
            ),
            idle_beyond(("VW", "DIMY"), loops.rows, "rows"),
        )

    def needs(self, problem: Any) -> Declared:
        """Declare local memory for partial results if work-items share a row."""
        along, sizes = problem.loops.along, self.handed(problem)

        def needs(width: int, lanes: int, down: int) -> Needs:
            results = lanes * down * (1 if along else width)
            return Needs(local_bytes(*(results * size for size in sizes)), cooperates=True) if lanes > 1 else ALONE

        return Declared(SHARED, needs, "partial results of a work-group")

    def default(self, problem: Any, limits: DeviceLimits) -> dict[str, int]:
        width = default_width(limits, problem.loops.extent)
        lanes, down = self.sides(problem, width, limits)
        parts = power_at_most(min(4, max(problem.loops.steps(width) // lanes, 1)))
        return {"VW": width, "ACC": parts, "LANES": lanes, "DIMY": down}

    def sides(self, problem: Any, width: int, limits: DeviceLimits) -> tuple[int, int]:
        """Give each row a work-item on CPU devices, where a barrier costs more than it gives; elsewhere as many as fill
        the device."""
        rows = problem.loops.rows(width)
        if limits.device_type == "cpu":
            return 1, min(cpu_rows(rows, limits), power_at_most(max(rows // (4 * limits.compute_units), 1)))
        return shared(problem.loops, width, sum(self.handed(problem)), limits)

    def grid(self, problem: Any, configuration: Configuration) -> tuple[int, int]:
        return configuration["LANES"], problem.loops.rows(configuration["VW"])

    def sizes(self, problem: Any) -> Mapping[str, int]:
        return dict(problem.loops.macros())

    def distances(self, problem: Any) -> tuple[int, ...]:
        return (problem.loops.extent,)


def cpu_rows(rows: int, limits: DeviceLimits) -> int:
    """Return how many of so many rows a work-group of a CPU has at most."""
    return power_at_most(min(16, limits.max_work_group_size, limits.max_work_item_sizes[1], power_at_least(rows)))


def shared(loops: Loops, width: int, nbytes: int, limits: DeviceLimits) -> tuple[int, int]:
    """Return LANES and DIMY that fill a GPU with rows of vectors of a width.

    Where vectors lie along rows, each work-item has a vector of its row, or MANY_ROWS_LANES share a row if there are
    enough rows. Where they lie across, neighbouring rows have neighbouring vectors, so no more work-items share a row
    than it takes. nbytes: what a work-item hands over for each result when it shares a row.
    """
    rows, each = loops.rows(width), nbytes * (1 if loops.along else width)
    enough = GPU_ITEMS_PER_UNIT * limits.compute_units
    most = min(
        GROUP_SIZES[-1], limits.max_work_group_size, limits.max_work_item_sizes[0], limits.local_memory_bytes // each
    )
    wanted = power_at_least(ceil_div(enough, rows))
    if loops.along:
        wanted = GROUP_SIZES[-1] if rows < enough else MANY_ROWS_LANES
    lanes = power_at_most(max(min(most, wanted, power_at_least(loops.steps(width))), 1))
    down = min(GROUP // lanes, limits.max_work_group_size // lanes, limits.max_work_item_sizes[1])
    if lanes > 1:
        down = min(down, limits.local_memory_bytes // (lanes * each))
    return lanes, power_at_most(max(min(down, rows // limits.compute_units), 1))


def extremes(dtype: str) -> tuple[str, str]:
    """OpenCL C of the lowest and the highest number of a type."""
    known = ELEMENT_TYPES[dtype]
    if known.is_float:
        return "-INFINITY", "INFINITY"
    name = {"short": "SHRT", "ushort": "USHRT"}.get(known.storage, known.storage.upper())
    return "0" if name.startswith("U") else f"{name}_MIN", f"{name}_MAX"
