"""Decide by successive halving which variants get how many samples, and when their order is settled.

This module is pure: samples in, numbers out, no device. After Karnin, Koren, Somekh: Almost Optimal Exploration in
Multi-Armed Bandits (2013), with quarters in place of halves: every variant gets one sample, then ever fewer variants
get ever more (ROUNDS). One sample for each variant often picks a loser, and seven for each waste time. This way costs
about two samples for each of 64 or more runners, about three in batches of eight, and less if their order is settled
early. In a small field all variants that may well be the best stay, because a quarter would be only one or two.

The order is settled by the standard error of the median and by a sign test. On a busy machine, most of a few samples
are on one of two levels by chance and seem to have no spread; the sign test notices. The default takes part in every
round. A variant that was eliminated early cannot win.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

Stopped = Literal["settled", "all", "slower"]
"""Why a runner gets no more samples: more would not change which wins, it has all that were allowed, or others are
faster."""

ROUNDS = (1, 3, 7, 16, 24)
"""Samples that each runner which is left has after each round. Where clocks jump between two levels, the
median of 16 samples still picks a loser by chance; the last round is for the few whose order is not settled by then."""

KEPT = 4
"""One in so many goes on to the next round."""

KEPT_AT_LEAST = 2
"""So many go on in any case: one alone has nothing to be compared with."""

FAR, FARTHER = 2.0, 20.0
"""A runner that takes so many times as long as the best gets no more than FEWEST samples, or than one: its launches may
be long. A first sample on a clock that is not up yet may be off by a factor of four, so the other limit has to wait."""

CLOSE_AT_MOST = 8
"""Up to so many go on while they may well be the best. It is a whole batch of finalists, which differ by little."""

ONE_SAMPLE = 0.2
"""What one sample may be off by, as a share of it; with n samples, this over the root of n, as long as they are too few
to tell their own spread."""

CERTAIN = 3.0
"""Two medians differ for certain when they are so many standard errors apart, and when it is no matter of CHANCE."""

CHANCE = 0.01
"""How likely the passes may be that speak against it, if two runners were equal. Where a busy processor makes every
other sample twice as slow, most of seven samples are often on one level by chance, and their spread looks like none."""

TIE = 0.005
"""Runners that certainly differ by no more than this share of the best's time are as good as each other."""

HOPELESS = 1.1
"""When no runner is within this factor of what is known, it does not matter which is the best of them."""

FEWEST = 3
"""Where the clock was not stable, no runner is eliminated with fewer samples; and nothing is settled with fewer
anywhere."""

ENOUGH = 7
"""Fewer samples say too little about their own spread: two of three are often equal by chance."""

NORMAL_SHARE = 1.2533
"""Standard error of a median over that of a mean, for normal samples."""

NORMAL_MAD = 1.4826
"""Standard deviation over the median absolute deviation, for normal samples."""


class SuccessiveHalving:
    """Decide pass by pass which runners are sampled next. Its caller appends one sample for each runner of a pass to
    `samples`, or takes a runner out of it that has failed.

    samples: by runner, in nanoseconds. most: what a finalist gets. always: runners that the others are compared with,
    which are sampled to the end. known_ns: the best time known before, 0 when none is. warm: whether the
    clock was stable at the beginning. stopped: why each runner left, filled in by and by; finalists: those that were
    not eliminated before the end.
    """

    def __init__(
        self,
        samples: Mapping[int, Sequence[float]],
        most: int = ROUNDS[-1],
        always: Collection[int] = (),
        known_ns: float = 0.0,
        warm: bool = True,
    ) -> None:
        self._samples = samples
        self._always = always
        self._known_ns = known_ns if warm else 0.0
        self._ends = [wanted for wanted in ROUNDS if wanted < most and (warm or wanted >= FEWEST)] + [most]
        self.stopped: dict[int, Stopped] = {}
        self.finalists: list[int] = []
        self.ended: Stopped = "all"
        """Why the rounds ended."""

    def passes(self) -> Iterator[list[int]]:
        """Yield the runners of each pass in order: forward and backward in turns, so that a steady drift cancels
        out."""
        running, taken = list(self._samples), 0
        for wanted in self._ends:
            for number in range(taken, wanted):
                if not (running := self._left(running)):
                    return
                yield running if number % 2 == 0 else running[::-1]
            taken, running = wanted, self._left(running)
            self.finalists = running
            if wanted == self._ends[-1]:
                self._stop(running, "all")
            elif self._hopeless(running, taken):
                self.ended = "settled"
                self._stop(running, "slower")
                return
            elif settled(self._samples, running, TIE):
                self.ended = "settled"
                self._stop(running, "settled")
                return
            else:
                kept = set(staying(self._samples, running, self._always))
                self._stop([runner for runner in running if runner not in kept], "slower")
                running = [runner for runner in running if runner in kept]

    def _left(self, running: Sequence[int]) -> list[int]:
        return [runner for runner in running if runner in self._samples]

    def _stop(self, runners: Sequence[int], why: Stopped) -> None:
        self.stopped |= dict.fromkeys(runners, why)

    def _hopeless(self, running: Sequence[int], taken: int) -> bool:
        """Return whether the best one is far from what is known, by more samples than one."""
        if not running or taken < FEWEST or not self._known_ns:
            return False
        return min(statistics.median(self._samples[runner]) for runner in running) > HOPELESS * self._known_ns


