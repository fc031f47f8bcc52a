"""Read the energy meters of NVIDIA's GPUs through their driver's library (NVML), if it is installed."""

import ctypes
from collections.abc import Callable
from typing import Any

from gputune.client.run.throughput.meters import Energy, EnergyCounter, Meter, PowerGauge

LIBRARY = "libnvidia-ml.so.1"
_MILLI = 1e-3
_NAME_BYTES = 96
_NOT_SUPPORTED = 3


def find_gpus(library: str = LIBRARY, load: Callable[[str], Any] = ctypes.CDLL) -> Energy:
    """Return a meter for each GPU: its count of energy since its driver was loaded, on those that have none (before
    Volta) its power. Without the library there is none, and no problem either."""
    try:
        nvml = load(library)
    except OSError:
        return Energy()
    count = ctypes.c_uint()
    if error := nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return Energy(problems=[f"{library}: it finds no GPU (error {error})"])
    energy = Energy([_meter(nvml, library, index) for index in range(count.value)])
    energy.begin()
    return energy


def _meter(nvml: Any, library: str, index: int) -> Meter:
    handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(_NAME_BYTES)
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(_NAME_BYTES))
    said, source = f"nvml {index} {name.value.decode(errors='replace')}", f"{library} GPU {index}"
    total = _reader(nvml.nvmlDeviceGetTotalEnergyConsumption, handle, ctypes.c_ulonglong)
    try:
        total()
    except OSError as error:
        if error.errno == _NOT_SUPPORTED:
            return PowerGauge(said, source, _reader(nvml.nvmlDeviceGetPowerUsage, handle, ctypes.c_uint))
    return EnergyCounter(said, source, total)


def _reader(
    function: Callable[..., int], handle: ctypes.c_void_p, kind: type[ctypes.c_uint | ctypes.c_ulonglong]
) -> Callable[[], float]:
    """Return what reads millijoules as joules, or milliwatts as watts. It raises OSError."""

    def read() -> float:
        value = kind()
        if error := function(handle, ctypes.byref(value)):
            raise OSError(error, f"NVML error {error}")
        return value.value * _MILLI

    return read
