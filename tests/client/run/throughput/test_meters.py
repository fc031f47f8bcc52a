"""Test energy meters on trees of files as Linux shows them."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.run.throughput.meters import Energy, EnergyCounter, PowerGauge, find_meters
from gputune.client.run.throughput.nvml import find_gpus

RAPL = "sys/class/powercap"
HWMON = "sys/class/hwmon"
BATTERY = "sys/class/power_supply/BAT0"
SECOND = 10**9


def tree(root: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")
    return root


def joules(energy: Energy) -> dict[str, float]:
    return {meter.name: meter.joules for meter in energy.meters}


def test_rapl_counts_by_zone_and_wraps_around(tmp_path: Path) -> None:
    zones = {
        f"{RAPL}/intel-rapl/enabled": 1,  # the kind of control, which is no zone
        f"{RAPL}/intel-rapl:0/name": "package-0",
        f"{RAPL}/intel-rapl:0/energy_uj": 9_000_000,
        f"{RAPL}/intel-rapl:0/max_energy_range_uj": 10_000_000,
        f"{RAPL}/intel-rapl:0:0/name": "core",
        f"{RAPL}/intel-rapl:0:0/energy_uj": 5,
    }
    energy = find_meters(tree(tmp_path, zones))
    tree(tmp_path, {f"{RAPL}/intel-rapl:0/energy_uj": 2_000_000, f"{RAPL}/intel-rapl:0:0/energy_uj": 3_000_005})
    energy.sample()
    assert joules(energy) == pytest.approx({"rapl package-0": 3.0, "rapl core": 3.0})
    tree(tmp_path, {f"{RAPL}/intel-rapl:0/energy_uj": 4_500_000, f"{RAPL}/intel-rapl:0:0/energy_uj": 0})
    energy.sample()
    assert joules(energy) == pytest.approx({"rapl package-0": 5.5})
    assert energy.problems == [
        f"{tmp_path}/{RAPL}/intel-rapl:0:0/energy_uj: the counter went back from 3 J to 0 J",
    ]


@given(st.lists(st.integers(0, 999), max_size=20))
def test_a_counter_that_wraps_around_loses_nothing(steps: list[int]) -> None:
    now = [0]
    meter = EnergyCounter("", "", lambda: now[0] % 1000, wraps_at=1000)
    meter.begin(0)
    for step in steps:
        now[0] += step
        meter.sample(0)
    assert meter.joules == sum(steps)


def test_power_is_integrated() -> None:
    watts = [2.0]
    meter = PowerGauge("", "", lambda: watts[0])
    meter.begin(5 * SECOND)
    meter.sample(6 * SECOND)
    assert meter.joules == 2.0
    watts[0] = 4.0
    meter.sample(8 * SECOND)
    assert meter.joules == 2.0 + 6.0


def test_a_chip_has_its_best_meters_only(tmp_path: Path) -> None:
    chips = {
        f"{HWMON}/hwmon0/name": "xe",
        f"{HWMON}/hwmon0/energy1_input": 1_000_000,
        f"{HWMON}/hwmon0/energy1_label": "card",
        f"{HWMON}/hwmon0/power1_average": 1,
        f"{HWMON}/hwmon1/name": "amdgpu",
        f"{HWMON}/hwmon1/power1_average": 7_000_000,
        f"{HWMON}/hwmon1/power1_input": 1,
        f"{HWMON}/hwmon2/name": "coretemp",
    }
    energy = find_meters(tree(tmp_path, chips))
    (card, power) = energy.meters
    assert (card.name, power.name, energy.problems) == ("hwmon xe card", "hwmon amdgpu power1", [])
    tree(tmp_path, {f"{HWMON}/hwmon0/energy1_input": 1_500_000})
    card.sample(0)
    power.begin(0)
    power.sample(SECOND)
    assert (card.joules, power.joules) == pytest.approx((0.5, 7.0))


@pytest.mark.parametrize(
    ("files", "watts"),
    [({"power_now": 3_000_000}, 3.0), ({"current_now": -500_000, "voltage_now": 4_000_000}, 2.0)],
)
def test_a_battery_measures_while_it_discharges(tmp_path: Path, files: dict[str, int], watts: float) -> None:
    present = {"type": "Battery", "status": "Discharging", **files}
    root = tree(tmp_path, {f"{BATTERY}/{name}": value for name, value in present.items()})
    (meter,) = find_meters(root).meters
    meter.begin(0)
    meter.sample(2 * SECOND)
    assert meter.joules == pytest.approx(2 * watts)
    energy = find_meters(tree(tmp_path, {f"{BATTERY}/status": "Charging"}))
    assert (energy.meters, len(energy.problems)) == ([], 1)
    assert "it is Charging, and measures only while discharging" in energy.problems[0]


def test_what_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, {f"{RAPL}/intel-rapl:0/energy_uj": "?", f"{RAPL}/intel-rapl:1/energy_uj": 1})
    read_text = Path.read_text

    def denied(path: Path, **options: Any) -> str:
        if "rapl:1/energy" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path, **options)

    monkeypatch.setattr(Path, "read_text", denied)
    energy = find_meters(tmp_path)
    assert energy.meters == []
    assert "intel-rapl:0/energy_uj: invalid literal" in energy.problems[0]
    assert "intel-rapl:1/energy_uj: Permission denied; it can be read by root" in energy.problems[1]
    assert find_meters(tmp_path / "empty") == Energy()


class FakeNvml:
    """Two GPUs, the second of which does not count energy. Values are in mJ and mW."""

    def __init__(self, init: int = 0) -> None:
        """init: the error of its first function."""
        self.energy = 1000
        self.nvmlInit_v2 = lambda: init
        self.nvmlDeviceGetCount_v2 = lambda count: self._set(count, 2)
        self.nvmlDeviceGetHandleByIndex_v2 = lambda index, handle: self._set(handle, index + 1)
        self.nvmlDeviceGetName = self._name
        self.nvmlDeviceGetTotalEnergyConsumption = self._total
        self.nvmlDeviceGetPowerUsage = lambda handle, value: self._set(value, 70_000)

    def _set(self, reference: Any, value: int) -> int:
        reference._obj.value = value
        return 0

    def _name(self, handle: ctypes.c_void_p, name: Any, length: ctypes.c_uint) -> int:
        name.value = b"A GPU"
        return 0

    def _total(self, handle: ctypes.c_void_p, value: Any) -> int:
        return self._set(value, self.energy) if handle.value == 1 else 3


def test_gpus_count_energy_or_say_their_power() -> None:
    nvml = FakeNvml()
    energy = find_gpus(load=lambda _: nvml)
    counter, gauge = energy.meters
    nvml.energy += 2500
    counter.sample(0)
    gauge.begin(0)
    gauge.sample(SECOND)
    assert (counter.name, counter.joules, gauge.name, gauge.joules) == ("nvml 0 A GPU", 2.5, "nvml 1 A GPU", 70.0)


def missing(library: str) -> Any:
    raise OSError(f"{library}: cannot open shared object file")


def broken(library: str) -> Any:
    return FakeNvml(init=9)


@pytest.mark.parametrize(("load", "problems"), [(missing, []), (broken, ["nvml.so: it finds no GPU (error 9)"])])
def test_without_gpus_there_is_no_meter(load: Callable[[str], Any], problems: list[str]) -> None:
    assert find_gpus("nvml.so", load) == Energy(problems=problems)
