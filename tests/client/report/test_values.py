"""Test the values of a report: intervals, problems in words, scales and units."""

import json
import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gputune.client.pages.scales import Scale, log_scale, time_range, time_words
from gputune.client.report.problems import problem_of, value_in_words, words, work_of
from gputune.client.tuning.measuring.intervals import median_interval, median_ratio, ratio_interval
from gputune.kernels.catalogue import families
from gputune.kernels.family import problem_to_dict
from stress import made_up_cache
from tests.kernels.batched_problems import BATCHED

CONV = made_up_cache.TASKS[0]


# Intervals.


@pytest.mark.parametrize(
    ("count", "low", "high", "confidence"),
    [
        (1, 1, 1, 0.0),
        (5, 1, 5, 0.9375),
        (6, 1, 6, 0.96875),
        (8, 1, 8, 0.9921875),
        (9, 2, 8, 0.9609375),
        (16, 4, 13, 0.979),
        (1000, 469, 532, 0.9537),
        (3000, 1446, 1555, 0.9534),
    ],
)
def test_a_median_lies_between_order_statistics(count: int, low: int, high: int, confidence: float) -> None:
    interval = median_interval(range(count, 0, -1))
    assert (interval.low, interval.high) == (low, high)
    assert interval.confidence == pytest.approx(confidence, abs=1e-3)


@pytest.mark.parametrize("count", [1000, 1001, 1002, 1003, 1500, 3000])
@pytest.mark.parametrize("wanted", [0.8, 0.95, 0.99995])
def test_many_samples_are_as_certain_as_coin_tosses_say(count: int, wanted: float) -> None:
    """Of more samples than are counted one by one, the interval may be one place wider, and is never narrower."""
    interval = median_interval(range(1, count + 1), wanted)
    k = int(interval.low)
    assert interval.high == count + 1 - k

    def confidence(k: int) -> Fraction:
        return 1 - Fraction(2 * sum(math.comb(count, heads) for heads in range(k)), 2**count)

    assert confidence(k) >= Fraction(wanted) > confidence(k + 2)
    assert interval.confidence == pytest.approx(float(confidence(k)), abs=1e-4)
    assert interval.confidence >= wanted


@given(*[st.lists(st.sampled_from([10.0, 11.0, 15.0, 20.0]), min_size=1, max_size=16)] * 2)
@example([10.0, 20.0] * 6, [10.0, 15.0] * 7 + [10.0])
def test_the_ratio_of_two_medians_lies_in_its_own_range(over: list[float], under: list[float]) -> None:
    """In the example the median of `over` is 15, which it never took: without it the range ends at 1.33."""
    interval = ratio_interval(over, under)
    assert interval.low <= median_ratio(over, under) <= interval.high


def test_a_gain_has_a_range() -> None:
    interval = ratio_interval([float(n) for n in range(20, 40)], [float(n) for n in range(10, 30)])
    assert interval.confidence >= 0.95
    assert interval.low < 30 / 20 < interval.high
    assert ratio_interval([2.0], [1.0]).confidence == 0


@pytest.mark.parametrize(
    ("over", "under", "left_out"), [(4, 4, 0), (5, 5, 2), (7, 7, 8), (10, 6, 11), (16, 16, 75), (3, 2, 0)]
)
def test_a_gain_lies_between_the_critical_pairs_of_mann_and_whitney(over: int, under: int, left_out: int) -> None:
    """left_out: pairs beyond each end, the critical value of U for 5 % on both sides from printed tables."""
    first, second = [1.01**n for n in range(over)], [1.0001**n for n in range(under)]
    ratios = sorted(a / b for a in first for b in second)
    interval = ratio_interval(first, second)
    assert (interval.low, interval.high) == (ratios[left_out], ratios[-1 - left_out])
    assert interval.confidence >= 0.95 or (over, under) == (3, 2)


