"""Measure products by tiles in local memory and by matrix units, in turns with PyTorch's, and check their accuracy."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu.device import PROGRAMS, Device, cl, in_turns
from gpu.record import Record, brief, run, spread

SIZES = (1024, 4096, 512, 2048)
SAMPLED_ROWS = 32
ROUNDS = 9
BUILDERS = 8


@dataclass(frozen=True)
class Kernel:
    """A product to be tried: its program, and what its macros are."""

    name: str
    program: str
    items: int
    defines: dict[str, int] = field(hash=False)

    def groups(self, size: int) -> int:
        """Return how many work-groups compute a product of this size."""
        return -(-size // self.defines["BM"]) * (size // self.defines["BN"])


def _local(bm: int, bn: int, bk: int, lm: int, ln: int, stages: int = 2, band: int = 8) -> Kernel:
    tile = {"BM": bm, "BN": bn, "BK": bk, "LM": lm, "LN": ln, "VW": 4, "STAGES": stages, "PAD": 4, "BAND": band}
    return Kernel(f"local {bm}x{bn}x{bk} {lm}x{ln} s{stages} b{band}", "gemm_local", lm * ln, tile)


def _matrix(bm: int, bn: int, bk: int, warps_m: int, warps_n: int, stages: int, terms: int = 3) -> Kernel:
    tile = {"BM": bm, "BN": bn, "BK": bk, "WARPS_M": warps_m, "WARPS_N": warps_n, "STAGES": stages, "BAND": 8}
    name = f"mma{terms} {bm}x{bn}x{bk} {warps_m}x{warps_n} s{stages}"
    return Kernel(name, "gemm_mma", 32 * warps_m * warps_n, {**tile, "TERMS": terms, "PENDING": stages - 2})


KERNELS = (
    _local(128, 64, 8, 16, 16),
    _local(128, 64, 16, 16, 16),
    _local(128, 64, 8, 16, 16, band=1),
    _local(128, 64, 8, 16, 16, stages=1),
    _local(64, 64, 16, 16, 16),
    _local(64, 64, 16, 16, 8),
    _local(64, 64, 32, 16, 8, stages=1),
    _local(128, 128, 8, 16, 16),
    _local(128, 128, 16, 16, 16),
    _local(64, 128, 8, 8, 16),
    _local(32, 64, 16, 8, 8),
    _matrix(128, 64, 16, 4, 2, 3),
    _matrix(64, 64, 16, 2, 2, 3),
    _matrix(64, 64, 32, 2, 2, 2),
    _matrix(128, 128, 16, 2, 4, 2),
    _matrix(128, 64, 16, 2, 2, 3),
    _matrix(128, 64, 16, 4, 2, 3, terms=1),
    _matrix(128, 128, 16, 2, 4, 2, terms=1),
)
REHEARSED = (_local(32, 32, 8, 8, 8, band=2), _matrix(32, 32, 16, 2, 1, 3))


def main(record: Record) -> None:
    """Goes from size to size; in each all kernels and PyTorch take turns."""
    device = Device()
    torch = None if record.rehearse else _torch(record)
    sizes = (64,) if record.rehearse else SIZES
    with ThreadPoolExecutor(BUILDERS) as threads:
        kernels = REHEARSED if record.rehearse else KERNELS
        programs = dict(
            zip(kernels, threads.map(lambda kernel: _program(device, kernel, record), kernels), strict=True)
        )
    for place, size in enumerate(sizes):
        share = record.left / (len(sizes) - place)
        if share > 1:
            _size(device, torch, size, programs, record, record.left - share)


def _program(device: Device, kernel: Kernel, record: Record) -> Any:
    """Builds a kernel for all sizes, and keeps what the compiler says; None where it cannot be built."""
    text = (PROGRAMS / f"{kernel.program}.cl").read_text()
    options = "-cl-nv-verbose" if device.nvidia else "-DEMULATED" if kernel.program == "gemm_mma" else ""
    start = time.perf_counter()
    try:
        program = device.build(text, options, **kernel.defines)
    except Exception as error:
        record.put("programs", kernel.name, value={"failed": brief(error)})
        return None
    log = [line.strip() for line in device.log_of(program).splitlines() if "sed " in line or "spill" in line]
    record.put("programs", kernel.name, value={"build_s": round(time.perf_counter() - start, 2), "log": log})
    return program


def _torch(record: Record) -> Any:
    try:
        torch = importlib.import_module("torch")
        return torch if torch.cuda.is_available() else None
    except ImportError as error:
        record.put("error", "torch", value=brief(error))
        return None


def _size(device: Device, torch: Any, size: int, programs: dict[Kernel, Any], record: Record, until: float) -> None:
    """Measures one size until no more seconds than `until` are left."""
    numbers = np.random.default_rng(size)
    a, b = (numbers.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    rows = np.sort(numbers.choice(size, min(SAMPLED_ROWS, size), replace=False))
    want = a[rows].astype(np.float64) @ b
    times = max(3, min(50, int(2e10 / size**3)))
    inputs, key = (device.upload(a), device.upload(b)), str(size)
    contenders: dict[str, Callable[[], float]] = {}
    for kernel, program in programs.items():
        if program is None or size % kernel.defines["BM"] or size % kernel.defines["BN"]:
            continue
        try:
            ready, output = _ready(device, kernel, program, size, inputs)
        except Exception as error:
            record.put("gemm", key, kernel.name, value={"failed": brief(error)})
            continue
        got = device.read(output, np.float32, size * size).reshape(size, size)[rows]
        record.put("gemm", key, kernel.name, "error", value=_off(got, want))
        contenders[kernel.name] = _wall(device, ready, times)
    contenders |= _torch_products(torch, a, b, rows, want, times, record, key) if torch else {}
    samples = in_turns(contenders, ROUNDS, lambda: record.left - until)
    best: dict[str, float] = {}
    for name, one in samples.items():
        told: Any = {"failed": one} if isinstance(one, str) else spread(one)
        record.put("gemm", key, name, "us", value=told)
        if told.get("median"):
            rate = 2 * size**3 / told["median"] / 1e6
            record.put("gemm", key, name, "tflops", value=round(rate, 2))
            kind = name.split()[0]
            best[kind] = max(best.get(kind, 0.0), rate)
    record.say(f"{size}: " + ", ".join(f"{kind} {rate:.1f} TFLOP/s" for kind, rate in best.items()))


def _ready(
    device: Device, kernel: Kernel, program: Any, size: int, inputs: tuple[Any, Any]
) -> tuple[Callable[[], Any], Any]:
    """A kernel that has run once: how to enqueue it again, and its output."""
    output = device.upload(np.full((size, size), np.nan, np.float32))
    ready = device.kernel(program, "gemm", *inputs, output, *(np.int32(size),) * 3)
    shape = (kernel.groups(size) * kernel.items,), (kernel.items,)
    device.event_us(ready, *shape)
    return lambda: cl.enqueue_nd_range_kernel(device.queue, ready, *shape), output


def _wall(device: Device, enqueue: Callable[[], Any], times: int) -> Callable[[], float]:
    return lambda: device.wall_us(enqueue, times)


def _off(got: Any, want: Any) -> float:
    """The largest deviation from float64, of the largest value; NaN stays."""
    return float(f"{np.abs(got.astype(np.float64) - want).max() / np.abs(want).max():.2e}")


def _torch_products(
    torch: Any, a: Any, b: Any, rows: Any, want: Any, times: int, record: Record, key: str
) -> dict[str, Callable[[], float]]:
    left, right = (torch.from_numpy(array).cuda() for array in (a, b))
    halves = left.half(), right.half()
    ways = {"torch_fp32": (left, right, False), "torch_tf32": (left, right, True), "torch_fp16": (*halves, False)}
    contenders = {}
    for name, (one, other, tf32) in ways.items():
        torch.backends.cuda.matmul.allow_tf32 = tf32
        got = (one @ other).float().cpu().numpy()[rows]
        record.put("gemm", key, name, "error", value=_off(got, want))
        contenders[name] = _torch_wall(torch, one, other, tf32, times)
    return contenders


def _torch_wall(torch: Any, one: Any, other: Any, tf32: bool, times: int) -> Callable[[], float]:
    out = one @ other

    def measure() -> float:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.mm(one, other, out=out)
        torch.cuda.synchronize()
        start.record()
        for _ in range(times):
            torch.mm(one, other, out=out)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / times * 1e3

    return measure


if __name__ == "__main__":
    run(main)
