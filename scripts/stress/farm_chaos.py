"""Kills workers, target servers, scheduler and client of a farm at random moments of tuning.

    scripts/stress/farm_chaos [--kills 10] [--workers 2] [--roles worker,server,scheduler,client] [--seed N] [--json F]

For each role a model is tuned on waiting devices while processes of that role are killed with kill -9, so many times,
and started again as a person would: a client with --resume. After each kill every trial that was in the performance
cache must still be there; no variant may have been blamed; and in the end the job must be done. Needs the extra
gputune[farm]. Exit code 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tool
from gputune.client.farm.jobs import Journal

WORK = tool.ROOT / "build" / "chaos" / "farm"
ROLES = ("worker", "server", "scheduler", "client")
PORT = 18_899
PAUSE_SECONDS = (1.0, 4.0)
LONGEST_SECONDS = 400.0
LAYERS = 24


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/stress/farm_chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10, help="of each role (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--roles", default=",".join(ROLES), help="which are killed (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")
    options = parser.parse_args()
    results = {role: chaos(role, options) for role in options.roles.split(",")}
    rows = [(role, *map(str, result.values())) for role, result in results.items()]
    print("\n" + tool.table(["killed", *next(iter(results.values()))], rows), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))
    return int(any(result["lost"] or result["blamed"] or result["state"] != "done" for result in results.values()))


@dataclass
class Farm:
    """The processes of a farm, and its client."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "gputune", "farm", *arguments, "--farm_dir", str(self.folder / "farm")]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, cwd=tool.ROOT)

    def start_role(self, name: str) -> None:
        where = f"127.0.0.1:{PORT}"
        if name == "scheduler":
            self.start(name, "scheduler", "--port", str(PORT))
        elif name == "client":
            jobs = Journal(self.folder / "farm" / "jobs.sqlite").jobs()
            if jobs:
                with closing(sqlite3.connect(self.folder / "farm" / "jobs.sqlite")) as journal, journal:
                    journal.execute("UPDATE jobs SET heard = 0")  # as if half a minute had passed
            new = ["--models", str(self.folder / "m.onnx"), "--tuning_effort", "normal"]
            new += ["--output_dir", str(self.folder), "--performance_cache_dir", str(self.folder)]
            new += ["--config_file", str(self.folder / "config.json")]
            self.start(name, "tune", "--scheduler", where, *(["--resume", jobs[0].name] if jobs else new))
        else:
            self.start(name, "worker", "--scheduler", where, "--device", "waiting", "--name", name)

    def kill(self, name: str, server: bool = False) -> None:
        process = self.processes[name].pid
        if server:
            process = next(iter(children(process)), 0)
        if process:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def children(parent: int) -> list[int]:
    """The processes that a process has started, those of its threads included."""
    found = []
    for file in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(one) for one in file.read_text().split()]
    return found


def trials(folder: Path) -> dict[int, str]:
    """What the performance cache holds: the status of each trial by its number."""
    files = list(folder.glob("*.sqlite"))
    if not files:
        return {}
    with closing(sqlite3.connect(f"file:{files[0]}?mode=ro", uri=True, timeout=10)) as cache:
        try:
            return dict(cache.execute("SELECT id, status FROM trial").fetchall())
        except sqlite3.OperationalError:  # nothing is in there yet
            return {}


def chaos(role: str, options: argparse.Namespace) -> dict[str, Any]:
    folder = WORK / role
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_model(folder / "m.onnx")
    (folder / "config.json").write_text(json.dumps({"tuning_mode": True, "tuning_strategy": "random"}))
    chance, farm = random.Random(options.seed), Farm(folder)
    workers = [f"w{number}" for number in range(options.workers)]
    killed, lost, began = 0, 0, time.monotonic()
    known: dict[int, str] = {}
    try:
        farm.start_role("scheduler")
        time.sleep(3)
        for name in workers:
            farm.start_role(name)
        time.sleep(8)
        farm.start_role("client")
        time.sleep(4)
        while not done(farm) and time.monotonic() - began < LONGEST_SECONDS:
            if killed < options.kills:
                time.sleep(chance.uniform(*PAUSE_SECONDS))
                known = trials(folder)
                name = chance.choice(workers) if role in ("worker", "server") else role
                farm.kill(name, role == "server")
                killed += 1
                after = trials(folder)
                lost += len(known.keys() - after.keys())
                if role != "server":
                    farm.processes[name].wait()
                    farm.start_role(name)
            else:
                time.sleep(1)
        state = Journal(folder / "farm" / "jobs.sqlite").jobs()[0].state
    finally:
        farm.close()
    statuses = trials(folder)
    blamed = sum(status in ("crash", "timeout") for status in statuses.values())
    seconds = round(time.monotonic() - began, 1)
    return {
        "kills": killed,
        "trials": len(statuses),
        "lost": lost,
        "blamed": blamed,
        "state": state,
        "seconds": seconds,
    }


def done(farm: Farm) -> bool:
    """Whether the client has ended; one that failed without being killed is not started again."""
    return farm.processes["client"].poll() is not None


def write_model(path: Path) -> None:
    """A row of convolutions, no two alike."""
    nodes, weights, channels, tensor = [], [], 16, "x"
    values = np.random.default_rng(0)
    for number in range(LAYERS):
        out = 16 + 4 * (number % 23)
        weights.append(onnx.numpy_helper.from_array(
            values.standard_normal((out, channels, 3, 3)).astype(np.float32) / 10, f"w{number}"))  # fmt: skip
        nodes.append(onnx.helper.make_node("Conv", [tensor, f"w{number}"], [f"y{number}"], pads=[1, 1, 1, 1]))
        tensor, channels = f"y{number}", out
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 16, 48, 48]), (tensor, None))
    ]
    graph = onnx.helper.make_graph(nodes, "chaos", ends[:1], ends[1:], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


if __name__ == "__main__":
    sys.exit(main())
