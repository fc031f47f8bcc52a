"""Test that the C runtime fits a device's clock to the host's as Python does: equal bounds lead to equal lines."""

import ctypes
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.runtime.profiling.clocks import MOST_PPB, ClockFit, ClockTracker, Times, fit
from tests.native.compiling import driver
from tests.runtime.profiling.test_clocks import HOST_NS, Clock, clocks, randoms, run

RATES_PPB = -500_000_000, 100_000_000
"""Of ticks of persistent kernels, as marks.c has them."""
TRACKER_BYTES = 1 << 12
"""At least those of a clock_tracker."""
Runs = list[tuple[Times, Times]]
steps_ns = st.sampled_from([0, 0, 40_000, 2_000_000, -1_000_000_000])


@pytest.fixture(scope="module")
def library(c_compiler: str) -> Any:
    return driver("clocks", "clocks")


def line(found: ClockFit) -> list[int]:
    return [found.at_ns, found.offset_ns, found.rate_ppb, found.bound_ns]


def called(function: Callable[..., None], *arguments: Any, bounds: tuple[Times, Times]) -> list[int]:
    rows = [np.ascontiguousarray(each, np.int64) for each in bounds]
    found = np.zeros(4, np.int64)
    given = [each for row in rows for each in (ctypes.c_void_p(row.ctypes.data), ctypes.c_size_t(len(row)))]
    function(*arguments, *given, ctypes.c_void_p(found.ctypes.data))
    return [int(each) for each in found]


def runs_of(clock: Clock, random: Random, steps: list[int]) -> Runs:
    """Runs seconds apart, in front of some of which the clock is set, and in some of which a stamp is late."""
    found, begun_ns, zero_ns = [], HOST_NS, clock.zero_ns
    for step in steps:
        zero_ns += step if abs(step) > 100_000 else 0
        before, after, _ = run(Clock(zero_ns, clock.drift_ppb), random, random.randint(1, 30), 100_000, begun_ns)
        before[len(before) // 2, 0] += step if abs(step) <= 100_000 else 0
        found.append((before, after))
        begun_ns += random.randint(100_000_000, 4_000_000_000)
    return found


@given(clocks, randoms, st.lists(steps_ns, min_size=1, max_size=8))
def test_a_clock_is_tracked_alike(library: Any, clock: Clock, random: Random, steps: list[int]) -> None:
    tracker, own = ClockTracker(), ctypes.create_string_buffer(TRACKER_BYTES)
    for before, after in runs_of(clock, random, steps):
        wanted = tracker.fit(before, after)
        got = called(library.tracked, own, bounds=(before, after))
        assert got == line(wanted)
        moments = np.array([before[0, 0], after[-1, 0], before[0, 0] - 7, before[0, 0] + 5_000_000_000], np.int64)
        moved = moments.copy()
        fitted = (ctypes.c_int64 * 4)(*got)
        library.moved(fitted, ctypes.c_void_p(moved.ctypes.data), ctypes.c_size_t(len(moved)))
        np.testing.assert_array_equal(moved, wanted.to_host(moments))


def test_a_minute_of_runs_is_remembered_alike(library: Any) -> None:
    tracker, own = ClockTracker(), ctypes.create_string_buffer(TRACKER_BYTES)
    for before, after in runs_of(Clock(77, 120_000), Random(3), [0] * 150):
        assert called(library.tracked, own, bounds=(before, after)) == line(tracker.fit(before, after))


@given(clocks, randoms, st.sampled_from([RATES_PPB, (-MOST_PPB, MOST_PPB)]))
def test_one_run_is_fitted_alike(library: Any, clock: Clock, random: Random, rates_ppb: tuple[int, int]) -> None:
    before, after, _ = run(clock, random, 20, 30_000_000)
    limits = map(ctypes.c_int64, rates_ppb)
    assert called(library.fitted_between, *limits, bounds=(before, after)) == line(
        fit(before, after, rates_ppb=rates_ppb)
    )
