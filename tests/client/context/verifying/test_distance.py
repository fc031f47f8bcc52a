"""Test what is said of a tensor that is wrong."""

from typing import Any

import numpy as np
import pytest

from gputune.client.context.verifying.distance import distance, in_words
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