def test_an_outlier_moves_the_range_of_a_gain_little() -> None:
    over, under = [286.0, 298, 285, 297, 286, 303, 222], [86.0, 125, 86, 120, 90, 252, 115]
    assert ratio_interval(over, under).low > 1.7


def test_many_samples_take_no_longer_than_some() -> None:
    assert ratio_interval([2.0] * 10**5, [1.0] * 10**5).confidence >= 0.95


# Problems.


@pytest.mark.parametrize("task", made_up_cache.TASKS, ids=lambda task: f"{task.op}-{task.trials}")
def test_a_problem_is_made_whole_again(task: made_up_cache.MadeUp) -> None:
    plain = json.loads(json.dumps(problem_to_dict(task.problem)))
    assert problem_of(task.op, plain) == task.problem
    assert work_of(task.op, task.problem) == families()[task.op].work(task.problem)


def test_a_problem_is_put_into_words() -> None:
    assert words("Conv", CONV.key.problem) == "1×28×28×64 → 1×28×28×64, window 3×3, padding 1, bias, then relu"
    joined = {"m": 49, "k": 45, "n": 8, "bias": True, "parts": [13, 1, 31]}
    assert words("MatMul", joined) == "49×13 → 49×8, bias, parts of 13 + 1 + 31"
    computed = problem_to_dict(BATCHED["primes"])
    assert words("MatMul", computed) == "3×7×13 → 3×7×17, both factors computed, then relu"
    assert words("Nothing", {"size": 3, "none": []}) == "size=3"


@pytest.mark.parametrize(
    ("meaning", "value", "said"),
    [
        ("channels of a vector", 8, "channels of a vector"),
        ("1: states lie in local memory, 0: in global memory", 0, "in global memory"),
        ("1: states lie in local memory, 0: in global memory", 1, "states lie in local memory"),
        ("1: a row is loaded once, and shared", 1, "a row is loaded once, and shared"),
        ("1: a row is loaded once, and shared", 0, "no longer: a row is loaded once, and shared"),
        ("algorithm: 0 direct, m Winograd", 4, "algorithm: 0 direct, m Winograd"),
        ("", 4, ""),
    ],
)
def test_a_value_is_put_into_words(meaning: str, value: int, said: str) -> None:
    assert value_in_words(meaning, value) == said


@pytest.mark.parametrize(
    "change", [{"height": "28"}, {"height": True}, {"kernel": 3}, {"kernel": [3]}, {"extra": 1}, {"groups": 0}]
)
def test_a_problem_that_cannot_be_true_is_none(change: dict[str, object]) -> None:
    assert problem_of("Conv", {**CONV.key.problem, **change}) is None


# Scales and units.


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(None, "–"), (0, "0"), (0.25, "0.25 ns"), (999.7, "1 µs"), (41_234, "41.2 µs"), (1e9, "1 s"), (5.4e12, "1.5 h")],
)
def test_times_are_read_in_their_best_unit(time_ns: float | None, text: str) -> None:
    assert time_words(time_ns) == text


def test_a_range_names_its_unit_once() -> None:
    assert time_range(161e3, 163.2e3).replace("\u00a0", " ") == "161–163 µs"
    assert time_range(900.0, 1100.0).replace("\u00a0", " ") == "900 ns–1.1 µs"


@pytest.mark.parametrize(("low", "high"), [(1e-3, 1e18), (1, 2), (100, 101), (0.5, 7e3), (3, 3)])
def test_every_logarithmic_axis_has_some_ticks_on_it(low: float, high: float) -> None:
    scale = log_scale([low, high], 0, 100)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 7
    assert all(scale.low <= tick <= scale.high and 0 <= scale(tick) <= 100 for tick in ticks)


def test_what_lies_outside_is_drawn_at_the_end() -> None:
    assert Scale(0, 10, 0, 100)(25) == 100
    assert Scale(0, 10, 100, 0)(-5) == 100
