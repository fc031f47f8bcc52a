"""Compare random ONNX models with onnxruntime: on a device, or by the references of the lowered plan.

    scripts/fuzz graphs [--seed N] [--count 1000] [--device [NAME]] [--kind KIND]

Each model has a seed of its own, the next whole number. A model that fails is printed with its seed and the node that
fails alone, if one does, and kept in build/fuzz.
"""

import argparse
from collections import Counter

import onnx

import tool
from gputune.client.run.local_device import LocalDevice
from gputune.runtime.backends import open_backend
from gputune.runtime.devices.discovery import choose, discover, wanted_device
from tests.strategies.graphs.casts import Run
from tests.strategies.graphs.comparing import AGREES, FAILED, KINDS, USUAL, by_references, outcome_of

FOLDER = tool.ROOT / "build" / "fuzz"
SHOWN_EVERY = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `scripts/fuzz graphs`."""
    parser.add_argument("--count", type=int, default=1000, help="how many models (default: %(default)s)")
    device = "run on this OpenCL device (default: the one that GPUTUNE_DEVICE names, or the best) with effort none"
    parser.add_argument("--device", nargs="?", const="", metavar="NAME", help=device)
    told = "; ".join(f"{name}: {kind.help}" for name, kind in KINDS.items())
    parser.add_argument("--kind", choices=KINDS, default=USUAL, help=f"of models (default: %(default)s): {told}")


def run(options: argparse.Namespace) -> int:
    """Compare all models; return 1 if one failed."""
    compute = by_references if options.device is None else on_device(options.device)
    ends: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        if not seed % SHOWN_EVERY:
            print(f"at seed {seed}: {dict(ends)}", flush=True)  # what a driver that crashes leaves behind
        outcome = outcome_of(seed, compute, options.kind)
        ends[outcome.kind] += 1
        if outcome.kind == FAILED:
            FOLDER.mkdir(parents=True, exist_ok=True)
            kept = FOLDER / f"graph-{seed}.onnx"
            onnx.save(KINDS[options.kind].make(seed).model, str(kept))
            print(f"{outcome.detail}; alone: {outcome.node or 'none'}; {kept}", flush=True)
        elif outcome.kind != AGREES:
            reasons[outcome.detail] += 1
    print(f"{dict(ends)}")
    for reason, count in reasons.most_common():
        print(f"{count:>6}  {reason}")
    return int(bool(ends[FAILED]))


def on_device(name: str) -> Run:
    """Return what computes graphs on a device, with default configurations. Raises RuntimeError if there is none."""
    local = LocalDevice(open_backend(choose(discover(), wanted_device(name or None)).report))
    return lambda graph, inputs: local.load(graph).run(inputs)
