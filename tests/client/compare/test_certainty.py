"""Test how often recorded rounds of equal contexts seem different, and rounds of contexts a tenth apart do not.

The rounds were taken next to other programs on two processors, at loads of 2 to 14: 35 pairs of equal contexts, 26 of
contexts a tenth apart. Here a comparison consists of blocks of neighbouring rounds, so that slow
changes stay as they were. Either of two equal contexts could have come first. Such blocks are therefore swapped as a
coin falls; otherwise a thousand comparisons would all find the same small difference that the few hundred recorded
rounds happen to have.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from gputune.client.compare.comparing import gains_of, take_turns
from gputune.client.tuning.measuring.sequential import Gain

pytestmark = pytest.mark.slow

many = pytest.mark.parametrize("comparisons", [200, pytest.param(1000, marks=pytest.mark.night)])
BLOCK = 8
"""Rounds that stay together."""
ROUNDS = 250
"""What five minutes have room for."""

Recording = Sequence[float]
"""The second contender's time by the first one's, round by round."""

RECORDED: Mapping[str, Sequence[Recording]] = json.loads(
    Path(__file__).with_name("recorded_rounds.json").read_text(encoding="utf-8")
)


def blocks(kind: str, numbers: random.Random) -> Iterator[float]:
    while True:
        recording = numbers.choice(RECORDED[kind])
        begin = numbers.randrange(len(recording) - BLOCK + 1)
        turned = kind == "equal" and numbers.random() < 0.5
        yield from (1 / ratio if turned else ratio for ratio in recording[begin : begin + BLOCK])


def comparison(kind: str, number: int) -> Gain:
    """One that goes on until it is known which one is faster, for five minutes at most."""
    ratios, taken = blocks(kind, random.Random(number)), 0

    def run(names: Sequence[str]) -> dict[str, float]:
        nonlocal taken
        taken += 1
        return {"tuned": 1.0, "other": next(ratios)}

    return gains_of("tuned", take_turns("tuned", ["other"], run, lambda: taken >= ROUNDS))["other"]


@many
def test_equal_contexts_are_hardly_ever_told_as_different(comparisons: int) -> None:
    assert sum(comparison("equal", number).certain for number in range(comparisons)) <= 0.005 * comparisons


@many
def test_contexts_a_tenth_apart_are_told_as_different_in_five_minutes(comparisons: int) -> None:
    gains = [comparison("a tenth more", number) for number in range(comparisons)]
    assert sum(gain.certain and gain.median > 1 for gain in gains) >= 0.9 * comparisons
    assert not any(gain.certain and gain.median < 1 for gain in gains)
