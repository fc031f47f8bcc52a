"""List the OpenCL devices that a process sees. Only this file imports pyopencl."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Mapping
from ctypes import c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from gputune.core.quirks import unset_defaults

# Drivers read their variables when they are loaded. Caches of programs would hide what a variant costs to build.
os.environ.update(unset_defaults(os.environ))
os.environ["PYOPENCL_NO_CACHE"] = "1"

import pyopencl as cl
import pyopencl.invoker  # else the first kernel imports it, in the middle of a load

from gputune.core.identity import DeviceIdentity
from gputune.runtime.devices.drivers import drivers
from gputune.runtime.devices.settings import variables

__all__ = ["cl", "drivers", "identity_of", "query_kernel", "visible_devices"]


def visible_devices(environment: Mapping[str, str] | None = None) -> list[cl.Device]:
    """Return every device that this process sees, platform by platform. `environment` narrows that to one driver, if
    no driver has been opened in this process before. Raises ForkedProcess where one was before a fork."""
    drivers().check()
    devices: list[cl.Device] = []
    with variables(environment or {}):
        try:
            platforms = cl.get_platforms()
        except cl.Error:  # the loader's way to say that there is none
            return []
        for platform in {platform.int_ptr: platform for platform in platforms}.values():
            with contextlib.suppress(cl.Error):  # a platform without devices raises
                devices += platform.get_devices()
    return devices


def identity_of(device: cl.Device, driver: str) -> DeviceIdentity:
    """Return the identity of a device; `driver` is the name of its driver's .icd file."""
    kinds = {cl.device_type.GPU: "gpu", cl.device_type.CPU: "cpu"}
    work_items = [*device.max_work_item_sizes, 1, 1, 1]
    # Drivers that vectorise work-items themselves prefer scalars; how many floats a register holds is said elsewhere.
    native_width = device.native_vector_width_float if device.type & cl.device_type.CPU else 1
    return DeviceIdentity(
        platform=device.platform.name.strip(),
        platform_version=device.platform.version.strip(),
        name=device.name.strip(),
        vendor=device.vendor.strip(),
        driver_version=device.driver_version.strip(),
        device_version=device.version.strip(),
        device_type=next((name for kind, name in kinds.items() if device.type & kind), "accelerator"),
        compute_units=device.max_compute_units,
        max_work_group_size=device.max_work_group_size,
        max_work_item_sizes=(work_items[0], work_items[1], work_items[2]),
        local_memory_bytes=device.local_mem_size,
        global_memory_bytes=device.global_mem_size,
        max_allocation_bytes=device.max_mem_alloc_size,
        base_address_alignment_bytes=max(device.mem_base_addr_align // 8, 1),
        preferred_float_width=max(device.preferred_vector_width_float, native_width, 1),
        extensions=tuple(sorted(device.extensions.split())),
        driver=driver,
    )


@functools.cache
def _work_group_info() -> Any:
    """Return the function of the very library that pyopencl has loaded."""
    function = ctypes.CDLL(cl._cl.__file__).clGetKernelWorkGroupInfo
    function.restype = c_int32
    function.argtypes = c_void_p, c_void_p, c_uint32, c_size_t, c_void_p, c_void_p
    return function


def query_kernel(device: int, kernel: int, what: int) -> int | None:
    """Return a number that clGetKernelWorkGroupInfo gives, also one that pyopencl does not know; None if it fails."""
    value = c_uint64(0)
    code = _work_group_info()(kernel, device, what, ctypes.sizeof(value), ctypes.addressof(value), None)
    return None if code else value.value
