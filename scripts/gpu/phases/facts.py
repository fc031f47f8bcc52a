"""Record what the device and the machine are, and which features compute what they promise.

Features are probed in a process of their own. If a feature crashes or hangs, the next process continues after it.
"""

from __future__ import annotations

import json
import os
import platform
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from gpu.card import said
from gpu.device import PROGRAMS, Device, address_of, cl
from gpu.record import Record, brief, run

PROBE_S = 10.0
PROBING = "--probe"
SIZE = 64
CL2, CL3 = "-cl-std=CL2.0", "-cl-std=CL3.0"
PACKAGES = ("pyopencl", "numpy", "torch", "torchvision", "onnx", "onnxruntime", "triton", "cupy-cuda13x", "pytest")
SMI = "name,driver_version,pstate,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu,memory.used"
NV = {
    "COMPUTE_CAPABILITY_MAJOR": 0x4000,
    "COMPUTE_CAPABILITY_MINOR": 0x4001,
    "REGISTERS_PER_BLOCK": 0x4002,
    "WARP_SIZE": 0x4003,
    "GPU_OVERLAP": 0x4004,
    "KERNEL_EXEC_TIMEOUT": 0x4005,
    "INTEGRATED_MEMORY": 0x4006,
    "ATTRIBUTE_ASYNC_ENGINE_COUNT": 0x4007,
    "PCI_BUS_ID": 0x4008,
    "PCI_SLOT_ID": 0x4009,
}


def main(record: Record) -> None:
    """Keeps facts first, then probes."""
    device = Device()
    record.attempt("device", lambda: device_info(device))
    record.attempt("machine", machine)
    left = [name for name in PROBES if device.nvidia or not name.startswith("ptx")]  # others may ignore PTX
    while left and record.left > 0.5:
        _probe_all(left, record)
    probed: Mapping[str, Any] = {name: record.get("probes", name) for name in PROBES}
    right = [name for name, found in probed.items() if found and found.get("works")]
    record.say(f"works: {', '.join(right)}")
    record.say(f"does not: {', '.join(name for name in PROBES if name not in right)}")
    record.attempt("compiler", lambda: compiler(device, record.folder))


def device_info(device: Device) -> dict[str, Any]:
    """Return all that clGetDeviceInfo answers."""
    names = {name: getattr(cl.device_info, name) for name in dir(cl.device_info) if name.isupper()}
    names |= {f"NV_{name}": number for name, number in NV.items()}
    found: dict[str, Any] = {}
    for name, number in names.items():
        try:
            value = device.device.get_info(number)
        except Exception as error:
            value = f"error: {brief(error)}"[:80] if not name.endswith(("_QCOM", "_AMD", "_ARM", "_INTEL")) else None
        if value is not None:
            found[name] = value if isinstance(value, int | float | str | bool) else str(value)
    found["platform_extensions"] = device.device.platform.extensions
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
    tools = {name: said("which", name).strip() for name in ("ncu", "nvcc", "ptxas", "cuobjdump", "cuda-gdb", "cc")}
    variables = ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "LD_LIBRARY_PATH", "CUDA_CACHE_PATH", "CUDA_CACHE_DISABLE")
    return {
        "python": sys.version,
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "processor": cpu.partition(":")[2].strip(),
        "packages": versions,
        "tools": tools,
        "nvidia_smi": said("nvidia-smi", f"--query-gpu={SMI}", "--format=csv").splitlines(),
        "variables": {name: os.environ.get(name) for name in variables},
        "home": os.environ.get("HOME"),
    }


