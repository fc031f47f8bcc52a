"""The rounds of a race: who stays, and when more samples would change nothing."""

import math

import pytest

from gputune.runtime.racing import ENOUGH, KEPT_AT_LEAST, ranking, settled, standard_error, staying


def test_the_best_quarter_by_median_stays_and_so_do_those_that_always_do() -> None:
    samples = [[10.0 * (12 - runner), 1000.0, 10.0 * (12 - runner)] for runner in range(12)]
    assert staying(samples, range(12)) == [11, 10, 9]
    assert staying(samples, range(12), always={0, 10}) == [11, 10, 9, 0]
    assert staying(samples, [3, 2, 1]) == [3, 2][:KEPT_AT_LEAST]
    assert staying(samples, [5]) == [5]


def test_equal_runners_keep_their_order_and_those_without_samples_have_no_rank() -> None:
    assert ranking([[2.0], [], [1.0], [2.0]]) == [2, 0, 3]


def test_a_slow_outlier_does_not_widen_the_error_and_few_samples_say_nothing() -> None:
    steady = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8]
    assert standard_error([*steady[1:], 500.0]) == pytest.approx(standard_error(steady), rel=0.5)
    assert standard_error([100.0] * (ENOUGH - 1)) == math.inf
    assert standard_error([100.0] * ENOUGH) == 0.0


def test_a_race_is_settled_when_the_first_is_ahead_for_certain_or_all_are_within_a_tie() -> None:
    first = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8]
    close, far = [value + 0.5 for value in first], [value + 20 for value in first]
    assert settled([first], [0])
    assert settled([far, first], [0, 1])
    assert not settled([close, first], [0, 1])
    assert not settled([far, close, first], [0, 1, 2])
    assert settled([far, close, first], [0, 2])
    assert settled([close, first], [0, 1], tie=0.05)
    assert not settled([far[:3], first[:3]], [0, 1])
