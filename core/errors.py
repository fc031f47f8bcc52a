"""Define what can go wrong on a device or with a context file; every error has a name and is one clear line."""

from collections.abc import Iterable
from typing import ClassVar

from gputune.core.statuses import TrialStatus

NAMES_TOLD = 8
NAME_CHARACTERS = 200


class DeviceNotFound(Exception):
    """No usable device, or none that matches what was asked for."""


class DeviceError(Exception):
    """A launch could not be built or run; `status` is the status its trial is recorded with."""

    status: ClassVar[TrialStatus] = "runtime"


class LaunchFailed(DeviceError):
    """The driver refused or lost a launch, or its arguments do not fit the kernel."""

    status = "runtime"


class BuildFailed(DeviceError):
    """The driver's compiler refused a source text; the message holds the shortened build log."""

    status = "compile"


class LimitExceeded(DeviceError):
    """More was asked for than the device has; the message names both numbers."""

    status = "device_limits"


class InvalidLaunch(DeviceError):
    """Sizes that no device would accept, such as a global size that the local size does not divide."""

    status = "constraints"


class ForkedProcess(DeviceError):
    """A fork uses what the process that it was forked from has opened."""


class UnusableMemory(DeviceError):
    """A descriptor, an array or a size that no memory handle can be made of, or a use that does not fit a handle."""


class MemoryClosed(DeviceError):
    """A memory handle is used after it was closed."""


class MemoryInUse(DeviceError):
    """A memory handle is to be closed while a device's buffer or a registration still holds it."""


class CannotImport(DeviceError):
    """A device cannot use memory as it lies; the message says of every importer why."""


class CannotMark(DeviceError):
    """Persistent kernels cannot mark when their launches began and ended; the message says why, for a sentence."""


class MalformedLog(Exception):
    """A profile log or a schematic that is none, or says something that cannot be; the message says where."""


class ContextClosed(DeviceError):
    """A loaded context is used after it was closed."""


class ContextError(Exception):
    """A context binary cannot be used; `name` says why in one word."""

    name: ClassVar[str] = "context_error"


class NotAContext(ContextError):
    name = "not_a_context"


class UnsupportedFormatVersion(ContextError):
    name = "unsupported_format_version"


class Truncated(ContextError):
    name = "truncated"


class ChecksumMismatch(ContextError):
    name = "checksum_mismatch"


class MalformedHeader(ContextError):
    name = "malformed_header"


class MalformedEpContext(ContextError):
    """An ONNX file, whose EPContext nodes should hold or name context binaries, cannot be used."""

    name = "malformed_ep_context"


class MalformedPackage(ContextError):
    """A package of contexts cannot be used, or contexts do not go into one."""

    name = "malformed_package"


class WrongDevice(ContextError):
    """The context was made for another device or driver, and that matters here."""

    name = "wrong_device"


class ArenaTooSmall(ContextError):
    """A context needs more memory than the group has that it is to join."""

    name = "arena_too_small"


class UntrustedFile(ContextError):
    """Another user could change the file, and what is in it would run as this one."""

    name = "untrusted_file"


class FileChanged(ContextError):
    """The file was written over or cut short while it was open, and what is needed of it is not what was checked."""

    name = "file_changed"


class UnknownGraph(ValueError):
    """A context has no graph of the name that was asked for; the message has those that it has."""


def shortened(names: Iterable[str]) -> str:
    """Names for a message, sorted: not all of them when there are many, and not all of a long one."""
    known = sorted(names)
    told = ", ".join(repr(name[:NAME_CHARACTERS]) for name in known[:NAMES_TOLD])
    return f"{told} and {len(known) - NAMES_TOLD} more" if len(known) > NAMES_TOLD else told or "none"
