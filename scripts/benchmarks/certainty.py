"""Check that `gputune compare` tells different contexts apart, and equal contexts not (`scripts/bench certainty`)."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tool
from benchmarks.peers.comparing import Failed
from gputune.client.compare.comparing import SECONDS, gains_of, rounds_of
from gputune.client.compare.turns import Contender, Process
from gputune.client.progress import SILENT
from models import classic_models

WORK = tool.ROOT / "build" / "bench"
CHANNELS, SIDE = 64, 28
LAYERS = (10, 11)  # one more layer takes a tenth more time
MOST_WRONG = 1


@dataclass(frozen=True)
class Pair:
    """Two contexts that were compared. equal: whether they are the same file; words: what was told; right: whether
    that is true, a difference that was not found being wrong; rounds_ns: by contender."""

    equal: bool
    words: str
    right: bool
    seconds: float
    load: float
    rounds_ns: dict[str, tuple[float, ...]]


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--pairs", type=int, default=20, help="of equal contexts, and of different ones (default: 20)")
    command.add_argument("--compare_seconds", type=float, default=SECONDS, help="of each pair (default: %(default)s)")
    command.add_argument(
        "--whole", action="store_true", help="go on for all the time, to record rounds; --json writes them"
    )
    command.add_argument("--device", help="the device to use, as gputune's --device")
    command.add_argument("--json", type=Path, help="write the rounds of all pairs to this file as well")


def run(options: argparse.Namespace) -> None:
    """Check that comparisons find no difference between equal contexts, and find it between 10 and 11 equal layers. At
    most one of all pairs may be wrong; a difference that is not found counts as wrong."""
    contexts = [_context(count, options.device) for count in LAYERS]
    found: list[Pair] = []
    for number in range(2 * options.pairs):
        equal = number % 2 == 0
        pair = contexts[:1] * 2 if equal else contexts
        # so that neither the first nor the second contender is always the faster one
        found.append(_compared(pair if number % 4 < 2 else pair[::-1], equal, options))
        kind = "equal" if equal else "different"
        print(
            f"{kind:9} {found[-1].words:50} {found[-1].seconds:5.0f} s, load {found[-1].load:.1f}"
            f"{'' if found[-1].right else ', WRONG'}",
            flush=True,
        )
        if options.json is not None:
            options.json.write_text(json.dumps([asdict(one) for one in found]) + "\n", encoding="utf-8")
    wrong = [one for one in found if not one.right]
    rows = [_row(title, [one for one in found if one.equal == equal]) for title, equal in TITLES]
    print("\n" + tool.table(["contexts", "pairs", "told wrongly", "seconds, median", "load"], rows), flush=True)
    if len(wrong) > MOST_WRONG:
        raise Failed(f"{len(wrong)} of {len(found)} pairs were told wrongly")


TITLES = (("equal", True), (f"of {LAYERS[0]} and {LAYERS[1]} layers", False))


def _row(title: str, pairs: Sequence[Pair]) -> tuple[str, ...]:
    loads = [one.load for one in pairs]
    return (
        title,
        str(len(pairs)),
        str(sum(not one.right for one in pairs)),
        f"{np.median([one.seconds for one in pairs]):.0f}",
        f"{min(loads):.1f} to {max(loads):.1f}",
    )


def _compared(pair: Sequence[tuple[int, Path]], equal: bool, options: argparse.Namespace) -> Pair:
    began_s = time.monotonic()
    names = ["first", "second"]
    with Process() as process:
        contenders = [
            Contender(name, process, "context", {"context": str(path), "device": options.device})
            for name, (_, path) in zip(names, pair, strict=True)
        ]
        rounds_ns = rounds_of(contenders, options.compare_seconds, SILENT, whole=options.whole)
    gain = gains_of(names[0], rounds_ns)[names[1]]
    layers = [count for count, _ in pair]
    right = not gain.certain if equal else gain.certain and (gain.median > 1) == (layers[1] > layers[0])
    return Pair(equal, gain.words, right, time.monotonic() - began_s, os.getloadavg()[0], rounds_ns)


def _context(count: int, device: str | None) -> tuple[int, Path]:
    """How many layers it has, and the context with its default configurations."""
    model = classic_models.saved(f"{count} layers", f"layers_{count}", lambda: _layers(count))
    arguments: list[str | Path] = ["--model", model.path, "--binary_file", "context", "--tuning_effort", "none"]
    arguments += ["--device", device] if device else []
    return count, tool.gputune(WORK / f"certainty_{count}", "context-binary-generator", *arguments).context


def _layers(count: int) -> Any:
    """So many 3x3 convolutions with ReLU behind each, all alike."""
    numbers = np.random.default_rng(0)
    scale = 1 / math.sqrt(9 * CHANNELS)
    weights = [
        onnx.numpy_helper.from_array(
            scale * numbers.standard_normal((CHANNELS, CHANNELS, 3, 3), dtype=np.float32), f"w{place}"
        )
        for place in range(count)
    ]
    nodes, names = [], ["x", *(f"t{place}" for place in range(1, count)), "y"]
    for place in range(count):
        summed = f"c{place}"
        nodes.append(onnx.helper.make_node("Conv", [names[place], f"w{place}"], [summed], f"conv{place}", pads=[1] * 4))
        nodes.append(onnx.helper.make_node("Relu", [summed], [names[place + 1]], f"relu{place}"))
    value, shape = onnx.helper.make_tensor_value_info, [1, CHANNELS, SIDE, SIDE]
    graph = onnx.helper.make_graph(
        nodes,
        "layers",
        [value("x", onnx.TensorProto.FLOAT, shape)],
        [value("y", onnx.TensorProto.FLOAT, shape)],
        weights,
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
