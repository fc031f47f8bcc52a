"""What can be read of clocks, temperatures and load, so that a measurement says how the device was.

Linux keeps them in small files. Which of them exist is found out once; reading them takes a fraction of a
millisecond, and no more is started when a slow driver has used that time up.
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

Parse = Callable[[str], float]


@dataclass(frozen=True)
class _Source:
    """A file with one number; several with the same name are combined."""

    name: str
    path: Path
    parse: Parse


def read(root: Path = Path("/"), seconds: float = SECONDS_AT_MOST) -> dict[str, float]:
    """The state now, as far as it can be read: plain numbers by name, with their unit at the end.

    load_1_minute and load_5_minutes; cpu_mhz_min, _max and _mean over the cores; temperature_c, the hottest
    place; and for each GPU that shows them, `NAME_mhz`, `NAME_busy_percent` and `NAME_temperature_c`. No file is
    begun after so many `seconds`.
    """
    until = time.perf_counter() + seconds
    found: dict[str, list[float]] = {}
    for source in _sources(root):
        if time.perf_counter() > until:
            break
        # a device may sleep, and a driver may say something else here
        with contextlib.suppress(OSError, ValueError, IndexError):
            value = source.parse(_content(source.path))
            if math.isfinite(value):
                found.setdefault(source.name, []).append(value)
    cpu_mhz = found.pop("cpu_mhz", None) or _cpuinfo_mhz(root)
    state = {name: max(values) for name, values in found.items()}
    if cpu_mhz:
        state |= {"cpu_mhz_min": min(cpu_mhz), "cpu_mhz_max": max(cpu_mhz), "cpu_mhz_mean": statistics.fmean(cpu_mhz)}
    return {name: round(value, 2) for name, value in state.items()}


@functools.lru_cache(maxsize=4)
def _sources(root: Path) -> tuple[_Source, ...]:
    """Every file there is; those of which there are many come last."""
    system = root / "sys"
    found = [
        _Source("load_1_minute", root / "proc/loadavg", lambda text: float(text.split()[0])),
        _Source("load_5_minutes", root / "proc/loadavg", lambda text: float(text.split()[1])),
        *_kgsl(system),
        *_devfreq(system),
        *_drm(system),
        *_each("temperature_c", system.glob("class/thermal/thermal_zone*/temp"), 1e-3),
        *_each("cpu_mhz", system.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"), 1e-3),
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


def _each(name: str, paths: Iterable[Path], factor: float) -> Iterator[_Source]:
    return (_Source(name, path, _times(factor)) for path in paths)


def _times(factor: float) -> Parse:
    return lambda text: float(text.split()[0].rstrip("%")) * factor


def _share(text: str) -> float:
    """kgsl says "busy total" in ticks; both are 0 while the GPU sleeps."""
    busy, total = map(float, text.split()[:2])
    return 100 * busy / total if total else 0.0


def _cpuinfo_mhz(root: Path) -> list[float]:
    """The clocks of the first cores where the kernel does not govern them, as in virtual machines."""
    try:
        content = _content(root / "proc/cpuinfo")
    except OSError:
        return []
    return [float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([0-9.]+)$", content, re.MULTILINE)]


def _content(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(CONTENT_CHARACTERS)
