"""When inferences are persistent, by made-up times: quiet machines, busy ones, and ones that play tricks."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.runtime.breaker import (
    ATTEMPTS_AT_MOST,
    COMPARISONS,
    FIRST_COMPARISON,
    FIRST_WAIT,
    FORGET,
    PROOF,
    SAMPLES,
    Breaker,
)

PERSISTENT_NS, LAUNCHES_NS = 2e5, 3e5
SLOW_NS, ABORTED_NS = 5e6, 8e6


class Machine:
    """Runs inferences as runtime/persistent.py does, and counts. slow: whether the number-th is disturbed if it is
    persistent; aborts: whether it is given up then."""

    def __init__(self, slow: Callable[[int], bool], aborts: bool = False) -> None:
        self.breaker = Breaker()
        self.slow, self.aborts = slow, aborts
        self.attempts: list[int] = []
        self.persistent: list[int] = []
        self.disturbed: list[int] = []
        self.inferences = 0

    def run(self, inferences: int) -> None:
        for number in range(self.inferences, self.inferences + inferences):
            self._infer(number)
        self.inferences += inferences

    def closed(self) -> bool:
        return self.breaker.closed

    def _infer(self, number: int) -> None:
        if not self.breaker.persistent:
            self.breaker.record(False, LAUNCHES_NS)
            return
        self.persistent.append(number)
        if not self.breaker.closed:
            self.attempts.append(number)
        if not self.slow(number):
            self.breaker.record(True, PERSISTENT_NS)
            return
        self.disturbed.append(number)
        self.breaker.record(True, ABORTED_NS if self.aborts else SLOW_NS, self.aborts)
        if self.aborts:
            self.breaker.record(False, LAUNCHES_NS)


def by_launches(inferences: int) -> int:
    """How many of so many run by launches where nothing is disturbed: those for comparisons."""
    return SAMPLES * (1 + (inferences - FIRST_COMPARISON - SAMPLES) // (COMPARISONS + SAMPLES))


def test_a_quiet_machine_is_persistent_but_for_comparisons() -> None:
    machine = Machine(lambda number: False)
    machine.run(5000)
    assert len(machine.persistent) == 5000 - by_launches(5000)
    assert by_launches(5000) < 0.005 * 5000
    assert not machine.attempts


def test_rare_slow_inferences_change_nothing() -> None:
    machine = Machine(lambda number: number % FORGET == 7)
    machine.run(50 * FORGET)
    assert machine.inferences - len(machine.persistent) <= by_launches(machine.inferences) + SAMPLES


def test_single_slow_inferences_at_random_cost_little() -> None:
    numbers = np.random.default_rng(0).random(200_000)
    machine = Machine(lambda number: bool(numbers[number] < 1 / 5000))
    machine.run(len(numbers))
    assert len(machine.persistent) > 0.95 * len(numbers)


@pytest.mark.parametrize("aborts", [False, True])
def test_the_second_of_two_slow_ones_opens_it(aborts: bool) -> None:
    machine = Machine(lambda number: number in (100, 120), aborts)
    machine.run(121)
    assert len(machine.persistent) == 121 - SAMPLES
    machine.run(FIRST_WAIT - 1)
    assert len(machine.persistent) == 121 - SAMPLES, "launches for so many inferences at least"


def test_it_closes_when_the_machine_is_quiet_again() -> None:
    machine = Machine(lambda number: number in (100, 120), aborts=True)
    machine.run(121 + (PROOF + 1) * FIRST_WAIT)
    assert machine.closed()
    assert len(machine.attempts) == PROOF
    before = len(machine.persistent)
    machine.run(500)
    assert len(machine.persistent) == before + 500


def test_attempts_that_fail_come_ever_more_rarely_until_a_limit() -> None:
    machine = Machine(lambda number: True, aborts=True)
    machine.run(200_000)
    gaps = np.diff(machine.attempts)
    assert gaps[0] >= 2 * FIRST_WAIT - 1
    assert all(after >= before for before, after in pairwise(gaps))
    assert gaps[-1] == gaps[-2], "it never gives up for good"
    assert len(machine.disturbed) == 2 + len(machine.attempts)
    machine.slow = lambda number: False
    machine.run(2 * int(gaps[-1]))
    assert machine.closed()


def test_an_inference_that_is_slow_soon_after_it_closed_opens_it_at_once() -> None:
    machine = Machine(lambda number: number < 10, aborts=True)
    while not (machine.closed() and machine.attempts):
        machine.run(1)
    machine.slow = lambda number: True
    machine.run(1)
    assert not machine.closed()
    opened = machine.inferences
    machine.run(3 * FIRST_WAIT)
    assert machine.attempts[-1] >= opened + 2 * FIRST_WAIT - 1, "and it waits longer than the first time"


def test_an_old_failure_is_forgotten() -> None:
    machine = Machine(lambda number: number < 10, aborts=True)
    machine.run(20_000)
    assert machine.closed()
    machine.slow = lambda number: True
    machine.run(2)
    opened = machine.inferences
    machine.run(FIRST_WAIT + 1)
    assert machine.attempts[-1] < opened + FIRST_WAIT


def test_a_machine_that_is_busy_from_the_beginning_runs_launches_after_the_first_comparison() -> None:
    machine = Machine(lambda number: True)
    machine.run(1000)
    assert machine.persistent[:FIRST_COMPARISON] == list(range(FIRST_COMPARISON))
    assert machine.persistent[FIRST_COMPARISON:] == machine.attempts


def test_persistent_kernels_that_are_slower_than_launches_do_not_come_back() -> None:
    breaker = Breaker()
    for _ in range(10):
        breaker.record(True, PERSISTENT_NS)
    while breaker.closed:
        breaker.record(True, SLOW_NS)
    for _ in range(100_000):
        breaker.record(breaker.persistent, 1.2 * LAUNCHES_NS if breaker.persistent else LAUNCHES_NS)
    assert not breaker.closed


def test_a_machine_that_is_slower_by_half_from_now_on_stays_persistent() -> None:
    breaker = Breaker()
    for _ in range(100):
        breaker.record(True, 1e7)
    for _ in range(100):
        breaker.record(True, 1.4e7)
    assert breaker.closed
    assert breaker.usual_ns == pytest.approx(1.4e7)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 600), st.booleans()), min_size=1, max_size=60), st.booleans(), st.data())
def test_attempts_stay_rare_and_slow_ones_too_whatever_happens(
    phases: list[tuple[int, bool]], aborts: bool, data: st.DataObject
) -> None:
    slow = False
    only_closed = data.draw(st.booleans())  # as if attempts were always lucky, and nothing else was

    def disturbed(number: int) -> bool:
        return slow and not (only_closed and not machine.closed())

    machine = Machine(disturbed, aborts)
    for length, slow in phases:  # noqa: B007 - read by disturbed
        machine.run(length)
        assert len(machine.attempts) <= ATTEMPTS_AT_MOST * machine.inferences
        assert len(machine.disturbed) <= FIRST_COMPARISON + 2 * ATTEMPTS_AT_MOST * machine.inferences
