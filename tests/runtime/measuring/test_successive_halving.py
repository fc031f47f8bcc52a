"""Test successive halving: which runners stay, when more samples would change nothing, and why each was eliminated."""

import math
from collections.abc import Callable, Sequence

import pytest

from gputune.runtime.measuring.successive_halving import (
    ENOUGH,
    HOPELESS,
    KEPT_AT_LEAST,
    SuccessiveHalving,
    settled,
    standard_error,
    staying,
)

STEADY = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8]
ALIKE = [99.8, 100.2, 100.0, 99.5, 101.0, 99.0, 100.5]
"""The same samples by another chance."""


def numbered(samples: Sequence[Sequence[float]]) -> dict[int, Sequence[float]]:
    return dict(enumerate(samples))


def test_the_best_quarter_by_median_stays_and_so_do_those_that_always_do() -> None:
    samples = numbered([[100.0 - 5 * runner, 1000.0, 100.0 - 5 * runner] for runner in range(12)])
    assert staying(samples, range(12)) == [11, 10, 9]
    assert staying(samples, range(12), always={0, 10}) == [11, 10, 9, 0]
    assert staying(samples, [3, 2, 1]) == [3, 2][:KEPT_AT_LEAST]
    assert staying(samples, [5]) == [5]


@pytest.mark.parametrize("runners", range(1, 25))
def test_a_quarter_is_rounded_up(runners: int) -> None:
    """Only the first of these may be the best, and none is far behind."""
    samples = numbered([[100.0], *([150.0 + runner] for runner in range(1, runners))])
    assert len(staying(samples, range(runners))) == min(runners, max(KEPT_AT_LEAST, math.ceil(runners / 4)))


def test_who_is_far_behind_gets_three_samples_at_most() -> None:
    assert staying(numbered([[10.0] * 3, [20.0] * 3, [30.0] * 3]), range(3)) == [0, 1]
    assert staying(numbered([[10.0] * 3, [20.1] * 3, [30.0] * 3]), range(3), always={2}) == [0, 2]
    assert staying(numbered([[10.0], [200.0], [300.0]]), range(3)) == [0, 1]
    assert staying(numbered([[10.0], [201.0], [300.0]]), range(3)) == [0]


@pytest.mark.parametrize(("samples", "close"), [(1, 19.0), (3, 11.0)])
def test_in_a_small_field_those_that_may_be_the_best_stay(samples: int, close: float) -> None:
    field = numbered([[100.0 + step] * samples for step in (0, close, close + 0.2, 2 * close, close)])
    assert staying(field, range(5)) == [0, 1, 4, 2]
    many = numbered([[100.0] * samples] * 40)
    assert len(staying(many, range(40))) == 10


def test_with_enough_samples_their_own_spread_says_who_may_be_the_best() -> None:
    field = numbered([STEADY, [v + 0.1 for v in ALIKE], [v + 0.5 for v in ALIKE], [v + 5 for v in ALIKE]])
    assert staying(field, range(4)) == [0, 1, 2]


def test_equal_runners_keep_the_order_of_their_numbers() -> None:
    assert staying(numbered([[2.0], [1.0], [2.0], [1.0]]), [3, 2, 1, 0]) == [1, 3]


def test_a_slow_outlier_does_not_widen_the_error_and_few_samples_say_nothing() -> None:
    assert standard_error([*STEADY[1:], 500.0]) == pytest.approx(standard_error(STEADY), rel=0.5)
    assert standard_error([100.0] * (ENOUGH - 1)) == math.inf
    assert standard_error([100.0] * ENOUGH) == 0.0


def test_a_race_is_settled_when_the_first_is_ahead_for_certain_or_all_are_within_a_tie() -> None:
    close, far = [value + 0.5 for value in ALIKE], [value + 20 for value in STEADY]
    assert settled({0: STEADY}, [0]) and settled({}, []) and not settled({0: STEADY[:6]}, [0])
    assert settled({0: far, 1: STEADY}, [0, 1])
    assert not settled({0: close, 1: STEADY}, [0, 1])
    assert not settled({0: far, 1: close, 2: STEADY}, [0, 1, 2])
    assert settled({0: far, 1: close, 2: STEADY}, [0, 2])
    assert settled({0: close, 1: STEADY}, [0, 1], tie=0.05)
    assert not settled({0: far[:3], 1: STEADY[:3]}, [0, 1])


def test_what_slows_down_all_in_a_pass_leaves_no_doubt_who_is_ahead() -> None:
    level = [1.0, 1.5, 0.8, 1.3, 2.0, 0.9, 1.1]
    samples = {0: [100 * now for now in level], 1: [102 * now for now in level]}
    assert standard_error(samples[0]) > 10
    assert settled(samples, [0, 1])
    assert staying({**samples, 2: samples[1], 3: samples[1]}, range(4)) == [0, 1], "a quarter, but two at least"


