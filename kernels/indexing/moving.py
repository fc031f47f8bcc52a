"""Define loops over moved elements: where the elements of an output come from, one loop of the output at a time."""

from collections.abc import Iterable
from dataclasses import dataclass

from gputune.kernels.space import Constraint, Parameter
from gputune.kernels.tiling.streaming import DIMX, DIMY, VW, busy, fits

CPU_ROWS = 8
MOST_PARTS = 64
"""Tensors that are joined at once: each is an argument, and 1024 bytes of them are all that OpenCL promises."""


@dataclass(frozen=True)
class Loop:
    """One loop over an output: element i of its `size` is position i - before among `extent`, `step` elements apart.

    Positions outside of 0 ... extent - 1 lie in a border.
    """

    size: int
    step: int
    before: int = 0
    extent: int = -1
    """As many as the output has unless given: then there is no border."""

    @property
    def inside(self) -> int:
        """The number of positions that are no border."""
        return self.size if self.extent < 0 else self.extent

    @property
    def is_whole(self) -> bool:
        """Whether the loop has no border."""
        return self.before == 0 and self.inside >= self.size


def merged(loops: Iterable[Loop], border: str) -> list[Loop]:
    """Return the same loops, at least one and as few as it takes: neighbours that go on in one stride become one.

    What a border of numbers surrounds may be a loop of rows: then so many elements surround the elements. With the
    other borders an element of a border is an element of another row, and they stay apart.
    """
    found: list[Loop] = []
    for loop in loops:
        if loop.size == 1 and loop.is_whole:
            continue
        outer = found[-1] if found else None
        goes_on = outer is not None and loop.is_whole and outer.step == loop.step * loop.size
        if outer is not None and goes_on and (outer.is_whole or border == "constant"):
            extent = -1 if outer.is_whole else outer.inside * loop.size
            found[-1] = Loop(outer.size * loop.size, loop.step, outer.before * loop.size, extent)
        else:
            found.append(loop)
    return found or [Loop(1, 1)]


COPIED = (VW, Parameter("WPT", (1, 2, 4, 8, 16, 32), "neighbouring rows of a work-item"), DIMX, DIMY)
"""The parameters of kernels that write rows, the same vector of a few rows per work-item."""


def copy_rules(extent: int, axis: str, length: int, rows: int) -> tuple[Constraint, ...]:
    """Return what COPIED must keep to write `rows` rows of `length` elements.

    Vectors are read along an axis of `extent` elements, which reasons call `axis`.
    """
    return (
        fits(extent, axis),
        busy(("WPT",), rows, "the number of rows"),
        busy(("VW", "DIMX"), length, "the elements of a row"),
        busy(("WPT", "DIMY"), rows, "the number of rows"),
    )
