"""The device that tests run on, looked for once: discovery builds and runs a kernel in a process per driver."""

import functools

from gputune.runtime.devices import DeviceReport, choose, discover, wanted_device


@functools.cache
def devices() -> tuple[DeviceReport, ...]:
    """What discovery finds."""
    return tuple(discover())


def device() -> DeviceReport:
    """The device that gputune chooses here. Raises DeviceNotFound."""
    return choose(devices(), wanted_device(None)).report
