"""Test that the C runtime reads clocks, load and temperatures as Python does: by Python's own tests."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from gputune.runtime.devices import state
from tests.native.compiling import driver
from tests.runtime.devices import test_state as by_python

TESTS = [
    by_python.test_a_phone,
    by_python.test_a_desktop,
    by_python.test_a_virtual_machine_has_the_clocks_of_its_cores_only,
    by_python.test_what_says_that_heat_slows_the_device_down,
    by_python.test_counts_of_which_one_cannot_be_read_are_no_sum,
    by_python.test_a_sleeping_gpu_is_not_busy,
    by_python.test_an_empty_system_has_no_state_and_this_one_can_be_read,
]
MOST_VALUES = 64


class Value(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char * 64), ("value", ctypes.c_double))


@pytest.fixture(autouse=True)
def _read_by_c(c_compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = driver("state", "state")
    library.read_below.restype = ctypes.c_size_t

    def read(root: Path = Path("/"), seconds: float = 3e-3) -> dict[str, float]:
        values = (Value * MOST_VALUES)()
        below = str(root).rstrip("/").encode()
        count = library.read_below(below, ctypes.c_uint64(int(seconds * 1e9)), values)
        return {each.name.decode(): each.value for each in values[:count]}

    monkeypatch.setattr(state, "read", read)


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_c_reads_what_python_reads(test: Callable[[Path], None], tmp_path: Path) -> None:
    test(tmp_path)


@pytest.mark.parametrize("content", ["", "off", "1.0", "nan nan", "inf 1", "1x 2", "1 2x"])
def test_what_makes_no_sense_is_left_out(tmp_path: Path, content: str) -> None:
    by_python.test_what_makes_no_sense_is_left_out(tmp_path, content)


def test_nothing_is_read_any_more_when_there_is_no_time(tmp_path: Path) -> None:
    root = by_python.write(tmp_path, {"sys/class/thermal/thermal_zone0/temp": "41200"})
    assert state.read(root, seconds=60) == {"temperature_c": 41.2}
    assert state.read(root, seconds=0) == {}