def compiler(device: Device, folder: Path) -> dict[str, Any]:
    """Return what options the compiler takes, what it says of a kernel, and what kind of binary it makes."""
    source = (PROGRAMS / "gemm_local.cl").read_text()
    defines = {"BM": 64, "BN": 64, "BK": 8, "LM": 16, "LN": 16, "VW": 4, "STAGES": 2, "PAD": 4, "BAND": 1}
    found: dict[str, Any] = {}
    for option in ("-cl-nv-verbose", "-cl-nv-maxrregcount=64", "-cl-nv-opt-level=3", "-cl-nv-arch sm_90a", CL2, CL3):
        start = time.perf_counter()
        try:
            program = device.build(source, option, **defines)
            log = device.log_of(program).strip()
            found[option] = {"builds": True, "log": log[:600], "seconds": round(time.perf_counter() - start, 3)}
        except Exception as error:
            found[option] = {"builds": False, "log": brief(error)}
    binary = device.build(source, "", **defines).get_info(cl.program_info.BINARIES)[0]
    (folder / "gemm_local.binary").write_bytes(binary)
    found["binary"] = [line.decode(errors="replace") for line in binary[:400].splitlines()[:12]]
    return found


# --- features ---


def _probe_all(left: list[str], record: Record) -> None:
    """Probes what is left in a process; takes from the list what it has answered for, or died of."""
    environment = {**os.environ, "PROBES": ",".join(left)}
    command = [sys.executable, "-X", "faulthandler", "-m", "gpu.phases.facts", PROBING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, bufsize=0) as process:
        assert process.stdout is not None
        answers = selectors.DefaultSelector()
        answers.register(process.stdout, selectors.EVENT_READ)
        while left:
            ready = answers.select(min(PROBE_S, max(record.left, 0.1)))
            line = process.stdout.readline() if ready else b""
            if not line:
                process.kill()
                how = f"the process ended with {process.wait()}" if ready else "no answer in time"
                record.put("probes", left.pop(0), value={"works": False, "detail": how})
                return
            name, _, found = line.decode(errors="replace").partition(" ")
            if name in left:
                left.remove(name)
                record.put("probes", name, value=json.loads(found))


def _answer() -> None:
    """Probes what PROBES names, one line each."""
    device = Device()
    for name in os.environ["PROBES"].split(","):
        try:
            detail = PROBES[name](device, name)
            found = {"works": True, "detail": detail}
        except Exception as error:
            found = {"works": False, "detail": brief(error)}
        print(name, json.dumps(found, default=str), flush=True)


def _run(device: Device, name: str, a: Any, out: Any, size: int = SIZE, options: str = "", **defines: int) -> Any:
    """Builds a probe and runs it on an array; what it has written."""
    program = _program(device, name, options, **defines)
    target = device.upload(np.full_like(out, 77))
    device.event_us(device.kernel(program, "probe", device.upload(a), target), (size,), (min(size, SIZE),))
    return device.read(target, out.dtype, out.size)


def _program(device: Device, name: str, options: str, **defines: int) -> Any:
    source = (PROGRAMS / "probes.cl").read_text()
    return device.build(source, f"-DPROBE_{name} {options}", **defines)


def _expect(got: Any, want: Any, relative: float = 0.0) -> str:
    """Raises AssertionError where numbers are not as they must be; the largest difference in words."""
    off = float(np.abs(got.astype(np.float64) - want).max())
    assert off <= relative * float(np.abs(want).max()), f"wrong by {off}: {got.ravel()[:4]}, not {want.ravel()[:4]}"
    return f"off by {off:.1e}"


def _floats(count: int) -> Any:
    return np.random.default_rng(3).standard_normal(count).astype(np.float32)


def _whole(count: int) -> Any:
    return np.random.default_rng(4).integers(-4, 5, count)


def half_arithmetic(device: Device, name: str) -> str:
    a = _floats(2 * SIZE)
    x, y = (part.astype(np.float16).astype(np.float64) for part in (a[:SIZE], a[SIZE:]))
    return _expect(_run(device, name, a, np.empty(SIZE, np.float32)), x * y + x, 2e-3)


def half_storage(device: Device, name: str) -> str:
    a = _floats(4 * SIZE).astype(np.float16)
    out = np.empty(4 * SIZE, np.float16 if name == "half_storage" else np.float32)
    return _expect(_run(device, name, a, out), a.astype(np.float64) * 2)


