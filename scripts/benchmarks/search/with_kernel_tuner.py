"""Replay recorded spaces through Kernel Tuner's strategies, in its simulation mode. Runs under an interpreter that has
kernel_tuner installed and needs nothing of gputune: `bench.py` starts it as

    PYTHON with_kernel_tuner.py JOB.json

and reads from its standard output one JSON line per run: {"strategy", "seed", "costs"}, the costs in milliseconds of
the configurations in the order in which they were evaluated first, null for one that failed. JOB.json names the cache
file that was written from T4, the parameters, the valid configurations, strategies and seeds.
"""

import contextlib
import io
import json
import random
import sys
import warnings
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import kernel_tuner  # noqa: E402
import numpy as np  # noqa: E402
from kernel_tuner import util  # noqa: E402

Result = dict[str, Any]


def run(job: Result, strategy: str, seed: int) -> list[float | None]:
    """The costs of one search in the order of evaluation."""
    valid = {tuple(values) for values in job["valid"]}
    names = list(job["parameters"])
    costs: list[float | None] = []

    def seen(parameters: Result, result: Result, *_: Any, **__: Any) -> None:
        costs.append(None if "__error__" in result else float(result["time"]))

    def legal(*values: int, **named: int) -> bool:
        """Kernel Tuner passes the values by place when it builds the space, and by name when it checks one."""
        return (values or tuple(named[name] for name in names)) in valid

    # Called by the simulation runner once for each configuration that it has not met before, failures included.
    util.print_config_output = seen
    random.seed(seed)
    np.random.seed(seed)
    # Some strategies end by an exception when the budget is spent; what they had evaluated by then counts.
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            kernel_tuner.tune_kernel(
                job["kernel"],
                "",
                1,
                [],
                job["parameters"],
                restrictions=[legal],
                strategy=strategy,
                strategy_options={"max_fevals": job["evaluations"]},
                simulation_mode=True,
                cache=job["cache"],
                lang="C",
                quiet=True,
            )
        except Exception as error:
            if not costs:
                raise SystemExit(f"kernel_tuner, strategy {strategy}: {type(error).__name__}: {error}") from error
    return costs[: job["evaluations"]]


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for strategy in job["strategies"]:
        for seed in job["seeds"]:
            print(json.dumps({"strategy": strategy, "seed": seed, "costs": run(job, strategy, seed)}), flush=True)


if __name__ == "__main__":
    main()
