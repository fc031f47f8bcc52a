"""Test fitting a device's clock to the host's, with made-up clocks whose true times are known."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.runtime.profiling.clocks import BRACKETED, MOST_PPB, ClockFit, Times
from tests.native.compiling import driver

HOST_NS = 5_000_000_000_000
SLACK_NS = 2  # what rounding adds: of the line, of the offset and of the made-up stamp
RATES_PPB = -500_000_000, 100_000_000
"""Of ticks of persistent kernels, as marks.c has them."""
TRACKER_BYTES = 1 << 12
"""At least those of a clock_tracker."""
Fit = Callable[..., ClockFit]


@dataclass(frozen=True)
class Clock:
    """A device's clock: what it shows at a time of the host's."""

    zero_ns: int
    drift_ppb: int

    def at(self, host_ns: int) -> int:
        since = host_ns - HOST_NS
        return self.zero_ns + since + since * self.drift_ppb // 1_000_000_000


def run(
    clock: Clock, random: Random, launches: int, pause_ns: int, begin_ns: int = HOST_NS
) -> tuple[Times, Times, Times]:
    """What a run of launches says of a clock, and rows of (stamp, true time)."""
    before, after, true, now = [], [], [], begin_ns
    for _ in range(launches):
        now += random.randint(0, pause_ns)
        took_ns = random.randint(100, 30_000)
        queued = now + random.randint(0, took_ns)
        before.append((clock.at(queued), now))
        after.append((clock.at(queued), now + took_ns))
        now += took_ns
        ended = now + random.randint(0, 100_000)
        true += [(clock.at(queued), queued), (clock.at(ended), ended)]
    finished = max(host for _, host in true) + random.randint(0, 50_000)
    after += [(stamp, finished) for stamp, _ in true[1::2]]
    return np.array(before), np.array(after), np.array(true)


clocks = st.builds(Clock, st.integers(0, 1 << 61), st.integers(-200_000, 200_000))
randoms = st.builds(Random, st.integers(0, 1 << 32))
launches = st.integers(1, 60)
pauses_ns = st.sampled_from([1_000, 100_000, 30_000_000])


def called(function: Callable[..., None], *arguments: Any, bounds: tuple[Times, Times]) -> ClockFit:
    rows = [np.ascontiguousarray(each, np.int64) for each in bounds]
    found = np.zeros(4, np.int64)
    given = [each for row in rows for each in (ctypes.c_void_p(row.ctypes.data), ctypes.c_size_t(len(row)))]
    function(*arguments, *given, ctypes.c_void_p(found.ctypes.data))
    at_ns, offset_ns, rate_ppb, bound_ns = map(int, found)
    return ClockFit(at_ns, offset_ns, rate_ppb, bound_ns, BRACKETED)


@pytest.fixture(scope="module")
def library(c_compiler: str) -> Any:
    return driver("clocks", "clocks")


@pytest.fixture(scope="module")
def fit(library: Any) -> Fit:
    def fitted(before: Times, after: Times, rates_ppb: tuple[int, int] = (-MOST_PPB, MOST_PPB)) -> ClockFit:
        return called(library.fitted_between, *map(ctypes.c_int64, rates_ppb), bounds=(before, after))

    return fitted


@pytest.fixture(scope="module")
def tracker(library: Any) -> Callable[[], Fit]:
    def begun() -> Fit:
        own = ctypes.create_string_buffer(TRACKER_BYTES)
        return lambda before, after: called(library.tracked, own, bounds=(before, after))

    return begun


def off(found: ClockFit, true: Times) -> int:
    """By how much a line misses what is true at most."""
    return int(np.abs(found.to_host(true[:, 0]) - true[:, 1]).max())


# --- one run ---


@given(clocks, randoms, launches, pauses_ns)
def test_no_moment_is_farther_off_than_the_bound(
    fit: Fit, clock: Clock, random: Random, launches: int, pause_ns: int
) -> None:
    before, after, true = run(clock, random, launches, pause_ns)
    found = fit(before, after)
    assert off(found, true) <= found.bound_ns + SLACK_NS
    assert (found.to_host(before[:, 0]) >= before[:, 1] - SLACK_NS).all()
    assert (found.to_host(after[:, 0]) <= after[:, 1] + SLACK_NS).all()
    span_ns = int(true[:, 0].max() - true[:, 0].min())
    assert found.bound_ns <= 30_000 + span_ns * 2 * MOST_PPB // 1_000_000_000 + SLACK_NS + 1


@given(clocks, randoms)
def test_little_known_rates_are_allowed(fit: Fit, clock: Clock, random: Random) -> None:
    before, after, true = run(clock, random, 20, 30_000_000)
    found = fit(before, after, RATES_PPB)
    assert off(found, true) <= found.bound_ns + SLACK_NS


def test_some_ms_tell_no_rate(fit: Fit) -> None:
    before, after, _ = run(Clock(0, 200_000), Random(4), 20, 1_000)
    assert fit(before, after).rate_ppb == 0


def test_a_clock_that_drifts_for_a_second_is_corrected(fit: Fit) -> None:
    before, after, true = run(Clock(77, 200_000), Random(1), 400, 5_000_000)
    stamps, host = true.T
    assert host[-1] - host[0] > 500_000_000
    uncorrected = np.abs(stamps + (host[0] - stamps[0]) - host).max()
    found = fit(before, after)
    assert off(found, true) <= found.bound_ns <= 20_000
    assert off(found, true) * 20 < uncorrected


@given(clocks, randoms, st.integers(200_000, 2_000_000), st.integers(0, 39))
def test_bounds_that_contradict_each_other_get_a_wider_one(
    fit: Fit, clock: Clock, random: Random, late_ns: int, place: int
) -> None:
    """A driver has stamped one launch late, by more than the host's times allow."""
    before, after, true = run(clock, random, 40, 100_000)
    before[place, 0] += late_ns
    after[place, 0] += late_ns
    found = fit(before, after)
    assert off(found, np.delete(true, 2 * place, 0)) <= found.bound_ns + SLACK_NS


