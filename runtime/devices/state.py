"""Read clocks, temperatures and load, so that a measurement records the state of the device.

Linux keeps them in small files. Which of them exist is found out once. Reading them takes a fraction of a millisecond,
and no further read starts when a slow driver has used that time up.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SECONDS_AT_MOST = 0.003
CONTENT_CHARACTERS = 1 << 16  # enough of /proc/cpuinfo for some dozens of cores

LIMITS_C = (40.0, 150.0)  # where trip points make sense: what a firmware does not use lies far outside

PATTERNS = (
    "/proc/loadavg",
    "/sys/class/kgsl/kgsl-3d*/{gpuclk,gpubusy,gpu_busy_percentage,temp}",
    "/sys/class/devfreq/*/cur_freq",
    "/sys/class/drm/card*/{gt_act_freq_mhz,device/gpu_busy_percent}",
    "/sys/class/drm/card*/device/hwmon/hwmon*/{freq1_input,temp1_input}",
    "/sys/class/thermal/thermal_zone*/{temp,trip_point_*_type,trip_point_*_temp}",
    "/sys/class/thermal/cooling_device*/{type,cur_state}",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq",
    "/sys/devices/system/cpu/cpu*/thermal_throttle/*_throttle_count",
    "/proc/cpuinfo",
)
"""The files that `read` looks for, for those who bring them from another machine: * is any part of a name, and {a,b} is
each of these."""

Parse = Callable[[str], float]
Combine = Callable[[list[float]], float]


@dataclass(frozen=True)
class _Source:
    """A file with one number; several with the same name are combined."""

    name: str
    path: Path
    parse: Parse


_COMBINED: dict[str, Combine] = {"throttles": sum, "temperature_headroom_c": min}
"""How numbers of the same name are combined; the greatest of them counts for all others."""


def read(root: Path = Path("/"), seconds: float = SECONDS_AT_MOST) -> dict[str, float]:
    """Return the state now, as far as it can be read: plain numbers by name, with their unit at the end.

    load_1_minute and load_5_minutes; cpu_mhz_min, _max and _mean over the cores; temperature_c, the hottest
    place; and for each GPU that shows them, `NAME_mhz`, `NAME_busy_percent` and `NAME_temperature_c`. What says that
    heat slows a device down: throttles, how often the cores and their package have been since the system was
    started; cooling_steps, by how many a processor is slowed down now; temperature_headroom_c, what is left up to the
    nearest limit. No file is begun after so many `seconds`.
    """
    until = time.perf_counter() + seconds
    found: dict[str, list[float]] = {}
    sources = _sources(root)
    for source in sources:
        if time.perf_counter() > until:
            break
        # a device may sleep, and a driver may say something else here
        with contextlib.suppress(OSError, ValueError, IndexError):
            value = source.parse(_content(source.path))
            if math.isfinite(value):
                found.setdefault(source.name, []).append(value)
    if len(found.get("throttles", ())) < sum(source.name == "throttles" for source in sources):
        found.pop("throttles", None)  # a sum of some of them would seem to rise when all are read
    cpu_mhz = found.pop("cpu_mhz", None) or _cpuinfo_mhz(root)
    state = {name: _COMBINED.get(name, max)(values) for name, values in found.items()}
    if cpu_mhz:
        state |= {"cpu_mhz_min": min(cpu_mhz), "cpu_mhz_max": max(cpu_mhz), "cpu_mhz_mean": statistics.fmean(cpu_mhz)}
    return {name: round(value, 2) for name, value in state.items()}


def files(root: Path) -> list[Path]:
    """Return the files that `read` reads each time, of those that were there when it did first."""
    return [*(source.path for source in _sources(root)), root / "proc/cpuinfo"]


@functools.lru_cache(maxsize=4)
def _sources(root: Path) -> tuple[_Source, ...]:
    """Return every file there is; those of which there are many come last."""
    system = root / "sys"
    found = [
        _Source("load_1_minute", root / "proc/loadavg", lambda text: float(text.split()[0])),
        _Source("load_5_minutes", root / "proc/loadavg", lambda text: float(text.split()[1])),
        *_kgsl(system),
        *_devfreq(system),
        *_drm(system),
        *_zones(system),
        *_cooling(system),
        *_each("cpu_mhz", system.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"), 1e-3),
        *_each("throttles", system.glob("devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count"), 1.0),
    ]
    return tuple(source for source in found if source.path.is_file())


def _kgsl(system: Path) -> Iterator[_Source]:
    """Adreno GPUs."""
    for folder in system.glob("class/kgsl/kgsl-3d[0-9]*"):
        yield _Source(f"{folder.name}_mhz", folder / "gpuclk", _times(1e-6))
        yield _Source(f"{folder.name}_busy_percent", folder / "gpubusy", _share)
        yield _Source(f"{folder.name}_busy_percent", folder / "gpu_busy_percentage", _times(1.0))
        yield _Source(f"{folder.name}_temperature_c", folder / "temp", _times(1e-3))


def _devfreq(system: Path) -> Iterator[_Source]:
    """Mali and other GPUs whose clock is governed by devfreq, and memory controllers."""
    for folder in system.glob("class/devfreq/*"):
        yield _Source(f"{folder.name}_mhz", folder / "cur_freq", _times(1e-6))


def _drm(system: Path) -> Iterator[_Source]:
    """AMD (amdgpu) and Intel (i915) GPUs."""
    for card in system.glob("class/drm/card[0-9]*"):
        yield _Source(f"{card.name}_mhz", card / "gt_act_freq_mhz", _times(1.0))
        yield _Source(f"{card.name}_busy_percent", card / "device/gpu_busy_percent", _times(1.0))
        for sensor in card.glob("device/hwmon/hwmon[0-9]*"):
            yield _Source(f"{card.name}_mhz", sensor / "freq1_input", _times(1e-6))
            yield _Source(f"{card.name}_temperature_c", sensor / "temp1_input", _times(1e-3))


def _zones(system: Path) -> Iterator[_Source]:
    """Temperatures, and how far those with a limit are from it: from where the system slows a device down or ends."""
    zones = sorted(system.glob("class/thermal/thermal_zone*"))
    for zone in zones:
        yield _Source("temperature_c", zone / "temp", _times(1e-3))
    for zone in zones:
        if limits := list(_limits_c(zone)):
            yield _Source("temperature_headroom_c", zone / "temp", _below(min(limits)))


def _limits_c(zone: Path) -> Iterator[float]:
    for kind in zone.glob("trip_point_*_type"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            limit_c = _times(1e-3)(_content(kind.with_name(kind.name.replace("_type", "_temp"))))
            # the others, called active, turn fans on
            if _content(kind).strip() in ("passive", "hot", "critical") and LIMITS_C[0] <= limit_c <= LIMITS_C[1]:
                yield limit_c


def _cooling(system: Path) -> Iterator[_Source]:
    """Yield what cools by making a processor slower. Fans do not, and others, such as radios, do not matter."""
    for device in system.glob("class/thermal/cooling_device*"):
        with contextlib.suppress(OSError):
            if re.search("cpu|gpu|devfreq|processor|powerclamp", _content(device / "type"), re.IGNORECASE):
                yield _Source("cooling_steps", device / "cur_state", _times(1.0))


def _each(name: str, paths: Iterable[Path], factor: float) -> Iterator[_Source]:
    return (_Source(name, path, _times(factor)) for path in paths)


def _times(factor: float) -> Parse:
    return lambda text: float(text.split()[0].rstrip("%")) * factor


def _below(limit_c: float) -> Parse:
    return lambda text: limit_c - _times(1e-3)(text)


def _share(text: str) -> float:
    """kgsl says "busy total" in ticks; both are 0 while the GPU sleeps."""
    busy, total = map(float, text.split()[:2])
    return 100 * busy / total if total else 0.0


def _cpuinfo_mhz(root: Path) -> list[float]:
    """Return the clocks of the first cores where the kernel does not govern them, as in virtual machines."""
    try:
        content = _content(root / "proc/cpuinfo")
    except OSError:
        return []
    return [float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([0-9.]+)$", content, re.MULTILINE)]


def _content(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(CONTENT_CHARACTERS)
