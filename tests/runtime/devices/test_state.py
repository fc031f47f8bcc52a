"""Test the device's state from the files of a made-up system, and from this system's files."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from gputune.runtime.devices import state


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return root


def test_a_phone(tmp_path: Path) -> None:
    cores = {
        f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq": mhz
        for core, mhz in enumerate(("1800000", "1800000", "2841600", "300000"))
    }
    zones = {f"sys/class/thermal/thermal_zone{zone}/temp": value for zone, value in enumerate(("41200", "-40000"))}
    kgsl = "sys/class/kgsl/kgsl-3d0"
    root = write(
        tmp_path,
        {
            "proc/loadavg": "2.07 1.50 0.90 1/1234 4321",
            **cores,
            **zones,
            f"{kgsl}/gpuclk": "585000000",
            f"{kgsl}/gpubusy": " 250000  1000000",
            f"{kgsl}/temp": "39500",
            "sys/class/devfreq/13000000.mali/cur_freq": "850000000",
        },
    )
    assert state.read(root, seconds=60) == {
        "load_1_minute": 2.07,
        "load_5_minutes": 1.5,
        "cpu_mhz_min": 300.0,
        "cpu_mhz_max": 2841.6,
        "cpu_mhz_mean": 1685.4,
        "temperature_c": 41.2,
        "kgsl-3d0_mhz": 585.0,
        "kgsl-3d0_busy_percent": 25.0,
        "kgsl-3d0_temperature_c": 39.5,
        "13000000.mali_mhz": 850.0,
    }


def test_a_desktop(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "sys/class/drm/card0/gt_act_freq_mhz": "1150",
            "sys/class/drm/card1/device/gpu_busy_percent": "7",
            "sys/class/drm/card1/device/hwmon/hwmon3/temp1_input": "55000",
            "sys/class/drm/card1/device/hwmon/hwmon3/freq1_input": "2100000000",
        },
    )
    assert state.read(root, seconds=60) == {
        "card0_mhz": 1150.0,
        "card1_busy_percent": 7.0,
        "card1_temperature_c": 55.0,
        "card1_mhz": 2100.0,
    }


def test_a_virtual_machine_has_the_clocks_of_its_cores_only(tmp_path: Path) -> None:
    root = write(
        tmp_path, {"proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2600.5\n\nprocessor\t: 1\ncpu MHz\t\t: 2400.5"}
    )
    assert state.read(root, seconds=60) == {"cpu_mhz_min": 2400.5, "cpu_mhz_max": 2600.5, "cpu_mhz_mean": 2500.5}


def zone(number: int, temp: str, *trips: tuple[str, str]) -> dict[str, str]:
    folder = f"sys/class/thermal/thermal_zone{number}"
    files = {f"{folder}/temp": temp}
    for place, (kind, limit) in enumerate(trips):
        files |= {f"{folder}/trip_point_{place}_type": kind, f"{folder}/trip_point_{place}_temp": limit}
    return files


def cooling(number: int, kind: str, steps: str) -> dict[str, str]:
    folder = f"sys/class/thermal/cooling_device{number}"
    return {f"{folder}/type": kind, f"{folder}/cur_state": steps}


def test_what_says_that_heat_slows_the_device_down(tmp_path: Path) -> None:
    counts = {
        f"sys/devices/system/cpu/cpu{core}/thermal_throttle/{kind}_throttle_count": count
        for core, kind, count in ((0, "core", "3"), (0, "package", "5"), (1, "core", "4"), (1, "package", "5"))
    }
    root = write(
        tmp_path,
        counts
        | zone(0, "61000", ("active", "45000"), ("passive", "95000"), ("critical", "105000"))
        | zone(1, "88500", ("passive", "-274000"), ("critical", "90000"), ("hot", "what"))
        | zone(2, "89000", ("passive", "0"), ("critical", "256000"))  # a limit that is none
        | cooling(0, "Processor", "0")
        | cooling(1, "thermal-cpufreq-0", "2")
        | cooling(2, "Fan", "9")
        | cooling(3, "TCC Offset", "3"),
    )
    assert state.read(root, seconds=60) == {
        "temperature_c": 89.0,
        "temperature_headroom_c": 1.5,
        "cooling_steps": 2.0,
        "throttles": 17.0,
    }


def test_counts_of_which_one_cannot_be_read_are_no_sum(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu/cpu0/thermal_throttle"
    root = write(tmp_path, {f"{folder}/core_throttle_count": "3", f"{folder}/package_throttle_count": ""})
    assert state.read(root, seconds=60) == {}


@pytest.mark.parametrize("content", ["", "off", "1.0", "nan nan", "inf 1"])
def test_what_makes_no_sense_is_left_out(tmp_path: Path, content: str) -> None:
    root = write(tmp_path, {"proc/loadavg": "0.5 0.25 0.1", "sys/class/kgsl/kgsl-3d0/gpubusy": content})
    assert state.read(root, seconds=60) == {"load_1_minute": 0.5, "load_5_minutes": 0.25}


def test_a_sleeping_gpu_is_not_busy(tmp_path: Path) -> None:
    root = write(tmp_path, {"sys/class/kgsl/kgsl-3d0/gpubusy": "0 0"})
    assert state.read(root, seconds=60) == {"kgsl-3d0_busy_percent": 0.0}


def test_nothing_is_read_any_more_when_it_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path, {"proc/loadavg": "0.5 0.25 0.1", "sys/class/thermal/thermal_zone0/temp": "41200"})
    content, now = state._content, [0.0]

    def slow(path: Path) -> str:
        now[0] += 1.01 * state.SECONDS_AT_MOST
        return content(path)

    monkeypatch.setattr(state, "_content", slow)
    monkeypatch.setattr(state, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    assert state.read(root) == {"load_1_minute": 0.5}


def test_an_empty_system_has_no_state_and_this_one_can_be_read(tmp_path: Path) -> None:
    assert state.read(tmp_path, seconds=60) == {}
    assert all(isinstance(value, float) for value in state.read().values())
