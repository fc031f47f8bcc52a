"""Measure what the server and the way there cost a search (`scripts/bench tune remote`).

The same searches run in one process without a server (in_process.py) and through an embedded server over TCP, in turns,
each turn in a process of its own. The searches are random ones with a fixed seed, so both measure the same
configurations. A turn's time is that of its searches; opening the device and starting the server do not count.

Both open the device in the same way, with a folder for compiled programs. What only a server has counts as well: on a
CPU device its second process compiles beside the first one, which may make the remote search the faster one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tool
from benchmarks.tuning.in_process import in_process
from benchmarks.tuning.tools import NotTimed, Result, TaskOnTarget, configurations_in, device_of, tune
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import choose_target
from models import tune_models

HELP = """Runs the same searches in process and through a server over TCP, in turns. With three tasks and five rounds
about 500 measurements: two to ten minutes. --quick: one task on the null device, some seconds; there nothing takes
time but the transport, so its ratio says nothing."""
MARK = 1.05
WAYS = ("in process", "remote")
TASKS = (2, 4, 5)
"""Of tune_models.ten_tasks: a convolution, a depthwise one and a matrix product."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--effort", choices=["quick", "normal"], default="quick")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default: %(default)s)")


def run(options: argparse.Namespace) -> Result:
    rounds = options.rounds
    tasks: tuple[int, ...] = TASKS
    if options.quick:
        rounds, tasks = 1, TASKS[2:]
    turns: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in WAYS[:: 1 if number % 2 == 0 else -1]:
            done = turn(way, tasks, device_of(options), options.effort, options.work / "remote_cache")
            turns[way].append(done)
            print(f"{number + 1}/{rounds} {way}: {done['seconds']:.2f} s, {done['measured']} variants", flush=True)
    seconds = {way: [done["seconds"] for done in found] for way, found in turns.items()}
    ratios = [remote / own for own, remote in zip(*seconds.values(), strict=True)]
    middle = statistics.median(ratios)
    rows = [
        (way, f"{statistics.median(found):.2f} s", f"{min(found):.2f} to {max(found):.2f}", _rate(turns[way]))
        for way, found in seconds.items()
    ]
    same = len({json.dumps(done["configurations"]) for found in turns.values() for done in found}) == 1
    conclusions = [
        f"remote by in process: {middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f}), mark: at most {MARK}",
        "all turns measured the same configurations"
        if same
        else "turns measured different configurations, so that the variants per second count, not the times",
    ]
    figures = {"effort": options.effort, "turns": turns, "ratios": ratios, "ratio": middle, "same": same}
    return Result(figures, ("way", "median", "range", "variants per second"), rows, conclusions)


def _rate(turns: list[dict[str, Any]]) -> str:
    return f"{statistics.median(done['measured'] / done['seconds'] for done in turns):.2f}"


def turn(way: str, tasks: tuple[int, ...], device: str | None, effort: str, cache: Path) -> dict[str, Any]:
    """One turn in a process of its own. Raises NotTimed."""
    job = json.dumps({"way": way, "effort": effort, "tasks": tasks, "device": device, "cache": str(cache)})
    done = subprocess.run(
        [*tool.module("benchmarks.tuning.remote"), job], stdout=subprocess.PIPE, text=True, env=tool.environment()
    )
    if done.returncode:
        raise NotTimed(f"a turn {way} ended with exit code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _search(client: TargetClient, job: dict[str, Any]) -> dict[str, Any]:
    """The searches of one turn: how long they took and what they measured."""
    tasks = tune_models.ten_tasks()
    cache = Path(job["cache"])
    with TaskOnTarget(client, tune_models.peer_task()) as bench:
        bench.measure([bench.default], 1)  # whatever is loaded once is loaded now, on both sides
    seconds, measured, configurations = 0.0, 0, []
    for place in job["tasks"]:
        began = time.monotonic()
        measured += tune(client, tasks[place], job["effort"], cache, "random").measured
        seconds += time.monotonic() - began
        configurations.append(sorted(configurations_in(cache)))
    return {"seconds": seconds, "measured": measured, "configurations": configurations}


def main() -> None:
    job = json.loads(sys.argv[1])
    if job["way"] == "remote":
        with choose_target(None, os.environ, job["device"]) as target, target.connect() as client:
            found = _search(client, job)
    else:
        with in_process(job["device"]) as here:
            found = _search(here.as_client(), job)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
