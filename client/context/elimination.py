"""Which of several whole contexts of a model is kept: they run in turns, and what is slower for certain is eliminated.

Action elimination after Even-Dar, Mannor, Mansour: Action Elimination and Stopping Conditions for the Multi-Armed
Bandit (2006): every context that is left gets the same number of rounds, and after some of them those leave whose time
is above the fastest one's or the reference's by their interval. Where several are left in the end, nothing is known
against any of them, and the caller's order of preference decides; but the reference stays before one that took longer
than it by the median.

Pure: times come from a function, so that tests need no device.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputune.client.tuning.measuring.intervals import Interval, median_interval
from gputune.runtime.measuring.successive_halving import paired

CHECKS = (12, 24, 48, 96, 192)
"""Rounds after which contexts are compared. The last that there may be ends it, whatever is open."""

NARROW = 0.01
"""An interval that ends no farther than this from its median needs no more rounds."""

COMPARISONS_KEPT = 4
"""Earlier comparisons that count, the newest."""

Ratios = Mapping[str, Sequence[float]]
"""One comparison: by the digest of a context, its time by the reference's in each round it took part in, from the first
round on."""

Run = Callable[[Sequence[str], int], Sequence[Sequence[float]]]
"""Runs these contexts for at most so many rounds, in turns; the time of each in each round, in ns. Fewer rounds than
asked for mean that there is no time for more."""


@dataclass(frozen=True)
class Comparison:
    """What a comparison has led to. chosen: a digest; gain: of the reference's time by that of the chosen, as far as it
    was measured; times_ns: median times by digest; ratios: what later comparisons may count; open: those against which
    nothing is known, the chosen one among them."""

    chosen: str
    gain: Interval
    gain_median: float
    times_ns: Mapping[str, float]
    ratios: Ratios
    open: tuple[str, ...]


def compare_contexts(
    preferred: Sequence[str], reference: str, run: Run, earlier: Sequence[Ratios] = (), most_rounds: int = CHECKS[-1]
) -> Comparison:
    """Compares contexts, given by their digests in the order of preference.

    reference: the context whose time the gain is told by; it is in every round, and is kept only if it is among
    `preferred`. earlier: comparisons before, of which those with the same reference count as well. most_rounds: at most
    so many rounds. On a noisy machine a gain of a few per cent takes more of them than 48, or chance decides.
    """
    everything = list(dict.fromkeys([*preferred, reference]))
    times: dict[str, list[float]] = {digest: [] for digest in everything}
    past = [ratios for ratios in earlier if _is_reference(ratios, reference)][-COMPARISONS_KEPT:]
    alive = list(dict.fromkeys(preferred))
    taken = 0
    for wanted in (rounds for rounds in CHECKS if rounds <= most_rounds):
        running = [digest for digest in everything if digest in alive or digest == reference]
        rows = run(running, wanted - taken)
        for digest, row in zip(running, rows, strict=True):
            times[digest] += row
        rounds = min(map(len, rows))
        ended, taken = taken + rounds < wanted, wanted
        comparisons = [*past, _ratios(times, reference)]
        leader = min(alive, key=lambda digest: _median_ratio(comparisons, digest))
        bounds = (leader, reference)  # what is not slower than a noisy leader for certain may be so than the reference
        alive = [
            digest
            for digest in alive
            if digest == leader or all(_interval(comparisons, digest, bound).low <= 1 for bound in bounds)
        ]
        if ended or _settled(comparisons, alive, leader, reference):
            break
    chosen = alive[0]
    if reference in alive and _median_ratio(comparisons, chosen) > 1:
        chosen = reference  # a gain that was not even seen is none
    gains = _paired(comparisons, reference, chosen)
    return Comparison(
        chosen,
        median_interval(gains),
        statistics.median(gains),
        {digest: statistics.median(own) for digest, own in times.items() if own},
        comparisons[-1],
        tuple(alive),
    )


def ratios_from(value: Any) -> list[Ratios]:
    """The comparisons in a plain JSON value, without what cannot be one."""
    comparisons: list[Ratios] = []
    for ratios in value if isinstance(value, list) else []:
        if isinstance(ratios, Mapping):
            comparisons.append({str(digest): row for digest, row in ratios.items() if _is_row(row)})
    return comparisons[-COMPARISONS_KEPT:]


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) in (int, float) and 0 < one < float("inf") for one in value)


def _ratios(times: Mapping[str, Sequence[float]], reference: str) -> Ratios:
    return {digest: paired(own, times[reference]) for digest, own in times.items() if own}


def _is_reference(ratios: Ratios, digest: str) -> bool:
    """Whether the times of a comparison are by those of this context."""
    return bool(ratios.get(digest)) and all(ratio == 1 for ratio in ratios[digest])


def _paired(comparisons: Sequence[Ratios], over: str, under: str) -> list[float]:
    """The time of one by that of another in every round that both took part in."""
    return [ratio for ratios in comparisons for ratio in paired(ratios.get(over, ()), ratios.get(under, ()))]


def _interval(comparisons: Sequence[Ratios], over: str, under: str) -> Interval:
    return median_interval(_paired(comparisons, over, under) or [1.0])


def _median_ratio(comparisons: Sequence[Ratios], digest: str) -> float:
    return statistics.median(ratio for ratios in comparisons for ratio in ratios.get(digest, ()))


def _settled(comparisons: Sequence[Ratios], alive: Sequence[str], leader: str, reference: str) -> bool:
    """Whether more rounds would tell nothing that matters: all that are left differ by less than NARROW, and the gain
    is known as closely."""
    pairs = [(digest, leader) for digest in alive if digest != leader] + [(reference, leader)] * (reference != leader)
    intervals = [_interval(comparisons, over, under) for over, under in pairs]
    closely = all(one.high - one.low <= 2 * NARROW * one.low for one in intervals)
    return closely and all(one.high <= 1 + 2 * NARROW for one in intervals[: len(alive) - 1])
