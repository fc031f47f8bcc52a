"""Describe tensors that are read in place: each axis has a size and a step.

The step is the number of elements to the next index of the axis. A step of 0 repeats.
"""

import math
from collections.abc import Sequence

import numpy as np

from gputune.kernels.family import Array

Steps = tuple[int, ...]


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
