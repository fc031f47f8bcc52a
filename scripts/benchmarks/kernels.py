"""Compare tuned kernels with other engines, OpenBLAS, defaults and the device's limits, in turns.

The kernels are matrix products, convolutions and blocks.

Ours is the host's clock over a batch of launches in the form that networks run: as parts of persistent kernels where
the device has them, else one by one, gaps between them included. The other engines' is the sum of their nodes' times by
their own profilers. None counts conversions of layout at the ends, which a network has once.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from benchmarks.options import chosen
from benchmarks.peers.comparing import BEST, beside_best, compare, deviation_cell, mean_speed, shown
from benchmarks.peers.comparing import add_arguments as add_arguments
from benchmarks.peers.comparison import (
    DEFAULTS,
    ENGINES,
    TUNED,
    Case,
    Entry,
    Measured,
    Settings,
    is_settled,
)
from benchmarks.peers.entrants import entries_of, files_of, flops_of
from benchmarks.result import Result, Table
from gputune.client.tuning.measuring.intervals import Ratio
from models.architectures.layered import Network
from models.classic_models import INVERTED_RESIDUALS
from models.tune_models import saved
from tests.client.models import build

GEMM, CONV, BLOCK = "matrix products", "3x3 convolutions of ResNet-18", "blocks of MobileNetV2"
BLAS = "OpenBLAS"
OTHERS = (BLAS, DEFAULTS)

GEMMS = {  # m, n, k: the share of the multiply-add limit that is promised
    (512, 512, 512): 0.95,
    (64, 3136, 576): 0.93,
    (3136, 64, 576): 0.93,
    (128, 784, 1152): 0.90,
    (784, 128, 1152): 0.90,
    (1024, 1024, 1024): 0.90,
}
CONVS = (  # channels in and out, side, stride: how many ResNet-18 has
    (64, 64, 56, 1, 4),
    (64, 128, 56, 2, 1),
    (128, 128, 28, 1, 3),
    (128, 256, 28, 2, 1),
    (256, 256, 14, 1, 3),
    (256, 512, 14, 2, 1),
    (512, 512, 7, 1, 3),
)
MARKS = {CONV: (1.0, 1.0), BLOCK: (1.15, 1.0)}
"""The geometric mean and the least, as times as fast as the best engine, that are to be reached."""


@dataclass(frozen=True)
class Kernel:
    """A case before anything is made for it."""

    name: str
    group: str
    model: Callable[[], onnx.ModelProto]
    weight: int = 1


def run(options: argparse.Namespace) -> Result:
    """Measure the kernels that the options ask for. Raises GputuneError, ValueError."""
    wanted = quick_kernels() if options.quick else kernels()
    names = chosen([kernel.name for kernel in wanted], options.only)

    def make(settings: Settings) -> list[Case]:
        return [case_of(kernel, settings, options) for kernel in wanted if kernel.name in names]

    return compare("kernels", options, make, tell)


def kernels() -> list[Kernel]:
    """Everything that the benchmark knows."""
    found = [Kernel(f"GEMM {m}x{n}x{k}", GEMM, partial(gemm, m, n, k)) for m, n, k in GEMMS]
    found += [conv_kernel(*each) for each in CONVS]
    return found + block_kernels(224)


def quick_kernels() -> list[Kernel]:
    """One of each group, and small."""
    return [
        Kernel("GEMM 16x16x16", GEMM, partial(gemm, 16, 16, 16)),
        conv_kernel(8, 8, 6, 2, 2),
        block_kernels(32)[1],
    ]


def conv_kernel(channels: int, out_channels: int, side: int, stride: int, weight: int) -> Kernel:
    """A 3x3 convolution and its activation."""

    def model() -> onnx.ModelProto:
        network = Network(channels, side)
        network.conv("conv", out_channels, kernel=3, stride=stride)
        network.relu("conv")
        return network.model("conv")

    strided = f" /{stride}" if stride > 1 else ""
    return Kernel(f"conv 3x3 {channels}-{out_channels} {side}x{side}{strided}", CONV, model, weight)


def block_kernels(side: int) -> list[Kernel]:
    """The distinct inverted-residual blocks of MobileNetV2 for maps of that side, by occurrence."""
    channels, side = 32, side // 2
    counts: dict[tuple[int, int, int, int, int], int] = {}
    for expansion, out_channels, repeats, first_stride in INVERTED_RESIDUALS:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            each = (channels, expansion, out_channels, side, stride)
            counts[each] = counts.get(each, 0) + 1
            channels, side = out_channels, -(-side // stride)
    return [_block_kernel(*each, weight) for each, weight in counts.items()]


def _block_kernel(channels: int, expansion: int, out_channels: int, side: int, stride: int, weight: int) -> Kernel:
    def model() -> onnx.ModelProto:
        network = Network(channels, side)
        network.inverted_residual("block", 3, stride, expansion, out_channels)
        return network.model("block")

    strided = f" /{stride}" if stride > 1 else ""
    return Kernel(
        f"block {channels}-{expansion * channels}-{out_channels} {side}x{side}{strided}", BLOCK, model, weight
    )


def gemm(m: int, n: int, k: int) -> onnx.ModelProto:
    """A matrix product [m, k] x [k, n] with a constant right side."""
    right = np.random.default_rng(0).standard_normal((k, n), dtype=np.float32) * np.float32(k**-0.5)
    return build(f"(float[{m},{k}] x) => (float[{m},{n}] y)", "y = MatMul(x, right)", {"right": right})


def case_of(kernel: Kernel, settings: Settings, options: argparse.Namespace) -> Case:
    """The kernel's case, its contexts made. Raises ModelError."""
    stem = "kernel_" + kernel.name.replace(" ", "_").replace("/", "s")
    model = saved(kernel.name, stem, kernel.model)
    plan = model.plan()
    entries = entries_of(model, plan, settings, options.work, options.prepare, kernels=True)
    if kernel.group == GEMM:
        entries.append(Entry(BLAS, "numpy", files_of(model, plan), blas_environment()))
    return Case(kernel.name, kernel.group, entries, flops_of(plan), kernel.weight)


