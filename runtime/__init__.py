"""Touch the device: backends, building, verifying and measuring kernels, and running context binaries.

An application needs only this package:

    gputune.runtime.load("context.bin").run({"x": array})
"""

from gputune.core.errors import (
    BuildFailed,
    CannotImport,
    ChecksumMismatch,
    ContextError,
    DeviceError,
    DeviceNotFound,
    FileChanged,
    InvalidLaunch,
    LaunchFailed,
    LimitExceeded,
    MalformedEpContext,
    MalformedHeader,
    MalformedPackage,
    MemoryClosed,
    MemoryInUse,
    NotAContext,
    OnlyParts,
    Truncated,
    UnsupportedFormatVersion,
    UnusableMemory,
    WrongDevice,
)
from gputune.runtime.execution.executor import Executor
from gputune.runtime.execution.groups import ContextGroup, GroupMemory, load_group
from gputune.runtime.execution.loading import load
from gputune.runtime.execution.persistent import Runs
from gputune.runtime.execution.pipeline import Pipeline, pipeline
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.profiling.profiler import Observer, Profiler

__all__ = [
    "BuildFailed",
    "CannotImport",
    "ChecksumMismatch",
    "ContextError",
    "ContextGroup",
    "DeviceError",
    "DeviceNotFound",
    "Executor",
    "FileChanged",
    "GroupMemory",
    "InvalidLaunch",
    "LaunchFailed",
    "LimitExceeded",
    "MalformedEpContext",
    "MalformedHeader",
    "MalformedPackage",
    "MemHandle",
    "MemoryClosed",
    "MemoryInUse",
    "NotAContext",
    "Observer",
    "OnlyParts",
    "PerfProfile",
    "Pipeline",
    "Profiler",
    "Runs",
    "Truncated",
    "UnsupportedFormatVersion",
    "UnusableMemory",
    "WrongDevice",
    "load",
    "load_group",
    "pipeline",
]
