"""Test moves: borders by hand, loops that become one, legal defaults, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.kernels.chain import Chain, Step
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops.gather import FAMILY as GATHER
from gputune.kernels.ops.gather import GatherProblem
from gputune.kernels.ops.move import FAMILY, MoveProblem, element, move
from gputune.kernels.ops.resample import FAMILY as RESAMPLE
from gputune.kernels.ops.resample import ResampleProblem
from gputune.kernels.ops.scatter import FAMILY as SCATTER
from gputune.kernels.ops.scatter import along, at_points

from .problems import DEVICES

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


PROBLEMS = [
    (FAMILY, move(1, 0, [])),
    (FAMILY, move(7 * 640, 0, [Loop(640, 7), Loop(7, 1)])),
    (FAMILY, move(7 * 640, 0, [Loop(7, 1), Loop(640, 7)])),
    (FAMILY, move(20, 0, [Loop(1000, 5, 3, 4), Loop(5, 1, 1, 3)], "reflect")),
    (GATHER, GatherProblem(3_052 * 384, 128, (128,), (0,), (1,), (3_052,), (384,), 384)),
    (GATHER, GatherProblem(5, 3, (3,), (0,), (1,), (5,), (1,), 1)),
    (RESAMPLE, ResampleProblem(1, 20, 20, 96, (40, 40), (2, 2))),
    (RESAMPLE, ResampleProblem(3, 1, 9, 1, (1, 4), (1, 5))),
    (SCATTER, at_points((4, 3, 19), (6, 2))),
    (SCATTER, at_points((1 << 16,), (5, 1))),
    (SCATTER, along((200, 128), (1600, 128), 0, reduction="add")),
    (SCATTER, along((3, 5, 7), (2, 3, 4), 2, reduction="max")),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("which", range(len(PROBLEMS)))
def test_default_and_starters_are_legal_and_read_what_the_family_names(device: str, which: int) -> None:
    (family, problem), limits = PROBLEMS[which], DEVICES[device]
    space = family.space(problem, limits)
    tried = [family.default(problem, limits), *family.starters(problem, limits)]
    assert len({tuple(one.items()) for one in tried}) == len(tried)
    for configuration in tried:
        assert space.violations(configuration) == []
        launch = family.render(problem, configuration).main
        assert sorted(launch.arguments, key=str) == sorted([*(s.name for s in family.inputs(problem)), "output"])
    inputs = family.sample_inputs(problem, np.random.default_rng(0))
    assert all(inputs[s.name].dtype.name == s.dtype and inputs[s.name].shape == s.shape for s in family.inputs(problem))
    assert family.reference(problem, inputs).shape == family.output(problem).shape


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sizes": (0,), "extents": (1,)}, "positive sizes"),
        ({"before": (-1,)}, "not negative"),
        ({"steps": (2,)}, "reads elements 0 to 6 of 4"),
        ({"start": 1}, "reads elements 1 to 4 of 4"),
        ({"steps": (-1,)}, "reads elements -3 to 0 of 4"),
        ({"steps": (1, 1)}, "for every loop"),
        ({"border": "mirror"}, "constant, edge, reflect, wrap, not 'mirror'"),
        ({"fill": float("nan")}, "NaN"),
        ({"dtype": "float64"}, "float64"),
        (
            {"dtype": "int8", "epilogue": Chain((Step("relu"),))},
            "with an epilogue knows dtype float32, float16, not",
        ),
        ({"elements": 1 << 31}, "32 bits"),
    ],
)
def test_a_wrong_move_says_what_is_wrong(changed: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"elements": 4, "start": 0, "sizes": (4,), "steps": (1,), "before": (0,), "extents": (4,)}
    with pytest.raises(ValueError, match=message):
        MoveProblem(**(fields | changed))


@pytest.mark.parametrize(
    ("family", "changed", "message"),
    [
        ("gather", {"elements": 34}, "reaches 35 elements and 6 indices of 34 and 6"),
        ("gather", {"indices": 5}, "reaches 35 elements and 6 indices of 35 and 5"),
        ("gather", {"index_dtype": "int8"}, "int32 and int64, not int8"),
        ("gather", {"steps": (0, 0)}, "two steps for each size"),
        ("scatter", {"updates": 113}, "reaches 114 updates of 113"),
        ("scatter", {"indices": 11}, "reaches 12 indices of 11"),
        ("scatter", {"step": 20}, "reaches 239 elements of 228"),
        ("scatter", {"reduction": "mean"}, "not 'mean'"),
        ("scatter", {"takes": (0, 1)}, "three steps and a bound for each size"),
        ("scatter", {"takes": (2,)}, "neighbouring elements and updates"),
        ("resample", {"taps": (0, 1)}, "one tap"),
        ("resample", {"outside": float("inf")}, "finite"),
        ("resample", {"dtype": "int8"}, "not int8"),
    ],
)
def test_a_wrong_problem_says_what_is_wrong(family: str, changed: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {
        "gather": GatherProblem(35, 6, (6,), (0,), (1,), (7,), (5,), 5),
        "scatter": at_points((4, 3, 19), (6, 2)),
        "resample": ResampleProblem(1, 4, 4, 8, (8, 8), (2, 2)),
    }
    with pytest.raises(ValueError, match=message):
        type(right[family])(**(vars(right[family]) | changed))
