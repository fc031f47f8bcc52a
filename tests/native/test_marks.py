"""Test that the C runtime finds times inside of persistent kernels as Python does, from equal marks."""

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.runtime.profiling.records import LoggedInference, Times
from tests.native.compiling import driver
from tests.runtime.profiling.test_marks import INSIDE_NS, recorded, timed

LAUNCHES = len(INSIDE_NS) + 1
"""Those that the kernel stands for, and a plain one."""


@pytest.fixture(scope="module")
def library(c_compiler: str) -> Any:
    return driver("ticks", "clocks")


def by_c(library: Any, inferences: list[LoggedInference], ticks: list[Times]) -> tuple[Times, Times]:
    """Return the moments of launches inside, and how far off they are at most."""
    kernels = np.stack([one.launches.ravel() for one in inferences]).astype(np.int64)
    rows = np.stack([np.vstack([each, [[0, 0]]]) for each in ticks]).astype(np.int64)
    inside, bounds = np.zeros((len(ticks), LAUNCHES, 2), np.int64), np.zeros(len(ticks), np.int64)
    assert inferences[0].clock is not None
    bound = ctypes.c_int64(inferences[0].clock.bound_ns)
    arrays = [ctypes.c_void_p(each.ctypes.data) for each in (kernels, rows, inside, bounds)]
    counts = ctypes.c_size_t(LAUNCHES), ctypes.c_size_t(len(ticks))
    assert library.converted(*counts, *arrays[:2], bound, *arrays[2:]) == 0
    return inside, bounds


def check(library: Any, inferences: list[LoggedInference], ticks: list[Times]) -> None:
    clock = inferences[0].clock
    found = recorded([replace(one, clock=clock) for one in inferences], list(ticks))
    inside, bounds = by_c(library, inferences, ticks)
    np.testing.assert_array_equal(inside, [one.launches for one in found])
    assert bounds.tolist() == [one.clock.bound_ns for one in found if one.clock is not None]


@given(
    st.floats(0.001, 40.0),
    st.integers(0, 1 << 50),
    st.lists(st.integers(0, 9_900), min_size=1, max_size=20),
)
def test_equal_marks_become_equal_moments(
    library: Any, ticks_per_ns: float, first_tick: int, late_ns: list[int]
) -> None:
    inferences = timed(len(late_ns))
    zero_ns = int(inferences[0].launches[0, 0])
    truth = [one.launches[0, 0] + late + INSIDE_NS for one, late in zip(inferences, late_ns, strict=True)]
    check(library, inferences, [np.rint((row - zero_ns) * ticks_per_ns).astype(np.int64) + first_tick for row in truth])


def test_nothing_ends_before_it_begins(library: Any) -> None:
    ticks = 5 * INSIDE_NS + 1
    ticks[1] = ticks[1, ::-1]
    check(library, timed(1), [ticks])
    inside, _ = by_c(library, timed(1), [ticks])
    assert (inside[..., 0] <= inside[..., 1]).all()
