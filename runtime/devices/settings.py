"""Name the settings of a process that a measurement depends on: environment variables, and scarce processors.

A measurement is valid only where these settings are equal. core/quirks.py lists for each driver the variables that
change its code or its time; a variable that is not listed is no setting. Variables that bound memory or the size of
work-groups filter what can run, as every device limit does. Variables that choose a device or hide some of its cores
show in the device's name and compute units.

If affinity or a control group's quota leaves fewer processors than compute units, times double and other variants win;
so their number is a setting (PROCESSORS). Threads are asked and not the process, because PoCL's threads bind themselves
with POCL_AFFINITY=1. Which processors they are does not matter: equal cores give equal times.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from gputune.core.quirks import DRIVERS
from gputune.runtime.devices.load import usable_processors

OF_THE_LOADER: Mapping[str, str] = {"OPENCL_LAYERS": "libraries between a program and its driver"}

PROCESSORS = "gputune.processors"
"""The setting that says how many processors a CPU device's process may use, where they are fewer than its compute
units."""


def deciding(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that measurements depend on."""
    return {name: environment[name] for name in sorted(environment) if decides(name)}


def decides(name: str) -> bool:
    """Return whether measurements depend on a variable."""
    return _is_in(name, OF_THE_LOADER) or any(
        _is_in(name, driver.deciding) and not _is_in(name, driver.not_deciding) for driver in DRIVERS
    )


def scarce_processors(compute_units: int, root: Path = Path("/")) -> dict[str, str]:
    """Return the setting PROCESSORS for a CPU device, nothing where each compute unit has a processor.

    A driver counts a machine's processors, not those that its threads may use (taskset) nor the share of time that a
    control group grants (a container's --cpus). With fewer of them, groups of a launch wait for each other's processor:
    other times, and other winners."""
    usable = usable_processors(root)
    return {PROCESSORS: f"{round(usable, 2):g}"} if usable < compute_units else {}


def _is_in(name: str, patterns: Mapping[str, str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@contextlib.contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a moment; loader and drivers read them at their first call only."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
