"""Test when a pause is requested, why, and for how long, with made-up states."""

from typing import Any

import pytest

from gputune.client.tuning.measuring import cooling
from gputune.client.tuning.measuring.cooling import Cooling, throttled

GPU = {"kgsl-3d0_mhz": 800.0, "kgsl-3d0_busy_percent": 99.0, "kgsl-3d0_temperature_c": 78.0}
CPU = {"cpu_mhz_max": 3000.0, "load_1_minute": 2.0, "temperature_c": 85.0}


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ({"throttles": 3}, {"throttles": 5}, "heat slowed it down 2 times"),
        ({"throttles": 5}, {"throttles": 5}, None),
        ({}, {"throttles": 5}, None),  # the counter of years
        ({"cooling_steps": 0.0}, {"cooling_steps": 2.0}, "heat slows it down by 2 steps more"),
        ({"cooling_steps": 2.0}, {"cooling_steps": 0.0}, None),
        ({"throttles": "3"}, {"throttles": "5"}, None),  # no numbers
        ({}, {"temperature_headroom_c": 1.5}, "its temperature is 1.5 C below the limit"),
        ({}, {"temperature_headroom_c": 2.5}, None),
        (GPU, GPU | {"kgsl-3d0_mhz": 600.0}, "its clock kgsl-3d0_mhz fell from 800 to 600"),
        (GPU, GPU | {"kgsl-3d0_mhz": 700.0}, None),
        (GPU, GPU | {"kgsl-3d0_mhz": 600.0, "kgsl-3d0_temperature_c": 40.0}, None),
        (GPU, GPU | {"kgsl-3d0_mhz": 300.0, "kgsl-3d0_busy_percent": 0.0}, None),  # without work
        (GPU | {"kgsl-3d0_busy_percent": 0.0}, GPU | {"kgsl-3d0_mhz": 300.0}, None),
        ({"mali_mhz": 800.0}, {"mali_mhz": 300.0}, None),  # nobody knows whether it had work
        (CPU, CPU | {"cpu_mhz_max": 2000.0}, "its clock cpu_mhz_max fell from 3000 to 2000"),
        (CPU, CPU | {"cpu_mhz_max": 2000.0, "temperature_c": 45.0}, None),
        (CPU, {"cpu_mhz_max": 2000.0, "load_1_minute": 2.0}, None),  # no sensor, as in a virtual machine
        (CPU, CPU | {"cpu_mhz_max": 2000.0, "load_1_minute": 0.1}, None),
        ({"cpu_mhz_min": 3000.0} | CPU, {"cpu_mhz_min": 800.0} | CPU, None),  # one core sleeps
    ],
)
def test_what_tells_of_heat(before: dict[str, Any], after: dict[str, Any], reason: str | None) -> None:
    assert throttled(before, after) == reason


def state(after: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"before": before or {}, "after": after}


def test_pauses_grow_to_a_limit_and_begin_anew_when_the_device_has_recovered() -> None:
    hot, well = state({"temperature_headroom_c": 0.5}), state({"temperature_headroom_c": 30.0})
    device = Cooling()
    assert device.after(well) == 0 and device.reason == ""
    assert [device.after(hot) for _ in range(5)] == [5, 10, 20, 40, 60]
    assert device.reason == "its temperature is 0.5 C below the limit"
    assert device.after(well) == 0 and device.reason == ""
    assert device.after(hot) == 5


def test_pauses_that_do_not_help_end_until_the_device_has_been_well() -> None:
    hot = state({"temperature_headroom_c": -3.0})
    device = Cooling()
    pauses = [device.after(hot) for _ in range(cooling.USELESS_PAUSES + 3)]
    assert sum(pauses) == 195 and pauses[-3:] == [0, 0, 0] and device.reason == ""
    assert device.after(state({})) == 0
    assert device.after(hot) == 5


def test_a_device_that_is_hot_from_the_beginning_of_a_batch_is_known_by_its_clock_before() -> None:
    slow = GPU | {"kgsl-3d0_mhz": 600.0}
    device = Cooling()
    assert device.after(state(GPU, GPU)) == 0
    assert [device.after(state(slow, slow)) for _ in range(2)] == [5, 10]
    assert device.after(state(GPU, slow)) == 0


def test_a_clock_without_work_is_no_measure() -> None:
    turbo = GPU | {"kgsl-3d0_mhz": 2000.0, "kgsl-3d0_busy_percent": 1.0}
    device = Cooling()
    assert [device.after(state(after)) for after in (turbo, GPU, turbo)] == [0, 0, 0]


def test_steps_are_compared_with_the_least_of_any_batch_and_throttles_over_one() -> None:
    slowed = state({"cooling_steps": 2}, {"cooling_steps": 2})
    device = Cooling()
    assert device.after(slowed) == 0  # as it was found
    assert device.after(state({"cooling_steps": 0}, {"cooling_steps": 2})) == 0
    assert device.after(slowed) == 5
    device = Cooling()
    assert device.after(state({"throttles": 9}, {"throttles": 7})) == 5
    assert device.after(state({"throttles": 9}, {"throttles": 9})) == 0


@pytest.mark.parametrize("odd", [{}, {"before": None, "after": 7}, {"after": {"throttles": None, "x_mhz": []}}])
def test_what_a_server_sends_instead_is_no_reason(odd: dict[str, Any]) -> None:
    assert Cooling().after(odd) == 0
