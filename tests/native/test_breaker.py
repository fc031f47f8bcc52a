"""Test with made-up times when inferences in C are persistent: on quiet, busy, and changing machines."""

import ctypes
import functools
import random
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.compiling import driver

EARLY, FIRST_WAIT, DOUBLINGS, MOST = 100, 1000, 3, 32
ATTEMPTS_AT_MOST = 0.005
PERSISTENT_NS, LAUNCHES_NS = 3.6e6, 4.6e6


@pytest.fixture(scope="module", autouse=True)
def _compiled(c_compiler: None) -> None:
    library()


@functools.cache
def library() -> ctypes.CDLL:
    """Return the breaker as a library."""
    found = driver("breaker")
    made, double = ctypes.c_void_p, ctypes.c_double
    found.breaker_new.restype, found.breaker_is.restype = made, ctypes.c_bool
    found.breaker_is.argtypes = made, ctypes.c_char_p
    found.breaker_wait.restype, found.breaker_wait.argtypes = ctypes.c_int64, (made,)
    found.breaker_cost_ns.restype, found.breaker_cost_ns.argtypes = double, (made,)
    found.breaker_lose.argtypes = made, double, double
    found.breaker_add.restype, found.breaker_add.argtypes = None, (made, ctypes.c_bool, double)
    for one in (found.usual_after, found.lately_after):
        one.restype, one.argtypes = double, (made, ctypes.c_size_t)
    return found


class Breaker:
    """Ask `persistent` before each inference, and report what it took to `record`."""

    def __init__(self) -> None:
        self._own = library().breaker_new()
        weakref.finalize(self, library().breaker_free, ctypes.c_void_p(self._own))

    def _is(self, what: bytes) -> bool:
        return bool(library().breaker_is(self._own, what))

    @property
    def persistent(self) -> bool:
        return self._is(b"persistent")

    @property
    def closed(self) -> bool:
        return self._is(b"closed")

    @property
    def watchful(self) -> bool:
        return self._is(b"watchful")

    @property
    def wait(self) -> int:
        return int(library().breaker_wait(self._own))

    @property
    def cost_ns(self) -> float:
        return float(library().breaker_cost_ns(self._own))

    def lose(self, elapsed_ns: float, lost_ns: float) -> None:
        library().breaker_lose(self._own, elapsed_ns, lost_ns)

    def record(self, persistent: bool, elapsed_ns: float) -> None:
        library().breaker_add(self._own, persistent, elapsed_ns)


def after(name: str, samples: Sequence[float]) -> float:
    """Return an estimate, "usual" or "lately", after samples."""
    values = np.array(samples, np.float64)
    return float(getattr(library(), f"{name}_after")(values.ctypes.data, values.size))


@dataclass(frozen=True)
class Machine:
    """What inferences take in each form: ns, and by chance many times that."""

    persistent_ns: float = PERSISTENT_NS
    launches_ns: float = LAUNCHES_NS
    hiccups: tuple[float, float] = (0.0, 0.0)
    """Of inferences by persistent kernels and by launches."""
    times: float = 5.0


QUIET = Machine()
RARE = Machine(hiccups=(0.002, 0.002), times=20)
STOLEN = Machine(hiccups=(0.15, 0.15), times=3)
"""A processor is taken away often, whatever the form."""
BUSY = Machine(hiccups=(0.7, 0.1))
"""Persistent kernels have to wait for a processor that launches could do without."""
SLOWER = Machine(persistent_ns=1.2 * LAUNCHES_NS)


class Run:
    """Runs inferences as persistent.c does, and counts."""

    def __init__(self, seed: int = 0) -> None:
        self.breaker = Breaker()
        self.forms: list[bool] = []
        self.attempts = 0
        self.elapsed_ns = 0.0
        self._numbers = np.random.default_rng(seed)

    def run(self, machine: Machine, inferences: int) -> float:
        """The share of them that was persistent."""
        for number in self._numbers.random(inferences).tolist():
            persistent = self.breaker.persistent
            self.forms.append(persistent)
            self.attempts += persistent and not self.breaker.closed
            usual_ns = machine.persistent_ns if persistent else machine.launches_ns
            hiccup = number < machine.hiccups[0 if persistent else 1]
            elapsed_ns = usual_ns * (machine.times if hiccup else 1 + number / 10)
            self.elapsed_ns += elapsed_ns
            self.breaker.record(persistent, elapsed_ns)
        return sum(self.forms[-inferences:]) / max(1, inferences)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [QUIET, *(pytest.param(each, marks=pytest.mark.night) for each in (RARE, STOLEN))])
