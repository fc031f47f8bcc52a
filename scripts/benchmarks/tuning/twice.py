"""`scripts/bench tune twice`: whether the same generation picks equally fast variants again.

A model is generated twice, each time from an empty cache; per task the two picks and the default are timed again side
by side. Picks that are the same configuration are equally fast without timing.
"""

import argparse
import os
from typing import Any

from benchmarks.tuning.generate import add_arguments as add_common
from benchmarks.tuning.generate import chosen, generated
from benchmarks.tuning.tools import Result, TaskOnTarget, device_of, paired_ratio, share, title_of
from gputune.client.target.connecting import choose_target
from models.tune_models import tasks_by_key

HELP = """Generates each model twice from empty caches and compares the picks of every task. With the demo model at
effort normal about 6,000 measurements: ten to thirty minutes on two cores. --quick: a small model on the null device, a
few seconds."""
WITHIN = 0.02
MARK = 0.95
ROUNDS = 6


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
                    with TaskOnTarget(client, task) as bench:
                        mine, again, _ = bench.retime([*picks, bench.default], ROUNDS)
                    compared = paired_ratio(again, mine)
                    value, shown = compared.value, str(compared)
                near.append(abs(value - 1) <= WITHIN)
                tasks[title_of(task)] = {"picks": picks, "second_by_first": value}
                rows.append((title_of(task), shown, "yes" if near[-1] else "no"))
        figures["models"][model.title + ", seconds"] = [first.seconds, second.seconds]
    conclusions = [
        f"within {WITHIN:.0%} of each other: {share(near)} (mark: {MARK:.0%}); the same configuration: {share(same)}"
    ]
    return Result(figures, ("task", "second pick / first", f"within {WITHIN:.0%}"), rows, conclusions)
