"""Which of several contexts is kept: made-up times, no device."""

import itertools
import random
from collections.abc import Sequence

import pytest

from gputune.client.context.elimination import CHECKS, COMPARISONS_KEPT, Run, compare_contexts, ratios_from
from gputune.client.tuning.measuring.intervals import paired_interval


class Device:
    """Runs contexts that take what `means` says; noise: the standard deviation of a round, a share; rounds: how many
    there is time for."""

    def __init__(self, means: dict[str, float], noise: float = 0.0, rounds: int = 1000, seed: int = 0) -> None:
        self.means, self.noise, self.rounds = means, noise, rounds
        self.asked: list[tuple[tuple[str, ...], int]] = []
        self._random = random.Random(seed)

    def __call__(self, digests: Sequence[str], rounds: int) -> list[list[float]]:
        self.asked.append((tuple(digests), rounds))
        rounds = max(1, min(rounds, self.rounds))
        self.rounds -= rounds
        return [
            [self.means[one] * (1 + abs(self._random.gauss(0, self.noise))) for _ in range(rounds)] for one in digests
        ]


def runner(**means: float) -> Run:
    return Device(means)


def test_the_fastest_is_kept_and_its_gain_told() -> None:
    found = compare_contexts(["estimate", "other"], "untuned", runner(estimate=200.0, other=100.0, untuned=300.0))
    assert (found.chosen, found.gain_median, found.open) == ("other", 3.0, ("other",))
    assert (found.gain.low, found.gain.high) == (3.0, 3.0)
    assert found.times_ns == {"estimate": 200.0, "other": 100.0, "untuned": 300.0}


def test_what_is_slower_for_certain_is_not_run_again_and_the_reference_is() -> None:
    device = Device({"a": 100.0, "b": 101.0, "slow": 300.0, "untuned": 200.0}, noise=0.05)
    compare_contexts(["a", "b", "slow"], "untuned", device)
    assert device.asked[0] == (("a", "b", "slow", "untuned"), CHECKS[0])
    assert all("slow" not in digests and "untuned" in digests for digests, _ in device.asked[1:])


@pytest.mark.parametrize("order", list(itertools.permutations(["a", "b", "c"])))
def test_where_nothing_is_certain_the_order_of_preference_decides(order: tuple[str, ...]) -> None:
    device = Device({"a": 100.0, "b": 100.5, "c": 101.0, "untuned": 150.0}, noise=0.5)
    found = compare_contexts(order, "untuned", device)
    assert found.chosen == next(one for one in order if one in found.open)
    assert sum(rounds for _, rounds in device.asked) == CHECKS[-1], "noise keeps it open to the end"


def test_an_effort_bounds_the_rounds_and_more_of_them_find_a_small_gain() -> None:
    kept = []
    for most in (24, 192):
        devices = [Device({"a": 100.0, "untuned": 103.0}, noise=0.2, seed=seed) for seed in range(40)]
        found = [compare_contexts(["a", "untuned"], "untuned", device, most_rounds=most) for device in devices]
        assert max(sum(rounds for _, rounds in device.asked) for device in devices) == most
        kept.append(sum(one.chosen == "a" for one in found))
    assert kept[0] < kept[1] >= 38


def test_the_untuned_context_is_kept_where_everything_else_is_slower() -> None:
    found = compare_contexts(["a", "untuned"], "untuned", runner(a=120.0, untuned=100.0))
    assert (found.chosen, found.gain.low, found.gain.high) == ("untuned", 1.0, 1.0)


def test_the_untuned_context_is_kept_where_no_gain_was_seen() -> None:
    """Nothing is certain of contexts that take as long: the one that is preferred is kept by its median only."""
    devices = [Device({"a": 100.0, "untuned": 100.0}, noise=0.2, seed=seed) for seed in range(20)]
    found = [compare_contexts(["a", "untuned"], "untuned", device) for device in devices]
    assert {one.chosen for one in found if len(one.open) == 2} == {"a", "untuned"}
    assert all(one.gain_median >= 1 for one in found)


