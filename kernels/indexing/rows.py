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
    default_width,
    fits,
    group_constraints,
    power_at_least,
    power_at_most,
    round_up,
)

SHARED_FROM = 64
"""Rows of fewer vectors are not worth sharing among work-items by default."""


SHARED = ("VW", "LANES", "DIMY")
"""The parameters that decide the local memory of a work-group."""


@dataclass(frozen=True)
class Rows:
    """The rows of `loops`; work-items that share one hand over results of `size` bytes an element. `accumulators`: how
    many of them a work-item may have."""

    loops: Loops
    size: int
    accumulators: tuple[int, ...] = (1, 2, 4, 8)

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """How rows are read and shared."""
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
        """A work-item to a row on CPU devices, where a barrier costs more than it gives; elsewhere long rows are
        shared."""
        width = default_width(limits, self.loops.extent)
        steps, rows = self.loops.steps(width), self.loops.rows(width)
        cpu = limits.device_type == "cpu"
        lanes = 1
        if not cpu and steps >= SHARED_FROM:
            local = limits.local_memory_bytes // (1 if self.loops.along else width) // self.size
            most = min(64, limits.max_work_group_size, limits.max_work_item_sizes[0], max(local, 1))
            lanes = power_at_most(min(most, steps))
        down = min(
            16 if cpu else max(64 // lanes, 1), limits.max_work_group_size // lanes, limits.max_work_item_sizes[1]
        )
        if cpu:
            down = min(down, max(rows // (4 * limits.compute_units), 1))
        return {
            "VW": width,
            "ACC": power_at_most(min(4, self.accumulators[-1], max(steps // lanes, 1))),
            "LANES": lanes,
            "DIMY": power_at_most(min(down, power_at_least(rows))) if lanes == 1 else 1,
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
        each = self.size if self.loops.along else width * self.size
        return Needs(lanes * down * each, cooperates=True) if lanes > 1 else ALONE

    def launch_sizes(self, configuration: Configuration) -> tuple[tuple[int, int], tuple[int, int]]:
        """Global and local size."""
        lanes, down = configuration["LANES"], configuration["DIMY"]
        return (lanes, round_up(self.loops.rows(configuration["VW"]), down)), (lanes, down)


def extremes(dtype: str) -> tuple[str, str]:
    """OpenCL C of the lowest and the highest number of a type."""
    known = ELEMENT_TYPES[dtype]
    if known.is_float:
        return "-INFINITY", "INFINITY"
    name = {"short": "SHRT", "ushort": "USHRT"}.get(known.storage, known.storage.upper())
    return "0" if name.startswith("U") else f"{name}_MIN", f"{name}_MAX"
