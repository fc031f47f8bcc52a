"""Compare evaluations per second on the same configurations of the same kernel with Kernel Tuner's, both with
verification, in turns (`scripts/bench tune peer`).

Kernel Tuner gives one set of buffers to all configurations, so only those of a convolution take part that read weights
packed in the same way; ours packs them itself, Kernel Tuner gets them packed. Every turn has configurations of its own
and both tools measure them, so no compiler's cache helps with what it has seen; Kernel Tuner's turns get fresh cache
folders, too. Neither opening the device nor starting a process counts. Ours takes more samples of the good ones, after
a warm-up; Kernel Tuner takes seven of each.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shlex
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import tool
from benchmarks.tuning.tools import NotTimed, Result, TaskOnTarget, limits_of
from gputune.client.model.plan import Task
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import choose_target
from gputune.client.tuning.search.effort import EFFORTS
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Instance
from gputune.server.protocol.messages import ExecuteKernel, Profiled
from models import tune_models

KERNEL_TUNER = "kernel_tuner==1.5.*"
HELP = f"""Evaluations per second on the same configurations of a convolution, ours and Kernel Tuner's, in turns.
Installs {KERNEL_TUNER} and pyopencl into build/kernel_tuner when they are not there. With five turns of 32
configurations some three minutes. --quick: one turn of 8, about half a minute. Needs an OpenCL device."""
MARK = 3.0
SAMPLES = EFFORTS["normal"].samples


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default: %(default)s)")
    parser.add_argument(
        "--configurations", type=int, default=32, metavar="N", help="in each turn (default: %(default)s)"
    )
    parser.add_argument(
        "--kernel_tuner_python",
        default="",
        metavar="COMMAND",
        help="an interpreter that has kernel_tuner and pyopencl (default: build/kernel_tuner's)",
    )


def run(options: argparse.Namespace) -> Result:
    rounds, size = (1, 8) if options.quick else (options.rounds, options.configurations)
    python = shlex.split(options.kernel_tuner_python) or [str(installed())]
    turns: list[dict[str, Any]] = []
    with choose_target(None, os.environ, options.device) as target, target.connect() as client:
        task = tune_models.peer_task()
        with TaskOnTarget(client, task) as bench:
            chosen = same_packing(client, task)
            random.Random(0).shuffle(chosen)
            if len(chosen) < rounds * size:
                raise NotTimed(f"only {len(chosen)} configurations share their packing, {rounds * size} are needed")
            bench.measure(chosen[-1:], SAMPLES)  # whatever is done once per server is done now
            for number in range(rounds):
                turn = chosen[number * size : (number + 1) * size]
                found: dict[str, Any] = {}
                for ours in (True, False) if number % 2 == 0 else (False, True):
                    found |= _ours(client, bench, turn) if ours else _theirs(client, bench, turn, python)
                turns.append(found)
                pace = " and ".join(f"{size / found[name]:.1f}" for name in ("gputune", KERNEL_TUNER))
                print(f"{number + 1}/{rounds}: {pace} a second", flush=True)
    rates = {name: [size / turn[name] for turn in turns] for name in ("gputune", KERNEL_TUNER)}
    ratios = [a / b for a, b in zip(*rates.values(), strict=True)]
    middle = statistics.median(ratios)
    rows = [
        (name, f"{statistics.median(rate):.2f}", f"{min(rate):.2f} to {max(rate):.2f}") for name, rate in rates.items()
    ]
    conclusions = [f"{middle:.2f} times as many ({min(ratios):.2f} to {max(ratios):.2f}), mark: at least {MARK:g}"]
    figures = {"rates": rates, "ratios": ratios, "ratio": middle, "turns": turns}
    return Result(figures, ("tool", "evaluations per second", "range"), rows, conclusions)


def installed() -> Path:
    """The interpreter of build/kernel_tuner, made when it is not there."""
    folder = tool.ROOT / "build" / "kernel_tuner"
    python = folder / "bin" / "python"
    try_it = [str(python), "-c", "import kernel_tuner, pyopencl"]
    if not python.exists() or subprocess.run(try_it, capture_output=True).returncode:
        print(f"installing {KERNEL_TUNER} into {folder.relative_to(tool.ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, KERNEL_TUNER, "pyopencl"], check=True)
    return python


def same_packing(client: TargetClient, task: Task) -> list[dict[str, int]]:
    """The largest set of configurations with dimension 0 across the channels that read the same packed weights."""
    family = family_of(task.op)
    sets: dict[object, list[dict[str, int]]] = defaultdict(list)
    for one in family.space(task.problem, limits_of(client)).configurations():
        # the direct algorithm; and Kernel Tuner names the parameters of a work-group once for all configurations
        if one["ORDER"] == one.get("ALG", 0) == 0:
            instance = family.render(task.problem, one)
            sets[instance.prepare, tuple(instance.packed.items())].append(one)
    return max(sets.values(), key=len)


def _ours(client: TargetClient, bench: TaskOnTarget, turn: Sequence[dict[str, int]]) -> dict[str, Any]:
    """Seconds for a turn, asked for as the tuner does but in requests as large as the server takes, and how long the
    parts took by the server's clock. Raises NotTimed."""
    began = time.monotonic()
    size = client.limits.variants
    replies: list[Profiled] = []
    best_ns = 0.0
    for start in range(0, len(turn), size):
        replies.append(bench.measure(turn[start : start + size], SAMPLES, bench.default, best_ns))
        found = [statistics.median(trial.samples_ns) for trial in replies[-1].trials if trial.samples_ns]
        best_ns = min([*found, best_ns or math.inf])
    seconds = time.monotonic() - began
    if wrong := [trial for reply in replies for trial in reply.trials if trial.status != "ok"]:
        raise NotTimed(f"{len(wrong)} configurations failed, the first: {wrong[0].status}: {wrong[0].message}")
    return {"gputune": seconds, "spent_ns": dict(sum((Counter(reply.spent_ns) for reply in replies), Counter[str]()))}


