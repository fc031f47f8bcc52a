"""Measure what tuning gains, task by task and end to end (`scripts/bench tune gains`).

Each model is generated with and without tuning. Per task the pick and the default are timed again side by side; end to
end the two contexts take turns.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tuning.generate import add_arguments as add_common
from benchmarks.tuning.generate import chosen, generated
from benchmarks.tuning.tools import Ratio, Result, TaskOnTarget, device_of, median_of, paired_ratio, ratio, title_of
from gputune.client.model.plan import Plan, Task
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import choose_target
from models.tune_models import tasks_by_key

HELP = """Generates models with and without tuning and times every task, and the whole, against the defaults. With the
three models at effort normal about 15,000 measurements: half an hour to an hour and a half on two cores. --quick: a
small model on the null device, a few seconds."""
ROUNDS = 6
TURNS, INFERENCES = 10, 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, "demo,detector,efficientnet")


def run(options: argparse.Namespace) -> Result:
    models, effort = chosen(options)
    figures: dict[str, Any] = {"effort": effort, "models": {}}
    rows: list[tuple[str, ...]] = []
    conclusions: list[str] = []
    for model in models:
        tuned, plain = (generated(model, level, level, options) for level in (effort, "none"))
        plan = model.plan()
        with choose_target(None, os.environ, device_of(options)) as target, target.connect() as client:
            gains = _tasks(client, tasks_by_key(model), tuned.tasks)
            spans = _contexts(client, plan, (plain.context, tuned.context))
        whole = ratio(*spans)
        slower = [title for title, gain in gains.items() if gain.high < 1]
        rows += [(f"{title} x{_weight(tuned.tasks, title)}", str(gain)) for title, gain in gains.items()]
        times = [median_of(one) / 1e6 for one in spans]
        rows.append((f"END TO END {model.title}", str(whole)))
        figures["models"][model.title] = {
            "tasks": {title: vars(gain) for title, gain in gains.items()},
            "end_to_end": vars(whole),
            "milliseconds": {"defaults": times[0], "tuned": times[1]},
            "slower": slower,
            "tuning_seconds": tuned.seconds,
        }
        conclusions.append(
            f"{model.title}: {times[0]:.2f} ms with defaults, {times[1]:.2f} ms tuned: {whole} times as fast; "
            f"tasks slower than their defaults: {', '.join(slower) or 'none'} of {len(gains)}"
        )
        print(conclusions[-1], flush=True)  # the next model takes long, and may fail
    return Result(figures, ("task", "default / tuned (95 %)"), rows, conclusions)


def _weight(tasks: Mapping[str, Mapping[str, Any]], title: str) -> int:
    op, _, key = title.partition(" ")
    (weight,) = (task["weight"] for name, task in tasks.items() if task["op"] == op and name.startswith(key))
    return int(weight)


def _tasks(client: TargetClient, tasks: Mapping[str, Task], tuned: Mapping[str, Mapping[str, Any]]) -> dict[str, Ratio]:
    """Per task the default's time by the pick's: exactly 1 where the default was kept."""
    gains = {}
    for key, picked in tuned.items():
        task, pick = tasks[key], picked["configuration"]
        with TaskOnTarget(client, task) as bench:
            if pick == bench.default:
                gains[title_of(task)] = Ratio(1.0, 1.0, 1.0)
            else:
                default, mine = bench.retime([bench.default, pick], ROUNDS)
                gains[title_of(task)] = paired_ratio(default, mine)
    return gains


def _contexts(client: TargetClient, plan: Plan, files: Sequence[Path]) -> list[list[list[float]]]:
    """Times of inferences in nanoseconds, turn by turn, of each context."""
    numbers = np.random.default_rng(2)
    inputs = {spec.name: numbers.random(spec.shape, dtype=np.float32) for spec in plan.inputs}
    contexts = [client.load_context(file.read_bytes()).context for file in files]
    times: list[list[list[float]]] = [[] for _ in contexts]
    for turn in range(TURNS + 1):  # the first one warms up
        for context, found in zip(contexts, times, strict=True):
            inferences_ns = [float(client.execute_context(context, inputs).elapsed_ns) for _ in range(INFERENCES)]
            if turn:
                found.append(inferences_ns)
    client.free_contexts(*contexts)
    return times
