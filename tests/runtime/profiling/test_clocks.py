"""Test that the line of a log leads from a device's moments to the host's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gputune.runtime.profiling.clocks import BRACKETED, MOST_PPB, ClockFit

lines = st.builds(
    ClockFit,
    st.integers(0, 1 << 62),
    st.integers(-(1 << 61), 1 << 61),
    st.integers(-MOST_PPB, MOST_PPB),
    st.just(0),
    st.just(BRACKETED),
)


@given(lines, st.lists(st.integers(0, 1 << 62), min_size=1))
def test_times_are_converted_exactly_and_in_order(line: ClockFit, moments: list[int]) -> None:
    def exact(moment: int) -> int:  # halves up
        return moment + line.offset_ns + (2 * (moment - line.at_ns) * line.rate_ppb + 10**9) // (2 * 10**9)

    found = line.to_host(np.array(sorted(moments), np.int64))
    assert found.dtype == np.int64
    assert found.tolist() == [line.to_host(moment) for moment in sorted(moments)] == list(map(exact, sorted(moments)))
    assert (np.diff(found) >= 0).all()
