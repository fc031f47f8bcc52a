"""Define loops over the axes of a tensor, for families that reduce or scan some axes for each index of the others.

A row is the elements that are read together for one result (or one softmax, one scan): the elements of the inner loops
at one index of the outer loops. Neighbouring axes of the same kind merge into one loop. The innermost loop is read in
vectors of VW elements, BLOCKS of them. Macros set both, so that a source is the same for every configuration.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gputune.kernels.family import Problem
from gputune.kernels.tiling.streaming import check_indices

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """So many elements, so far apart. `inner`: it is a part of a row, of which there is one for each index of the
    other loops.

    `scaled` says that a parameter of the problem varies along it.
    """

    size: int
    step: int
    inner: bool
    scaled: bool = False


@dataclass(frozen=True)
class Loops:
    """A tensor as loops, outermost first; the last one is the innermost axis that is not of size 1."""

    loops: tuple[Loop, ...]

    @property
    def along(self) -> bool:
        """Whether vectors lie along a row, and not across neighbouring ones."""
        return self.loops[-1].inner

    @property
    def extent(self) -> int:
        """Elements of the innermost loop, which vectors lie on."""
        return self.loops[-1].size

    @property
    def count(self) -> int:
        """Elements of a row."""
        return math.prod(loop.size for loop in self.loops if loop.inner)

    def rows(self, width: int) -> int:
        """Return how many rows there are, `width` neighbouring ones counted as one where vectors lie across them."""
        return self._vectors(width, inner=False)

    def steps(self, width: int) -> int:
        """Return how many vectors of `width` elements a row has."""
        return self._vectors(width, inner=True)

    def macros(self) -> dict[str, int]:
        """Return what templates want to know beside the offsets."""
        return {"EXTENT": self.extent, "ALONG": int(self.along), "COUNT": self.count}

    def prelude(self) -> str:
        """ROW_OFFSET(row), where a row begins, and STEP_OFFSET(step), how far from there its vectors lie, as macros;
        ROWS and STEPS, how many there are."""
        return "".join(
            f"#define {name}_OFFSET({name.lower()}) ({self._offset(f'({name.lower()})', inner, scaled=False)})\n"
            f"#define {name}S ({self._counted(inner)})\n"
            for name, inner in (("ROW", False), ("STEP", True))
        )

    def scale_prelude(self) -> str:
        """SCALE_OFFSET(row, step): where a vector's part of a parameter begins; VARIES: whether it varies inside."""
        terms = [self._offset(f"({name})", inner, scaled=True) for name, inner in (("row", False), ("step", True))]
        return f"#define SCALE_OFFSET(row, step) ({' + '.join(terms)})\n#define VARIES {int(self.loops[-1].scaled)}\n"

    def _vectors(self, width: int, inner: bool) -> int:
        last = self.loops[-1]
        sizes = [loop.size for loop in self.loops[:-1] if loop.inner == inner]
        return math.prod(sizes) * (-(-last.size // width) if last.inner == inner else 1)

    def _counted(self, inner: bool) -> str:
        sizes = math.prod(loop.size for loop in self.loops[:-1] if loop.inner == inner)
        return f"{sizes} * BLOCKS" if self.along == inner else f"{sizes}"

    def _offset(self, index: str, inner: bool, scaled: bool) -> str:
        """Return an index of the loops of one side as an offset into the tensor, or into a parameter that varies with
        some."""
        terms, below, scale_step = [], "1", 1
        last = len(self.loops) - 1
        for number in range(last, -1, -1):
            loop = self.loops[number]
            size, step = ("BLOCKS", "VW") if number == last else (str(loop.size), str(loop.step))
            if scaled:
                step = "0" if not loop.scaled else step if number == last else str(scale_step)
                scale_step *= loop.size if loop.scaled else 1
            if loop.inner != inner:
                continue
            position = index if below == "1" else f"{index} / ({below})"
            if any(other.inner == inner for other in self.loops[:number]):
                position += f" % {size}"
            if step != "0":
                terms.append(position if step == "1" else f"{position} * {step}")
            below = size if below == "1" else f"{below} * {size}"
        return " + ".join(terms) or "0"


@dataclass(frozen=True)
class AxisProblem(Problem):
    """A problem along the middle axis of a tensor [outer, axis, inner]."""

    outer: int
    axis: int
    inner: int

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise ValueError(f"{self.op} needs positive sizes, not {list(self.shape)}")
        check_indices(self.op, self.shape)
        super().__post_init__()

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.outer, self.axis, self.inner)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes under the names that templates use."""
        return {"OUTER": self.outer, "AXIS": self.axis, "INNER": self.inner}

    @property
    def loops(self) -> Loops:
        """The axis as rows. Vectors lie along it if it is innermost, else across it."""
        behind = () if self.inner == 1 else (Loop(self.inner, 1, inner=False),)
        return Loops(
            (Loop(self.outer, self.axis * self.inner, inner=False), Loop(self.axis, self.inner, inner=True), *behind)
        )


def loops_of(shape: Sequence[int], axes: Sequence[int], scaled: Sequence[int] = ()) -> Loops:
    """Return the tensor's loops; `axes` make up a row for each index of the others, and a parameter varies with
    `scaled`."""
    merged: list[Loop] = []
    step = 1
    for axis in range(len(shape) - 1, -1, -1):
        size, kinds = shape[axis], (axis in axes, axis in scaled)
        if size == 1:
            continue
        if merged and (merged[0].inner, merged[0].scaled) == kinds:
            merged[0] = Loop(merged[0].size * size, merged[0].step, *kinds)
        else:
            merged.insert(0, Loop(size, step, *kinds))
        step *= size
    return Loops(tuple(merged) or (Loop(1, 1, inner=True),))


def merged(shape: Sequence[int], axes: Sequence[int], scaled: Sequence[int] = ()) -> tuple[Axes, Axes, Axes]:
    """Return a shape, axes of it and those that a parameter varies with, in the fewest axes, so that equal rows are
    equal."""
    loops = loops_of(shape, axes, scaled).loops
    inner = tuple(axis for axis, loop in enumerate(loops) if loop.inner)
    varying = tuple(axis for axis, loop in enumerate(loops) if loop.scaled)
    return tuple(loop.size for loop in loops), inner, varying
