"""Share parameters, constraints, guesses and the grid among the families whose templates include rows.cl."""

from dataclasses import dataclass

from gputune.core.dtypes import ELEMENT_TYPES
from gputune.kernels.family import ALONE, DeviceLimits, Needs
from gputune.kernels.indexing.loops import Loops
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.tiling.streaming import (
    GROUP_SIZES,
    VECTOR_WIDTHS,
    Declared,
    ceil_div,
    default_width,
    fits,
    group_constraints,
    local_bytes,
    power_at_least,
    power_at_most,
    round_up,
)

GPU_ITEMS_PER_UNIT = 64
"""So many work-items a compute unit of a GPU gets by default, where the rows have enough vectors."""

MANY_ROWS_LANES = 32
"""If there are rows for all work-items, neighbours still read neighbouring vectors of a row."""

GROUP = 64
"""Work-items of a work-group, unless a row takes more or there would be fewer groups than compute units."""

SHARED = ("VW", "LANES", "DIMY")
"""The parameters that decide the local memory of a work-group."""


@dataclass(frozen=True)
class Rows:
    """The rows of `loops`; work-items that share one hand over results in arrays with elements of `sizes` bytes.
    `accumulators`: how many of them a work-item may have."""

    loops: Loops
    sizes: tuple[int, ...]
    accumulators: tuple[int, ...] = (1, 2, 4, 8)

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """Return how rows are read and shared."""
        return TuningSpace(
            (
                Parameter("VW", VECTOR_WIDTHS, "elements of a vector"),
                Parameter("ACC", self.accumulators, "accumulators of a work-item"),
                Parameter("LANES", GROUP_SIZES, "work-items that share a row"),
                Parameter("DIMY", GROUP_SIZES, "rows of a work-group"),
            ),
            (
                fits(self.loops.extent, "the innermost loop"),
                Constraint(
                    ("VW", "ACC"),
                    lambda width, parts: parts == 1 or parts <= self.loops.steps(width),
                    "ACC must not exceed the vectors of a row",
                ),
                Constraint(
                    ("VW", "ACC", "LANES"),
                    lambda width, parts, lanes: lanes == 1 or parts * lanes < 2 * self.loops.steps(width),
                    "ACC*LANES must stay below twice the vectors of a row; more would have nothing to do",
                ),
                Constraint(
                    ("VW", "DIMY"),
                    lambda width, down: down == 1 or down < 2 * self.loops.rows(width),
                    "DIMY must stay below twice the number of rows; more would have nothing to do",
                ),
                *group_constraints(limits, "LANES", "DIMY"),
                self.needs.limit(limits),
            ),
        )

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """Give each row a work-item on CPU devices, where a barrier costs more than it gives; elsewhere as many as fill
        the device."""
        width = default_width(limits, self.loops.extent)
        steps, rows = self.loops.steps(width), self.loops.rows(width)
        if limits.device_type == "cpu":
            down = min(16, limits.max_work_group_size, limits.max_work_item_sizes[1])
            lanes, down = 1, power_at_most(min(down, max(rows // (4 * limits.compute_units), 1), power_at_least(rows)))
        else:
            lanes, down = shared(rows, steps, self.loops.along, self._elements(width) * sum(self.sizes), limits)
        return {
            "VW": width,
            "ACC": power_at_most(min(4, self.accumulators[-1], max(steps // lanes, 1))),
            "LANES": lanes,
            "DIMY": down,
        }

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """Other guesses than the default."""
        default = self.default(limits)
        wanted = [default | {"ACC": 1}, default | {"ACC": 8}, default | {"DIMY": 4}]
        if limits.device_type == "cpu":
            wanted += [default | {"LANES": 4, "ACC": 1, "DIMY": 1}]
        else:
            wanted += [
                default | {"VW": 4, "ACC": 1, "LANES": 32, "DIMY": 4},
                default | {"VW": 1, "ACC": 1, "LANES": 128, "DIMY": 1},
                default | {"VW": 1, "ACC": 4, "LANES": 1, "DIMY": 64},
            ]
        return wanted

    @property
    def needs(self) -> Declared:
        """The needs of the kernel: local memory for partial results if work-items share a row."""
        return Declared(SHARED, self._needs, "partial results of a work-group")

    def _needs(self, width: int, lanes: int, down: int) -> Needs:
        elements = lanes * down * self._elements(width)
        nbytes = local_bytes(*(elements * size for size in self.sizes))
        return Needs(nbytes, cooperates=True) if lanes > 1 else ALONE

    def _elements(self, width: int) -> int:
        """Return the elements that a work-item hands over: a vector if vectors lie across rows."""
        return 1 if self.loops.along else width

    def launch_sizes(self, configuration: Configuration) -> tuple[tuple[int, int], tuple[int, int]]:
        """Global and local size."""
        lanes, down = configuration["LANES"], configuration["DIMY"]
        return (lanes, round_up(self.loops.rows(configuration["VW"]), down)), (lanes, down)


def shared(rows: int, steps: int, along: bool, each: int, limits: DeviceLimits) -> tuple[int, int]:
    """Return LANES and DIMY that fill a GPU with rows of so many vectors.

    Where vectors lie along rows, each work-item has a vector of its row, or MANY_ROWS_LANES share a row if there are
    enough rows. Where they lie across, neighbouring rows have neighbouring vectors, so no more work-items share a row
    than it takes. each: bytes of local memory that a work-item takes when it shares a row.
    """
    enough = GPU_ITEMS_PER_UNIT * limits.compute_units
    most = min(
        GROUP_SIZES[-1], limits.max_work_group_size, limits.max_work_item_sizes[0], limits.local_memory_bytes // each
    )
    wanted = power_at_least(ceil_div(enough, rows))
    if along:
        wanted = GROUP_SIZES[-1] if rows < enough else MANY_ROWS_LANES
    lanes = power_at_most(max(min(most, wanted, power_at_least(steps)), 1))
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
