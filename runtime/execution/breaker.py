"""Decide which form the next inference runs in: a circuit breaker around persistent kernels that compares both forms.

Persistent kernels gain while each of their groups has a processor, and lose while other programs take a processor away.
A slow inference says little, because the same disturbance would have slowed launches down. So only a comparison opens
the breaker (launches) or closes it (persistent). Inferences run in both forms, and abandoned inferences count at their
whole cost, until the difference of the means is clear next to its standard error (Welch: The Significance of the
Difference between Two Means when the Population Variances are Unequal, Biometrika 29, 1938). While the breaker is
closed this may take long, because a few samples easily miss rare and very long inferences.

Meanwhile the form that was faster lately leads: the slower the other form is, the more inferences the leading form runs
for each of the other. So a comparison costs little from its first pair on (an eighth of the time at most), and a
process that ends early has run most inferences in the faster form (play the winner: Robbins: Some Aspects of the
Sequential Design of Experiments, 1952). While the breaker is open, a few attempts that are not slower close it, and a
comparison confirms that at once.

A comparison is due when inferences take much longer than before, or by launches much shorter, and otherwise after waits
that double while the answer stays the same (binary exponential back-off: Metcalfe, Boggs: Ethernet, 1976). A token
bucket (Turner: New Directions in Communications, 1986) keeps attempts and new comparisons rare.

A young process knows no earlier times. But persistent kernels keep a processor busy for each group, so processor time
that the process did not get shows that other programs took processors. The first comparison is due when the process has
clearly lost processor time, from the third inference on. Threads of the application that compute meanwhile hide the
loss; then the comparison comes later.

The programs of the launches are loaded only then, or after EARLY inferences, because every quiet process would pay for
them. They take 9 ms for ten convolutions, 24 ms for page orientation and 136 ms for DenseNet-121, as much as 60, 17 and
6 inferences. After Nygard: Release It! (2007), circuit breaker.
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
BEFORE = 2
"""Inferences in each form before its last one that also say what the form takes lately."""
PACE, MOST_AHEAD, MOST_QUIET = 8, 36, 12
"""The slower form takes an eighth of the time more, at most, but runs again after so many inferences, or so many that
nothing disturbed. So a process that was disturbed only while it began is persistent again by its 20th inference."""
LEAST_LOST_NS = 1e6
"""Of processor time, before other programs are suspected: shorter than a time slice of most systems."""
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
        """Move the estimate towards a sample."""
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
    last: deque[float] = field(default_factory=lambda: deque(maxlen=BEFORE + 1))
    samples: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def lately(self) -> float:
        """The time of its last inference, or of the faster of the two before, if that is longer: one fast inference may
        be luck."""
        *before, last = self.last
        return max(last, min(before)) if len(before) == BEFORE else last


@dataclass
class Breaker:
    """Ask `persistent` before each inference, and report what it took, in the form that it was begun in, to `record`.
    While it is `watchful`, report the processor time that persistent kernels lost before that, to `lose`."""

    closed: bool = True
    _persistent: _Form = field(default_factory=_Form)
    _launches: _Form = field(default_factory=_Form)
    _comparing: bool = False
    _lead: bool = True  # of a comparison: whether the persistent form leads
    _ahead: int = 0  # inferences in the leading form before the next in the other form
    _stride: int = 1  # for how many of these one counts that took as long as the two before it
    _bucket: float = MOST  # inferences in the other form that it may run
    _confirmed: bool = True  # it has been closed for longer than a comparison
    _doublings: int = 0
    _wait: int = EARLY  # inferences before the next comparison is due
    _mean: float = 0.0  # of inferences lately
    _level: float = 0.0  # what it was when they were compared
    _watched_ns: float = 0.0  # before the first comparison: all persistent inferences, and what they lost
    _lost_ns: float = 0.0
    watchful: bool = True  # there was no comparison yet

    @property
    def persistent(self) -> bool:
        """Whether the next inference is to be persistent."""
        return self._lead == (self._ahead > 0) if self._comparing else self.closed

    @property
    def cost_ns(self) -> float:
        """What an undisturbed inference takes more by launches; 0 where that is not known."""
        persistent, launches = self._persistent.usual.value, self._launches.usual.value
        return max(0.0, launches - persistent) if persistent and launches else 0.0

    @property
    def launches_ns(self) -> float:
        """What an undisturbed inference takes by launches; infinite where that is not known."""
        return self._launches.usual.value or math.inf

    def lose(self, elapsed_ns: float, lost_ns: float) -> None:
        """Note an early inference by persistent kernels, and how much processor time other programs have taken from
        its groups."""
        self._watched_ns += elapsed_ns
        self._lost_ns += max(0.0, lost_ns)

    def record(self, persistent: bool, elapsed_ns: float) -> None:
        """Note an inference and all that it took, even if launches ended it."""
        form = self._persistent if persistent else self._launches
        form.usual.add(elapsed_ns)
        form.last.append(elapsed_ns)
        if not self._comparing:
            self._watch(elapsed_ns)
            return
        form.samples.append(elapsed_ns)
        if persistent != self.closed:
            self._bucket = max(0, self._bucket - 1)
        ahead, quiet = self._ahead, len(form.last) > BEFORE and max(form.last) <= CHANGED * min(form.last)
        self._ahead = max(0, ahead - (self._stride if quiet else 1))
        if not ahead or (self.closed and self._lead != self._persistent_leads):
            self._compare()

    def _watch(self, elapsed_ns: float) -> None:
        self._mean += (elapsed_ns - self._mean) / RECENT if self._mean else elapsed_ns
        self._bucket = min(MOST, self._bucket + (LAUNCHES if self.closed else ATTEMPTS))
        self._wait -= 1
        level = max(self._level, self._persistent.usual.value)
        changed = self._mean > CHANGED * level if self.closed else CHANGED * self._mean < self._level
        if (changed or self._suspects or self._wait <= 0) and self._bucket >= self._least:
            self._comparing, self.watchful = True, False
            self._lead, self._ahead = self.closed, 0 if self.closed else 1

    @property
    def _suspects(self) -> bool:
        """Whether persistent kernels would have been much faster without other programs."""
        lost = self._lost_ns > LEAST_LOST_NS and self._watched_ns > CHANGED * (self._watched_ns - self._lost_ns)
        return self.watchful and lost

    @property
    def _persistent_leads(self) -> bool:
        return self._persistent.lately <= self._launches.lately

    @property
    def _least(self) -> int:
        return LEAST if self.closed else TRIES

    def _compare(self) -> None:
        persistent, launches = self._persistent.samples, self._launches.samples
        if min(len(persistent), len(launches)) >= self._least:
            more = _mean(persistent) - _mean(launches)
            if not self.closed or abs(more) >= CLEAR * math.sqrt(_variance(persistent) + _variance(launches)):
                self._decide(more <= 0)
                return
        self._lead, self._ahead = False, 1
        if self.closed:
            faster, slower = sorted((self._persistent.lately, self._launches.lately))
            self._lead = self._persistent_leads
            self._ahead = max(1, int(min(PACE * (slower / faster - 1), MOST_AHEAD)))
            self._stride = max(1, self._ahead // MOST_QUIET)

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
        self._comparing = False
        self._persistent.samples.clear()
        self._launches.samples.clear()


def _mean(samples: Collection[float]) -> float:
    return math.fsum(samples) / len(samples)


def _variance(samples: Collection[float]) -> float:
    """Of their mean."""
    mean = _mean(samples)
    return math.fsum((each - mean) ** 2 for each in samples) / (len(samples) * (len(samples) - 1))
