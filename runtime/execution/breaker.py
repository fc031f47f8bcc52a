"""Which form the next inference runs in: a circuit breaker around persistent kernels that decides by comparison.

Persistent kernels gain while each of their groups has a processor, and lose while other programs take one away. That an
inference is slow says little: what disturbs it would have disturbed launches, too. So nothing but a comparison opens
the breaker (launches) or closes it (persistent): inferences in both forms in turns, given up ones at their whole cost,
until the difference of the means is clear beside its standard error (Welch: The Significance of the Difference between
Two Means when the Population Variances are Unequal, Biometrika 29, 1938). While it is closed that may last: inferences
that seldom take very long are easily missed by a few samples, and while no form is clearly better neither costs much.
While it is open, a few attempts that are not slower close it, and are then confirmed so.

Comparisons are due when inferences take much longer than before, or by launches much shorter, and else after waits that
double while the answer stays the same (binary exponential back-off: Metcalfe, Boggs: Ethernet, 1976). A token bucket
(Turner: New Directions in Communications, 1986) keeps attempts, and the beginnings of other comparisons, rare whatever
happens.

After Nygard: Release It! (2007), circuit breaker.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

ATTEMPTS_AT_MOST = 0.005
"""Of all inferences, while the breaker is open."""
ATTEMPTS, LAUNCHES = 0.8 * ATTEMPTS_AT_MOST, 1 / 64
"""What an inference adds to the bucket: of attempts while it is open, of launches while it is closed."""
TRIES = 3
"""Attempts that may close it."""
LEAST, KEPT = 8, 64
"""Inferences in each form that a comparison is made of while it is closed."""
MOST = 32
"""Inferences in the bucket."""
CLEAR = 1.5
"""A difference of so many standard errors is clear."""
EARLY = 100
"""Inferences before the first comparison: what disturbs from the beginning, and always alike, changes nothing."""
FIRST_WAIT, DOUBLINGS = 1000, 3
"""Inferences before the next comparison, and how often that doubles."""
RECENT = 16
"""Inferences in the running mean, about."""
CHANGED = 1.3
"""A comparison is due when the running mean is so many times what it was, or that part of it."""


@dataclass
class Usual:
    """A running estimate of what something takes while nothing disturbs it: falls fast, rises slowly. `value` is 0
    before the first sample."""

    value: float = 0.0

    def add(self, sample: float) -> None:
        """Moves the estimate towards a sample."""
        if not self.value:
            self.value = sample
        elif sample < self.value:
            self.value += (sample - self.value) / 4
        else:
            self.value = min(sample, self.value * (1 + 1 / 256))


@dataclass
class _Form:
    """What inferences in one form take: while undisturbed, lately, and in the comparison that goes on."""

    usual: Usual = field(default_factory=Usual)
    samples: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))


@dataclass
class Breaker:
    """Ask `persistent` before each inference, and tell `record` what it took in the form that it was begun in."""

    closed: bool = True
    _persistent: _Form = field(default_factory=_Form)
    _launches: _Form = field(default_factory=_Form)
    _comparing: bool = False
    _other: bool = False  # the next inference is in the other form
    _bucket: float = MOST  # inferences in the other form that it may run
    _confirmed: bool = True  # it has been closed for longer than a comparison
    _doublings: int = 0
    _wait: int = EARLY  # inferences before the next comparison is due
    _mean: float = 0.0  # of inferences lately
    _level: float = 0.0  # what it was when they were compared

    @property
    def persistent(self) -> bool:
        """Whether the next inference is to be persistent."""
        return self.closed != self._other

    @property
    def cost_ns(self) -> float:
        """What an undisturbed inference takes more by launches; 0 where that is not known."""
        persistent, launches = self._persistent.usual.value, self._launches.usual.value
        return max(0.0, launches - persistent) if persistent and launches else 0.0

    def record(self, persistent: bool, elapsed_ns: float) -> None:
        """An inference and all that it took, even if launches ended it."""
        form = self._persistent if persistent else self._launches
        form.usual.add(elapsed_ns)
        if self._comparing:
            form.samples.append(elapsed_ns)
            self._bucket = max(0, self._bucket - self._other)
            self._other = not self._other
            if self._other:
                self._compare()
        else:
            self._watch(elapsed_ns)

    def _watch(self, elapsed_ns: float) -> None:
        self._mean += (elapsed_ns - self._mean) / RECENT if self._mean else elapsed_ns
        self._bucket = min(MOST, self._bucket + (LAUNCHES if self.closed else ATTEMPTS))
        self._wait -= 1
        level = max(self._level, self._persistent.usual.value)
        changed = self._mean > CHANGED * level if self.closed else CHANGED * self._mean < self._level
        self._comparing = self._other = (changed or self._wait <= 0) and self._bucket >= self._least

    @property
    def _least(self) -> int:
        return LEAST if self.closed else TRIES

    def _compare(self) -> None:
        persistent, launches = self._persistent.samples, self._launches.samples
        if len(launches) < self._least:
            return
        more = _mean(persistent) - _mean(launches)
        if not self.closed or abs(more) >= CLEAR * math.sqrt(_variance(persistent) + _variance(launches)):
            self._decide(more <= 0)

    def _decide(self, closed: bool) -> None:
        if closed and not self.closed:
            self._wait, self._bucket = 0, LEAST  # to be confirmed at once
        else:
            held = self.closed and not closed and self._confirmed
            self._doublings = 0 if held else min(self._doublings + 1, DOUBLINGS)
            self._wait = FIRST_WAIT << self._doublings
            self._bucket = self._bucket if closed == self.closed else 0
        self._confirmed = closed and self.closed
        self.closed = closed
        self._mean = self._level = _mean((self._persistent if closed else self._launches).samples)
        self._comparing = self._other = False
        self._persistent.samples.clear()
        self._launches.samples.clear()


def _mean(samples: Collection[float]) -> float:
    return math.fsum(samples) / len(samples)


def _variance(samples: Collection[float]) -> float:
    """Of their mean."""
    mean = _mean(samples)
    return math.fsum((each - mean) ** 2 for each in samples) / (len(samples) * (len(samples) - 1))
