"""What touches the device: backends, building, verifying, measuring, the context binary and its executor.

An application needs this package only:

    gputune.runtime.load("context.bin").run({"x": array})
"""

from gputune.core.errors import (
    BuildFailed,
    ChecksumMismatch,
    ContextError,
    DeviceError,
    DeviceNotFound,
    InvalidLaunch,
    LaunchFailed,
    LimitExceeded,
    MalformedEpContext,
    MalformedHeader,
    NotAContext,
    Truncated,
    UnsupportedFormatVersion,
    WrongDevice,
)
from gputune.runtime.execution.executor import Executor
from gputune.runtime.execution.groups import ContextGroup, GroupMemory, load_group
from gputune.runtime.execution.loading import load
from gputune.runtime.execution.persistent import Runs

__all__ = [
    "BuildFailed",
    "ChecksumMismatch",
    "ContextError",
    "ContextGroup",
    "DeviceError",
    "DeviceNotFound",
    "Executor",
    "GroupMemory",
    "InvalidLaunch",
    "LaunchFailed",
    "LimitExceeded",
    "MalformedEpContext",
    "MalformedHeader",
    "NotAContext",
    "Runs",
    "Truncated",
    "UnsupportedFormatVersion",
    "WrongDevice",
    "load",
    "load_group",
]
