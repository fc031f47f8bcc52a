"""Find the device that tests run on, once: discovery builds and runs a kernel in a process for each driver."""

import contextlib
import functools
import statistics
from collections.abc import Iterator, Sequence

import pytest

from gputune.client.tuning.measuring.sequential import Gain
from gputune.runtime.devices.discovery import DeviceReport, choose, discover, wanted_device


@functools.cache
def devices() -> tuple[DeviceReport, ...]:
    """What discovery finds."""
    return tuple(discover())


def device() -> DeviceReport:
    """The device that gputune chooses here. Raises DeviceNotFound."""
    return choose(devices(), wanted_device(None)).report


def _by_median(ratios: Sequence[float], sure: float) -> Gain:
    """A gain that is taken for certain."""
    median = statistics.median(ratios)
    return Gain(median, median, median, len(ratios))


@contextlib.contextmanager
def few_rounds() -> Iterator[None]:
    """Lets whole contexts of a model take turns as seldom as can be, and the faster one be certain; what longer
    comparisons lead to is tested where times are made up."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("gputune.client.context.elimination.least_rounds", lambda sure: 3)
        patched.setattr("gputune.client.context.elimination.gain_of", _by_median)
        patched.setattr("gputune.client.context.context_runner.ROUNDS", 3)
        yield
