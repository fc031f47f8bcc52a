"""Test what follows from the name of a driver."""

import dataclasses

import pytest

from gputune.core import quirks
from gputune.core.identity import DeviceIdentity
from gputune.core.quirks import (
    AMD,
    CLVK,
    DEVICE_FENCE,
    DRIVERS,
    INTEL,
    MESA,
    NVIDIA,
    OTHER,
    POCL,
    Fence,
    Quirks,
    device_fence,
    groups_at_once,
    quirks_of,
)
from gputune.runtime.devices.discovery import NULL_REPORT

assert NULL_REPORT.identity is not None
IDENTITY = NULL_REPORT.identity


def of_platform(platform: str) -> DeviceIdentity:
    return dataclasses.replace(IDENTITY, platform=platform)


@pytest.mark.parametrize(
    ("platform", "driver"),
    [
        ("Portable Computing Language", POCL),
        ("Intel(R) OpenCL", INTEL),
        ("Intel(R) OpenCL Graphics", INTEL),
        ("AMD Accelerated Parallel Processing", AMD),
        ("NVIDIA CUDA", NVIDIA),
        ("rusticl", MESA),
        ("Clover", MESA),
        ("clvk", CLVK),
        ("QUALCOMM Snapdragon(TM)", OTHER),
        ("null", OTHER),
        ("replay", OTHER),
        ("", OTHER),
    ],
)
def test_a_driver_is_known_by_its_platform(platform: str, driver: Quirks) -> None:
    assert quirks_of(of_platform(platform)) is driver


def test_only_pocl_is_charged_and_cached_and_pinned() -> None:
    assert [row.driver for row in DRIVERS if row.charges_per_program or row.compiled or row.affinity] == ["PoCL"]
    assert POCL.unbound == {"POCL_AFFINITY": "0"} and OTHER.unbound == {}


def test_code_may_be_made_late_for_every_cpu_and_everything_of_pocls() -> None:
    late = {(row.driver, kind) for row in (*DRIVERS, OTHER) for kind in row.compiles_at_first_launch if kind != "cpu"}
    assert late == {("PoCL", "gpu"), ("PoCL", "accelerator")}
    assert all("cpu" in row.compiles_at_first_launch for row in (*DRIVERS, OTHER))


@pytest.mark.parametrize(
    ("platform", "name", "kind", "groups"),
    [
        ("Portable Computing Language", "pthread-haswell-Some CPU", "cpu", 6),
        ("Portable Computing Language", "cpu-haswell-Some CPU", "cpu", 6),
        ("Portable Computing Language", "cpu-tbb-haswell-Some CPU", "cpu", 0),
        ("Portable Computing Language", "NVIDIA GPU", "gpu", 0),
        ("Intel(R) OpenCL", "cpu-like name", "cpu", 0),
    ],
)
def test_what_cpu_drivers_are_known_for(platform: str, name: str, kind: str, groups: int) -> None:
    identity = dataclasses.replace(IDENTITY, platform=platform, name=name, device_type=kind, compute_units=6)
    assert groups_at_once(identity) == groups


@pytest.mark.parametrize(
    ("platform", "version", "fence"),
    [
        ("Portable Computing Language", "OpenCL 3.0 PoCL", POCL.fence),
        ("NVIDIA CUDA", "OpenCL 3.0 CUDA", DEVICE_FENCE),
        ("NVIDIA CUDA", "OpenCL 1.2 CUDA", None),
        ("Some driver", "OpenCL 2.0 ", None),
    ],
)
def test_a_device_has_the_fence_that_is_known_to_order_its_memory(
    platform: str, version: str, fence: Fence | None
) -> None:
    assert device_fence(dataclasses.replace(IDENTITY, platform=platform, device_version=version)) == fence


def test_defaults_are_for_variables_that_the_user_leaves_open() -> None:
    assert quirks.unset_defaults({}) == {"POCL_AFFINITY": "1", "POCL_KERNEL_CACHE": "0"}
    assert quirks.unset_defaults({"POCL_AFFINITY": "0", "HOME": "/"}) == {"POCL_KERNEL_CACHE": "0"}


def test_nvidias_driver_is_asked_what_kernels_take() -> None:
    assert {row.driver: row.verbose for row in DRIVERS if row.verbose} == {"NVIDIA": "-cl-nv-verbose"}
