"""Test which of several contexts ships, with made-up times and no device."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from gputune.client.context.elimination import ALONE, ROUNDS_KEPT, Comparison, compare_contexts, ratios_from
from gputune.client.tuning.budget import OutOfTime
from gputune.client.tuning.measuring.end_to_end import EndToEnd
from gputune.client.tuning.measuring.sequential import SURE, least_rounds


def least(contexts: int) -> int:
    """Rounds without which nothing is certain between so many contexts."""
    return least_rounds(1 - (1 - SURE) / (contexts * (contexts - 1) / 2))


class Device:
    """Runs contexts that take what `means` says; noise: the standard deviation of a round, a share; rounds: how many
    there is time for."""

    def __init__(self, means: dict[str, float], noise: float = 0.0, rounds: int = 400, seed: int = 0) -> None:
        self.means, self.noise, self.rounds = means, noise, rounds
        self.asked: list[tuple[str, ...]] = []
        self._random = random.Random(seed)

    def compare(self, preferred: Sequence[str], earlier: Sequence[Any] = (), last: str | None = None) -> Comparison:
        return compare_contexts(preferred, "untuned", self._run, lambda: len(self.asked) < self.rounds, earlier, last)

    def _run(self, digests: Sequence[str]) -> list[float]:
        self.asked.append(tuple(digests))
        return [self._time(one) for one in digests]

    def _time(self, one: str) -> float:
        return self.means[one] * (1 + abs(self._random.gauss(0, self.noise))) if self.noise else self.means[one]


def test_the_fastest_is_kept_and_its_gain_told() -> None:
    device = Device({"estimate": 200.0, "other": 100.0, "untuned": 300.0})
    found = device.compare(["estimate", "other"])
    assert (found.chosen, found.kept, found.tuned, found.left) == ("other", "tuned", "other", ("other",))
    assert [found.gains[one].median for one in ("estimate", "other")] == pytest.approx([1.5, 3.0], rel=1e-5)
    told = found.end_to_end
    assert (told.untuned_ns, told.kept, told.open) == (300.0, "tuned", False)
    assert told.tuned_ns == pytest.approx(100.0, rel=1e-5)
    assert len(device.asked) == least(3), "no more rounds than an interval needs"


def test_what_is_slower_for_certain_is_not_run_again_and_the_untuned_one_is() -> None:
    device = Device({"a": 100.0, "b": 101.0, "slow": 300.0, "untuned": 200.0}, noise=0.05)
    device.compare(["a", "b", "slow"])
    first = least(4)
    assert set(device.asked[:first]) == {("a", "b", "slow", "untuned")}
    assert {"slow"} & set(device.asked[first]) == set() and "untuned" in device.asked[-1]


@pytest.mark.parametrize("order", list(itertools.permutations(["a", "b", "c"])))
def test_where_nothing_is_told_apart_the_order_of_preference_decides(order: tuple[str, ...]) -> None:
    device = Device({"a": 100.0, "b": 100.5, "c": 101.0, "untuned": 300.0}, noise=0.5, rounds=60)
    found = device.compare(order)
    assert found.kept == "tuned" and set(found.left) == {"a", "b", "c"}
    assert found.chosen == order[0]
    assert len(device.asked) == 60, "noise keeps it open to the end"


def test_exact_ties_eliminate_nothing() -> None:
    """As of a clock with coarse ticks."""
    found = Device({"a": 100.0, "b": 100.0, "c": 150.0, "untuned": 300.0}).compare(["b", "c", "a"])
    assert (found.chosen, found.left) == ("b", ("b", "a"))


class TestTheRule:
    def test_without_a_certain_choice_the_untuned_context_ships(self) -> None:
        """It does also where a tuned one had the better median, which chance decides."""
        found = [Device({"a": 97.0, "untuned": 100.0}, 0.2, 20, seed).compare(["a"]) for seed in range(20)]
        assert {one.kept for one in found} == {"untuned"}
        assert any(one.gains["a"].median > 1 for one in found)
        assert all(one.tuned == "a" and one.end_to_end.open for one in found)

    def test_a_tuned_one_ships_once_it_is_faster_for_certain(self) -> None:
        found = [Device({"a": 90.0, "untuned": 100.0}, 0.1, seed=seed).compare(["a"]) for seed in range(20)]
        assert {(one.chosen, one.kept, one.end_to_end.open) for one in found} == {("a", "tuned", False)}

    def test_the_untuned_context_ships_where_everything_else_is_slower(self) -> None:
        found = Device({"a": 120.0, "b": 150.0, "untuned": 100.0}).compare(["b", "a"])
        assert (found.chosen, found.kept, found.tuned, found.left) == ("untuned", "untuned", "a", ("untuned",))
        assert found.end_to_end.gain is not None and found.end_to_end.gain.high < 1
        assert not found.end_to_end.open

    def test_the_last_certain_choice_stays_while_nothing_is_faster_for_certain(self) -> None:
        means = {"a": 100.0, "last": 100.0, "untuned": 101.0}
        found = Device(means, 0.2, 20).compare(["a", "last"], last="last")
        assert (found.chosen, found.kept, found.tuned) == ("last", "last", "last")
        assert found.end_to_end.open
        alone = Device(means, 0.2, 20).compare(["a", "last"])
        assert (alone.chosen, alone.kept) == ("untuned", "untuned")

    def test_it_goes_when_another_is_faster_for_certain(self) -> None:
        found = Device({"a": 90.0, "last": 100.0, "untuned": 120.0}).compare(["a", "last"], last="last")
        assert (found.chosen, found.kept) == ("a", "tuned")
        found = Device({"a": 110.0, "last": 120.0, "untuned": 100.0}).compare(["a", "last"], last="last")
        assert (found.chosen, found.kept) == ("untuned", "untuned")

    def test_what_is_equal_is_settled_and_closed(self) -> None:
        device = Device({"a": 100.0, "untuned": 100.0}, noise=0.002)
        found = device.compare(["a"])
        assert (found.kept, found.end_to_end.open) == ("untuned", False)
        assert len(device.asked) == least(2)

    def test_without_any_other_context_there_is_no_gain(self) -> None:
        found = Device({"untuned": 100.0}).compare(["untuned"])
        assert (found.chosen, found.kept, found.tuned, found.gains) == ("untuned", "untuned", None, {})
        assert found.end_to_end.gain is None and not found.end_to_end.open


def test_equal_contexts_are_hardly_ever_told_apart() -> None:
    """All intervals of a comparison hold together with SURE, however often it looks."""
    means = {"a": 100.0, "b": 100.0, "c": 100.0, "untuned": 100.0}
    found = [Device(means, 0.1, 60, seed).compare(["a", "b", "c"]) for seed in range(100)]
    assert sum(one.kept != "untuned" for one in found) <= 1


def test_a_record_is_the_same_when_it_comes_back_from_a_cache() -> None:
    """Whole nanoseconds, too, so that a warm generation writes the same bytes."""
    told = Device({"a": 50, "untuned": 100}).compare(["a"]).end_to_end
    again = EndToEnd.from_dict(told.to_dict())
    assert again == told and type(again.untuned_ns) is type(told.untuned_ns) is float


def test_no_time_for_more_ends_it_with_what_is_known() -> None:
    device = Device({"a": 100.0, "b": 50.0, "untuned": 120.0}, noise=0.3, rounds=0)
    found = device.compare(["a", "b"])
    assert len(device.asked) == len(found.ratios["b"]) == least(3)


def test_earlier_rounds_count() -> None:
    """What some noisy rounds leave open is certain with those of before."""
    means = {"a": 97.0, "untuned": 100.0}
    earlier = [Device(means, 0.05, 30, seed).compare(["a"]).ratios for seed in range(4)]
    assert Device(means, 0.05, 20, seed=9).compare(["a"]).kept == "untuned"
    assert Device(means, 0.05, 20, seed=9).compare(["a"], earlier).kept == "tuned"


def test_rounds_with_another_reference_do_not_count() -> None:
    means = {"a": 97.0, "untuned": 100.0}
    earlier = [{"a": [0.5] * 90, "untuned": [0.9] * 90, "other": [1.0] * 90}]
    alone = Device(means, 0.05, 20, seed=9).compare(["a"])
    assert Device(means, 0.05, 20, seed=9).compare(["a"], earlier) == alone


def test_comparisons_survive_json_and_nonsense_does_not() -> None:
    ratios = {"a": [1.0, 1.1], "untuned": [1.0, 1.0]}
    assert ratios_from([ratios]) == [ratios]
    assert ratios_from([{"a": [0.0], "b": ["x"], "c": 3, "d": [float("inf")], "e": [True]}, 7, None]) == [{}]
    assert ratios_from("nothing") == []


def test_of_many_rounds_the_newest_count() -> None:
    older, newer = ({"a": [ratio] * (ROUNDS_KEPT * 2 // 3)} for ratio in (1.5, 2.0))
    found = ratios_from([older, newer])
    assert [len(one["a"]) for one in found] == [ROUNDS_KEPT - len(newer["a"]), len(newer["a"])]
    assert found[1] == newer


class Hurried(Device):
    """In which time is over in the middle of a round."""

    def __init__(self, means: dict[str, float], ends: int) -> None:
        super().__init__(means)
        self.ends = ends

    def _run(self, digests: Sequence[str]) -> list[float]:
        if len(self.asked) == self.ends:
            raise OutOfTime("--tuning_budget is used up")
        return super()._run(digests)


@pytest.mark.parametrize(("rounds", "kept"), [(1, "untuned"), (least(2) - 1, "untuned"), (least(2), "tuned")])
def test_what_whole_rounds_say_decides_when_time_is_over(rounds: int, kept: str) -> None:
    """A tuned context ships only if it is faster for certain, so it does not after a few rounds."""
    means = {"a": 50.0, "untuned": 100.0}
    found = Hurried(means, rounds).compare(["a"])
    assert (found.kept, found.gains["a"].rounds, len(found.ratios["a"])) == (kept, rounds, rounds)
    assert found.end_to_end.open == (kept == "untuned")
    again = Device(means).compare(["a"], earlier=[found.ratios])
    assert (again.kept, again.gains["a"].rounds) == ("tuned", rounds + least(2)), "and its rounds count next time"


def test_a_last_choice_stays_when_time_is_over() -> None:
    found = Hurried({"last": 50.0, "untuned": 100.0}, 2).compare(["last"], last="last")
    assert (found.chosen, found.kept) == ("last", "last")


def test_without_a_whole_round_there_is_no_answer() -> None:
    with pytest.raises(OutOfTime):
        Hurried({"a": 50.0, "untuned": 100.0}, 0).compare(["a"])


def test_one_context_is_run_for_its_time_alone() -> None:
    device = Device({"untuned": 100.0}, noise=0.5)
    found = device.compare([])
    assert (found.chosen, found.kept, found.tuned, len(device.asked)) == ("untuned", "untuned", None, ALONE)
    assert found.end_to_end.gain is None and not found.end_to_end.open


def test_of_many_rounds_those_of_a_context_that_left_early_are_no_measure() -> None:
    rounds = ROUNDS_KEPT * 2 // 3
    older, newer = ({"a": [ratio] * rounds, "slow": [3.0] * 9} for ratio in (1.5, 2.0))
    found = ratios_from([older, newer])
    assert [len(one["a"]) for one in found] == [ROUNDS_KEPT - rounds, rounds]
