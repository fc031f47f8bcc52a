"""Test how inferences by persistent kernels and launches follow each other, on a made-up device that plays scripts of
times and flags."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from tests.native.compiling import driver

Times = npt.NDArray[np.int64]
LAUNCHES, GROUPS = 5, 2
CALIBRATIONS, CALIBRATING_ROUNDS = 8, 1 << 14


@dataclass(frozen=True)
class Period:
    """Inferences under one load of the machine. share: of kernels that are given up; lost: of the processor time of
    groups, at most, what other programs take."""

    commands: int
    kernels_ns: int
    launches_ns: int
    noise: float
    share: float
    lost: float = 0.0


@dataclass(frozen=True)
class Script:
    """What each command takes as kernels and as launches, and how kernels end."""

    kernels_ns: Times
    launches_ns: Times
    processor_ns: Times
    flags: npt.NDArray[np.int32]
    longest: npt.NDArray[np.int32]

    @classmethod
    def of(cls, periods: Sequence[Period], seed: int) -> "Script":
        random = np.random.default_rng(seed)

        def times(name: str) -> Times:
            rows = [
                getattr(period, name) * (1 + period.noise * random.exponential(size=period.commands))
                for period in periods
            ]
            return np.concatenate(rows).astype(np.int64)

        given_up = [random.random(period.commands) < period.share for period in periods]
        flags = np.concatenate(given_up) * random.integers(1, LAUNCHES + 1, sum(map(len, given_up)))
        flags[:CALIBRATIONS] = 1
        kernels_ns = times("kernels_ns")
        lost = np.concatenate([period.lost * random.random(period.commands) for period in periods])
        return cls(
            kernels_ns,
            times("launches_ns"),
            (GROUPS * kernels_ns * (1 - lost)).astype(np.int64),
            flags.astype(np.int32),
            random.integers(0, 3000, flags.size).astype(np.int32),
        )


def play(script: Script, inferences: int, shared: bool) -> tuple[list[int], list[int]]:
    """Return what was asked of the device, and how many inferences ran in each form."""
    noted = np.zeros(script.flags.size + 1, np.int64)
    arrays = (script.kernels_ns, script.launches_ns, script.processor_ns, script.flags, script.longest, noted)
    fields = [(f"f{place}", ctypes.c_void_p) for place in range(len(arrays))]
    made = type(
        "Played", (ctypes.Structure,), {"_fields_": [*fields, ("done", ctypes.c_size_t), ("most", ctypes.c_size_t)]}
    )
    played = made(*(each.ctypes.data for each in arrays), 0, script.flags.size)
    runs = (ctypes.c_uint64 * 4)()
    library = driver("script")
    library.play(ctypes.byref(played), ctypes.c_size_t(inferences), ctypes.c_bool(shared), runs)
    return noted[: played.done].tolist(), list(runs)


@pytest.fixture(scope="module", autouse=True)
def compiled(c_compiler: None) -> None:
    driver("script")


def test_the_scripts_reach_every_form() -> None:
    slow = Period(6000, 300_000, 200_000, 0.01, 0.3)
    quick = Period(20_000, 100_000, 200_000, 0.01, 0.0)
    noted, runs = play(Script.of([slow, quick], 1), 100_000, True)
    assert min(runs) > 0
    forms = [each < 0 for each in noted]
    assert forms[4000:6000].count(False) > 1900, "the breaker opens"
    assert forms[-2000:].count(True) > 1900, "the breaker closes again"
    assert any(0 < each < LAUNCHES for each in noted), "launches end what kernels have begun"


def test_no_group_waits_for_longer_than_all_launches_take() -> None:
    """On a machine that is busy from the beginning, groups have always waited for long."""
    script = Script.of([Period(2000, 400_000, 100_000, 0.0, 0.0, lost=0.9)], 0)
    script.longest[:], script.flags[:] = 1 << 20, 0
    noted, _ = play(script, 100_000, True)
    first = noted.index(0)  # what launches take is known behind the next
    assert first < 20, "the processor time shows that other programs run"
    after = [-each for each in noted[first + 2 :] if each < 0]
    assert -noted[first - 1] > 1 << 20
    assert after and max(after) <= CALIBRATING_ROUNDS * 100_000 / 400_000


@pytest.mark.parametrize(
    ("flag", "first"),
    [(1, 0), (LAUNCHES, LAUNCHES - 1), *((flag, 0) for flag in (LAUNCHES + 1, (1 << 31) - 1, -1, -(1 << 31)))],
)
@pytest.mark.parametrize("shared", [False, True])
def test_a_flag_that_names_no_launch_has_all_of_them_run(flag: int, first: int, shared: bool) -> None:
    """A flag lies in device memory, which may hold anything."""
    script = Script.of([Period(CALIBRATIONS + 4, 100_000, 200_000, 0.0, 0.0)], 0)
    script.flags[:] = flag
    noted, (_, aborted, *_) = play(script, 2, shared)
    assert aborted == 2
    assert noted[-1] == first and noted[-3] == 0, "code is loaded for all launches at once"
    assert driver("script").flag_after(flag, ctypes.c_size_t(LAUNCHES)) == first + 1