def driven(
    halving: SuccessiveHalving, samples: dict[int, list[float]], draw: Callable[[int, int], float]
) -> list[list[int]]:
    """Drives the rounds; draw(runner, number) is a sample."""
    passes = []
    for runners in halving.passes():
        passes.append(runners)
        for runner in runners:
            samples[runner].append(draw(runner, len(samples[runner])))
    return passes


def wavering(runner: int, number: int) -> float:
    """Samples that differ so much by chance that runners do not."""
    return 100 + runner / 100 + ((number * 7 + runner * number) % 5) * 1.5


def test_passes_alternate_and_the_last_get_all_samples() -> None:
    samples: dict[int, list[float]] = {runner: [] for runner in range(4)}
    halving = SuccessiveHalving(samples, most=16)
    passes = driven(halving, samples, wavering)
    assert passes[:3] == [[0, 1, 2, 3], [3, 2, 1, 0], [0, 1, 2, 3]]
    assert len(passes) == 16 and halving.ended == "all"
    assert halving.stopped == dict.fromkeys(range(4), "all")


def test_a_steady_drift_meets_all_alike() -> None:
    samples: dict[int, list[float]] = {runner: [] for runner in range(3)}
    clock = iter(range(1000))
    driven(SuccessiveHalving(samples, most=16), samples, lambda runner, number: 100.0 + next(clock) / 10)
    assert max(map(sum, samples.values())) - min(map(sum, samples.values())) < 0.05 * 16


def test_the_race_ends_when_the_order_is_settled_and_says_so() -> None:
    samples: dict[int, list[float]] = {runner: [] for runner in range(8)}
    halving = SuccessiveHalving(samples, always={5})
    driven(halving, samples, lambda runner, number: 100.0 + 30 * runner)
    assert [len(samples[runner]) for runner in range(8)] == [7, 7, 1, 1, 1, 7, 1, 1]
    assert {runner for runner, why in halving.stopped.items() if why == "settled"} == {0, 1, 5}
    assert halving.ended == "settled" and halving.stopped[7] == "slower"


def test_nobody_leaves_early_before_the_clock_is_stable() -> None:
    samples: dict[int, list[float]] = {runner: [] for runner in range(8)}
    driven(SuccessiveHalving(samples, warm=False, known_ns=1.0), samples, lambda runner, number: 100.0 + 30 * runner)
    assert min(map(len, samples.values())) == 3 and len(samples[0]) == 7


def test_who_left_early_is_no_finalist_whatever_its_samples_say() -> None:
    samples: dict[int, list[float]] = {runner: [] for runner in range(8)}
    halving = SuccessiveHalving(samples)
    driven(halving, samples, lambda runner, number: 100.0 + 30 * runner + 500 * (number > 0))
    assert halving.finalists == [0, 1] and samples[0][-1] > samples[7][0]


@pytest.mark.parametrize(("known_ns", "most"), [(99 / HOPELESS, 3), (101 / HOPELESS, 7)])
def test_a_race_for_nothing_ends_after_three_samples(known_ns: float, most: int) -> None:
    samples: dict[int, list[float]] = {runner: [] for runner in range(4)}
    halving = SuccessiveHalving(samples, known_ns=known_ns)
    driven(halving, samples, lambda runner, number: 100.0 + 30 * runner)
    assert [len(values) for values in samples.values()] == [most, most, 1, 1]
    assert halving.stopped[0] == ("slower" if most == 3 else "settled") and halving.ended == "settled"


def test_who_fails_is_left_out_and_a_race_of_nobody_is_over() -> None:
    samples: dict[int, list[float]] = {runner: [] for runner in range(3)}

    def failing(runner: int, number: int) -> float:
        if number == 1 and runner == 0:
            del samples[1], samples[2]
        return 100.0

    halving = SuccessiveHalving(samples)
    assert len(driven(halving, samples, failing)) == 7
    assert halving.stopped == {0: "settled"}
    assert list(SuccessiveHalving({}).passes()) == []


def test_two_levels_of_speed_settle_nothing_by_chance() -> None:
    """Every other sample is twice as slow, and seven of them do not tell: most are on the level that favours the slower
    runner, and neither shows any spread."""
    slower, faster = [120.0] * 6 + [240.0], [200.0] * 6 + [100.0]
    assert standard_error(slower) == standard_error(faster) == 0
    assert not settled({0: slower, 1: faster}, [0, 1])
    field = numbered([[100.0] * 6 + [200.0], [101.0] * 7, [105.0] * 6 + [50.0]])
    assert staying(field, range(3)) == [0, 1, 2]  # though only the best two stay in any case


@pytest.mark.parametrize(("passes", "against", "ahead"), [(7, 0, True), (7, 1, False), (16, 2, True), (16, 3, False)])
def test_few_passes_may_speak_against_the_one_ahead(passes: int, against: int, ahead: bool) -> None:
    other = [90.0] * against + [130.0] * (passes - against)
    assert settled({0: [100.0] * passes, 1: other}, [0, 1]) is ahead