def blas_environment() -> dict[str, str]:
    """Lets OpenBLAS use AVX-512 where the processor has it: of processors that it does not know it takes them for older
    ones."""
    info = Path("/proc/cpuinfo")
    flags = info.read_text(encoding="utf-8").split() if info.exists() else []
    return {"OPENBLAS_CORETYPE": "SkylakeX"} if "avx512vl" in flags else {}


def tell(cases: Sequence[Case], measured: Sequence[Measured]) -> tuple[Table, list[str]]:
    """The table, and what follows from it."""
    engines = [name for name in ENGINES if any(name in one.rounds for one in measured)]
    others = [name for name in OTHERS if any(name in one.rounds for one in measured)]
    head = (
        *("case", "count", "us", "GFLOP/s", "share of limit", *(f"{name} us" for name in engines)),
        *(BEST, "best engine", *(f"x {name}" for name in (*engines, *others)), "deviation"),
    )
    rows = []
    for case, one in zip(cases, measured, strict=True):
        rate = case.flops / one.median_ns(TUNED)
        rows.append(
            (
                *(case.name, str(case.weight), f"{one.median_ns(TUNED) / 1e3:.1f}", f"{rate:.0f}"),
                share_cell(one.share_of_limit(case.flops)),
                *(f"{one.median_ns(name) / 1e3:.1f}" if name in one.rounds else "" for name in engines),
                *(shown(one.speed(TUNED, one.best), interval=True), one.best),
                *(shown(one.speed(TUNED, other)) for other in (*engines, *others)),
                deviation_cell(one, TUNED),
            )
        )
    return (head, rows), conclusions_of(cases, measured)


def share_cell(share: Ratio | None) -> str:
    """The share of the multiply-add limit, by the operations of the definition: Winograd's are fewer, so it may be more
    than 1."""
    if share is None:
        return ""
    return f"{share.median:.1%}" if is_settled(share) else f"not measured ({share.low:.0%}-{share.high:.0%})"


def conclusions_of(cases: Sequence[Case], measured: Sequence[Measured]) -> list[str]:
    """One line for each mark."""
    both = list(zip(cases, measured, strict=True))
    lines = []
    for case, one in both:
        promised = next((mark for sizes, mark in GEMMS.items() if case.name == "GEMM {}x{}x{}".format(*sizes)), None)
        share = one.share_of_limit(case.flops)
        if promised and share is not None:
            lines.append(f"{case.name}: {share_cell(share)} of the limit, mark: at least {promised:.0%}")
    for group, marks in MARKS.items():
        own = [(case, one) for case, one in both if case.group == group]
        lines += [f"{group}: {beside_best(own, *marks)}"] if own else []
    speeds = [(one.speed(TUNED, DEFAULTS), case.weight) for case, one in both]
    return [*lines, f"all: {mean_speed(speeds, DEFAULTS)}"]