def test_what_disturbs_both_forms_alike_opens_nothing(machine: Machine) -> None:
    shares = [Run(seed).run(machine, 20_000) for seed in range(10)]
    assert np.median(shares) > 0.98
    assert np.mean(shares) > 0.95, "few are misled by chance, and not for long"


def test_a_quiet_machine_hardly_compares() -> None:
    run = Run()
    assert run.run(QUIET, EARLY - 1) == 1, "launches need not be loaded for a short run"
    assert run.run(QUIET, 50_000) > 0.998
    assert run.attempts == 0


class Process:
    """A young process, from its first inference on: what the first of each form takes is not recorded."""

    def __init__(self) -> None:
        self.breaker = Breaker()
        self.forms: list[bool] = []
        self.took_ns: list[float] = []

    def run(self, persistent_ns: float, launches_ns: float, lost: float, inferences: int) -> None:
        """lost: of the processor time of an inference by persistent kernels, what other programs take."""
        for _ in range(inferences):
            persistent = self.breaker.persistent
            took_ns = persistent_ns if persistent else launches_ns
            if persistent and self.breaker.watchful:
                self.breaker.lose(took_ns, lost * took_ns)
            if persistent in self.forms:
                self.breaker.record(persistent, took_ns)
            self.forms.append(persistent)
            self.took_ns.append(took_ns)


@pytest.mark.parametrize("lost", [-1.0, 0.0, 0.2])
def test_a_quiet_process_loads_no_launches(lost: float) -> None:
    """-1: other threads of the process compute, too."""
    process = Process()
    process.run(PERSISTENT_NS, LAUNCHES_NS, lost, EARLY - 1)
    assert all(process.forms)


@pytest.mark.parametrize("times", [1.5, 2.35, 5.0])
@pytest.mark.parametrize("launches_ns", [1e6, 8e7])
def test_a_short_process_beside_others_runs_by_launches(times: float, launches_ns: float) -> None:
    process = Process()
    process.run(times * launches_ns, launches_ns, 1.2, 20)
    assert process.forms[:4] == [True, True, False, False]
    assert not all(process.forms[3:]) and np.mean(process.took_ns[3:]) <= 1.3 * launches_ns
    assert process.breaker.closed, "nothing is certain yet"


def test_the_certain_answer_follows_and_costs_little() -> None:
    process = Process()
    process.run(2 * LAUNCHES_NS, LAUNCHES_NS, 1.2, 150)
    assert not process.breaker.closed
    assert np.mean(process.took_ns[3:]) <= 1.13 * LAUNCHES_NS
    process = Process()
    process.run(PERSISTENT_NS, LAUNCHES_NS, 1.2, 150)
    assert process.breaker.closed and all(process.forms[-50:]), "what was suspected was wrong"
    assert np.mean(process.took_ns) <= 1.13 * PERSISTENT_NS


@pytest.mark.parametrize("times", [2, 20])
def test_a_process_that_was_disturbed_while_it_began_is_soon_persistent_again(times: float) -> None:
    process = Process()
    process.run(times * PERSISTENT_NS, LAUNCHES_NS, 1.0, 2)
    process.run(PERSISTENT_NS, LAUNCHES_NS, 0.0, 18)
    assert not process.forms[2], "it was suspected that launches are faster"
    assert sum(process.forms[-4:]) >= 3


def test_one_fast_inference_is_not_trusted_after_slow_ones() -> None:
    expected = {9.0: 9.0, 2.0: 2.0, 8.0: 8.0, 1.0: 2.0, 1.5: 1.5, 7.0: 7.0}
    for count, lately_ns in enumerate(expected.values(), 1):
        assert after("lately", [*expected][:count]) == lately_ns


def test_a_slow_attempt_in_a_comparison_is_not_repeated_at_once() -> None:
    process = Process()
    process.run(5 * LAUNCHES_NS, LAUNCHES_NS, 1.2, 40)
    retried = [number for number, form in enumerate(process.forms) if form and number >= 2]
    assert retried == [21, 38]


@pytest.mark.parametrize("machine", [BUSY, SLOWER])
def test_launches_run_where_they_are_faster(machine: Machine) -> None:
    run = Run()
    run.run(machine, 3000)
    assert not run.breaker.closed
    assert run.run(machine, 100_000) < ATTEMPTS_AT_MOST


