"""Read the facts of a device that decide which memory it can import."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from gputune.core.identity import DeviceIdentity
from gputune.runtime.memory import opencl_calls as cl
from gputune.runtime.memory.handles import PAGE
from gputune.runtime.memory.opencl_calls import CallFailed, OpenCLCalls

CACHE_LINE = 64
"""Bytes, where a driver does not say."""


@dataclass(frozen=True)
class DeviceFacts:
    """What importers want to know of a device. Sizes are in bytes.

    unified: it has no memory of its own. page: its own page size; padding: what must lie behind memory that is given to
    it by descriptor (both Qualcomm's). dma_buf: it takes dma-bufs as external memory; host_usm: Intel's host memory.
    """

    extensions: frozenset[str]
    version: tuple[int, int]
    cpu: bool
    unified: bool
    alignment: int
    cache_line: int
    svm: int
    dma_buf: bool
    host_usm: bool
    page: int
    padding: int

    @classmethod
    def of(cls, calls: OpenCLCalls, identity: DeviceIdentity) -> DeviceFacts:
        """Ask a device. What it does not know, it does not have."""
        extensions = frozenset(identity.extensions)

        def asked(what: int, extension: str = "", default: int = 0) -> int:
            if extension and extension not in extensions:
                return default
            with contextlib.suppress(CallFailed):
                return calls.query_device(what)
            return default

        handles: list[int] = []
        if "cl_khr_external_memory_dma_buf" in extensions:
            with contextlib.suppress(CallFailed):
                handles = calls.query_list(cl.DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES)
        usm = asked(cl.DEVICE_HOST_MEM_CAPABILITIES, "cl_intel_unified_shared_memory")
        cpu = identity.device_type == "cpu"
        return cls(
            extensions=extensions,
            version=_version(identity.device_version),
            cpu=cpu,
            unified=cpu or bool(asked(cl.DEVICE_HOST_UNIFIED_MEMORY)),
            alignment=identity.base_address_alignment_bytes,
            cache_line=asked(cl.DEVICE_GLOBAL_MEM_CACHELINE_SIZE) or CACHE_LINE,
            svm=asked(cl.DEVICE_SVM_CAPABILITIES) if _version(identity.device_version) >= (2, 0) else 0,
            dma_buf=cl.EXTERNAL_MEMORY_HANDLE_DMA_BUF in handles,
            host_usm=bool(usm & cl.UNIFIED_SHARED_MEMORY_ACCESS),
            page=asked(cl.DEVICE_PAGE_SIZE, "cl_qcom_ext_host_ptr") or PAGE,
            padding=asked(cl.DEVICE_EXT_MEM_PADDING_IN_BYTES, "cl_qcom_ext_host_ptr"),
        )

    def lacks(self, *names: str) -> str:
        """Why the device cannot do what needs all these extensions; empty where it has them."""
        missing = [name for name in names if name not in self.extensions]
        return f"the device has no {missing[0]}" if missing else ""


def _version(text: str) -> tuple[int, int]:
    """Of "OpenCL 3.0 ...", (3, 0)."""
    try:
        major, minor = text.split()[1].split(".")[:2]
        return int(major), int(minor)
    except (IndexError, ValueError):
        return 1, 0
