"""Compare the finds of `auto` with the best of the whole space (`scripts/bench tune exhaustive`).

Each of ten tasks is tuned from an empty cache; then its whole space is measured, or a random part of it where it is
larger than --most, into a file that an interrupted run goes on with. The best of that are timed once more side by side
to choose among them, and the best one, the tuner's pick and the default again, to judge.
"""

import argparse
import hashlib
import json
import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.tuning.tools import (
    Result,
    TaskOnTarget,
    appending,
    device_of,
    limits_of,
    median_of,
    paired_ratio,
    share,
    title_of,
    tune,
)
from gputune.client.model.plan import Task
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import choose_target
from gputune.client.target.reconnecting import MEMORY
from gputune.core.launches import Trial
from gputune.kernels.catalogue import family_of
from gputune.kernels.space import Configuration, configuration_key
from gputune.runtime.measuring.timing import MEASURING_VERSION
from models import tune_models

HELP = """Compares what auto finds with the best of an exhaustive measurement, on ten tasks of real models. About 15,000
measurements: half an hour to an hour and a half on two cores; an interrupted run goes on where it was. --quick: two
tasks on the null device, half a minute."""
HEAD = ("task", "space", "measured", "evaluations", "share", "pick / best", "default / pick")
WITHIN = 1.03
EVALUATIONS = 0.10
TASKS_RIGHT = 0.9
SAMPLES = 7
"""Of a good configuration in the exhaustive measurement."""
FINALISTS = 8
CHOOSING_ROUNDS, JUDGING_ROUNDS = 3, 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--effort", choices=["quick", "normal", "full"], default="normal")
    parser.add_argument("--strategy", default="auto", help="the strategy to judge (default: %(default)s)")
    parser.add_argument(
        "--most",
        type=int,
        default=2000,
        metavar="N",
        help="of larger spaces N random configurations stand for the whole (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> Result:
    tasks, most = tune_models.ten_tasks(), options.most
    if options.quick:
        tasks, most = (tasks[0], tasks[6]), 48
    figures: dict[str, Any] = {"effort": options.effort, "strategy": options.strategy, "tasks": {}}
    rows, near, few = [], [], []
    with choose_target(None, os.environ, device_of(options)) as target, target.connect() as client:
        figures["device"] = client.device["name"]
        for number, task in enumerate(tasks, 1):
            print(f"{number}/{len(tasks)} {title_of(task)}: {task.problem}", flush=True)
            found = _one(client, task, most, options)
            figures["tasks"][title_of(task)] = found
            near.append(found["by_best"]["value"] <= WITHIN)
            few.append(found["evaluations"] <= EVALUATIONS * found["space"])
            rows.append(_row(title_of(task), found))
            print(
                "  " + ", ".join(f"{name} {value}" for name, value in zip(HEAD[1:], rows[-1][1:], strict=True)),
                flush=True,
            )
    both = [a and b for a, b in zip(near, few, strict=True)]
    conclusions = [
        f"within {WITHIN - 1:.0%} of the best: {share(near)}; with at most {EVALUATIONS:.0%} of the evaluations: "
        f"{share(few)}; both: {share(both)} (mark: {TASKS_RIGHT:.0%})",
        "evaluations are a share of the whole space; where a random part of it was measured, its best stands for the "
        "whole's",
    ]
    return Result(figures, HEAD, rows, conclusions)


def _row(title: str, found: dict[str, Any]) -> tuple[str, ...]:
    by_best, by_default = ("{value:.3f} ({low:.3f}-{high:.3f})".format(**found[name]) for name in ("by_best", "gain"))
    part = f"{found['evaluations'] / found['space']:.1%}"
    return title, str(found["space"]), str(found["measured"]), str(found["evaluations"]), part, by_best, by_default


def _one(client: TargetClient, task: Task, most: int, options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    outcome = tune(client, task, options.effort, options.work / "exhaustive_cache", options.strategy)
    seconds = time.monotonic() - began
    pick = dict(outcome.configuration)
    with TaskOnTarget(client, task) as bench:
        costs = measure_all(client, bench, most, options.work / "exhaustive")
        best_first = sorted(costs, key=lambda key: costs[key])[:FINALISTS]
        finalists: list[Configuration] = [json.loads(key) for key in best_first]
        again = bench.retime(finalists, CHOOSING_ROUNDS)
        best = min(zip(finalists, again, strict=True), key=lambda one: median_of(one[1]))[0]
        picked, best_again, default = bench.retime([pick, best, bench.default], JUDGING_ROUNDS)
    return {
        "space": outcome.space_size,
        "measured": len(costs),
        "evaluations": sum(outcome.trials.values()),
        "tuning_seconds": seconds,
        "pick": pick,
        "best": dict(best),
        "pick_ns": median_of(picked),
        "best_ns": median_of(best_again),
        "by_best": vars(paired_ratio(picked, best_again)),
        "gain": vars(paired_ratio(default, picked)),
    }


def measure_all(client: TargetClient, bench: TaskOnTarget, most: int, folder: Path) -> dict[str, float]:
    """The cost of each configuration that works, by its key: its median by the baseline's beside it, so that a device
    that has changed its speed meanwhile is not mistaken for a fast kernel. What a file in `folder` knows is not
    measured again. Raises TargetError."""
    task = bench.task
    space = list(family_of(task.op).space(task.problem, limits_of(client)).configurations())
    if len(space) > most:
        space = random.Random(0).sample(space, most)
    device = {name: value for name, value in client.device.items() if name not in MEMORY}  # differs in the next run
    where = [device, client.server.get("settings"), MEASURING_VERSION, SAMPLES, task.op, repr(task.problem)]
    code = [bench.family.render(task.problem, space[0]).main.source]
    name = hashlib.sha256(json.dumps(where + code, sort_keys=True).encode()).hexdigest()[:16]
    with appending(folder / f"{task.op}_{name}.jsonl") as (lines, add):
        known = {configuration_key(line["configuration"]): line["cost"] for line in lines}
        todo = [one for one in space if configuration_key(one) not in known]
        began = told = time.monotonic()
        size = client.limits.variants
        for start in range(0, len(todo), size):
            batch = todo[start : start + size]
            measured = bench.measure(batch, SAMPLES, bench.default)
            level = _median(measured.baseline)
            for one, trial in zip(batch, measured.trials, strict=True):
                median = _median(trial)
                known[configuration_key(one)] = cost = None if median is None or level is None else median / level
                add({"configuration": one, "status": trial.status, "cost": cost})
            now = time.monotonic()
            if now - told > 30:
                told, done = now, start + len(batch)
                left = (now - began) / done * (len(todo) - done)
                print(f"  {done}/{len(todo)} measured, about {left / 60:.0f} min left", flush=True)
    wanted = {configuration_key(one) for one in space}
    return {key: cost for key, cost in known.items() if cost is not None and key in wanted}


def _median(trial: Trial | None) -> float | None:
    return None if trial is None or trial.status != "ok" else statistics.median(trial.samples_ns)
