"""Control Adreno GPUs under the kernel's kgsl driver.

Source: kgsl_pwrctrl.c of Qualcomm's published kernels. Power levels count downwards from 0, the fastest: max_pwrlevel
is the upper end. The driver moves an end that would pass the other end without an error, so the order of writes matters
here, too. idle_timer is in ms.
"""

from __future__ import annotations

from collections.abc import Callable
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
    scale_of,
)
from gputune.runtime.power.records import Corner, Vote

AWAKE_US = 1000
"""At a sleep latency up to this one clock and rail stay on between launches."""

IDLE_MS = "10000"
"""How long the GPU stays awake without work while they stay on."""

BUS_ON = Corner.NOM
"""From this corner of the bus on, the bus stays on."""


def find(access: Access) -> list[FileActuator]:
    """Return the GPU of this driver: by its power levels, else by the devfreq files that it has."""
    folder = access / "sys/class/kgsl/kgsl-3d0"
    controls: list[Control] = []
    if (clock := _levels(folder) or _frequencies(folder / "devfreq", folder)) is not None:
        controls = [*filter(None, [governor(folder / "devfreq", "governor", "core")]), clock]
    controls += [Switch(folder / name, choose) for name, choose in _SWITCHES.items() if (folder / name).exists()]
    return [FileActuator("kgsl", access, controls, CLOCKS | {"bus", "sleep_latency_us"})] if controls else []


def _levels(folder: Path) -> Range | None:
    """Return the range of power levels; None where the driver shows none, or not as many as frequencies."""
    frequencies = sorted(set(numbers_of(folder / "gpu_available_frequencies")))
    least, most = folder / "min_pwrlevel", folder / "max_pwrlevel"
    if not frequencies or number_of(folder / "num_pwrlevels") != len(frequencies) or not least.exists():
        return None
    words = tuple(str(level) for level in reversed(range(len(frequencies))))
    return Range("core", "core", least, most, Scale(tuple(frequencies), words=words), _if_there(folder / "gpuclk"))


def _frequencies(folder: Path, above: Path) -> Range | None:
    """Return the range of frequencies in Hz."""
    scale = scale_of(numbers_of(folder / "available_frequencies") or numbers_of(above / "gpu_available_frequencies"))
    least, most = folder / "min_freq", folder / "max_freq"
    if scale is None or not least.exists():
        return None
    return Range("core", "core", least, most, scale, _if_there(above / "gpuclk"))


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None


def _awake(word: str) -> Callable[[Vote], str | None]:
    """Return what gives the word for votes with a short sleep latency."""
    return lambda vote: word if vote.sleep_latency_us is not None and vote.sleep_latency_us <= AWAKE_US else None


def _bus_on(vote: Vote) -> str | None:
    return "1" if max(vote.bus.least, vote.bus.target) >= BUS_ON else None


_SWITCHES: dict[str, Callable[[Vote], str | None]] = {
    "force_rail_on": _awake("1"),
    "force_clk_on": _awake("1"),
    "force_no_nap": _awake("1"),
    "idle_timer": _awake(IDLE_MS),
    "force_bus_on": _bus_on,
}
"""In the order for writing: the rail before the clock that it feeds."""


KIND = Kind("kgsl", find, gpus="qualcomm|adreno", also=("devfreq",))
