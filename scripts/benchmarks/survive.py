"""Measure the cost of a variant that hangs, crashes or fails otherwise, against the same batch without it
(`scripts/bench survive`)."""

import argparse
import os
import statistics
import time
from typing import Any

import numpy as np

from benchmarks import planted
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import choose_target
from gputune.core.launches import Trial
from gputune.server.protocol.messages import ProfileKernel

NAMES = {
    planted.WRONG: "returns wrong numbers",
    planted.OUTSIDE: "writes outside its output",
    planted.ENDLESS: "never ends",
    planted.SEGFAULT: "crashes the process",
    planted.LOCAL_MEMORY: "wants too much local memory",
    planted.NO_COMPILE: "does not compile",
}
MARKS = {planted.ENDLESS: "hang at most max(2 s, 3x the best variant's batch), then at most 1 s"}


class Batch:
    """Measures planted variants of one task."""

    def __init__(self, client: TargetClient) -> None:
        self._client = client
        self._family, self._problem = planted.PlantedFamily(), planted.Doubled()
        values = np.random.default_rng(1).standard_normal(self._problem.size, dtype=np.float32)
        self._input, self._reference = client.upload(values), client.upload(2 * values)

    def measure(self, plants: list[int]) -> tuple[list[Trial], float, int]:
        """The trials, the seconds that the request took, and the nanoseconds that went into starting workers again."""
        configurations = [{"PLANT": plant} for plant in plants]
        work, tolerance = self._family.work(self._problem), self._family.tolerance(self._problem)
        request = ProfileKernel(
            task="doubled",
            buffers={"input": self._input},
            output_bytes=4 * self._problem.size,
            reference=self._reference,
            relative=tolerance.relative,
            absolute=tolerance.absolute,
            dtype="float32",
            variants=tuple(
                self._family.render(self._problem, each).variant(each, number)
                for number, each in enumerate(configurations)
            ),
            baseline=None,
            best_ns=0.0,
            work=work,
            samples=3,
            sample_ns=1_000_000,
            warm_up_ns=20_000_000,
            cold=False,
            together=True,
            harvest=True,
        )
        start = time.perf_counter()
        measured = self._client.measure_kernel(request)
        return list(measured.trials), time.perf_counter() - start, measured.spent_ns.get("recover", 0)


def run(options: argparse.Namespace) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """The figures for JSON, and the rows of the table: what, status, cost, time to serve again, mark."""
    figures: dict[str, Any] = {}
    rows: list[tuple[str, ...]] = []
    with choose_target(None, os.environ, options.device) as target, target.connect() as client:
        batch = Batch(client)
        batch.measure([planted.DEFAULT, planted.FASTEST])
        for plant, name in NAMES.items():
            costs, recoveries, messages = [], [], set()
            for _ in range(options.rounds):
                _, calm, _ = batch.measure([planted.DEFAULT, planted.FASTEST])
                trials, seconds, recover_ns = batch.measure([planted.DEFAULT, plant, planted.FASTEST])
                if trials[1].status != planted.STATUSES[plant] or {trials[0].status, trials[2].status} != {"ok"}:
                    raise RuntimeError(f"{name}: {trials}")
                costs.append(seconds - calm)
                recoveries.append(recover_ns / 1e9)
                messages.add(trials[1].message)
            figures[name] = {"cost_seconds": costs, "recover_seconds": recoveries, "messages": sorted(messages)}
            cost = f"{statistics.median(costs):.2f} s ({min(costs):.2f} to {max(costs):.2f})"
            again = f"{statistics.median(recoveries):.2f} s, at most {max(recoveries):.2f}" if any(recoveries) else ""
            rows.append((name, planted.STATUSES[plant], cost, again, MARKS.get(plant, "")))
            print(f"{name}: {min(messages)}", flush=True)
    return figures, rows
