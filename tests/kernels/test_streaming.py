"""Test what families that stream memory share: rounding, widths, and work for all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.kernels.family import DeviceLimits
from gputune.kernels.tiling.streaming import (
    busy,
    ceil_div,
    default_width,
    power_at_least,
    power_at_most,
    round_up,
    whole_width,
)


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_rounding(size: int, step: int) -> None:
    assert (ceil_div(size, step) - 1) * step < size <= ceil_div(size, step) * step == round_up(size, step)
    assert power_at_most(size) <= size <= power_at_least(size) < 2 * size
    assert power_at_least(size) in (power_at_most(size), 2 * power_at_most(size))


@pytest.mark.parametrize("extent", [1, 2, 5, 8, 33])
def test_nothing_is_busy_with_nothing(extent: int) -> None:
    """Of the pieces that parameters cut an axis into together, the half of them is not enough."""
    rule = busy(("VW", "DIMX"), extent, "the axis")
    for width in (1, 2, 4, 8):
        for across in (2, 4, 8, 16):
            assert rule.holds(width, across) == (width * across // 2 < extent), (width, across)
        assert rule.holds(width, 1), "one is always allowed"


@pytest.mark.parametrize(
    ("extent", "others", "preferred", "width"),
    [
        (32, (), 8, 8),
        (12, (), 8, 4),  # 8 does not divide 12
        (32, (20,), 16, 4),
        (32, (48,), 16, 16),
        (6, (), 8, 4),  # 2 does, and is too narrow
        (32, (2,), 8, 8),
        (3, (), 8, 2),
        (1, (), 8, 1),
        (64, (), 1, 4),
        (64, (), 32, 16),
    ],
)
def test_default_vectors_are_whole_where_they_need_not_be_narrow(
    extent: int, others: tuple[int, ...], preferred: int, width: int
) -> None:
    limits = DeviceLimits(256, (256, 256, 64), 32768, 1 << 30, 2, "gpu", preferred)
    assert whole_width(limits, extent, *others) == width
    assert default_width(limits, extent) >= width
