"""Test loops: the templates' offsets reach every element once, whatever the axes and the width."""

import itertools
import re
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.kernels.indexing.loops import Loops, loops_of, merged

SHAPES = st.lists(st.integers(1, 5), max_size=5).map(tuple)


@st.composite
def axes_of(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in range(len(shape)) if draw(st.booleans()))


def call(text: str, name: str, width: int, extent: int, **indices: int) -> int:
    """The value of a macro of a prelude, which is arithmetic that Python knows as well."""
    found = re.search(rf"#define {name}(\(.*?\))? (.*)\n", text)
    assert found
    values = {"VW": width, "BLOCKS": -(-extent // width), **indices}
    return int(eval(found[2].replace("/", "//"), values))


def rows_of(loops: Loops, width: int) -> list[set[int]]:
    """The offsets of each row's elements, cut at the end of the innermost loop as templates cut them."""
    text, extent = loops.prelude(), loops.extent
    rows, steps = (call(text, name, width, extent) for name in ("ROWS", "STEPS"))
    assert (rows, steps) == (loops.rows(width), loops.steps(width))
    found: list[set[int]] = []
    for row in range(rows):
        start = call(text, "ROW_OFFSET", width, extent, row=row)
        begins = [start + call(text, "STEP_OFFSET", width, extent, step=step) for step in range(steps)]
        blocks = range(steps) if loops.along else itertools.repeat(row, steps)
        counts = [min(extent - block % -(-extent // width) * width, width) for block in blocks]
        if loops.along:
            found.append({begin + i for begin, count in zip(begins, counts, strict=True) for i in range(count)})
        else:
            found += [{begin + i for begin in begins} for i in range(counts[0])]
    return found


@settings(max_examples=25)
@given(st.data(), SHAPES, st.sampled_from([1, 2, 4]))
def test_rows_hold_the_elements_that_numpy_gathers(data: st.DataObject, shape: tuple[int, ...], width: int) -> None:
    axes = data.draw(axes_of(shape))
    gathered = np.moveaxis(np.arange(prod(shape)).reshape(shape), axes, range(len(shape) - len(axes), len(shape)))
    loops = loops_of(shape, axes)
    rows = gathered.reshape(-1, prod(shape[axis] for axis in axes))
    assert rows_of(loops, width) == [set(row) for row in rows.tolist()]
    assert loops.count == rows.shape[1]


@settings(max_examples=25)
@given(st.data(), SHAPES, st.sampled_from([1, 2, 4]))
def test_a_parameter_lies_along_the_axes_it_varies_with(
    data: st.DataObject, shape: tuple[int, ...], width: int
) -> None:
    axes, scaled = data.draw(axes_of(shape)), data.draw(axes_of(shape))
    sizes = [size if axis in scaled else 1 for axis, size in enumerate(shape)]
    places = np.broadcast_to(np.arange(prod(sizes)).reshape(sizes), shape).reshape(-1)
    loops = loops_of(shape, axes, scaled)
    text, extent = loops.prelude() + loops.scale_prelude(), loops.extent
    for row, step in itertools.product(range(loops.rows(width)), range(loops.steps(width))):
        offset = sum(call(text, f"{name}_OFFSET", width, extent, row=row, step=step) for name in ("ROW", "STEP"))
        assert call(text, "SCALE_OFFSET", width, extent, row=row, step=step) == places[offset]
        varies = call(text, "VARIES", width, extent)
        inside = min(extent - offset % extent, width)
        assert list(places[offset : offset + inside]) == [places[offset] + i * varies for i in range(inside)]


def test_neighbours_that_walk_alike_are_one() -> None:
    assert merged((2, 1, 3, 4, 5), (2, 3)) == ((2, 12, 5), (1,), ())
    assert merged((1, 7, 1, 3), (1, 2, 3)) == ((21,), (0,), ())
    assert merged((2, 3), ()) == ((6,), (), ())
    assert merged((2, 3, 5, 7), (1, 2, 3), (2, 3)) == ((2, 3, 35), (1, 2), (2,))
    assert merged((), ()) == merged((1, 1), (1,)) == ((1,), (0,), ())
