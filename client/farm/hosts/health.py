"""Check whether a device works, and how fast it is, with one small kernel that is built, verified and timed like a
variant.

Devices of one tier are compared by this time, because a task is measured on only one of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from gputune.client.errors import TargetError
from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Launch, Variant, Work
from gputune.core.statuses import OK
from gputune.server.protocol.messages import BufferReady, FreeBuffers, UploadBuffer

ELEMENTS = 1 << 16
ROUNDS = 256
SAMPLES, SAMPLE_NS, WARM_UP_NS = 9, 2_000_000, 5_000_000
_SOURCE = f"""
__kernel void yardstick(__global const float *input, __global float *output) {{
    float value = input[get_global_id(0)];
    for (int round = 0; round < {ROUNDS}; ++round) value = value * 0.5f + 1.0f;
    output[get_global_id(0)] = value;
}}
"""
FAR = 0.1
"""A device that is off by more than this share from its twins is set apart,"""
IN_A_ROW = 3
"""when that is so for as many measurements in a row."""
TWINS = 2
"""So many others at least it is compared with: of two devices nothing says which one is off."""

Reply = TypeVar("Reply")
Ask = Callable[[Any], Any]


@dataclass(frozen=True)
class Speed:
    """Tell what the kernel took: the median and the quartiles, nanoseconds. number: of the measurement, from 1."""

    number: int
    low_ns: float
    median_ns: float
    high_ns: float

    @classmethod
    def of(cls, number: int, samples_ns: Sequence[float]) -> Speed:
        """Return that of at least one sample."""
        low, median, high = statistics.quantiles([*samples_ns, *samples_ns], n=4)
        return cls(number, low, median, high)

    @classmethod
    def read(cls, plain: object) -> Speed | None:
        """Return what another process has sent; None for anything else."""
        if not isinstance(plain, list | tuple) or len(plain) != 4:
            return None
        if not all(isinstance(value, int | float) and 0 < value < 1e15 for value in plain):
            return None
        return cls(int(plain[0]), *map(float, plain[1:]))

    def to_list(self) -> list[float]:
        """Return it as `read` takes it."""
        return [self.number, self.low_ns, self.median_ns, self.high_ns]


def deviation(mine: Speed, others: Sequence[Speed]) -> float:
    """Return by which share a device is slower (or faster, below 0) than the median of itself and its twins, for
    certain: the end of its interval that is nearer to that counts. 0 where it is within FAR or there are too few
    others."""
    if len(others) < TWINS:
        return 0.0
    usual = statistics.median_low([mine.median_ns, *(other.median_ns for other in others)])
    slower, faster = mine.low_ns / usual - 1, mine.high_ns / usual - 1
    return slower if slower > FAR else faster if faster < -FAR else 0.0


def measure(ask: Ask, number: int) -> Speed:
    """Build, verify and time the kernel. ask: sends a request to the device's server and returns the reply. Raises
    TargetError (unhealthy) when the device does not do what it should."""
    values = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)
    handles = [_expect(ask(UploadBuffer(data.data)), BufferReady).buffer for data in (values, _result(values))]
    try:
        reply = _expect(ask(_request(*handles)), Profiled)
    finally:
        ask(FreeBuffers(tuple(handles)))
    trial = reply.trials[0] if reply.trials else None
    if trial is None or trial.status != OK or min(trial.samples_ns, default=0.0) <= 0:
        why = "no trial" if trial is None else f"{trial.status}: {trial.message or 'no time'}"
        raise TargetError("unhealthy", f"the device does not pass its health check: {why}")
    return Speed.of(number, trial.samples_ns)


def _result(values: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    for _ in range(ROUNDS):
        values = values * np.float32(0.5) + np.float32(1)
    return values


def _request(given: int, reference: int) -> ProfileKernel:
    launch = Launch(
        _SOURCE, entry="yardstick", options="", global_size=(ELEMENTS,), local_size=(64,), arguments=("input", "output")
    )
    return ProfileKernel(
        task="health check",
        buffers={"input": given},
        output_bytes=4 * ELEMENTS,
        reference=reference,
        relative=1e-5,
        absolute=0.0,
        dtype="float32",
        variants=(Variant({}, (), launch, {}),),
        baseline=None,
        best_ns=0.0,
        work=Work(2 * ROUNDS * ELEMENTS, 8 * ELEMENTS),
        samples=SAMPLES,
        sample_ns=SAMPLE_NS,
        warm_up_ns=WARM_UP_NS,
        cold=False,
        together=False,
        harvest=False,
    )


def _expect(reply: Any, kind: type[Reply]) -> Reply:
    if not isinstance(reply, kind):
        told = f"{getattr(reply, 'name', type(reply).__name__)}: {getattr(reply, 'message', '')}"
        raise TargetError("unhealthy", f"the device's server does not pass the health check: {told}")
    return reply
