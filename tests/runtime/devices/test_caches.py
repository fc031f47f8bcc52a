"""Test what is made of the cache that a driver reports."""

from dataclasses import replace

import pytest

from gputune.runtime.devices.caches import last_cache_bytes
from gputune.runtime.devices.discovery import NULL_REPORT

assert NULL_REPORT.identity is not None
IDENTITY = NULL_REPORT.identity
KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("kind", "vendor", "units", "reported", "last"),
    [
        ("gpu", "NVIDIA Corporation", 132, 132 * 32 * KIB, 66 * MIB),  # the first caches of an H100
        ("gpu", "NVIDIA Corporation", 82, 82 * 28 * KIB, 41 * MIB),
        ("gpu", "NVIDIA Corporation", 132, 50 * MIB, 50 * MIB),
        ("gpu", "Intel(R) Corporation", 512, 16 * MIB, 16 * MIB),  # which is 32 KiB for each unit
        ("gpu", "Advanced Micro Devices, Inc.", 104, 16 * KIB, 16 * KIB),
        ("gpu", "Advanced Micro Devices, Inc.", 104, 0, 0),
        ("gpu", "Somebody", 0, 1 << 40, 0),
        ("cpu", "NVIDIA Corporation", 72, 72 * 64 * KIB, 72 * 64 * KIB),
    ],
)
def test_the_last_cache_is_what_is_reported_or_estimated_or_not_known(
    kind: str, vendor: str, units: int, reported: int, last: int
) -> None:
    identity = replace(IDENTITY, device_type=kind, vendor=vendor, compute_units=units)
    assert last_cache_bytes(identity, reported) == last
