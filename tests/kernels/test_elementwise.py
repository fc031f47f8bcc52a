"""Test elementwise chains: how loops collapse, and what the offsets say."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.kernels.chain import EMPTY, Chain, Step
from gputune.kernels.family import DeviceLimits
from gputune.kernels.indexing.broadcasting import Loops, collapse
from gputune.kernels.ops.elementwise import FAMILY, ElementwiseProblem

LIMITS = DeviceLimits(256, (256, 256, 64), 32768, 1 << 30, 2, "cpu", 8)


@pytest.mark.parametrize(
    ("shape", "shapes", "sizes", "steps"),
    [
        ((2, 3, 4), [(2, 3, 4), (2, 3, 4)], (24,), [(1,), (1,)]),
        ((2, 3, 4), [(2, 3, 4), (4,)], (6, 4), [(4, 1), (0, 1)]),
        ((1, 5, 7, 4), [(1, 5, 7, 4), (1, 1, 1, 4)], (35, 4), [(4, 1), (0, 1)]),
        ((2, 3, 4), [(2, 1, 1), (2, 3, 4)], (2, 12), [(1, 0), (12, 1)]),
        ((2, 3, 4), [(2, 1, 4), (3, 1)], (2, 3, 4), [(4, 0, 1), (0, 1, 0)]),
        ((2, 3, 4), [(), (1, 1, 1)], (24,), [(0,), (0,)]),
        ((), [(), ()], (1,), [(1,), (1,)]),
        ((1, 1), [(1, 1)], (1,), [(1,)]),
    ],
)
def test_loops_collapse_to_as_few_as_the_inputs_allow(
    shape: tuple[int, ...], shapes: list[tuple[int, ...]], sizes: tuple[int, ...], steps: list[tuple[int, ...]]
) -> None:
    assert collapse(shape, tuple(shapes)) == Loops(sizes, tuple(steps))


@st.composite
def broadcasts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=5)))
    shapes = []
    for _ in range(draw(st.integers(1, 3))):
        rank = draw(st.integers(0, len(shape)))
        tail = shape[len(shape) - rank :]
        shapes.append(tuple(1 if draw(st.booleans()) else size for size in tail))
    return shape, shapes


@pytest.mark.slow
@settings(max_examples=150)
@given(broadcasts())
def test_offsets_find_the_element_that_numpy_broadcasts(case: tuple[tuple[int, ...], list[tuple[int, ...]]]) -> None:
    shape, shapes = case
    loops = collapse(shape, tuple(shapes))
    assert loops.rows * loops.inner == math.prod(shape)
    for which, mine in enumerate(shapes):
        numbers = np.arange(math.prod(mine))
        want = np.broadcast_to(numbers.reshape(mine), shape).reshape(loops.rows, loops.inner)
        offset = loops.row_offset(which).replace("/", "//") or "0"
        for row in range(loops.rows):
            start = eval(offset, {"row": row})
            got = start + loops.steps[which][-1] * np.arange(loops.inner)
            np.testing.assert_array_equal(got, want[row])


def test_the_innermost_step_says_vector_or_constant() -> None:
    chain = Chain((Step("sub", operand=0, swapped=True), Step("mul", operand=1)))
    problem = ElementwiseProblem((6, 8), ((8,), (6, 1)), (6, 8), chain)
    source = FAMILY.render(problem, FAMILY.default(problem, LIMITS)).main.source
    assert "#define VALUE(row, x) LOAD(input, (row) * 8 + (x))" in source
    assert "(value) = LOAD(operand0, x) - (value);" in source
    assert "(value) = (value) * SPLAT(operand1, (row));" in source


def test_the_reference_broadcasts_the_value_too() -> None:
    problem = ElementwiseProblem((2, 3), ((2, 1),), (3,), Chain((Step("div", operand=0),)))
    inputs = {"input": np.array([2, 4, 6], np.float32), "operand0": np.array([[1], [2]], np.float32)}
    assert FAMILY.reference(problem, inputs).tolist() == [[2, 4, 6], [1, 2, 3]]


def test_constants_are_marked() -> None:
    chain = Chain((Step("add", operand=0), Step("mul", operand=1)))
    problem = ElementwiseProblem((4,), ((4,), (1,)), (4,), chain, constant_operands=(1,))
    assert [spec.constant for spec in FAMILY.inputs(problem)] == [False, False, True]


def test_an_empty_chain_expands() -> None:
    problem = ElementwiseProblem((2, 2), (), (2, 1), EMPTY)
    assert FAMILY.reference(problem, {"input": np.array([[1], [2]], np.float32)}).tolist() == [[1, 1], [2, 2]]
    assert FAMILY.work(problem).flops == 0
