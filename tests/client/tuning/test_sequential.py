"""Test the interval that may be looked at after every round."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.tuning.measuring.sequential import SURE, Gain, gain_of, least_rounds


def certain(heads: int, count: int) -> bool:
    """Whether so many rounds above 1 among so many tell a difference."""
    return gain_of([2.0] * heads + [0.5] * (count - heads)).certain


def ever_left_out(rounds: int) -> float:
    """How often the interval leaves out the true median at any moment of so many rounds: heads among tosses of a fair
    coin, from which those go that are called unfair."""
    chances, left = {0: 1.0}, 0.0
    for count in range(1, rounds + 1):
        after: dict[int, float] = {}
        for heads, chance in chances.items():
            after[heads] = after.get(heads, 0.0) + chance / 2
            after[heads + 1] = after.get(heads + 1, 0.0) + chance / 2
        left += sum(chance for heads, chance in after.items() if certain(heads, count))
        chances = {heads: chance for heads, chance in after.items() if not certain(heads, count)}
    return left


def test_it_ever_leaves_out_the_median_as_rarely_as_it_says() -> None:
    assert 0.1 * (1 - SURE) < ever_left_out(300) <= 1 - SURE


def test_a_difference_that_every_round_shows_is_certain_after_few() -> None:
    least = least_rounds()
    assert least <= 13
    assert not gain_of([1.1] * (least - 1)).certain
    assert gain_of([1.1] * least).certain
    assert gain_of([0.9] * least).certain


def test_before_there_is_an_interval_everything_is_possible() -> None:
    assert gain_of([1.5, 1.2, 1.1]) == Gain(1.2, 0.0, math.inf, 3)


def test_rounds_that_are_all_equal_are_settled_and_no_difference() -> None:
    found = gain_of([1.0] * 20)
    assert found.settled
    assert not found.certain


def test_words_fit_the_interval() -> None:
    assert gain_of([1.35] * 13).words == "1.35 times as fast (1.35–1.35)"
    assert gain_of([0.8] * 13).words == "0.80 times as fast (0.80–0.80)"
    assert gain_of([0.998] + [1.05] * 11 + [1.2]).words == "no difference found (0.998–1.20)"
    assert gain_of([1.002] * 13).words == "1.002 times as fast (1.002–1.002)"
    assert gain_of([2.0]).words == "not known after 1 round"


def test_json_has_no_infinite_numbers() -> None:
    assert gain_of([2.0]).to_dict() == {"median": 2.0, "low": None, "high": None, "rounds": 1}
    assert gain_of([2.0] * 13).to_dict() == {"median": 2.0, "low": 2.0, "high": 2.0, "rounds": 13}


def test_a_gain_of_no_rounds_is_refused() -> None:
    with pytest.raises(ValueError, match="no rounds"):
        gain_of([])


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=60))
def test_the_median_lies_in_its_interval_which_turns_with_the_ratios(ratios: list[float]) -> None:
    found, turned = gain_of(ratios), gain_of([1 / one for one in ratios])
    assert found.low <= found.median <= found.high
    assert turned.low == pytest.approx(1 / found.high)
    assert (1 / turned.high == pytest.approx(found.low)) or turned.high == math.inf


@given(st.integers(13, 200), st.data())
def test_heads_are_unfair_where_the_likelihoods_say_so(count: int, data: st.DataObject) -> None:
    """By the definition, in whole numbers: 2^n B(h + 2, n - h + 2) / B(2, 2) >= 1 / (1 - SURE)."""
    heads = data.draw(st.integers(0, count))
    ways = 6 * math.factorial(heads + 1) * math.factorial(count - heads + 1)
    assert certain(heads, count) == (2**count * ways >= 200 * math.factorial(count + 3))
