"""Read energy meters that Linux and Android expose as files: RAPL, hwmon, and the battery.

Each meter measures what it is built into, a whole package, board or machine, whatever runs there. Meters overlap: the
meter of a package includes its cores. They are therefore reported separately and never added up.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MICRO = 1e-6
_NS = 1e9


class Meter(ABC):
    """name: what is measured; source: the file or library that says it; joules: since `begin`."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source
        self.joules = 0.0

    @abstractmethod
    def begin(self, now_ns: int) -> None:
        """Count from now on. Raises OSError, ValueError where it cannot be read."""

    @abstractmethod
    def sample(self, now_ns: int) -> None:
        """Count up to now. Raises OSError, ValueError."""


class EnergyCounter(Meter):
    """One that counts energy itself. read: its joules; wraps_at: where it begins again from 0, None for never. It must
    be sampled at least once in each round."""

    def __init__(self, name: str, source: str, read: Callable[[], float], wraps_at: float | None = None) -> None:
        super().__init__(name, source)
        self._read, self._wraps_at, self._last = read, wraps_at, 0.0

    def begin(self, now_ns: int) -> None:
        self.joules, self._last = 0.0, self._read()

    def sample(self, now_ns: int) -> None:
        now = self._read()
        if now < self._last:
            if self._wraps_at is None:
                raise ValueError(f"{self.source}: the counter went back from {self._last:g} J to {now:g} J")
            self._last -= self._wraps_at
        self.joules += now - self._last
        self._last = now


class PowerGauge(Meter):
    """One that says the power at a time, of which energy is the integral: straight lines between samples."""

    def __init__(self, name: str, source: str, read: Callable[[], float]) -> None:
        """read: watts."""
        super().__init__(name, source)
        self._read, self._watts, self._at_ns = read, 0.0, 0

    def begin(self, now_ns: int) -> None:
        self.joules, self._watts, self._at_ns = 0.0, self._read(), now_ns

    def sample(self, now_ns: int) -> None:
        watts = self._read()
        self.joules += (watts + self._watts) / 2 * (now_ns - self._at_ns) / _NS
        self._watts, self._at_ns = watts, now_ns


@dataclass
class Energy:
    """What meters count of a run. problems: why others do not."""

    meters: list[Meter] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def begin(self) -> None:
        self._each(lambda meter, now_ns: meter.begin(now_ns))

    def sample(self) -> None:
        self._each(lambda meter, now_ns: meter.sample(now_ns))

    def _each(self, do: Callable[[Meter, int], None]) -> None:
        """Of each meter; one that fails is given up, and says why."""
        for meter in list(self.meters):
            try:
                do(meter, time.perf_counter_ns())
            except (OSError, ValueError) as error:
                self.meters.remove(meter)
                self.problems.append(_why(meter.source, error))


def find_meters(root: Path = Path("/")) -> Energy:
    """Meters in the files below a root folder that can be read now, and why others cannot."""
    energy = Energy([*_rapl(root), *_hwmon(root)])
    for supply in _folders(root, "sys/class/power_supply", "*"):
        if _text(supply / "type") == "Battery":
            status = _text(supply / "status")
            if status == "Discharging":
                energy.meters.append(_battery(supply))
            else:
                energy.problems.append(
                    f"{supply}: it is {status or 'of unknown status'}, and measures only while discharging"
                )
    energy.begin()
    return energy


def _rapl(root: Path) -> Iterator[Meter]:
    for zone in _folders(root, "sys/class/powercap", "intel-rapl*:*"):
        name = _text(zone / "name") or zone.name
        try:
            wraps_at = _number(zone / "max_energy_range_uj")() * MICRO
        except (OSError, ValueError):
            wraps_at = None
        yield _counter(f"rapl {name}", zone / "energy_uj", wraps_at)


def _hwmon(root: Path) -> Iterator[Meter]:
    """Of each chip its counters of energy, else its averages of power, else its powers at a time."""
    for chip in _folders(root, "sys/class/hwmon", "hwmon*"):
        for pattern in ("energy*_input", "power*_average", "power*_input"):
            if files := sorted(chip.glob(pattern)):
                for file in files:
                    yield _of_a_chip(chip, file)
                break


def _of_a_chip(chip: Path, file: Path) -> Meter:
    channel = file.name.partition("_")[0]
    name = f"hwmon {_text(chip / 'name') or chip.name} {_text(chip / f'{channel}_label') or channel}"
    if channel.startswith("energy"):
        return _counter(name, file)
    read = _number(file)
    return PowerGauge(name, str(file), lambda: read() * MICRO)


def _battery(supply: Path) -> Meter:
    """Return a meter of a battery's power, else of current times voltage. Some drivers say a current that flows out as
    a negative number."""
    name, power = f"battery {supply.name}", supply / "power_now"
    if power.exists():
        watts = _number(power)
        return PowerGauge(name, str(power), lambda: abs(watts()) * MICRO)
    current, voltage = _number(supply / "current_now"), _number(supply / "voltage_now")
    return PowerGauge(name, str(supply / "current_now"), lambda: abs(current()) * MICRO * voltage() * MICRO)


def _counter(name: str, file: Path, wraps_at: float | None = None) -> EnergyCounter:
    """Of a file in microjoules."""
    read = _number(file)
    return EnergyCounter(name, str(file), lambda: read() * MICRO, wraps_at)


def _folders(root: Path, parent: str, pattern: str) -> list[Path]:
    return sorted((root / parent).glob(pattern))


def _number(file: Path) -> Callable[[], int]:
    """Return what reads a file's whole number anew each time. It raises OSError, ValueError."""

    def read() -> int:
        return int(file.read_text(encoding="ascii"))

    return read


def _text(file: Path) -> str:
    """Return the content of a file, empty where there is none."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def _why(source: str, error: OSError | ValueError) -> str:
    if isinstance(error, PermissionError):
        return f"{source}: {error.strerror}; it can be read by root, or once its owner allows it"
    reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return reason if reason.startswith(source) else f"{source}: {reason}"
