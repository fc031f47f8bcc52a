"""Open devices as this process sees them.

A backend is a file in this folder that defines `open_device`; a device's report names it.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from gputune.core.errors import DeviceNotFound
from gputune.runtime.backends.answers import Bounds, Bytes, Checked, Compared, Guards, Reference, Times, Timing
from gputune.runtime.backends.base import (
    LAUNCHES_ENQUEUED,
    Backend,
    Batch,
    Bound,
    Buffer,
    Program,
    Zone,
    buffers_of,
)
from gputune.runtime.backends.programs import ProgramCache
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.features import AskedOnce

__all__ = [
    "LAUNCHES_ENQUEUED",
    "Backend",
    "Batch",
    "Bound",
    "Bounds",
    "Buffer",
    "Bytes",
    "Checked",
    "Compared",
    "Guards",
    "Program",
    "ProgramCache",
    "Reference",
    "Times",
    "Timing",
    "Zone",
    "buffers_of",
    "open_backend",
]


def open_backend(report: DeviceReport, profiling: bool = True, compiled: Path | None = None) -> Backend:
    """Open a device in this process. `profiling` gives launches a device clock, which all
    methods that return times need. `compiled` is a private folder where a driver that can may keep what it has
    compiled, for every process that opens the device with the same folder.

    Only one OpenCL driver may live in a process: the first call decides which. Raises DeviceNotFound when the
    device is not there (any more), or when this process has already opened another driver.
    """
    if report.identity is None or not report.usable:
        raise DeviceNotFound(f"{report.title} is not usable: {report.reason}")
    module = importlib.import_module(f"{__name__}.{report.backend}")
    backend: Backend = module.open_device(report, profiling, compiled)
    backend.prove = AskedOnce(report)
    return backend