def staying(samples: Mapping[int, Sequence[float]], running: Sequence[int], always: Collection[int] = ()) -> list[int]:
    """Return those of `running` that take part in the next round, by median: the best quarter, none of it FAR behind,
    those that may well be the best, up to CLOSE_AT_MOST of all, and those in `always`.

    `samples[runner]` are all its samples so far; each has at least one.
    """
    ranked = sorted(running, key=lambda runner: _rank(samples, runner))
    kept = max(KEPT_AT_LEAST, math.ceil(len(ranked) / KEPT))

    def stays(place: int, runner: int) -> bool:
        best, own = samples[ranked[0]], samples[runner]
        far = FARTHER if len(own) < FEWEST else FAR
        if place < kept and statistics.median(own) <= far * statistics.median(best):
            return True
        return runner in always or (place < CLOSE_AT_MOST and _may_be_best(best, own))

    return [runner for place, runner in enumerate(ranked) if stays(place, runner)]


def standard_error(values: Sequence[float]) -> float:
    """Return how far the median of samples may be off; infinite below ENOUGH samples.

    By the median absolute deviation, which a few slow samples do not impress.
    """
    if len(values) < ENOUGH:
        return math.inf
    middle = statistics.median(values)
    spread = NORMAL_MAD * statistics.median(abs(value - middle) for value in values)
    return NORMAL_SHARE * spread / math.sqrt(len(values))


def settled(samples: Mapping[int, Sequence[float]], running: Sequence[int], tie: float = 0.0) -> bool:
    """Return whether more samples would not change which wins: the best is ahead of each other one for certain, or what
    is left between them is certainly within `tie`, a share of the best's median.

    One runner alone is settled when it has ENOUGH samples for a median, none at all at once.
    """
    ranked = sorted(running, key=lambda runner: _rank(samples, runner))
    if not ranked:
        return True
    best = samples[ranked[0]]
    if len(best) < ENOUGH:
        return False
    for other in ranked[1:]:
        gap, doubt = _gap(best, samples[other])
        if gap <= doubt and not gap + doubt <= tie:
            return False
    return True


def _rank(samples: Mapping[int, Sequence[float]], runner: int) -> tuple[float, int]:
    return statistics.median(samples[runner]), runner


def paired(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Return the ratios of samples by those of the same passes: what has slowed down both does not count. What was
    eliminated early is compared by what was taken until then; by a time of 0 nothing is told apart."""
    return [one / other if other else 1.0 for one, other in zip(over, under, strict=False)]


def _gap(best: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return by which share of the best's time another one is behind it, and what that may be off by for certain: all
    of it where too many passes speak against it."""
    ratios = paired(other, best)
    gap, doubt = statistics.median(ratios) - 1, CERTAIN * standard_error(ratios)
    against = sum(ratio <= 1 for ratio in ratios)
    return gap, doubt if against <= _exceptions(len(ratios)) else max(doubt, gap)


@functools.cache
def _exceptions(passes: int) -> int:
    """Return how many of these passes may speak against what the others say, by the sign test: so many or fewer would
    do so with no more than CHANCE if each were a fair toss; -1 when even none would be too likely."""
    exceptions, likely = -1, 0.5**passes
    while likely <= CHANCE:
        exceptions += 1
        likely += math.comb(passes, exceptions + 1) * 0.5**passes
    return exceptions


def _may_be_best(best: Sequence[float], other: Sequence[float]) -> bool:
    gap, doubt = _gap(best, other)
    return gap <= min(doubt, ONE_SAMPLE / math.sqrt(min(len(best), len(other))))
