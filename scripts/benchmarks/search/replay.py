"""Replay a strategy on a recorded space: which share of the optimum its best has reached after each evaluation."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.search.spaces import MILLISECOND_NS, Recording
from gputune.client.tuning.search.seeding import FROM_ELSEWHERE
from gputune.client.tuning.search.strategies import Strategy
from gputune.client.tuning.search.strategies.catalogue import STRATEGIES
from gputune.client.tuning.search.strategies.portfolio import greedy_portfolio
from gputune.kernels.family import Estimate
from gputune.kernels.space import Configuration

Curves = npt.NDArray[np.float64]
"""[seeds, evaluations]: percent of the optimum, 100 x best / found; 0 as long as nothing worked."""

Floats = npt.NDArray[np.float64]

KERNEL_TUNER_MINUTES = 60


class KernelTunerFailed(Exception):
    """Kernel Tuner's process ended without results."""


def curve(best_ns: float, costs_ns: Sequence[float | None], evaluations: int) -> list[float]:
    """Percent of the optimum after each of so many evaluations; a search that ended early keeps its last."""
    reached, found = [], 0.0
    for cost in costs_ns[:evaluations]:
        found = found if cost is None else max(found, 100 * best_ns / cost)
        reached.append(found)
    return reached + [found] * (evaluations - len(reached))


def search(recording: Recording, strategy: Strategy, evaluations: int, batch: int) -> list[float | None]:
    """The costs of what a strategy asked for, in order."""
    costs: list[float | None] = []
    while len(costs) < evaluations and (asked := strategy.ask(min(batch, evaluations - len(costs)))):
        told = [recording.evaluate(configuration) for configuration in asked]
        costs += [evaluation.cost_ns for evaluation in told]
        strategy.tell(told)
    return costs


def replay(
    recording: Recording,
    name: str,
    seeds: int,
    evaluations: int,
    batch: int,
    portfolio: Sequence[Configuration] = (),
    strangers: Sequence[Configuration] = (),
    estimate: Estimate | None = None,
) -> Curves:
    """The curves of one of our strategies, one per seed."""
    make, space = STRATEGIES[name], recording.space
    searches = (
        search(recording, make(space, seed, portfolio, strangers, estimate), evaluations, batch)
        for seed in range(1, seeds + 1)
    )
    return np.array([curve(recording.best_ns, costs, evaluations) for costs in searches])


def winners_of(others: Sequence[Recording], recording: Recording) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """The portfolio from other devices' recordings, and the strangers, from those of other vendors' devices."""
    akin = [one.records() for one in others if one.vendor == recording.vendor]
    strange = [one.records() for one in others if one.vendor != recording.vendor]
    return greedy_portfolio(akin, FROM_ELSEWHERE), greedy_portfolio(strange, FROM_ELSEWHERE)


def sources(recording: Recording, devices: Sequence[Recording]) -> list[tuple[Recording, ...]]:
    """Whose records a search on this device may know: each other device's, those of other vendors, all."""
    others = tuple(one for one in devices if one is not recording)
    strange = tuple(one for one in others if one.vendor != recording.vendor)
    return [each for each in dict.fromkeys([*((one,) for one in others), strange, others]) if each]


def kernel_tuner_cache(recording: Recording) -> dict[str, object]:
    """The recording as a cache file that Kernel Tuner's simulation mode reads; times in milliseconds."""
    names = [parameter.name for parameter in recording.space.parameters]
    entries = {}
    for configuration, cost in recording.records():
        measured = {"times": [], "compile_time": 0, "verification_time": 0, "benchmark_time": 0}
        time = "RuntimeFailedConfig" if cost is None else cost / MILLISECOND_NS
        overheads = {"strategy_time": 0, "framework_time": 0, "timestamp": ""}
        key = ",".join(str(configuration[name]) for name in names)
        entries[key] = {**configuration, "time": time, **measured, **overheads}
    return {
        "device_name": recording.device or "recorded",
        "kernel_name": recording.kernel,
        "problem_size": 1,
        "tune_params_keys": names,
        "tune_params": {parameter.name: list(parameter.values) for parameter in recording.space.parameters},
        "objective": "time",
        "cache": entries,
    }


def kernel_tuner(
    recording: Recording, python: Path, strategies: Sequence[str], seeds: int, evaluations: int
) -> Mapping[str, Curves]:
    """The curves of Kernel Tuner's strategies, run by an interpreter that has it. Raises KernelTunerFailed."""
    with tempfile.TemporaryDirectory() as folder:
        cache, job = Path(folder, "cache.json"), Path(folder, "job.json")
        cache.write_text(json.dumps(kernel_tuner_cache(recording)), encoding="utf-8")
        parameters = {parameter.name: list(parameter.values) for parameter in recording.space.parameters}
        wanted = {
            "kernel": recording.kernel,
            "parameters": parameters,
            "valid": [[c[name] for name in parameters] for c in recording.space.configurations()],
            "strategies": list(strategies),
            "seeds": list(range(1, seeds + 1)),
            "evaluations": evaluations,
            "cache": str(cache),
        }
        job.write_text(json.dumps(wanted), encoding="utf-8")
        command = [str(python), str(Path(__file__).with_name("with_kernel_tuner.py")), str(job)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, cwd=folder, timeout=60 * KERNEL_TUNER_MINUTES, stderr=sys.stderr
        )
    if done.returncode:
        raise KernelTunerFailed(f"{python} ended with exit code {done.returncode}: see its message above")
    found: dict[str, list[list[float]]] = {name: [] for name in strategies}
    for line in done.stdout.splitlines():
        run = json.loads(line)
        costs = [None if cost is None else cost * MILLISECOND_NS for cost in run["costs"]]
        found[run["strategy"]].append(curve(recording.best_ns, costs, evaluations))
    return {name: np.array(curves) for name, curves in found.items()}


def mean_over_seeds(devices: Sequence[Curves]) -> tuple[Floats, Floats]:
    """The mean over seeds and devices after each evaluation, and its standard error: how far chance, which the seeds
    stand for, may have moved it; 0 for a single seed."""
    mean = np.mean([curves.mean(axis=0) for curves in devices], axis=0)
    variances = [curves.var(axis=0, ddof=min(1, len(curves) - 1)) / len(curves) for curves in devices]
    error: Floats = np.sqrt(np.sum(variances, axis=0)) / len(devices)
    return mean, error
