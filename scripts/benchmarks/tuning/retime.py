"""Check whether recorded times come out again (`scripts/bench tune retime`).

After a generation, the kernels that it chose are timed once more, each beside its default, and compared with the
median that the generation has recorded; and what each takes by its default's time with what it took by that when both
were recorded, which a machine that has become slower as a whole does not change.
"""

import argparse
import os
import random
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.tuning.generate import add_arguments as add_common
from benchmarks.tuning.generate import chosen, generated
from benchmarks.tuning.tools import Result, TaskOnTarget, device_of, median_of, paired_ratio, title_of
from gputune.client.target.connecting import choose_target
from models.tune_models import tasks_by_key

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
    rows, off, off_by_default = [], [], []
    with choose_target(None, os.environ, device_of(options)) as target, target.connect() as client:
        for task, one in tasks[: options.kernels]:
            with TaskOnTarget(client, task) as bench:
                picked, default = bench.retime([one["configuration"], bench.default], ROUNDS)
            again_ns = median_of(picked)
            by_recorded = again_ns / one["tuned_ns"]
            off.append(abs(by_recorded - 1))
            found = figures["kernels"][title_of(task)] = {"recorded_ns": one["tuned_ns"], "again_ns": again_ns}
            shown = "its default"
            if one["default_ns"] is not None and one["configuration"] != bench.default:
                found["by_default"] = one["tuned_ns"] / one["default_ns"]
                found["by_default_again"] = paired_ratio(picked, default).value
                off_by_default.append(abs(found["by_default_again"] / found["by_default"] - 1))
                shown = f"{found['by_default']:.3f}, {found['by_default_again']:.3f}"
            rows.append(
                (
                    title_of(task),
                    f"{one['tuned_ns'] / 1e3:.1f} us",
                    f"{again_ns / 1e3:.1f} us",
                    f"{by_recorded:.3f}",
                    shown,
                )
            )
    figures |= {"off": _quantiles(off), "off_by_default": _quantiles(off_by_default)}
    conclusions = [
        f"off by {_shown(off)} (mark of the p90: {MARK:.0%})",
        f"beside their defaults, of those that are not their defaults, off by {_shown(off_by_default)}",
    ]
    return Result(figures, ("kernel", "recorded", "again", "ratio", "by its default then, now"), rows, conclusions)


def _quantiles(off: Sequence[float]) -> dict[str, float]:
    if not off:
        return {}
    return {"p50": statistics.median(off), "p90": float(np.quantile(off, 0.9)), "most": max(off)}


def _shown(off: Sequence[float]) -> str:
    found = _quantiles(off)
    if not found:
        return "nothing, there are none"
    return (
        f"{found['p50']:.1%} (median), {found['p90']:.1%} (p90) and at most {found['most']:.1%} of {len(off)} kernels"
    )