def test_what_is_always_slower_is_noticed_early() -> None:
    breaker = Breaker()
    for _ in range(2 * EARLY):
        breaker.record(breaker.persistent, SLOWER.persistent_ns if breaker.persistent else SLOWER.launches_ns)
    assert not breaker.closed


def test_contention_from_the_beginning_or_later_is_soon_noticed() -> None:
    for before in (0, 200, 20_000):
        shares = []
        for seed in range(10):
            run = Run(seed)
            run.run(QUIET, before)
            shares.append(run.run(BUSY, 400))
        assert np.median(shares) < 0.2


def test_it_comes_back_when_contention_ends() -> None:
    for seed in range(5):
        run = Run(seed)
        run.run(BUSY, 50_000)
        run.run(QUIET, (FIRST_WAIT << DOUBLINGS) + MOST)
        assert run.breaker.closed, "the longest wait and a comparison"
        assert run.run(QUIET, 10_000) > 0.98


def test_contention_that_comes_and_goes_costs_little() -> None:
    run = Run()
    best_ns = 0.0
    for _ in range(20):
        for machine in (QUIET, BUSY):
            run.run(machine, 5000)
            means_ns = [
                usual_ns * (1 + 0.05 + hiccups * (machine.times - 1))
                for usual_ns, hiccups in zip((PERSISTENT_NS, LAUNCHES_NS), machine.hiccups, strict=True)
            ]
            best_ns += 5000 * min(means_ns)
    assert run.elapsed_ns < 1.15 * best_ns


def test_waits_between_comparisons_double_until_a_limit() -> None:
    run = Run()
    run.run(QUIET, 300_000)
    begins = [n for n, form in enumerate(run.forms) if not form and run.forms[n - 1] and all(run.forms[n - 9 : n])]
    waits = np.diff(begins)
    assert (waits[:DOUBLINGS] > 1.8 * np.array([FIRST_WAIT << n for n in range(DOUBLINGS)])).all()
    assert waits[-1] == pytest.approx(FIRST_WAIT << DOUBLINGS, rel=0.01)


def test_the_longer_wait_is_forgotten_when_the_answer_changes() -> None:
    run = Run()
    run.run(QUIET, 100_000)
    run.run(BUSY, 600)
    assert not run.breaker.closed
    assert run.breaker.wait <= FIRST_WAIT


def test_equal_forms_stay_what_they_are() -> None:
    breaker = Breaker()
    for _ in range(20_000):
        breaker.record(breaker.persistent, 1e6)
    assert breaker.closed


def test_giving_up_costs_what_launches_take_more() -> None:
    breaker = Breaker()
    assert breaker.cost_ns == 0
    for _ in range(2 * FIRST_WAIT):
        breaker.record(breaker.persistent, PERSISTENT_NS if breaker.persistent else LAUNCHES_NS)
    assert breaker.cost_ns == pytest.approx(LAUNCHES_NS - PERSISTENT_NS)


def test_a_usual_value_falls_fast_and_rises_slowly() -> None:
    risen = [100.0, *10 * [1000.0]]
    assert after("usual", risen) < 105
    assert after("usual", [*risen, *20 * [50.0]]) == pytest.approx(50, rel=0.01)


times = st.floats(1e3, 1e9)
phases = st.lists(st.tuples(st.integers(1, 2000), times, times), min_size=1, max_size=30)


@settings(deadline=None, max_examples=60)
@given(phases, st.booleans(), st.integers(0, 1 << 32))
def test_attempts_stay_rare_whatever_happens(
    phases: Sequence[tuple[int, float, float]], spiteful: bool, seed: int
) -> None:
    """spiteful: attempts are always lucky, and nothing else that is persistent is."""
    breaker = Breaker()
    chance = random.Random(seed).random
    attempts = inferences = 0
    for length, persistent_ns, launches_ns in phases:
        for _ in range(length):
            persistent, closed = breaker.persistent, breaker.closed
            elapsed_ns = (persistent_ns if persistent else launches_ns) * (0.5 + chance())
            if spiteful and persistent:
                elapsed_ns = launches_ns * (0.1 if not closed else 10)
            breaker.record(persistent, elapsed_ns)
            inferences += 1
            attempts += persistent and not closed
            assert attempts <= ATTEMPTS_AT_MOST * inferences
