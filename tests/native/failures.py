"""Name what calls of the C runtime raise in Python."""

from gputune.core.errors import ContextError, DeviceError, DeviceNotFound

FAILURES = (ContextError, DeviceError, DeviceNotFound, ValueError, OSError, MemoryError)
