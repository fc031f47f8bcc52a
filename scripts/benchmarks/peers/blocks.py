"""A block of runs in a contender's process."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

WARM_UP_SECONDS = 0.1
LEAST = 3
"""Runs of a block, whatever they take, where so many are allowed."""
Arrays = Mapping[str, npt.NDArray[Any]]


def inputs_in(file: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file by name."""
    with np.load(file) as arrays:
        return dict(arrays)


def repeated(run: Callable[[], float], seconds: float, most: int) -> list[float]:
    """The nanoseconds that `run` says it has taken, again and again for so long, after a warm-up."""
    warm = time.perf_counter() + min(WARM_UP_SECONDS, seconds)
    run()
    while time.perf_counter() < warm:
        run()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < min(LEAST, most) or (len(samples) < most and time.perf_counter() < end):
        samples.append(run())
    return samples


def timed(run: Callable[[], object]) -> float:
    """Nanoseconds of one call."""
    begin = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - begin
