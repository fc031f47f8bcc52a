"""Describe tensors that are read in place: each axis has a size and a step.

The step is the number of elements to the next index of the axis. A step of 0 repeats.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gputune.kernels.family import Array

Steps = tuple[int, ...]
Side = tuple[tuple[int, ...], Steps, int]
"""The sizes of a factor, (*batch, rows, columns), its steps, and the element where it begins."""


@dataclass(frozen=True)
class Places:
    """Where the elements of a batch of products lie: a, b, output and each operand of the epilogue have steps for
    (*batch, row, column).

    `elements` counts those of a and b, which begin at their elements `starts`; all else begins at its element 0. The
    output's steps reach each of its elements once.
    """

    batch: tuple[int, ...]
    a_steps: Steps
    b_steps: Steps
    output_steps: Steps
    elements: tuple[int, int]
    operand_steps: tuple[Steps, ...] = ()
    starts: tuple[int, int] = (0, 0)


def reach(sizes: Sequence[int], steps: Sequence[int]) -> int:
    """Return how many elements a tensor has at least in which these steps go no further than its last one."""
    return 1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))


def different(sizes: Sequence[int], steps: Sequence[int]) -> int:
    """Return how many elements there are along axes that do not repeat."""
    return math.prod(size for size, step in zip(sizes, steps, strict=True) if step)


def reach_each_once(sizes: Sequence[int], steps: Sequence[int]) -> bool:
    """Return whether the steps lead to every element of a tensor of that many, and to each of them once."""
    reached = 1
    for step, size in sorted(zip(steps, sizes, strict=True)):
        if size > 1 and step != reached:
            return False
        reached *= size
    return True


def as_it_lies(sizes: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes in the order in which the axes lie in memory, the outermost first."""
    return tuple(size for _, size in sorted(zip(steps, sizes, strict=True), key=lambda axis: axis[0], reverse=True))


def whole_shape(elements: int, sizes: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a tensor as it lies where these steps reach all of it, some of it repeatedly; else it is a
    line."""
    own = [axis for axis, step in enumerate(steps) if step and sizes[axis] > 1]
    sizes, steps = [sizes[axis] for axis in own], [steps[axis] for axis in own]
    whole = own and math.prod(sizes) == elements and reach_each_once(sizes, steps)
    return as_it_lies(sizes, steps) if whole else (elements,)


def view(flat: Array, sizes: Sequence[int], steps: Sequence[int]) -> Array:
    """Return the elements of `flat` at these steps, which must be there."""
    strides = [step * flat.itemsize for step in steps]
    return np.lib.stride_tricks.as_strided(flat.reshape(-1), sizes, strides)


def place(index: str, sizes: Sequence[int], steps: Sequence[int]) -> str:
    """Return an OpenCL C expression: which element is number `index` along these axes."""
    count = inner = math.prod(sizes)
    terms = []
    for size, step in zip(sizes, steps, strict=True):
        outer, inner = inner, inner // size
        if size > 1 and step:
            along = f"({index})" if outer == count else f"({index}) % {outer}"
            terms.append(f"{along} / {inner} * {step}")
    return f"({' + '.join(terms) or '0'})"


def lies_along(side: Side, axis: int, other: int) -> bool:
    """Return whether elements along an axis lie closer together than along the other. An axis of one element has no
    step."""
    sizes, steps, _ = side
    mine, others = (steps[each] if sizes[each] > 1 else 0 for each in (axis, other))
    return mine == 1 or (others != 1 and mine < others)


def vector(side: Side, axis: int, widest: int) -> int:
    """Return how many elements an aligned vector along an axis has: 1 if neighbours do not lie side by side."""
    sizes, steps, start = side
    if steps[axis] != 1:
        return 1
    axes = range(-len(sizes), 0)
    return math.gcd(widest, start, sizes[axis], *(steps[each] for each in axes if each != axis and sizes[each] > 1))


def outer_steps(sizes: Sequence[int], steps: Steps) -> Iterator[int]:
    """Return the steps of all axes but the last that have more than one element."""
    return (step for size, step in zip(sizes[:-1], steps[:-1], strict=True) if size > 1)
