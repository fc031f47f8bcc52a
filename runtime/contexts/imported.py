"""Hold a handle's memory as a device uses it, for an application that gives the device commands of its own."""

from __future__ import annotations

from gputune.core.errors import CannotImport
from gputune.runtime.memory.handles import Lease, MemHandle
from gputune.runtime.native.memory import Memory


class Imported:
    """A handle's memory as a device's buffer. As long as this lives, the handle cannot be closed.

    Attributes:
        importer: the name of the way in which the device took it.
        coherent: whether host and device see the same once the device has finished. Else the host may touch the memory
            only between begin_host_access and end_host_access.
        handle: whose memory it is.
        cl_mem: the buffer, in the device's context.
    """

    def __init__(self, handle: MemHandle, memory: Memory, own: bool, lease: Lease) -> None:
        """own: whether the memory was made for this object. Raises CannotImport if it would be copied, DeviceError."""
        self.handle, self.importer, self._memory = handle, memory.importer, memory
        kind = memory.kind
        if not self.importer:
            lease.release()
            if own:
                memory.close()
            raise CannotImport(kind)
        self.coherent = kind == "shared"
        self.cl_mem = memory.cl_mem
        self._lease = lease  # behind the memory, so that it is given up after that
        memory.end_host()

    def begin_host_access(self) -> None:
        """Let the host use it once the device has finished. Raises DeviceError."""
        self._memory.begin_host()

    def end_host_access(self) -> None:
        """Give it back to the device. Raises DeviceError."""
        self._memory.end_host()