def subgroups(device: Device, name: str) -> str:
    a = _floats(SIZE)
    got = _run(device, name, a, np.empty(2 * SIZE, np.float32), options=CL3 if "3." in device.device.version else CL2)
    width = int(got[SIZE])
    want = a.astype(np.float64).reshape(-1, width).sum(1).repeat(width)
    return f"of {width}, {_expect(got[:SIZE], want, 1e-6)}"


def shuffle(device: Device, name: str) -> str:
    a = _floats(SIZE)
    options = (CL3 if "3." in device.device.version else CL2) if name == "subgroup_shuffle" else ""
    return _expect(
        _run(device, name, a, np.empty(SIZE, np.float32), options=options), a.reshape(-1, 2)[:, ::-1].ravel()
    )


def mma_tf32(device: Device, name: str) -> str:
    a = _whole(128 + 64).astype(np.float32)
    want = a[:128].reshape(16, 8).astype(np.float64) @ a[128:].reshape(8, 8)
    return _expect(_run(device, name, a, np.empty(128, np.float32), size=32), want.ravel())


def mma_16(device: Device, name: str) -> str:
    whole = _whole(256 + 128).astype(np.float32)
    bits = (whole.view(np.uint32) >> 16).astype(np.uint16) if "bf16" in name else whole.astype(np.float16)
    want = whole[:256].reshape(16, 16).astype(np.float64) @ whole[256:].reshape(8, 16).T
    return _expect(_run(device, name, bits.view(np.uint32), np.empty(128, np.float32), size=32), want.ravel())


def cp_async(device: Device, name: str) -> str:
    a = _floats(128)
    return _expect(_run(device, name, a, np.empty(128, np.float32), size=32), a[::-1].astype(np.float64))


def copied_twice(device: Device, name: str) -> str:
    a = _floats(SIZE)
    options = "" if name.startswith("ptx") else CL3
    got = _run(device, name, a, np.empty(2 * SIZE, np.float32), options=options)
    return _expect(got[: 2 * SIZE if "fence" in name else SIZE], np.tile(a, 2 if "fence" in name else 1))


def atomics(device: Device, name: str) -> str:
    got = _run(device, name, _floats(SIZE), np.full(2 * SIZE, 0, np.uint32), options=CL3)
    return _expect(got[SIZE : SIZE + 1], np.array([77 + SIZE]))


def clocks(device: Device, name: str) -> str:
    got = _run(device, name, _floats(1), np.empty(3 * 4096, np.uint64), size=4096).reshape(-1, 3)
    assert got[:, 0].min() > 0, got[:4]
    steps = np.unique(np.diff(np.unique(got[:, 0])))
    return f"timer steps {steps[:5].tolist()} ns, {len(np.unique(got[:, 2]))} multiprocessors"


def local_address(device: Device, name: str) -> str:
    got = _run(device, name, _floats(1), np.empty(SIZE, np.uint64), size=SIZE)
    return f"begins at {int(got[0]):#x}, steps of {int(got[1] - got[0])}"


def copied(device: Device, name: str) -> str:
    a = _floats(SIZE)
    return _expect(_run(device, name, a, np.empty(SIZE, np.float32)), a.astype(np.float64))


def int_dot(device: Device, name: str) -> str:
    a = np.random.default_rng(5).integers(-128, 128, (2 * SIZE, 4)).astype(np.int8)
    want = (a[:SIZE].astype(np.int64) * a[SIZE:]).sum(1)
    options = CL3 if name == "int_dot" else ""
    return _expect(_run(device, name, a.ravel().view(np.uint32), np.empty(SIZE, np.int32), options=options), want)


