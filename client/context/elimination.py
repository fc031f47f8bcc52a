"""Decide which of several contexts of a model ships: run them in turns, and eliminate each that is certainly slower.

The method is action elimination, from Even-Dar, Mannor, Mansour: Action Elimination and Stopping Conditions for the
Multi-Armed Bandit (2006). Its intervals may be read after every round (sequential.py). All pairs of contexts share the
chance of an error: with probability SURE, no interval of any pair ever excludes the true ratio.

The module is pure: times come from a function, so that tests need no device.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputune.client.tuning.budget import OutOfTime
from gputune.client.tuning.measuring.end_to_end import EndToEnd, Kept
from gputune.client.tuning.measuring.sequential import SURE, Gain, gain_of, least_rounds
from gputune.runtime.measuring.successive_halving import paired

ROUNDS_KEPT = 2000
"""Rounds of earlier comparisons that count, the newest."""

ALONE = 3
"""Rounds of the untuned context where there is no other: enough to know its time."""

LOOKS = 16
"""Looking takes time itself, so after n rounds the next look is n / LOOKS rounds later."""

Ratios = Mapping[str, Sequence[float]]
"""One comparison: by the digest of a context, its time by the reference's in each round it took part in, from the first
round on."""

Run = Callable[[Sequence[str]], Sequence[float]]
"""Runs each of these contexts for one turn, in an order of chance: the time of each, in ns. Raises OutOfTime where a
round cannot end in time."""


@dataclass(frozen=True)
class Comparison:
    """What a comparison has led to.

    chosen: the digest of the context that ships; tuned: that of the tuned one whose gain is told, None without any;
    gains: by digest, how many times as fast as the reference each other context is; untuned_ns: the reference's median
    time; ratios: what later comparisons may count; left: those that are not slower than another one for certain.
    """

    chosen: str
    kept: Kept
    tuned: str | None
    gains: Mapping[str, Gain]
    untuned_ns: float
    ratios: Ratios
    left: tuple[str, ...]

    @property
    def end_to_end(self) -> EndToEnd:
        """The record of it."""
        return EndToEnd(self.untuned_ns, None if self.tuned is None else self.gains[self.tuned], self.kept)


def compare_contexts(
    preferred: Sequence[str],
    reference: str,
    run: Run,
    more: Callable[[], bool],
    earlier: Sequence[Ratios] = (),
    last: str | None = None,
) -> Comparison:
    """Compare contexts, given by their digests in the order of preference.

    reference: the untuned context; more: whether there is time for another round, once there are enough for a
    certain answer; earlier: comparisons before, of which those with the same reference count as well; last: the tuned
    context that was the last choice, if that was certain. A round for which there is no time ends it, too; what whole
    rounds say decides. Raises OutOfTime when it is the first.
    """
    everything = list(dict.fromkeys([*preferred, reference]))
    sure = _sure(len(everything))
    past = _recent([ratios for ratios in earlier if _is_reference(ratios, reference)])
    times: dict[str, list[float]] = {digest: [] for digest in everything}
    alive, least = everything, rounds_needed(len(everything))
    for taken in itertools.count(1):
        running = [digest for digest in everything if digest in alive or digest == reference]
        ended = False
        try:
            for digest, time_ns in zip(running, run(running), strict=True):
                times[digest].append(time_ns)
        except OutOfTime:
            if taken == 1:
                raise
            ended = True
        ended = ended or (not more() and taken >= least)
        if ended or (taken >= least and taken % max(1, taken // LOOKS) == 0):
            rounds = _Rounds([*past, _ratios(times, reference)], sure)
            alive = rounds.alive(alive, reference)
            if ended or rounds.settled(alive, reference):
                break
    tuned = [digest for digest in everything if digest != reference]
    gains = {digest: rounds.gain(digest, reference) for digest in tuned}
    chosen, kept = _choice(alive, gains, last)
    best = max(tuned, key=lambda digest: gains[digest].median, default=None)
    return Comparison(
        chosen or reference,
        kept,
        chosen or best,
        gains,
        float(statistics.median(times[reference])),
        rounds.comparisons[-1],
        tuple(alive),
    )


def rounds_needed(contexts: int) -> int:
    """Return the rounds that any answer about so many contexts needs."""
    return ALONE if contexts == 1 else least_rounds(_sure(contexts))


def _sure(contexts: int) -> float:
    """Return how sure the interval of each pair of so many contexts is."""
    return 1 - (1 - SURE) / max(1, math.comb(contexts, 2))


def _choice(alive: Sequence[str], gains: Mapping[str, Gain], last: str | None) -> tuple[str | None, Kept]:
    """Return the tuned context that ships by the rule, None for the untuned one. alive: those to which none is
    preferred for certain, in the order of preference."""
    faster = [digest for digest in (*alive, *gains) if digest in gains and gains[digest].low > 1]
    if last in alive and last in gains:
        return last, "tuned" if last in faster else "last"
    return (faster[0], "tuned") if faster else (None, "untuned")


def ratios_from(value: Any) -> list[Ratios]:
    """Return the comparisons in a plain JSON value, without what cannot be one."""
    comparisons: list[Ratios] = []
    for ratios in value if isinstance(value, list) else []:
        if isinstance(ratios, Mapping):
            comparisons.append({str(digest): row for digest, row in ratios.items() if _is_row(row)})
    return _recent(comparisons)


class _Rounds:
    """What all rounds say so far. sure: of the interval of each pair."""

    def __init__(self, comparisons: Sequence[Ratios], sure: float) -> None:
        self.comparisons = comparisons
        self._sure = sure
        self._gains: dict[tuple[str, str], Gain] = {}

    def gain(self, one: str, other: str) -> Gain:
        """Return how many times as fast the one is as the other, in the rounds in which both took part."""
        if (one, other) not in self._gains:
            ratios = [ratio for each in self.comparisons for ratio in paired(each.get(other, ()), each.get(one, ()))]
            self._gains[one, other] = gain_of(ratios, self._sure)
        return self._gains[one, other]

    def alive(self, before: Sequence[str], reference: str) -> list[str]:
        """Return those that no other one beats for certain, the reference among the others in any case."""
        others = dict.fromkeys([*before, reference])
        return [one for one in before if not any(self.gain(one, other).high < 1 for other in others if other != one)]

    def settled(self, alive: Sequence[str], reference: str) -> bool:
        """Return whether more rounds would change nothing that matters: of each context that is left it is known
        whether it is faster than the reference, and those that are differ by little."""
        gains = {one: self.gain(one, reference) for one in alive if one != reference}
        if not all(_known(gain) for gain in gains.values()):
            return False
        faster = [one for one, gain in gains.items() if gain.low > 1]
        leader = max(faster, key=lambda one: gains[one].median, default=None)
        return all(_known(self.gain(leader, one)) for one in faster if leader is not None and one != leader)


def _known(gain: Gain) -> bool:
    return gain.certain or gain.settled


def _recent(comparisons: Sequence[Ratios]) -> list[Ratios]:
    """Return the newest comparisons, of ROUNDS_KEPT rounds together."""
    kept: list[Ratios] = []
    left = ROUNDS_KEPT
    for each in reversed(comparisons):
        if left:
            kept.insert(0, {digest: row[:left] for digest, row in each.items()})
            left -= max(map(len, kept[0].values()), default=0)
    return kept


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) in (int, float) and 0 < one < float("inf") for one in value)


def _ratios(times: Mapping[str, Sequence[float]], reference: str) -> Ratios:
    """Return the ratios of this comparison, with as many digits as are worth keeping."""
    return {digest: [float(f"{ratio:.6g}") for ratio in paired(own, times[reference])] for digest, own in times.items()}


def _is_reference(ratios: Ratios, digest: str) -> bool:
    """Return whether the times of a comparison are by those of this context."""
    return bool(ratios.get(digest)) and all(ratio == 1 for ratio in ratios[digest])
