"""`scripts/bench tune twice`: whether the same generation picks equally fast variants again.

A model is generated twice, each time from an empty cache; per task the two picks and the default are timed again side
by side, until it is known well enough how fast one is beside the other. Picks that are the same configuration are
equally fast without timing.
"""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from benchmarks.tuning.generate import add_arguments as add_common
from benchmarks.tuning.generate import chosen, generated
from benchmarks.tuning.tools import Ratio, Result, TaskOnTarget, device_of, paired_ratio, share, title_of
from gputune.client.model.plan import Task
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import choose_target
from gputune.kernels.space import Configuration
from models.tune_models import tasks_by_key

HELP = """Generates each model twice from empty caches and compares the picks of every task. With the demo model at
effort normal about 6,000 measurements: ten to thirty minutes on two cores. --quick: a small model on the null device, a
few seconds."""
WITHIN = 0.02
MARK = 0.95
ROUNDS, MOST_ROUNDS = 6, 30
"""Of timing two picks again: on until half the interval is at most half of what they may differ by."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, "demo")


def run(options: argparse.Namespace) -> Result:
    models, effort = chosen(options)
    figures: dict[str, Any] = {"effort": effort, "models": {}}
    rows, near, same = [], [], []
    for model in models:
        first, second = (generated(model, effort, name, options) for name in ("first", "second"))
        plan_tasks = tasks_by_key(model)
        tasks = figures["models"][model.title] = {}
        with choose_target(None, os.environ, device_of(options)) as target, target.connect() as client:
            for key, one in first.tasks.items():
                task, other = plan_tasks[key], second.tasks[key]
                picks = [one["configuration"], other["configuration"]]
                value, shown = 1.0, "the same"
                same.append(picks[0] == picks[1])
                if not same[-1]:
                    compared = second_by_first(client, task, picks)
                    value, shown = compared.value, str(compared)
                near.append(abs(value - 1) <= WITHIN)
                tasks[title_of(task)] = {"picks": picks, "second_by_first": value}
                rows.append((title_of(task), shown, "yes" if near[-1] else "no"))
        figures["models"][model.title + ", seconds"] = [first.seconds, second.seconds]
    conclusions = [
        f"within {WITHIN:.0%} of each other: {share(near)} (mark: {MARK:.0%}); the same configuration: {share(same)}"
    ]
    return Result(figures, ("task", "second pick / first", f"within {WITHIN:.0%}"), rows, conclusions)


def second_by_first(client: TargetClient, task: Task, picks: Sequence[Configuration]) -> Ratio:
    """The time of the second pick by that of the first. Raises NotTimed, TargetError."""
    mine: list[tuple[float, ...]] = []
    again: list[tuple[float, ...]] = []
    with TaskOnTarget(client, task) as bench:
        while True:
            first, second, _ = bench.retime([*picks, bench.default], ROUNDS)
            mine += first
            again += second
            compared = paired_ratio(again, mine)
            if compared.doubt <= WITHIN / 2 or len(mine) >= MOST_ROUNDS:
                return compared
