"""Control processors under the kernel's cpufreq framework, for devices of type CPU.

Source: docs.kernel.org/admin-guide/pm/cpufreq.html and intel_pstate.html. Frequencies are in kHz. A driver that lists
none takes any between the hardware's limits.
"""

from __future__ import annotations

from pathlib import Path

from gputune.runtime.power.actuators.base import Access, Kind, number_of, numbers_of
from gputune.runtime.power.actuators.controls import (
    CLOCKS,
    Control,
    FileActuator,
    Range,
    Scale,
    Switch,
    governor,
    held,
    scale_of,
)
from gputune.runtime.power.records import Vote

_KHZ = 1000


def find(access: Access) -> list[FileActuator]:
    """Return one actuator for all policies."""
    folders = access.found("sys/devices/system/cpu/cpufreq/policy[0-9]*")
    controls = [control for folder in folders for control in _controls(folder)]
    honours = CLOCKS | {"high_performance"}
    return [FileActuator("cpufreq", access, controls, honours)] if controls else []


def _controls(folder: Path) -> list[Control]:
    """Return the governor, the range and the energy preference of a policy; the governor first, because `performance`
    refuses any other preference."""
    scale = _scale(folder)
    least, most = folder / "scaling_min_freq", folder / "scaling_max_freq"
    if scale is None or not least.exists():
        return []
    switch = governor(folder, "scaling_governor", "core")
    clock = Range(folder.name, "core", least, most, scale, folder / "scaling_cur_freq", _KHZ)
    found: list[Control] = [clock] if switch is None else [switch, clock]
    preference = folder / "energy_performance_preference"
    return [*found, Switch(preference, _preference)] if preference.exists() else found


def _scale(folder: Path) -> Scale | None:
    if listed := scale_of(numbers_of(folder / "scaling_available_frequencies"), _KHZ):
        return listed
    ends = [number_of(folder / name) for name in ("cpuinfo_min_freq", "cpuinfo_max_freq")]
    return scale_of([end for end in ends if end is not None], _KHZ, continuous=True)


def _preference(vote: Vote) -> str | None:
    """Return `performance` for a vote for high performance, and for a held clock: its governor takes no other one."""
    return "performance" if vote.high_performance or held(vote, "core") else None


KIND = Kind("cpufreq", find)
