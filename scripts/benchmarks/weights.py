"""Compare products by weights of 4 and 8 bits with the same by float32 and with onnxruntime's MatMulNBits, in turns."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tool
from benchmarks.options import add_options
from benchmarks.result import Result, told
from benchmarks.turns import PEER, in_turns

LEAST_OF_FLOAT, LEAST_OF_PEER = 2.3, 1.0
ROWS, BITS, BLOCKS = (1, 32), (8, 4), (32, 128)
SHORT, FLOATS = "short", "floats"
HEAD = (
    "rows, bits, block",
    f"speed of float32's, at least {LEAST_OF_FLOAT} for one row",
    f"of onnxruntime's, at least {LEAST_OF_PEER}",
    "context, bytes",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--size", type=int, default=4096, help="rows and columns of the weights (default: %(default)s)")
    add_options(parser, seconds=20.0, effort="normal", device=None, quick=False)


def run(options: argparse.Namespace) -> Result:
    """Measure all products. Raises DeviceOrContextError."""
    size = 64 if options.quick else options.size
    rows, figures, broken = [], dict[str, Any](), []
    for count, bits, block in ((m, b, k) for m in ROWS for b in BITS for k in BLOCKS):
        name, folder = f"{count}, {bits}, {block}", options.work / "weights" / f"{count}_{size}_{bits}_{block}"
        folder.mkdir(parents=True, exist_ok=True)
        _saved(folder, count, size, bits, min(block, size))
        for kind in (SHORT, FLOATS):
            tool.generate(folder / kind, folder / f"{kind}.onnx", "", options.effort, device=options.device)
        contexts = {kind: folder / kind / "context.bin" for kind in (SHORT, FLOATS)}
        with in_turns(contexts, options, folder / f"{SHORT}.onnx") as turns:
            ratios = {other: turns.ratio(other, SHORT) for other in (FLOATS, PEER)}
        nbytes = contexts[SHORT].stat().st_size
        rows.append((name, *map(told, ratios.values()), f"{nbytes:,}"))
        figures[name] = {other: vars(ratio) for other, ratio in ratios.items()} | {"bytes": nbytes}
        least = {FLOATS: LEAST_OF_FLOAT if count == 1 else 0.0, PEER: LEAST_OF_PEER}
        broken += [
            f"{name}: {ratio.median:.2f} of {other}" for other, ratio in ratios.items() if ratio.high < least[other]
        ]
    return Result(figures, [(HEAD, rows)], broken=[] if options.quick else broken)


def _saved(folder: Path, rows: int, size: int, bits: int, block: int) -> None:
    """Save a MatMulNBits, and the MatMul by what its weights stand for."""
    numbers = np.random.default_rng(bits)
    packed = numbers.integers(0, 256, (size, size // block, block * bits // 8)).astype(np.uint8)
    scales = (numbers.uniform(0.5, 1.5, (size, size // block)) / (1 << bits) / size**0.5).astype(np.float32)
    each = packed if bits == 8 else np.stack((packed & 15, packed >> 4), -1)
    apart = each.reshape(size, -1, block).astype(np.float32) - (1 << bits - 1)
    weights = np.ascontiguousarray((apart * scales[..., np.newaxis]).reshape(size, size).T)
    attributes: dict[str, Any] = {"K": size, "N": size, "bits": bits, "block_size": block, "accuracy_level": 0}
    short = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **attributes)
    _save(folder / f"{SHORT}.onnx", short, (rows, size), {"w": packed, "s": scales.reshape(-1)})
    _save(folder / f"{FLOATS}.onnx", helper.make_node("MatMul", ["x", "w"], ["y"]), (rows, size), {"w": weights})


def _save(path: Path, node: onnx.NodeProto, shape: tuple[int, int], weights: dict[str, Any]) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    held = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph([node], "product", values[:1], values[1:], held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
