"""The device that tests run on, looked for once: discovery builds and runs a kernel in a process per driver."""

import contextlib
import functools
from collections.abc import Iterator

import pytest

from gputune.runtime.devices.discovery import DeviceReport, choose, discover, wanted_device


@functools.cache
def devices() -> tuple[DeviceReport, ...]:
    """What discovery finds."""
    return tuple(discover())


def device() -> DeviceReport:
    """The device that gputune chooses here. Raises DeviceNotFound."""
    return choose(devices(), wanted_device(None)).report


@contextlib.contextmanager
def few_rounds() -> Iterator[None]:
    """Lets whole contexts of a model take turns as seldom as can be; what longer comparisons lead to is tested where
    times are made up."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("gputune.client.context.elimination.CHECKS", (3,))
        patched.setattr("gputune.client.context.context_runner.ROUNDS", 3)
        yield