def svm_interior(device: Device, name: str) -> str:
    flags = cl.svm_mem_flags.READ_WRITE
    base = cl.SVMAllocation(device.context, 1 << 16, 0, flags, queue=device.queue)
    program, a = _program(device, name, ""), _floats(SIZE)
    first, second = base.svm_ptr + 68, base.svm_ptr + 8192 + 20
    target = device.empty(4 * SIZE)
    steps = ((device.upload(a), first), (first, second), (second, target))
    for source, to in steps:
        device.event_us(device.kernel(program, "probe", source, to), (SIZE,), (SIZE,))
    return _expect(device.read(target, np.float32, SIZE), a.astype(np.float64) * 8)


def image_from_buffer(device: Device, name: str) -> str:
    width, rows = 64, 4
    a = _floats(width * rows * 4)
    shape = cl.ImageDescriptor()
    shape.image_type, shape.shape = cl.mem_object_type.IMAGE2D, (width, rows, 1)
    shape.pitches, shape.array_size = (16 * width, 0), 0
    buffer = device.upload(a)
    shape.buffer = buffer
    kind = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    image = cl.Image(device.context, cl.mem_flags.READ_ONLY, kind, desc=shape)
    target = device.empty(a.nbytes)
    device.event_us(device.kernel(_program(device, name, ""), "probe", image, target), (width * rows,), (SIZE,))
    return _expect(device.read(target, np.float32, a.size), a.astype(np.float64))


def local_memory(device: Device, name: str) -> str:
    """Static local memory and an argument of it, of rising size; the message where one is refused."""
    said_of, a = {}, _floats(SIZE)
    for kib in (48, 49, 64, 100, 227):
        try:
            if name == "local_memory":
                got = _run(device, name, a, np.empty(SIZE, np.float32), BYTES=kib << 10)
            else:
                target, room = device.empty(4 * SIZE), (cl.LocalMemory(kib << 10), np.int32(kib << 8))
                kernel = device.kernel(_program(device, name, ""), "probe", device.upload(a), target, *room)
                device.event_us(kernel, (SIZE,), (SIZE,))
                got = device.read(target, np.float32, SIZE)
            said_of[kib] = _expect(got, a[::-1].astype(np.float64))
        except Exception as error:
            said_of[kib] = brief(error)[-120:]
            break
    assert list(said_of) != [48], said_of
    return json.dumps(said_of)


def command_buffer(device: Device, name: str) -> str:
    extensions = device.device.extensions.split()
    found = [one for one in extensions if "command_buffer" in one or "recordable" in one]
    assert found, "not in the list of extensions"
    return (
        f"{found}, clGetExtensionFunctionAddressForPlatform at {address_of('clGetExtensionFunctionAddressForPlatform')}"
    )


def wide_access(device: Device, name: str) -> str:
    a = _floats(4 * SIZE)
    return _expect(_run(device, name, a, np.empty(4 * SIZE, np.float32)), a.astype(np.float64) * 2)


PROBES: Mapping[str, Callable[[Device, str], str]] = {
    "half_storage": half_storage,
    "half_cast": half_storage,
    "wide_access": wide_access,
    "svm_interior": svm_interior,
    "image_from_buffer": image_from_buffer,
    "local_memory": local_memory,
    "local_argument": local_memory,
    "half_arithmetic": half_arithmetic,
    "subgroups": subgroups,
    "subgroup_shuffle": shuffle,
    "int_dot": int_dot,
    "device_fence": copied_twice,
    "device_atomics": atomics,
    "command_buffer": command_buffer,
    "ptx_shuffle": shuffle,
    "ptx_mma_tf32": mma_tf32,
    "ptx_mma_f16": mma_16,
    "ptx_mma_bf16": mma_16,
    "ptx_ldmatrix": mma_16,
    "ptx_local_address": local_address,
    "ptx_cp_async": cp_async,
    "ptx_fence": copied_twice,
    "ptx_clock": clocks,
    "ptx_int_dot": int_dot,
    "ptx_tma": copied,
    "ptx_wgmma": copied,
}
"""By name; each returns a detail in words and raises where the feature is missing or computes wrongly."""


if __name__ == "__main__":
    _answer() if PROBING in sys.argv else run(main)