@pytest.mark.parametrize("step_ns", [-1_000_000_000, 40_000, 1 << 60])
def test_a_clock_that_steps_in_a_run_costs_the_bound_only(fit: Fit, step_ns: int) -> None:
    random = Random(2)
    before, after, true = run(Clock(1 << 60, 0), random, 10, 100_000)
    later, behind, more = run(Clock((1 << 60) + step_ns, 0), random, 10, 100_000, HOST_NS + 10_000_000)
    found = fit(np.concatenate([before, later]), np.concatenate([after, behind]))
    assert max(off(found, true), off(found, more)) <= found.bound_ns + SLACK_NS


@given(
    st.integers(-499_000, 499_000),  # the host's clock by this one's runs apart by a little more
    st.integers(1, 300_000),
    st.lists(st.tuples(st.integers(10**6, 10**10), st.integers(0, 50_000), st.booleans()), min_size=1, max_size=4),
    st.booleans(),
)
def test_a_line_through_contradicting_bounds_is_as_far_off_as_rates_can_lead(
    fit: Fit, drift_ppb: int, wrong_ns: int, one_sided: list[tuple[int, int, bool]], before_them: bool
) -> None:
    """One moment has both bounds, which contradict each other; all others are far from it and have only one."""
    clock, sign = Clock(1 << 60, drift_ppb), -1 if before_them else 1
    before, after = ([(clock.at(HOST_NS), HOST_NS + way * wrong_ns)] for way in (1, -1))
    true = [HOST_NS]
    for far_ns, slack_ns, is_lower in one_sided:
        true.append(HOST_NS + sign * far_ns)
        stamp = clock.at(true[-1])
        (before if is_lower else after).append((stamp, true[-1] + (-slack_ns if is_lower else slack_ns)))
    found = fit(np.array(before), np.array(after))
    assert off(found, np.array([(clock.at(moment), moment) for moment in true])) <= found.bound_ns + SLACK_NS


