"""Which form the next inference runs in: a circuit breaker around persistent kernels, with exponential back-off.

Persistent kernels gain a little while each of their groups has a processor, and lose much while other programs take one
away. So the breaker is closed (inferences are persistent, but for a few by launches now and then, to know what those
take) until slow inferences come close together or launches are faster. Then it is open (launches) for a number of
inferences, after which single attempts show whether it may close. An attempt counts as good when it is not slower than
launches are at that time. After bad ones the wait doubles up to a limit; attempts are fewer than ATTEMPTS_AT_MOST of
the inferences whatever happens.

After Nygard: Release It! (2007), circuit breaker; Metcalfe, Boggs: Ethernet (1976), binary exponential back-off. A
leaky bucket (Turner: New Directions in Communications, 1986) meters the slow ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ATTEMPTS_AT_MOST = 0.005
"""Of all inferences."""
FIRST_WAIT = 250
"""Inferences by launches before an attempt, and between good attempts."""
DOUBLINGS = 5
"""Of the wait, at most."""
PROOF = 3
"""Good attempts in a row that close the breaker."""
SLOW, JITTER_NS = 1.5, 100_000
"""An inference is slow above so many times the usual time and this: interrupts are as long in small networks."""
FORGET = 500
"""Inferences that make up for a slow one."""
STRAIN = 1.5
"""Slow inferences, as far as they are not made up for, that open the breaker: two close together."""
NOT_SLOWER = 1.1
"""Persistent kernels pay while they take at most so many times what launches take."""
FIRST_COMPARISON, COMPARISONS = 20, 1000
"""Persistent inferences before launches are compared with them first, and from one comparison to the next."""
SAMPLES = 3
"""Inferences by launches for a comparison."""


@dataclass
class Usual:
    """A running estimate of what an undisturbed inference takes: falls fast, rises slowly. `ns` is 0 before the first
    sample."""

    ns: float = 0.0

    def add(self, sample_ns: float) -> None:
        """Moves the estimate towards a sample."""
        if not self.ns:
            self.ns = sample_ns
        elif sample_ns < self.ns:
            self.ns += (sample_ns - self.ns) / 4
        else:
            self.ns = min(sample_ns, self.ns * (1 + 1 / 64))


@dataclass
class Breaker:
    """Ask `persistent` before each inference, and tell `record` what it took in the form that it ran in; one that was
    given up and then ran by launches is recorded twice, as the two that it was."""

    closed: bool = True
    _persistent: Usual = field(default_factory=Usual)
    _launches: Usual = field(default_factory=Usual)
    _strain: float = 0.0
    _held: int = 0  # inferences since it was closed
    _failures: int = 0  # openings and bad attempts since it held for long
    _good: int = 0  # attempts in a row
    _wait: int = 0  # inferences by launches before the next attempt
    _compare: int = FIRST_COMPARISON  # inferences before the next comparison
    _samples: list[float] = field(default_factory=list)

    @property
    def persistent(self) -> bool:
        """Whether the next inference is to be persistent."""
        return self._compare > 0 if self.closed else self._wait == 0

    @property
    def usual_ns(self) -> float:
        """What an inference takes usually, in the faster form of those that have run; 0 where none has."""
        return min((form.ns for form in (self._persistent, self._launches) if form.ns), default=0.0)

    def record(self, persistent: bool, elapsed_ns: float, aborted: bool = False) -> None:
        """An inference in one form. aborted: it was given up, because a group has waited too long."""
        if not persistent and self.closed and self._compare == 0:
            self._take(elapsed_ns)
        elif not persistent:
            self._launches.add(elapsed_ns)
            self._wait = max(0, self._wait - 1)
        elif self.closed:
            self._judge(elapsed_ns, aborted)
        else:
            self._judge_attempt(elapsed_ns, aborted)

    def _judge(self, elapsed_ns: float, aborted: bool) -> None:
        usual_ns = self._persistent.ns or elapsed_ns
        slow = aborted or elapsed_ns > SLOW * usual_ns + JITTER_NS
        if not slow:
            self._persistent.add(elapsed_ns)
        self._held += 1
        self._compare -= 1
        self._strain = max(0.0, self._strain - 1 / FORGET) + slow
        if self._strain >= STRAIN:
            self._open()

    def _take(self, elapsed_ns: float) -> None:
        """A sample of launches; the last one of a comparison decides."""
        self._samples.append(elapsed_ns)
        if len(self._samples) < SAMPLES:
            return
        self._launches, self._compare = Usual(min(self._samples)), COMPARISONS
        self._samples.clear()
        if self._persistent.ns > NOT_SLOWER * self._launches.ns:
            self._open()

    def _open(self) -> None:
        if self._held > FIRST_WAIT << DOUBLINGS:
            self._failures = 0
        self.closed = False
        self._back_off()

    def _back_off(self) -> None:
        self._good = 0
        self._wait = FIRST_WAIT << min(self._failures, DOUBLINGS)
        self._failures += 1

    def _judge_attempt(self, elapsed_ns: float, aborted: bool) -> None:
        if aborted or elapsed_ns > NOT_SLOWER * self._launches.ns:
            self._back_off()
            return
        self._good += 1
        self._wait = FIRST_WAIT
        if self._good == PROOF:
            self.closed = True
            self._persistent = Usual(elapsed_ns)
            self._strain = 1.0  # on probation: one slow inference soon after opens it again
            self._held, self._compare = 0, COMPARISONS
