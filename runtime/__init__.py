"""Touch the device: backends, building, verifying and measuring kernels, and running context binaries.

An application needs only this package:

    gputune.runtime.load("context.bin").run({"x": array})

Importing it loads nothing: each part is loaded when it is first used (PEP 562). Commands, servers and probes need a few
modules below it, and do not wait for all others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputune.core.errors import BuildFailed as BuildFailed
    from gputune.core.errors import CannotImport as CannotImport
    from gputune.core.errors import ChecksumMismatch as ChecksumMismatch
    from gputune.core.errors import ContextError as ContextError
    from gputune.core.errors import DeviceError as DeviceError
    from gputune.core.errors import DeviceNotFound as DeviceNotFound
    from gputune.core.errors import FileChanged as FileChanged
    from gputune.core.errors import InvalidLaunch as InvalidLaunch
    from gputune.core.errors import LaunchFailed as LaunchFailed
    from gputune.core.errors import LimitExceeded as LimitExceeded
    from gputune.core.errors import MalformedEpContext as MalformedEpContext
    from gputune.core.errors import MalformedHeader as MalformedHeader
    from gputune.core.errors import MalformedPackage as MalformedPackage
    from gputune.core.errors import MemoryClosed as MemoryClosed
    from gputune.core.errors import MemoryInUse as MemoryInUse
    from gputune.core.errors import NotAContext as NotAContext
    from gputune.core.errors import OnlyParts as OnlyParts
    from gputune.core.errors import Truncated as Truncated
    from gputune.core.errors import UnsupportedFormatVersion as UnsupportedFormatVersion
    from gputune.core.errors import UnusableMemory as UnusableMemory
    from gputune.core.errors import WrongDevice as WrongDevice
    from gputune.runtime.executor import Executor as Executor
    from gputune.runtime.executor import Runs as Runs
    from gputune.runtime.loading.groups import ContextGroup as ContextGroup
    from gputune.runtime.loading.groups import GroupMemory as GroupMemory
    from gputune.runtime.loading.groups import load_group as load_group
    from gputune.runtime.loading.model import load as load
    from gputune.runtime.loading.pipeline import Pipeline as Pipeline
    from gputune.runtime.loading.pipeline import pipeline as pipeline
    from gputune.runtime.memory.handles import MemHandle as MemHandle
    from gputune.runtime.power.profiles.perf_profile import PerfProfile as PerfProfile
    from gputune.runtime.profiling.observers import Observer as Observer
    from gputune.runtime.profiling.profiler import Profiler as Profiler

_PLACES = {
    "BuildFailed": "core.errors",
    "CannotImport": "core.errors",
    "ChecksumMismatch": "core.errors",
    "ContextError": "core.errors",
    "ContextGroup": "runtime.loading.groups",
    "DeviceError": "core.errors",
    "DeviceNotFound": "core.errors",
    "Executor": "runtime.executor",
    "FileChanged": "core.errors",
    "GroupMemory": "runtime.loading.groups",
    "InvalidLaunch": "core.errors",
    "LaunchFailed": "core.errors",
    "LimitExceeded": "core.errors",
    "MalformedEpContext": "core.errors",
    "MalformedHeader": "core.errors",
    "MalformedPackage": "core.errors",
    "MemHandle": "runtime.memory.handles",
    "MemoryClosed": "core.errors",
    "MemoryInUse": "core.errors",
    "NotAContext": "core.errors",
    "Observer": "runtime.profiling.observers",
    "OnlyParts": "core.errors",
    "PerfProfile": "runtime.power.profiles.perf_profile",
    "Pipeline": "runtime.loading.pipeline",
    "Profiler": "runtime.profiling.profiler",
    "Runs": "runtime.executor",
    "Truncated": "core.errors",
    "UnsupportedFormatVersion": "core.errors",
    "UnusableMemory": "core.errors",
    "WrongDevice": "core.errors",
    "load": "runtime.loading.model",
    "load_group": "runtime.loading.groups",
    "pipeline": "runtime.loading.pipeline",
}
"""The module below gputune where each name is."""

__all__ = [*_PLACES]


def __getattr__(name: str) -> Any:
    """Load what is asked for first. Raises AttributeError for other names."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"gputune.{_PLACES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
