"""Control Intel GPUs under the kernel's i915 and xe drivers.

All frequencies are in MHz, and any between the limits is accepted. Sources: docs.kernel.org/gpu/xe/xe_gt_freq.html;
intel_gt_sysfs_pm.c and i915_sysfs.c of the kernel. RPn is the lowest frequency of the hardware, RP0 its highest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gputune.runtime.power.actuators.base import Access, Kind, number_of
from gputune.runtime.power.actuators.controls import CLOCKS, Control, FileActuator, Range, Switch, scale_of

_MHZ = 1_000_000


@dataclass(frozen=True)
class _Names:
    """How a driver calls its files."""

    least: str
    most: str
    now: str
    lowest: str
    highest: str
    boost: str = ""


_OLD = _Names("gt_min_freq_mhz", "gt_max_freq_mhz", "gt_act_freq_mhz", "gt_RPn_freq_mhz", "gt_RP0_freq_mhz",
              "gt_boost_freq_mhz")  # fmt: skip
_GT = _Names("rps_min_freq_mhz", "rps_max_freq_mhz", "rps_act_freq_mhz", "rps_RPn_freq_mhz", "rps_RP0_freq_mhz",
             "rps_boost_freq_mhz")  # fmt: skip
_XE = _Names("min_freq", "max_freq", "act_freq", "rpn_freq", "rp0_freq")


def find(access: Access) -> list[FileActuator]:
    """Return the actuators of both drivers."""
    return [*_found_by_i915(access), *_found_by_xe(access)]


def _found_by_i915(access: Access) -> list[FileActuator]:
    """Return an actuator for each card: by its GTs, else by the files of older kernels, which stand for all GTs."""
    found = []
    for card in access.found("sys/class/drm/card[0-9]*"):
        folders = {folder.name: folder for folder in sorted(card.glob("gt/gt[0-9]*"))}
        controls = [control for label, folder in folders.items() for control in _controls(label, folder, _GT)]
        found += _actuator("i915", access, controls or _controls("core", card, _OLD))
    return found


def _found_by_xe(access: Access) -> list[FileActuator]:
    """Return an actuator for each card, of all its tiles and GTs."""
    found = []
    for card in access.found("sys/class/drm/card[0-9]*"):
        controls: list[Control] = []
        for folder in sorted(card.glob("device/tile[0-9]*/gt[0-9]*/freq0")):
            controls += _controls(f"{folder.parts[-3]}_{folder.parts[-2]}", folder, _XE)
        found += _actuator("xe", access, controls)
    return found


def _actuator(name: str, access: Access, controls: list[Control]) -> list[FileActuator]:
    return [FileActuator(name, access, controls, CLOCKS)] if controls else []


def _controls(label: str, folder: Path, names: _Names) -> list[Control]:
    """Return the range of one GT, and its boost frequency where the driver has one: it would pass an upper end."""
    ends = [number_of(folder / name) for name in (names.lowest, names.highest)]
    scale = scale_of([end for end in ends if end is not None], _MHZ, continuous=True)
    if scale is None or not (folder / names.least).exists():
        return []
    clock = Range(label, "core", folder / names.least, folder / names.most, scale, folder / names.now, _MHZ)
    if not names.boost or not (folder / names.boost).exists():
        return [clock]
    return [clock, Switch(folder / names.boost, clock.upper_word)]


KIND = Kind("intel", find, gpus="intel")
