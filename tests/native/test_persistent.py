"""Test that the C runtime decides between persistent kernels and launches as Python's runtime does.

Both play the same scripts of times and flags on a made-up device, and ask the same of it.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gputune.runtime.backends import Backend, Bound, Buffer
from gputune.runtime.context.records import FLAG, LONGEST, ROUNDS, STATUS_BYTES
from gputune.runtime.execution import persistent
from gputune.runtime.execution.persistent import PersistentRuns
from tests.native.compiling import driver

Times = npt.NDArray[np.int64]
LAUNCHES, GROUPS = 5, 2
CALIBRATIONS = persistent.CALIBRATIONS


class Ended(Exception):
    """The script has no more commands."""


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


@dataclass
class Device:
    """A backend that plays a script."""

    script: Script
    shared: bool
    noted: list[int] = field(default_factory=list)
    clock_ns: int = 0
    used_ns: int = 0
    status: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(STATUS_BYTES // 4, np.int32))
    kernels_last: bool = False

    def in_order(self, bounds: Sequence[Any]) -> Callable[[], None]:
        return lambda: self.start(True, -int(self.status[ROUNDS]))

    def start(self, kernels: bool, noted: int) -> None:
        self.kernels_last = kernels
        self.noted.append(noted)

    def finish(self) -> None:
        done = len(self.noted) - 1
        if done >= self.script.flags.size:
            self.noted.pop()
            raise Ended
        self.clock_ns += int((self.script.kernels_ns if self.kernels_last else self.script.launches_ns)[done])
        self.used_ns += int(self.script.processor_ns[done])
        if self.kernels_last:
            self.status[FLAG], self.status[LONGEST] = self.script.flags[done], self.script.longest[done]

    def fill(self, buffer: object, pattern: int) -> None:
        pass

    def write(self, buffer: Any, data: npt.NDArray[np.int32]) -> None:
        if buffer.name == "status":
            self.status[...] = data

    def read(self, buffer: object) -> npt.NDArray[np.uint8]:
        return self.status.view(np.uint8)

    def play(self, inferences: int) -> tuple[list[int], list[int]]:
        """What was asked of it, and how many inferences ran in each form."""
        host = self.status.view(np.uint8) if self.shared else None
        counters, status = SimpleNamespace(name="counters", nbytes=64), SimpleNamespace(name="status", host=host)
        bound = cast(Bound, object())
        buffers = cast(Buffer, counters), cast(Buffer, status)
        runs = PersistentRuns(cast(Backend, self), [bound], bound, GROUPS, *buffers)
        try:
            for _ in range(inferences):
                runs.run(lambda first: lambda: self.start(False, first or 0), lambda: "launches")
        except Ended:
            pass
        of = runs.runs
        return self.noted, [of.persistent, of.aborted, of.launches, of.attempts]


def play_in_c(script: Script, inferences: int, shared: bool) -> tuple[list[int], list[int]]:
    """The same of the C runtime."""
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


periods = st.builds(
    Period,
    commands=st.integers(40, 1500),
    kernels_ns=st.integers(10, 40).map(lambda each: each * 10_000),
    launches_ns=st.integers(10, 40).map(lambda each: each * 10_000),
    noise=st.sampled_from([0.0, 0.01, 0.1, 1.0]),
    share=st.sampled_from([0.0, 0.0, 0.01, 0.5]),
    lost=st.sampled_from([0.0, 0.1, 0.9]),
)


@pytest.mark.slow
@settings(max_examples=60)
@example(load=[Period(40_000, 100_000, 110_000, 0.1, 0.0)], seed=0, shared=True)  # waits double until they no longer do
@given(load=st.lists(periods, min_size=1, max_size=4), seed=st.integers(0, 99), shared=st.booleans())
def test_equal_times_lead_to_equal_decisions(load: list[Period], seed: int, shared: bool) -> None:
    script = Script.of(load, seed)
    device = Device(script, shared)
    with pytest.MonkeyPatch.context() as patch:
        clocks = SimpleNamespace(perf_counter_ns=lambda: device.clock_ns, process_time_ns=lambda: device.used_ns)
        patch.setattr(persistent, "time", clocks)
        expected = device.play(100_000)
    assert play_in_c(script, 100_000, shared) == expected


def test_the_scripts_reach_every_form() -> None:
    slow = Period(6000, 300_000, 200_000, 0.01, 0.3)
    quick = Period(20_000, 100_000, 200_000, 0.01, 0.0)
    noted, runs = play_in_c(Script.of([slow, quick], 1), 100_000, True)
    assert min(runs) > 0
    forms = [each < 0 for each in noted]
    assert forms[4000:6000].count(False) > 1900, "the breaker opens"
    assert forms[-2000:].count(True) > 1900, "the breaker closes again"
    assert any(0 < each < LAUNCHES for each in noted), "launches end what kernels have begun"


def test_no_group_waits_for_longer_than_all_launches_take() -> None:
    """On a machine that is busy from the beginning, groups have always waited for long."""
    script = Script.of([Period(2000, 400_000, 100_000, 0.0, 0.0, lost=0.9)], 0)
    script.longest[:], script.flags[:] = 1 << 20, 0
    noted, _ = play_in_c(script, 100_000, True)
    first = noted.index(0)  # what launches take is known behind the next
    assert first < 20, "the processor time shows that other programs run"
    after = [-each for each in noted[first + 2 :] if each < 0]
    assert -noted[first - 1] > 1 << 20
    assert after and max(after) <= persistent.CALIBRATING_ROUNDS * 100_000 / 400_000
