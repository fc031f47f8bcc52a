"""Test what is said of a tensor that is wrong, and of outputs that show nothing."""

import logging
from typing import Any

import numpy as np
import pytest

from gputune.client.context.verifying.distance import (
    ALLOWED,
    Compared,
    check_compared,
    compared,
    distance,
    in_words,
    told,
)
from gputune.client.errors import NothingCompared, VerificationError
from gputune.client.model.graph import Array


def floats(values: list[Any]) -> Array:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("got", "want", "words"),
    [
        (np.array([3, 2**53 + 1]), np.array([3, 2**53]), "9007199254740993 at [1], where 9007199254740992 is right"),
        (np.array([[True], [False]]), np.array([[True], [True]]), "False at [1, 0], where True is right"),
        (floats([1, np.nan]), floats([1, 2]), "nan at [1], where 2 is right"),
        (floats([4, 2.5]), floats([4, 2]), "off by 0.12 of its largest value, 0.001 is allowed: 2.5 at [1]"),
        (floats([1]), floats([[1]]), "float32 of shape (1,), where float32 of (1, 1) is right"),
    ],
)
def test_a_difference_is_said_with_its_place(got: Array, want: Array, words: str) -> None:
    assert distance(got, want) > 0
    assert words in in_words(got, want)


def stepped(count: int, by: float, dtype: str = "uint8", size: int = 2000) -> tuple[Array, Array]:
    """A tensor of numbers of 1.5, and the same with some of them off."""
    want = (1.5 * (np.arange(size) % 100) if dtype == "float32" else np.arange(size) % 100 + 1).astype(dtype)
    got = want.copy()
    got[np.arange(count) * 7 + 3] += np.array(by).astype(dtype)
    return got, want


@pytest.mark.parametrize(
    ("pair", "step", "right", "counted"),
    [
        (stepped(2, 1), 1.0, True, 2),
        (stepped(2, 1), 0.0, False, 0),
        (stepped(3, 1), 1.0, False, 0),
        (stepped(1, 2), 1.0, False, 0),
        (stepped(1, 1, size=9), 1.0, True, 1),
        (stepped(2, 1, size=19), 1.0, False, 0),
        (stepped(1, -1, "int8"), 1.0, True, 1),
        (stepped(1, 1.5, "float32"), 1.5, True, 1),
        (stepped(3, 1.5, "float32"), 1.5, False, 0),
        (stepped(1, 3.0, "float32"), 1.5, False, 0),
        (stepped(1, 0.75, "float32"), 1.5, False, 0),
        (stepped(9, 1e-3, "float32"), 1.5, True, 0),
        ((np.array([1], np.uint8), np.array([[1]], np.uint8)), 1.0, False, 0),
        ((floats([np.nan, 1]), floats([np.nan, 2.5])), 1.5, True, 1),
        ((floats([np.nan, 1]), floats([1, 1])), 1.5, False, 0),
    ],
)
def test_few_numbers_may_be_a_step_off(pair: tuple[Array, Array], step: float, right: bool, counted: int) -> None:
    got, want = pair
    found = compared(got, want, step)
    assert (found.error <= ALLOWED, found.stepped) == (right, counted)
    assert found + found == Compared(found.error, 2 * found.values, 2 * found.blank, 2 * counted)
    share = told({"y": found})["y"]["one_step_off"]
    assert share == counted / want.size


@pytest.mark.parametrize(
    ("got", "own", "right"),
    [
        (floats([1, 2, 3.9]), floats([1, 2, 3.8]), True),
        (floats([1, 2, 3.7]), floats([1, 2, 3.8]), False),
        (floats([1, 2.2, 4]), floats([1, 2, 4]), False),
        (floats([1, 2, 3.9]), floats([1, 2, np.nan]), False),
        (floats([1, 2, np.nan]), floats([1, 2, 3.8]), False),
        (np.array([1, 2, 5], np.uint8), np.array([1, 2, 6], np.uint8), True),
        (np.array([1, 2, 7], np.uint8), np.array([1, 2, 6], np.uint8), False),
    ],
)
def test_what_roundings_move_is_held_against_what_optimisations_move(got: Array, own: Array, right: bool) -> None:
    want = np.array([1, 2, 4], got.dtype)
    found = compared(got, want)
    assert not found.within(ALLOWED)
    beside = found.beside(got, want, own)
    assert beside.within(ALLOWED) == (beside + Compared(0.0, 3)).within(ALLOWED) == right
    assert not (beside + Compared(0.5, 3)).within(ALLOWED)


def test_too_many_steps_are_told_with_their_number() -> None:
    words = in_words(*stepped(9, 1), step=1.0)
    assert words == "5 at [3], where 4 is right; 9 of 2000 elements are one step off, 2 may be"
    assert "7 at [3], where 4 is right" in in_words(*stepped(2, 3), step=1.0)


@pytest.mark.parametrize(
    ("got", "want", "blank"),
    [
        (floats([1, 2]), floats([1, 2]), 0),
        (floats([np.nan, 2]), floats([np.nan, 2]), 1),
        (floats([np.inf, np.nan]), floats([np.inf, np.nan]), 2),
        (floats([np.inf, 1]), floats([-np.inf, np.nan]), 1),  # wrong, and so not verified in any case
        (floats([-np.inf] * 3), floats([-np.inf] * 3).astype(np.float16), 3),
        (np.array([7, 7]), np.array([7, 7]), 0),
        (floats([]), floats([]), 0),
    ],
)
def test_values_that_show_nothing_are_counted(got: Array, want: Array, blank: int) -> None:
    assert compared(got, want) == Compared(distance(got, want), want.size, blank)


@pytest.mark.parametrize(
    ("inferences", "shares"),
    [([(8, 0)], 0.0), ([(8, 2)], 0.25), ([(8, 8), (8, 0)], 0.5), ([(8, 8), (8, 8)], 1.0), ([(0, 0)], 0.0)],
)
def test_all_are_a_failure_and_some_a_warning(
    caplog: pytest.LogCaptureFixture, inferences: list[tuple[int, int]], shares: float
) -> None:
    found = Compared()
    for values, blank in inferences:
        found += Compared(0.0, values, blank)
    assert found.share == shares
    with caplog.at_level(logging.WARNING, "gputune"):
        if shares == 1:
            with pytest.raises(NothingCompared, match=r"^a: all 16 values of output 'y' are NaN .*; do so$") as raised:
                check_compared({"x": Compared(0.0, 4), "y": found}, "do so", "a: ")
            assert isinstance(raised.value, VerificationError) and raised.value.exit_code == 10
        else:
            check_compared({"x": Compared(0.0, 4), "y": found}, "do so", "a: ")
    some = f"a: {shares:.1%} of {found.values} values of output 'y' are NaN or infinite on both sides and were not "
    assert [text.removeprefix(some) for text in caplog.messages] == ["compared; do so"][: 0 < shares < 1]
