"""Define what can go wrong on a device or with a context file; every error has a name and is one clear line."""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from gputune.core.statuses import TrialStatus

NAMES_TOLD = 8
NAME_CHARACTERS = 200


class DeviceNotFound(Exception):
    """Report that no usable device exists, or none that matches the request."""


class DeviceError(Exception):
    """Report that a launch could not be built or run; its trial is recorded with `status`."""

    status: ClassVar[TrialStatus] = "runtime"


class LaunchFailed(DeviceError):
    """Report that the driver refused or lost a launch, or that its arguments do not fit the kernel."""

    status = "runtime"


class BuildFailed(DeviceError):
    """Report that the driver's compiler refused a source text; the message holds the shortened build log."""

    status = "compile"


class LimitExceeded(DeviceError):
    """Report that a request exceeds what the device has; the message names both numbers."""

    status = "device_limits"


class InvalidLaunch(DeviceError):
    """Report sizes that no device would accept, such as a global size that is no multiple of the local size."""

    status = "constraints"


class ForkedProcess(DeviceError):
    """Report that a fork uses what its parent process has opened."""


class UnusableMemory(DeviceError):
    """Report a descriptor, array or size that cannot become a memory handle, or a use that does not fit a handle."""


class MemoryClosed(DeviceError):
    """Report that a memory handle was used after it was closed."""


class MemoryInUse(DeviceError):
    """Report an attempt to close a memory handle while a device's buffer or a registration still holds it."""


class CannotImport(DeviceError):
    """Report that a device cannot use memory in place; the message gives the reason for every importer."""


class CannotMark(DeviceError):
    """Report that persistent kernels cannot mark when their launches began and ended; the message is the reason, as a
    clause."""


class MalformedLog(Exception):
    """Report a file that is no profile log or schematic, or that contradicts itself; the message says where."""


class ContextClosed(DeviceError):
    """Report that a loaded context was used after it was closed."""


class ContextError(Exception):
    """Report that a context binary cannot be used; `name` gives the reason in one word."""

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
    """Report an ONNX file whose EPContext nodes should hold or name context binaries, but cannot be used."""

    name = "malformed_ep_context"


class OnlyParts(MalformedEpContext):
    """Report an ONNX file in which EPContext nodes are only parts of a model, if a whole context is needed."""


class MalformedPackage(ContextError):
    """Report that a package of contexts cannot be used, or that contexts cannot be in one package."""

    name = "malformed_package"


class WrongDevice(ContextError):
    """Report that the context was made for another device or driver, and that this matters here."""

    name = "wrong_device"


class ArenaTooSmall(ContextError):
    """Report that a context needs more memory than the group that it should join has."""

    name = "arena_too_small"


class UntrustedFile(ContextError):
    """Report a file that another user could change, although its content would run as this user."""

    name = "untrusted_file"


class FileChanged(ContextError):
    """Report that an open file was overwritten or cut short, and a needed part differs from what was checked."""

    name = "file_changed"


class UnknownGraph(ValueError):
    """Report that a context has no graph with the requested name; the message lists its graphs."""


def shortened(names: Iterable[str]) -> str:
    """Return names for a message, sorted: only some of many names, and only the start of a long name."""
    known = sorted(names)
    told = ", ".join(repr(name[:NAME_CHARACTERS]) for name in known[:NAMES_TOLD])
    return f"{told} and {len(known) - NAMES_TOLD} more" if len(known) > NAMES_TOLD else told or "none"


def error_named(name: str) -> type[Exception]:
    """Return the class for the name of an error of the C runtime, as gputune_code_name has it; LaunchFailed for a name
    that this version does not know."""
    return _NAMED.get(name, LaunchFailed)


def _of_kind(kind: type[ContextError]) -> Iterator[tuple[str, type[ContextError]]]:
    """Yield the errors of a kind by their names, the most general of a name last."""
    for narrower in kind.__subclasses__():
        yield from _of_kind(narrower)
    yield kind.name, kind


_NAMED: Mapping[str, type[Exception]] = {
    **dict(_of_kind(ContextError)),
    "invalid_argument": ValueError,
    "unknown_graph": UnknownGraph,
    "io_error": OSError,
    "out_of_memory": MemoryError,
    "device_not_found": DeviceNotFound,
    "build_failed": BuildFailed,
    "limit_exceeded": LimitExceeded,
    "launch_failed": LaunchFailed,
    "forked_process": ForkedProcess,
    "unusable_memory": UnusableMemory,
    "cannot_import": CannotImport,
    "invalid_launch": InvalidLaunch,
    "cannot_mark": CannotMark,
    "context_closed": ContextClosed,
}
