"""Test how trials keep what their kernels take of a device."""

from typing import Any

import pytest

from gputune.core.resources import UNKNOWN, Resources, measured_of, resources_in


def test_trials_keep_what_is_known_of_each_kernel() -> None:
    kernels = (Resources(registers=40, spilled_bytes=0), UNKNOWN, Resources(private_bytes=64, local_bytes=4096))
    measured = measured_of(kernels)
    assert measured == {
        "resources": [{"registers": 40, "spilled_bytes": 0}, {}, {"private_bytes": 64, "local_bytes": 4096}]
    }
    assert resources_in(measured) == kernels
    assert measured_of([UNKNOWN, UNKNOWN]) == measured_of([]) == {}


@pytest.mark.parametrize(
    "plain",
    [
        None,
        "many",
        {"registers": 40},
        [40],
        [{"registers": -1}],
        [{"registers": 40.5}],
        [{"registers": True}],
        [{"local_bytes": 1 << 60}],
        [{"registers": 40}, {"registers": "40"}],
    ],
)
def test_what_makes_no_sense_is_not_known(plain: Any) -> None:
    assert resources_in({"resources": plain}) == resources_in({}) == ()


def test_what_later_versions_say_more_is_ignored() -> None:
    assert resources_in({"resources": [{"registers": 40, "waves": 3}]}) == (Resources(registers=40),)


def test_one_source_is_preferred_and_another_fills_in() -> None:
    log, asked = Resources(registers=40, local_bytes=16), Resources(private_bytes=8, local_bytes=32)
    assert log.over(asked) == Resources(registers=40, private_bytes=8, local_bytes=16)
