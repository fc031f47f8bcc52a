"""List the devices for which kernels are checked: what a driver says of their limits, and whose compiler there is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gputune.core.dtypes import HALF_EXTENSION
from gputune.core.quirks import NVIDIA
from gputune.kernels.family import DeviceLimits

Maker = Literal["nvidia", "amd", "intel", "adreno", "mali", ""]

KIB, GIB = 1 << 10, 1 << 30


@dataclass(frozen=True)
class Device:
    """A device. maker: whose compiler compiles for `architecture`; empty if there is none to be had, and then kernels
    are only rendered. lanes: work-items that a compute unit runs at the same time at least."""

    name: str
    maker: Maker
    architecture: str
    limits: DeviceLimits
    lanes: int = 32


def _gpu(family: str, group: int, local_kib: int, allocation_gib: int, units: int, *extensions: str) -> DeviceLimits:
    return DeviceLimits(
        max_work_group_size=group,
        max_work_item_sizes=(group, group, min(group, 64) if group > 256 else group),
        local_memory_bytes=local_kib * KIB,
        max_allocation_bytes=allocation_gib * GIB,
        compute_units=units,
        device_type="gpu",
        preferred_float_width=1,
        extensions=frozenset(extensions),
        family=family,
        register_cap=NVIDIA.register_cap if family.startswith("nvidia") else "",
    )


_ALL = (
    Device("h100", "nvidia", "sm_90", _gpu("nvidia-hopper", 1024, 48, 20, 132)),
    Device("a100", "nvidia", "sm_80", _gpu("nvidia-ampere", 1024, 48, 10, 108)),
    Device("rtx3060", "nvidia", "sm_86", _gpu("nvidia-ampere", 1024, 48, 3, 28)),
    Device("gfx90a", "amd", "gfx90a", _gpu("amd-cdna", 256, 64, 16, 104, HALF_EXTENSION)),
    Device("gfx1030", "amd", "gfx1030", _gpu("amd-rdna2", 256, 64, 8, 36, HALF_EXTENSION)),
    Device("dg2", "intel", "dg2", _gpu("intel-xe-hpg", 1024, 64, 4, 512, HALF_EXTENSION), lanes=8),
    Device("adreno740", "adreno", "740", _gpu("adreno-7xx", 1024, 32, 1, 12)),
    Device("mali-g52", "mali", "7212", _gpu("mali-bifrost", 384, 32, 1, 2), lanes=8),
    Device("mali-g57", "mali", "9093", _gpu("mali-valhall", 512, 32, 1, 4), lanes=16),
)

DEVICES: Mapping[str, Device] = {device.name: device for device in _ALL}
"""By name: H100, A100, RTX 3060, Instinct MI210, Radeon RX 6800 XT, Arc A770, Adreno 740, Mali G52 and G57."""

PHONES = tuple(device.name for device in _ALL if device.maker in ("adreno", "mali"))
"""Those for which Mesa compiles, which takes 3 to 10 seconds a kernel and has no half."""
