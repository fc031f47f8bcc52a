"""`scripts/bench tune retime`: whether recorded times come out again.

After a generation, the kernels that it chose are timed once more, each beside its default, and compared with the
median that the generation has recorded.
"""

import argparse
import os
import random
import statistics
from typing import Any

import numpy as np

from gputune.client.target import choose_target
from tune_generate import add_arguments as add_common
from tune_generate import chosen, generated
from tune_models import tasks_by_key
from tune_tools import Result, TaskOnTarget, device_of, median_of, title_of

HELP = """Generates models from an empty cache and times the chosen kernels again. With the demo model at effort normal
about 3,000 measurements: five to fifteen minutes on two cores. --quick: a small model on the null device, a few
seconds."""
MARK = 0.05
ROUNDS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, "demo")
    parser.add_argument("--kernels", type=int, default=30, metavar="N", help="how many (default: %(default)s)")


def run(options: argparse.Namespace) -> Result:
    models, effort = chosen(options)
    made = [(model, generated(model, effort, "retime", options)) for model in models]
    tasks = [(tasks_by_key(model)[key], one) for model, run in made for key, one in run.tasks.items()]
    tasks = [(task, one) for task, one in tasks if one["tuned_ns"] is not None]
    random.Random(0).shuffle(tasks)
    figures: dict[str, Any] = {"effort": effort, "kernels": {}}
    rows, off = [], []
    with choose_target(None, os.environ, device_of(options)) as target, target.connect() as client:
        for task, one in tasks[: options.kernels]:
            with TaskOnTarget(client, task) as bench:
                again_ns = median_of(bench.retime([one["configuration"], bench.default], ROUNDS)[0])
            by_recorded = again_ns / one["tuned_ns"]
            off.append(abs(by_recorded - 1))
            figures["kernels"][title_of(task)] = {"recorded_ns": one["tuned_ns"], "again_ns": again_ns}
            rows.append(
                (title_of(task), f"{one['tuned_ns'] / 1e3:.1f} us", f"{again_ns / 1e3:.1f} us", f"{by_recorded:.3f}")
            )
    p50, p90 = statistics.median(off), float(np.quantile(off, 0.9))
    figures |= {"p50": p50, "p90": p90}
    conclusions = [
        f"off by {p50:.1%} (median) and {p90:.1%} (p90, mark: {MARK:.0%}) of {len(off)} kernels, at most {max(off):.1%}"
    ]
    return Result(figures, ("kernel", "recorded", "again", "ratio"), rows, conclusions)
