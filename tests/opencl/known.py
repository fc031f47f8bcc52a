"""Say what a device is known for, on which the C runtime decides."""

import platform
import re

from gputune.core.identity import DeviceIdentity
from gputune.core.quirks import POCL, quirks_of


def reads_in_place(identity: DeviceIdentity) -> bool:
    """Return whether kernels read memory of the host where it lies, with no command between what the host writes and a
    launch."""
    is_cpu = identity.device_type == "cpu" and quirks_of(identity) is POCL
    return is_cpu and re.match("pthread-|cpu-", identity.name) is not None


def has_ticks(identity: DeviceIdentity) -> bool:
    """Return whether kernels can read a clock."""
    by_compiler = identity.device_type == "cpu" and quirks_of(identity) is POCL and platform.machine() == "x86_64"
    return by_compiler or "cl_khr_kernel_clock" in identity.extensions
