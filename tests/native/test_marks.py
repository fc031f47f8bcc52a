"""Test how the C runtime finds times inside of persistent kernels: from ticks of an unknown clock to the device's."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.runtime.profiling.records import STARTED, Times
from tests.native.compiling import driver
from tests.runtime.profiling import made_up

KERNELS_NS = [60_000, 8_000]  # a persistent kernel that stands for three launches, and a plain launch
INSIDE_NS = np.array([[0, 20_000], [21_000, 21_400], [22_000, 50_000]], np.int64)
LAUNCHES = len(INSIDE_NS) + 1


@pytest.fixture(scope="module")
def library(c_compiler: str) -> Any:
    return driver("ticks", "clocks")


@dataclass(frozen=True)
class Found:
    """The device's times of both kernels, and those of the launches inside; how far off the line to them is at most."""

    kernels: Times
    inside: Times
    bound_ns: int


def kernel_times(inferences: int) -> Times:
    """Return the device's times of inferences that are made up."""
    made = made_up.inferences(inferences, KERNELS_NS)
    return np.stack([one.launches[:, STARTED:] for one in made]).astype(np.int64)


def found_in(library: Any, ticks: list[Times]) -> list[Found]:
    kernels = kernel_times(len(ticks))
    rows = np.stack([np.vstack([each, [[0, 0]]]) for each in ticks]).astype(np.int64)
    inside, bounds = np.zeros((len(ticks), LAUNCHES, 2), np.int64), np.zeros(len(ticks), np.int64)
    arrays = [ctypes.c_void_p(each.ctypes.data) for each in (kernels, rows, inside, bounds)]
    counts = ctypes.c_size_t(LAUNCHES), ctypes.c_size_t(len(ticks))
    assert library.converted(*counts, *arrays[:2], ctypes.c_int64(0), *arrays[2:]) == 0
    return [Found(*each) for each in zip(kernels, inside, bounds.tolist(), strict=True)]


@given(
    st.floats(0.001, 40.0),
    st.integers(0, 1 << 50),
    st.lists(st.integers(0, 9_900), min_size=1, max_size=20),
)
def test_whatever_a_tick_is_launches_lie_where_they_ran(
    library: Any, ticks_per_ns: float, first_tick: int, late_ns: list[int]
) -> None:
    """The first group begins so much later than its kernel; the last one ends 100 ns or more before it."""
    kernels = kernel_times(len(late_ns))
    truth = [own[0, 0] + late + INSIDE_NS for own, late in zip(kernels, late_ns, strict=True)]
    ticks = [np.rint((row - kernels[0, 0, 0]) * ticks_per_ns).astype(np.int64) + first_tick for row in truth]
    rounding_ns = 2 + 2 / ticks_per_ns
    for one, want in zip(found_in(library, ticks), truth, strict=True):
        (first, last), plain = one.kernels
        assert np.abs(one.inside[:3] - want).max() <= one.bound_ns + rounding_ns
        assert (one.inside[3] == plain).all()
        assert first - rounding_ns <= one.inside[0, 0] and one.inside[2, 1] <= last + rounding_ns


ticks_of_any_size = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.lists(ticks_of_any_size, min_size=6, max_size=6), min_size=1, max_size=4))
def test_nothing_ends_before_it_begins_whatever_processors_clocks_say(library: Any, ticks: list[list[int]]) -> None:
    """Marks lie in device memory, which may hold anything."""
    swapped = 5 * INSIDE_NS + 1
    swapped[1] = swapped[1, ::-1]
    for one in found_in(library, [swapped, *(np.array(each, np.int64).reshape(3, 2) for each in ticks)]):
        assert (one.inside[:, 0] <= one.inside[:, 1]).all()
        assert one.bound_ns >= 0
