"""Turn the letters of a contraction into a batch of matrix products.

In "bmhk,bnhk->bhmn", each letter names an axis. An axis of both inputs and the output belongs to the batch. An axis of
the left input and the output belongs to the rows, and an axis of the right input and the output to the columns. All
other axes are summed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gputune.kernels.chain import Chain
from gputune.kernels.indexing.steps import Places
from gputune.kernels.ops.matmul import MatMulProblem

Steps = Mapping[str, int]
"""For each letter how many elements further the next one along its axis is; letters that are not here repeat."""

Part = Sequence[tuple[int, int]]
"""Of each axis the first element that is read, and how many are."""


@dataclass(frozen=True)
class Axis:
    """Describe one axis, to which the axes of one or more letters were joined: its size, and its steps in each tensor.
    The tensors of a product are both factors, the output and the operands."""

    size: int
    steps: tuple[int, ...]

    def joined(self, inner: "Axis") -> "Axis | None":
        """Return this axis and the one inside of it as one, None where they do not lie behind one another in every
        tensor."""
        if all(outer == step * inner.size for outer, step in zip(self.steps, inner.steps, strict=True)):
            return Axis(self.size * inner.size, inner.steps)
        return None


@dataclass(frozen=True)
class Product:
    """The problem, and whether its a is the left input; they trade places where that gives whole rows of the output."""

    problem: MatMulProblem
    a_is_left: bool


@dataclass(frozen=True)
class Reading:
    """How a tensor is read or written: its steps, how many elements it has, and the one where it begins."""

    steps: Steps
    elements: int
    start: int = 0


def reading_of(letters: str, shape: Sequence[int], order: Sequence[int], part: Part | None = None) -> Reading:
    """Return a tensor, or a part of it, by the letters of its axes; `order` has these in the order in which they lie,
    the outermost first.

    A letter that occurs twice is a diagonal: its steps are added.
    """
    steps: dict[str, int] = {}
    start, step = 0, 1
    for axis in reversed(order):
        first, size = part[axis] if part else (0, shape[axis])
        if size > 1:
            steps[letters[axis]] = steps.get(letters[axis], 0) + step
        start += first * step
        step *= shape[axis]
    return Reading(steps, step, start)


def product_of(sizes: Mapping[str, int], tensors: Sequence[Reading], chain: Chain) -> Product:
    """Return the problem for letters of these sizes; `tensors` are left, right, output and the chain's operands.

    Raises ValueError for a sum over axes that no single step leads along.
    """
    axes = [
        Axis(size, tuple(tensor.steps.get(letter, 0) for tensor in tensors))
        for letter, size in sizes.items()
        if size > 1
    ]
    rows = list(joined_axes([axis for axis in axes if axis.steps[2] and axis.steps[0] and not axis.steps[1]], 2))
    columns = list(joined_axes([axis for axis in axes if axis.steps[2] and axis.steps[1] and not axis.steps[0]], 2))
    batch = [axis for axis in axes if axis.steps[0] and axis.steps[1] and axis.steps[2]]
    sums = list(joined_axes([axis for axis in axes if not axis.steps[2]], 0))
    if len(sums) > 1:
        raise ValueError("it sums over axes that are not adjacent; transpose and reshape its inputs first")
    along = [axis.steps[2] for axis in columns]
    swap = not columns or (1 not in along and any(axis.steps[2] == 1 for axis in rows))
    if swap:
        rows, columns, batch, sums = ([_swapped(axis) for axis in group] for group in (columns, rows, batch, sums))
    one = Axis(1, (0,) * len(tensors))
    row = max(rows, key=lambda axis: axis.size, default=one)
    column = max(columns, key=lambda axis: (axis.steps[2] == 1, axis.size), default=Axis(1, (0, 1, 1, *one.steps[3:])))
    depth = sums[0] if sums else one
    others = [axis for axis in (*rows, *columns) if axis not in (row, column)]
    outer = list(joined_axes([*batch, *others], 2))
    a, b, output, *operands = (
        tuple(axis.steps[tensor] for axis in (*outer, *matrix))
        for tensor, matrix in enumerate([(row, depth), (depth, column), *[(row, column)] * (len(tensors) - 2)])
    )
    first, second = tensors[1::-1] if swap else tensors[:2]
    places = Places(
        batch=tuple(axis.size for axis in outer),
        a_steps=a,
        b_steps=b,
        output_steps=output,
        elements=(first.elements, second.elements),
        operand_steps=tuple(operands),
        starts=(first.start, second.start),
    )
    return Product(MatMulProblem(row.size, depth.size, column.size, epilogue=chain, places=places), not swap)


def _swapped(axis: Axis) -> Axis:
    left, right, *others = axis.steps
    return Axis(axis.size, (right, left, *others))


def joined_axes(axes: Iterable[Axis], tensor: int) -> Iterator[Axis]:
    """Yield the axes from the outermost to the innermost one in a tensor, with neighbours as one where they can be."""
    last: Axis | None = None
    for axis in sorted(axes, key=lambda axis: axis.steps[tensor], reverse=True):
        both = last.joined(axis) if last else None
        if last and not both:
            yield last
        last = both or axis
    if last:
        yield last
