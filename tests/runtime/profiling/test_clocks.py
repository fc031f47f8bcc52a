"""Test fitting a device's clock to the host's, with made-up clocks whose true times are known."""

from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.runtime.profiling.clocks import (
    MOST_PPB,
    TIMER,
    ClockFit,
    ClockTracker,
    Times,
    fit,
    timer_constraints,
)

HOST_NS = 5_000_000_000_000
SLACK_NS = 2  # what rounding adds: of the line, of the offset and of the made-up stamp


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


@given(clocks, randoms, launches, pauses_ns)
def test_no_moment_is_farther_off_than_the_bound(clock: Clock, random: Random, launches: int, pause_ns: int) -> None:
    before, after, true = run(clock, random, launches, pause_ns)
    found = fit(before, after)
    assert np.abs(found.to_host(true[:, 0]) - true[:, 1]).max() <= found.bound_ns + SLACK_NS
    assert (found.to_host(before[:, 0]) >= before[:, 1] - SLACK_NS).all()
    assert (found.to_host(after[:, 0]) <= after[:, 1] + SLACK_NS).all()
    span_ns = int(true[:, 0].max() - true[:, 0].min())
    assert found.bound_ns <= 30_000 + span_ns * 2 * MOST_PPB // 1_000_000_000 + SLACK_NS + 1


@given(clocks, randoms)
def test_a_rate_that_is_known_is_used_as_far_as_bounds_allow(clock: Clock, random: Random) -> None:
    before, after, true = run(clock, random, 20, 100_000)
    known_ppb = -clock.drift_ppb
    found = fit(before, after, rate_ppb=known_ppb)
    assert abs(found.rate_ppb - known_ppb) <= 50, "but for the square of the drift it is the true one"
    assert np.abs(found.to_host(true[:, 0]) - true[:, 1]).max() <= found.bound_ns + SLACK_NS
    before, after, true = run(clock, random, 20, 200_000_000)
    found = fit(before, after, rate_ppb=400_000)
    assert abs(found.rate_ppb - known_ppb) < 50_000 and found.bound_ns <= 60_000
    assert np.abs(found.to_host(true[:, 0]) - true[:, 1]).max() <= found.bound_ns + SLACK_NS


def test_some_ms_tell_no_rate() -> None:
    before, after, _ = run(Clock(0, 200_000), Random(4), 20, 1_000)
    assert (fit(before, after).rate_ppb, fit(before, after, 12_345).rate_ppb) == (0, 12_345)


def test_a_clock_that_drifts_for_a_second_is_corrected() -> None:
    clock = Clock(77, 200_000)
    before, after, true = run(clock, Random(1), 400, 5_000_000)
    stamps, host = true.T
    assert host[-1] - host[0] > 500_000_000
    uncorrected = np.abs(stamps + (host[0] - stamps[0]) - host).max()
    found = fit(before, after)
    off = np.abs(found.to_host(stamps) - host).max()
    assert off <= found.bound_ns <= 20_000
    assert off * 20 < uncorrected


@given(clocks, randoms, st.integers(1, 2_000_000), st.integers(0, 39))
def test_bounds_that_contradict_each_other_get_a_wider_one(
    clock: Clock, random: Random, late_ns: int, place: int
) -> None:
    """A driver has stamped one launch late, by whatever that is."""
    before, after, true = run(clock, random, 40, 100_000)
    before[place, 0] += late_ns
    after[place, 0] += late_ns
    found = fit(before, after)
    true = np.delete(true, 2 * place, 0)
    assert np.abs(found.to_host(true[:, 0]) - true[:, 1]).max() <= found.bound_ns + SLACK_NS


@pytest.mark.parametrize("step_ns", [-1_000_000_000, 40_000, 1 << 60])
def test_a_clock_that_steps_in_a_run_costs_the_bound_only(step_ns: int) -> None:
    random = Random(2)
    before, after, true = run(Clock(1 << 60, 0), random, 10, 100_000)
    later, behind, more = run(Clock((1 << 60) + step_ns, 0), random, 10, 100_000, HOST_NS + 10_000_000)
    found = fit(np.concatenate([before, later]), np.concatenate([after, behind]))
    for stamps, host in (true.T, more.T):
        assert np.abs(found.to_host(stamps) - host).max() <= found.bound_ns + SLACK_NS


