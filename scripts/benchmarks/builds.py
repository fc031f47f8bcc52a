"""Compare a generation without tuning with the driver alone (`scripts/bench builds`)."""

import argparse
import json
import multiprocessing
import statistics
import time
from pathlib import Path
from typing import Any

import onnx

import tool
from benchmarks.peers.comparing import Failed
from benchmarks.peers.limits import spread
from benchmarks.tuning.in_process import in_process
from gputune.client.context import builder
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.task_search import device_limits
from gputune.core.identity import DeviceIdentity
from gputune.server.protocol.messages import Compiled, CompileKernel
from gputune.server.workers.pool import most_compilers
from models.architectures.layered import Network

WORK = tool.ROOT / "build" / "bench"
SIDE = 14
PAIRS = 25  # of a depthwise convolution and one of 1x1, with more channels each time: 50 distinct tasks
LARGEST_RATIO = 1.3  # of the driver's seconds shared by the cores
OTHER_SECONDS = 2.0  # for everything else


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument("--rounds", type=int, default=3, help="pairs of runs (default: %(default)s)")
    command.add_argument("--pairs", type=int, default=PAIRS, help="pairs of layers (default: %(default)s)")
    command.add_argument("--device", help="the device to use, as gputune's --device")
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Compare a generation without tuning with the driver alone, which compiles the same programs one by one. They take
    turns on a network of distinct layers; nothing is in any compiler's cache."""
    model = _saved(options.pairs)
    dimensions = f"x=1,3,{SIDE},{SIDE}"
    alone, generations, tasks = [], [], 0
    for _ in range(options.rounds):
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            tasks, seconds = fresh.apply(_alone, (model, options.device))
        alone.append(seconds)
        generated = tool.generate(WORK / "builds", model, dimensions, "none", None, options.device)
        generations.append((generated.seconds, generated.summary["totals"]["wall_seconds"]))
    cores = most_compilers()
    driver = [sum(each) for each in alone]
    allowed = [LARGEST_RATIO * seconds / cores + OTHER_SECONDS for seconds in driver]
    walls = [seconds for seconds, _ in generations]
    shares = [wall / most for wall, most in zip(walls, allowed, strict=True)]
    result: dict[str, Any] = {
        "cores": cores,
        "tasks": tasks,
        "alone_seconds": alone,
        "wall_seconds": walls,
        "phases": [phases for _, phases in generations],
        "shares_of_allowed": shares,
    }
    finalize = [phases["finalize"] for _, phases in generations]
    against = [seconds * cores / alone for seconds, alone in zip(finalize, driver, strict=True)]
    longest = statistics.median(max(each) for each in alone)
    rows = [
        ("distinct tasks, programs", f"{tasks}, {len(alone[0])}"),
        ("cores that may compile", str(cores)),
        ("the driver alone, all programs", f"{statistics.median(driver):.1f} s, spread {spread(driver):.1%}"),
        ("the driver alone, the longest program", f"{longest:.1f} s"),
        ("generation, effort none", f"{statistics.median(walls):.1f} s, spread {spread(walls):.1%}"),
        ("of that finalize", f"{statistics.median(finalize):.1f} s"),
        ("finalize, of driver / cores", f"{statistics.median(against):.2f} x"),
        (
            f"allowed: {LARGEST_RATIO} x driver / cores + {OTHER_SECONDS:g} s",
            f"{statistics.median(allowed):.1f} s, of which it takes {statistics.median(shares):.0%}",
        ),
    ]
    print("\n" + tool.table(["what", "result"], rows), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if statistics.median(shares) > 1:
        raise Failed(f"a generation takes {statistics.median(shares):.2f} x the time that is allowed")


def _saved(pairs: int) -> Path:
    """The network: maps of one size, and no two layers of the same channels."""
    network = Network(3, SIDE)
    for number in range(1, pairs + 1):
        network.conv(f"wide_{number}", 8 * number)
        network.relu(f"wide_{number}")
        network.conv(f"depthwise_{number}", 8 * number, kernel=3, depthwise=True)
        network.relu(f"depthwise_{number}")
    path = WORK / f"builds_{pairs}.onnx"
    onnx.save(network.model("builds"), path)
    return path


def _alone(model: Path, device: str | None) -> tuple[int, list[float]]:
    """How many tasks a model has, and the seconds that the driver needs for each program of its context, one after the
    other in this process."""
    plan = lower(read_model(model, {"x": (1, 3, SIDE, SIDE)}))
    seconds: list[float] = []
    with in_process(device) as target:
        limits = device_limits(DeviceIdentity.from_dict(target.device))
        outcomes = {each.key: each for each in (untuned(task, limits) for task in plan.tasks)}
        compile_kernels = target.compile_kernels

        def timed(requests: list[CompileKernel], compiled: Any) -> None:
            for place, request in enumerate(requests):
                replies: list[Compiled] = []
                began = time.perf_counter()
                compile_kernels([request], lambda _, reply: replies.append(reply))  # noqa: B023 - it is called at once
                seconds.append(time.perf_counter() - began)
                compiled(place, replies[0])

        target.compile_kernels = timed  # type: ignore[method-assign,assignment]
        builder.build(plan, outcomes, target, persistent=True)
    return len(plan.tasks), seconds
