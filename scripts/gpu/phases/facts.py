"""Record what the device and the machine are."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gpu.card import said
from gpu.device import Device, cl
from gpu.record import Record, brief, run

PACKAGES = ("pyopencl", "numpy", "torch", "torchvision", "onnx", "onnxruntime", "triton", "pytest")
SMI = "name,driver_version,pstate,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu,memory.used"
MAKERS = ("_QCOM", "_AMD", "_ARM", "_INTEL")
NV = {"NV_REGISTERS_PER_BLOCK": 0x4002, "NV_WARP_SIZE": 0x4003}
"""What pyopencl has no names for."""


def main(record: Record) -> None:
    """Keep both."""
    record.attempt("device", lambda: device_info(Device()))
    record.attempt("machine", machine)


def device_info(device: Device) -> dict[str, Any]:
    """Return all that clGetDeviceInfo answers."""
    names = {name: getattr(cl.device_info, name) for name in dir(cl.device_info) if name.isupper()}
    found: dict[str, Any] = {}
    for name, number in {**names, **NV}.items():
        try:
            value = device.device.get_info(number)
        except Exception as error:
            value = None if name.endswith(MAKERS) else f"error: {brief(error)}"[:80]
        if value is not None:
            found[name] = value if isinstance(value, int | float | str | bool) else str(value)
    return found


def machine() -> dict[str, Any]:
    """Return what surrounds the device."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = ""
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "")
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "processor": cpu.partition(":")[2].strip(),
        "packages": versions,
        "nvidia_smi": said("nvidia-smi", f"--query-gpu={SMI}", "--format=csv").splitlines(),
    }


if __name__ == "__main__":
    run(main)