def test_it_never_keeps_what_is_slower_than_untuned_for_certain() -> None:
    for seed in range(20):
        device = Device({"a": 110.0, "b": 104.0, "untuned": 100.0}, noise=0.02, seed=seed)
        assert compare_contexts(["a", "b", "untuned"], "untuned", device).chosen == "untuned"


def test_what_a_noisy_leader_leaves_open_must_not_be_slower_than_untuned_for_certain() -> None:
    """The leader's times jump, so that nothing is certain by them; against the untuned context "a" is always slower."""
    leader = [80.0, 80.0, 150.0] * (CHECKS[0] // 3)
    times = {"a": [110.0] * CHECKS[0], "leader": leader, "untuned": [100.0] * CHECKS[0]}
    assert paired_interval(times["a"], leader).low <= 1, "by the leader alone it stays open"

    def run(digests: Sequence[str], rounds: int) -> list[list[float]]:
        return [times[one][:rounds] for one in digests]

    found = compare_contexts(["a", "leader", "untuned"], "untuned", run, most_rounds=CHECKS[0])
    assert "a" not in found.open
    assert found.chosen == "leader"


def test_the_reference_is_not_kept_if_it_is_not_among_the_preferred() -> None:
    found = compare_contexts(["a"], "untuned", runner(a=120.0, untuned=100.0))
    assert (found.chosen, found.open) == ("a", ("a",))
    assert found.gain_median == pytest.approx(100 / 120)


def test_without_noise_nothing_is_run_longer_than_needed() -> None:
    device = Device({"a": 100.0, "b": 100.0, "untuned": 120.0})
    assert compare_contexts(["a", "b"], "untuned", device).chosen == "a"
    assert [rounds for _, rounds in device.asked] == [CHECKS[0]]


def test_no_time_for_more_ends_it_with_what_is_known() -> None:
    device = Device({"a": 100.0, "b": 50.0, "untuned": 120.0}, rounds=6)
    found = compare_contexts(["a", "b"], "untuned", device)
    assert (found.chosen, len(device.asked)) == ("b", 1)
    assert len(found.ratios["b"]) == 6


def test_earlier_rounds_count() -> None:
    """What twelve noisy rounds leave open is certain with those of before."""
    means = {"a": 103.0, "b": 100.0, "untuned": 120.0}
    earlier = [compare_contexts(["a", "b"], "untuned", Device(means, 0.02, seed=seed)).ratios for seed in range(3)]
    alone = compare_contexts(["a", "b"], "untuned", Device(means, 0.2, rounds=12, seed=9))
    assert (alone.chosen, set(alone.open)) == ("a", {"a", "b"})
    assert compare_contexts(["a", "b"], "untuned", Device(means, 0.2, rounds=12, seed=9), earlier).chosen == "b"


def test_rounds_with_another_reference_do_not_count() -> None:
    means = {"a": 103.0, "b": 100.0, "untuned": 120.0, "other": 60.0}
    earlier = [compare_contexts(["a", "b", "untuned"], "other", Device(means, 0.02)).ratios] * 3
    alone = compare_contexts(["a", "b"], "untuned", Device(means, 0.2, rounds=12, seed=9))
    assert compare_contexts(["a", "b"], "untuned", Device(means, 0.2, rounds=12, seed=9), earlier) == alone


def test_comparisons_survive_json_and_nonsense_does_not() -> None:
    ratios = {"a": [1.0, 1.1], "untuned": [1.0, 1.0]}
    assert ratios_from([ratios]) == [ratios]
    assert ratios_from([{"a": [0.0], "b": ["x"], "c": 3, "d": [float("inf")], "e": [True]}, 7, None]) == [{}]
    assert ratios_from("nothing") == []
    assert len(ratios_from([ratios] * 9)) == COMPARISONS_KEPT