@given(
    st.integers(-499_000, 499_000),  # the host's clock by this one's runs apart by a little more
    st.integers(1, 300_000),
    st.lists(st.tuples(st.integers(10**6, 10**10), st.integers(0, 50_000), st.booleans()), min_size=1, max_size=4),
    st.booleans(),
)
def test_a_line_through_contradicting_bounds_is_as_far_off_as_rates_can_lead(
    drift_ppb: int, wrong_ns: int, one_sided: list[tuple[int, int, bool]], before_them: bool
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
    stamps = np.array([clock.at(moment) for moment in true])
    assert np.abs(found.to_host(stamps) - true).max() <= found.bound_ns + SLACK_NS


@pytest.mark.parametrize("rate", [-0.5, 0.1])
def test_a_line_through_contradicting_bounds_is_as_far_off_as_the_rates_that_were_allowed(rate: float) -> None:
    """Ticks of a processor may be counted at a rate that is little known."""
    far, host = 1_000_000, round(1_000_000 * (1 + rate))
    before, after = [(0, 100), (far, host - 1_000_000)], [(0, -100), (far + 1, host + 1_000_000)]
    found = fit(np.array(before), np.array(after), rates_ppb=(-500_000_000, 100_000_000))
    assert abs(found.to_host(far) - host) <= found.bound_ns
    assert abs(found.to_host(0)) <= found.bound_ns


def test_without_moments_that_have_both_bounds_all_of_them_count() -> None:
    found = fit(np.array([(0, 1_000)]), np.array([(10, 0)]))  # one of the two cannot be
    assert found.bound_ns >= 500 and abs(found.offset_ns - 495) <= 1


def test_readings_of_the_clock_are_bounds() -> None:
    before, after = timer_constraints(np.array([(100, 7, 104), (200, 109, 210)]))
    found = fit(before, after, method=TIMER)
    assert (before.tolist(), after.tolist()) == ([[7, 100], [109, 200]], [[7, 104], [109, 210]])
    assert found.method == TIMER and 100 <= found.to_host(7) <= 104 and 200 <= found.to_host(109) <= 210


def test_one_side_alone_is_no_fit() -> None:
    rows = np.array([(1, 2)])
    for before, after in ((rows, rows[:0]), (rows[:0], rows)):
        with pytest.raises(ValueError, match="bounds from below and from above"):
            fit(before, after)


@given(
    st.builds(
        ClockFit,
        st.integers(0, 1 << 62),
        st.integers(-(1 << 61), 1 << 61),
        st.integers(-MOST_PPB, MOST_PPB),
        st.just(0),
        st.just(TIMER),
    ),
    st.lists(st.integers(0, 1 << 62), min_size=1),
)
def test_times_are_converted_exactly_and_in_order(line: ClockFit, moments: list[int]) -> None:
    def exact(moment: int) -> int:  # halves up
        return moment + line.offset_ns + (2 * (moment - line.at_ns) * line.rate_ppb + 10**9) // (2 * 10**9)

    found = line.to_host(np.array(sorted(moments), np.int64))
    assert found.dtype == np.int64
    assert found.tolist() == [line.to_host(moment) for moment in sorted(moments)] == list(map(exact, sorted(moments)))
    assert (np.diff(found) >= 0).all()


@given(clocks, randoms)
def test_runs_tell_the_rate_that_one_of_them_cannot(clock: Clock, random: Random) -> None:
    tracker, begin = ClockTracker(), HOST_NS
    for _ in range(12):
        before, after, true = run(clock, random, 10, 50_000, begin)
        found = tracker.fit(before, after)
        assert np.abs(found.to_host(true[:, 0]) - true[:, 1]).max() <= found.bound_ns + SLACK_NS
        begin += 2_000_000_000
    assert fit(before, after).rate_ppb == 0
    assert abs(found.rate_ppb + clock.drift_ppb) <= 3_000 and tracker.rate_ppb is not None
    assert tracker.fits == 12


@pytest.mark.parametrize("begin_ns", [8_200_000_000, 20_000_000_000])
def test_what_was_learned_is_forgotten_when_the_clock_runs_differently(begin_ns: int) -> None:
    tracker, random = ClockTracker(), Random(3)
    for number in range(5):
        tracker.fit(*run(Clock(5, 0), random, 10, 50_000, HOST_NS + number * 2_000_000_000)[:2])
    assert tracker.rate_ppb is not None and abs(tracker.rate_ppb) < 10_000
    before, after, true = run(Clock(9_000_000, -150_000), random, 100, 5_000_000, HOST_NS + begin_ns)
    found = tracker.fit(before, after)
    assert np.abs(found.to_host(true[:, 0]) - true[:, 1]).max() <= found.bound_ns + SLACK_NS
    assert abs(found.rate_ppb - 150_000) < 30_000
    assert tracker.rate_ppb is None, "one run alone does not tell it"


def test_a_run_that_contradicts_itself_teaches_nothing() -> None:
    tracker, random = ClockTracker(), Random(3)
    runs = [run(Clock(5, 0), random, 10, 50_000, HOST_NS + number * 2_000_000_000)[:2] for number in range(6)]
    for before, after in runs[:-1]:
        tracker.fit(before, after)
    known_ppb, (before, after) = tracker.rate_ppb, runs[-1]
    before[0, 1] += 1_000_000
    assert tracker.fit(before, after).bound_ns > 400_000
    assert tracker.rate_ppb == known_ppb is not None
