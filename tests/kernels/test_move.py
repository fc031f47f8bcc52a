"""Test moves: borders by hand, and loops that become one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.kernels.chain import Chain, Step
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops.move import FAMILY, element, move
from gputune.kernels.ops.scatter import FAMILY as SCATTER
from gputune.kernels.ops.scatter import along, at_points

from .problems import CPU, GPU

FIVE = np.arange(5, dtype=np.float32)


@pytest.mark.parametrize(
    ("border", "want"),
    [
        ("constant", [9, 9, 9, 0, 1, 2, 3, 4, 9, 9, 9, 9, 9, 9]),
        ("edge", [0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 4]),
        ("reflect", [3, 2, 1, 0, 1, 2, 3, 4, 3, 2, 1, 0, 1, 2]),
        ("wrap", [2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0]),
    ],
)
def test_borders_hold_what_their_name_says(border: str, want: list[int]) -> None:
    problem = move(5, 0, [Loop(14, 1, 3, 5)], border, 9)
    assert FAMILY.reference(problem, {"input": FIVE}).tolist() == want


def test_one_element_is_mirrored_onto_itself() -> None:
    problem = move(5, 2, [Loop(4, 1, 1, 1)], "reflect")
    assert FAMILY.reference(problem, {"input": FIVE}).tolist() == [2, 2, 2, 2]


def test_neighbours_that_walk_on_in_one_stride_are_one_loop() -> None:
    assert move(60, 0, [Loop(3, 20), Loop(1, 7), Loop(4, 5), Loop(5, 1)]).sizes == (60,)
    assert move(60, 0, [Loop(3, 20), Loop(5, 1), Loop(4, 5)]).sizes == (3, 5, 4)
    assert move(60, 59, [Loop(3, -20), Loop(20, -1)]).steps == (-1,)
    assert move(60, 0, [Loop(9, 0), Loop(4, 0), Loop(5, 1)]).sizes == (36, 5)
    assert move(1, 0, []).is_copy
    assert move(60, 0, [Loop(12, 5), Loop(5, 1)]).is_copy
    assert not move(60, 0, [Loop(11, 5), Loop(5, 1)]).is_copy
    assert not move(60, 59, [Loop(60, -1)]).is_copy


def test_a_border_of_numbers_grows_with_the_loop_inside_and_others_do_not() -> None:
    loops = [Loop(6, 5, 1, 4), Loop(5, 1)]
    filled = move(20, 0, loops)
    assert (filled.sizes, filled.before, filled.extents) == ((30,), (5,), (20,))
    assert move(20, 0, loops, "edge").sizes == (6, 5)


@settings(max_examples=60)
@given(st.data())
def test_loops_mean_the_same_before_and_behind_merging(data: st.DataObject) -> None:
    """A slice of a padded, transposed tensor, against numpy."""
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    border, mode = data.draw(st.sampled_from([("constant", "constant"), ("edge", "edge"), ("wrap", "wrap")]))
    loops, start, widths, slices = [], 0, [], []
    for axis in order:
        step = int(np.prod(shape[axis + 1 :]))
        first = data.draw(st.integers(0, shape[axis] - 1))
        kept = shape[axis] - first
        before, behind = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
        loops.append(Loop(before + kept + behind, step, before, kept))
        start += first * step
        widths.append((before, behind))
        slices.append(slice(first, None))
    want = np.pad(value.transpose(order)[tuple(slices)], widths, mode=mode)  # type: ignore[call-overload]
    problem = move(value.size, start, loops, border)
    np.testing.assert_array_equal(FAMILY.reference(problem, {"input": value}).reshape(want.shape), want)


def test_the_chain_comes_last_and_changes_borders_too() -> None:
    chain = Chain((Step("add", operand=0), Step("relu")))
    problem = move(2, 0, [Loop(4, 1, 1, 2)], fill=-3, epilogue=chain)
    inputs = {"input": np.array([-9, 5], np.float32), "operand0": np.array([4, 1, 1, 1], np.float32)}
    assert FAMILY.reference(problem, inputs).tolist() == [1, 0, 6, 0]


@pytest.mark.parametrize(
    ("value", "dtype", "seen", "text"),
    [
        (-(2**63), "int64", "int64", "(-9223372036854775807L - 1)"),
        (2**64 - 1, "uint64", "uint64", "18446744073709551615UL"),
        (-128, "int8", "int8", "(-127 - 1)"),
        (1, "bool", "bool", "1"),
        (float("-inf"), "float32", "float32", "-INFINITY"),
        (-2, "float16", "uint16", str(0xC000)),
        (1e9, "float16", "uint16", str(0x7C00)),
        (0.5, "float16", "float16", "5.000000000e-01f"),
    ],
)
def test_elements_are_written_exactly(value: float, dtype: str, seen: str, text: str) -> None:
    assert element(value, dtype, seen) == text


def test_updates_are_looked_at_once_by_default_where_there_are_many() -> None:
    for problem in (along((200, 128), (1600, 128), 0), at_points((1000,), (100_000, 1))):
        assert SCATTER.default(problem, CPU)["PARTS"] == 1
        assert 1 < SCATTER.default(problem, GPU)["PARTS"] <= 64 * GPU.compute_units
    assert SCATTER.default(at_points((4096, 64), (4, 1)), CPU)["PARTS"] > 1