@pytest.mark.parametrize("rate", [-0.5, 0.1])
def test_a_line_through_contradicting_bounds_is_as_far_off_as_the_rates_that_were_allowed(
    fit: Fit, rate: float
) -> None:
    """Ticks of a processor may be counted at a rate that is little known."""
    far, host = 1_000_000, round(1_000_000 * (1 + rate))
    before, after = [(0, 100), (far, host - 1_000_000)], [(0, -100), (far + 1, host + 1_000_000)]
    found = fit(np.array(before), np.array(after), RATES_PPB)
    assert abs(found.to_host(far) - host) <= found.bound_ns
    assert abs(found.to_host(0)) <= found.bound_ns


def test_without_moments_that_have_both_bounds_all_of_them_count(fit: Fit) -> None:
    found = fit(np.array([(0, 1_000)]), np.array([(10, 0)]))  # one of the two cannot be
    assert found.bound_ns >= 500 and abs(found.offset_ns - 495) <= 1


@given(clocks, randoms)
def test_c_moves_moments_as_readers_of_logs_do(library: Any, fit: Fit, clock: Clock, random: Random) -> None:
    before, after, _ = run(clock, random, 20, 30_000_000)
    found = fit(before, after)
    moments = np.array([before[0, 0], after[-1, 0], before[0, 0] - 7, before[0, 0] + 5_000_000_000], np.int64)
    moved = moments.copy()
    line = (ctypes.c_int64 * 4)(found.at_ns, found.offset_ns, found.rate_ppb, found.bound_ns)
    library.moved(line, ctypes.c_void_p(moved.ctypes.data), ctypes.c_size_t(len(moved)))
    np.testing.assert_array_equal(moved, found.to_host(moments))


# --- several runs ---


@given(clocks, randoms)
def test_runs_tell_the_rate_that_one_of_them_cannot(
    fit: Fit, tracker: Callable[[], Fit], clock: Clock, random: Random
) -> None:
    tracked, begin_ns = tracker(), HOST_NS
    for _ in range(12):
        before, after, true = run(clock, random, 10, 50_000, begin_ns)
        found = tracked(before, after)
        assert off(found, true) <= found.bound_ns + SLACK_NS
        begin_ns += 2_000_000_000
    assert fit(before, after).rate_ppb == 0
    assert abs(found.rate_ppb + clock.drift_ppb) <= 3_000


def test_the_last_minute_of_runs_is_remembered(tracker: Callable[[], Fit]) -> None:
    tracked, random = tracker(), Random(3)
    for number in range(150):
        before, after, true = run(Clock(77, 120_000), random, 10, 50_000, HOST_NS + number * 1_100_000_000)
        found = tracked(before, after)
        assert off(found, true) <= found.bound_ns + SLACK_NS
    assert abs(found.rate_ppb + 120_000) <= 1_000


@pytest.mark.parametrize("begin_ns", [8_200_000_000, 20_000_000_000])
def test_what_was_learned_is_forgotten_when_the_clock_runs_differently(
    tracker: Callable[[], Fit], begin_ns: int
) -> None:
    tracked, random = tracker(), Random(3)
    for number in range(5):
        found = tracked(*run(Clock(5, 0), random, 10, 50_000, HOST_NS + number * 2_000_000_000)[:2])
    assert abs(found.rate_ppb) < 10_000
    before, after, true = run(Clock(9_000_000, -150_000), random, 100, 5_000_000, HOST_NS + begin_ns)
    found = tracked(before, after)
    assert off(found, true) <= found.bound_ns + SLACK_NS
    assert abs(found.rate_ppb - 150_000) < 30_000
    short = tracked(*run(Clock(9_000_000, -150_000), random, 10, 50_000, HOST_NS + begin_ns + 100_000_000)[:2])
    assert abs(short.rate_ppb) < 150_000, "one run alone does not tell it"


def test_a_run_that_contradicts_itself_teaches_nothing(tracker: Callable[[], Fit]) -> None:
    tracked, random = tracker(), Random(3)
    runs = [run(Clock(5, 120_000), random, 10, 50_000, HOST_NS + number * 2_000_000_000)[:2] for number in range(7)]
    for before, after in runs[:5]:
        known_ppb = tracked(before, after).rate_ppb
    before, after = runs[5]
    before[0, 1] += 1_000_000
    assert tracked(before, after).bound_ns > 400_000
    assert abs(tracked(*runs[6]).rate_ppb - known_ppb) < 3_000