def _theirs(
    client: TargetClient, bench: TaskOnTarget, turn: Sequence[dict[str, int]], python: Sequence[str]
) -> dict[str, Any]:
    """What Kernel Tuner reports of a turn, run with compiler caches that are empty. Raises NotTimed."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        _write_job(client, bench, turn, folder)
        environment = os.environ | {"POCL_CACHE_DIR": name, "XDG_CACHE_HOME": name, "POCL_AFFINITY": "1"}
        script = str(Path(__file__).with_name("with_kernel_tuner.py"))
        command = [*python, script, name]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise NotTimed(f"Kernel Tuner ended with exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    working = [value for value in found["milliseconds"].values() if value is not None]
    if len(working) != len(turn):
        raise NotTimed(f"Kernel Tuner has measured {len(working)} of {len(turn)} configurations")
    return {KERNEL_TUNER: found["seconds"]}


def _write_job(client: TargetClient, bench: TaskOnTarget, turn: Sequence[dict[str, int]], folder: Path) -> None:
    problem, family = bench.task.problem, bench.family
    instances = [family.render(problem, one) for one in turn]
    main = instances[0].main
    arrays = dict(bench.inputs) | _packed(client, bench, instances[0])
    arrays["output"] = np.zeros_like(bench.reference)
    for name in main.arguments:
        np.save(folder / f"{name}.npy", arrays[str(name)].reshape(-1))
    np.save(folder / "answer.npy", bench.reference.reshape(-1))
    tolerance = family.tolerance(problem)
    own = {f"-D{name}={value}" for name, value in turn[0].items()}
    job = {
        "platform": client.device["platform"],
        "device": client.device["name"],
        "entry": main.entry,
        "source": main.source,
        "options": [option for option in main.options.split() if option not in own],
        "arguments": main.arguments,
        "tolerance": tolerance.absolute + tolerance.relative * float(np.abs(bench.reference).max()),
        "block_size_names": ["LN", "LM", "block_size_z"],
        "configurations": [
            {
                "values": dict(values),
                "groups": [a // b for a, b in zip(one.main.global_size, one.main.local_size, strict=True)],
            }
            for values, one in zip(turn, instances, strict=True)
        ],
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")


def _packed(client: TargetClient, bench: TaskOnTarget, instance: Instance) -> dict[str, Any]:
    """The buffers that an instance's launches prepare, as they come from the target."""
    made = client.execute_kernel(ExecuteKernel(instance.prepare, bench.buffers, instance.packed))
    return {name: np.frombuffer(data, np.float32) for name, data in made.items()}
