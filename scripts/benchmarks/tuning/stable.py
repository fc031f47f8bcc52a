"""Check whether generations from empty caches choose contexts that are equally fast (`scripts/bench tune stable`).

The generations run beside processes that keep the cores busy, or alone; all contexts are then timed in turns, with that
of a generation without tuning and, where asked for, that of a greater effort.
"""

import argparse
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.persistent.contention import busy
from benchmarks.tuning.generate import Generated, chosen, generated
from benchmarks.tuning.generate import add_arguments as add_common
from benchmarks.tuning.tools import Ratio, Result, device_of, share
from gputune import runtime
from gputune.client.tuning.measuring.intervals import paired_interval
from models.tune_models import Model

HELP = """Generates models several times from empty caches, beside busy processes if asked for, and times all contexts
in turns with the untuned one. Ten generations of the demo's model at effort quick: an hour on two cores."""
ROUNDS = 60
TURN_SECONDS = 0.25  # so that each context mostly runs in the form that suits it
CLOSE, FARTHEST = 1.05, 1.10
BANDS = ((0.05, "5 % and more"), (0.02, "2 to 5 %"), (0.005, "0.5 to 2 %"), (0.0, "less than 0.5 %"))


@dataclass(frozen=True)
class Cost:
    """What a generation took. trials: configurations measured, by the share of an inference of their tasks."""

    cpu_seconds: float
    wall_seconds: float
    trials: Mapping[str, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, "demo")
    parser.add_argument("--generations", type=int, default=10, help="from empty caches (default: %(default)s)")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="processes that compute beside generations")
    parser.add_argument("--against", choices=["normal", "full"], help="one more generation, at this effort and alone")


def run(options: argparse.Namespace) -> Result:
    models, effort = chosen(options)
    figures: dict[str, Any] = {"effort": effort, "busy": options.busy, "models": {}}
    rows: list[tuple[str, ...]] = []
    conclusions: list[str] = []
    for model in models:
        count = 2 if options.quick else options.generations
        with busy(options.busy):
            made = [_generated(model, effort, f"{effort}_{number}", options) for number in range(count)]
        names = [f"generation {number + 1}" for number in range(count)]
        if options.against:
            made.append(_generated(model, options.against, options.against, options))
            names.append(f"effort {options.against}")
        plain = generated(model, "none", "none", options)
        times, persistent = _timed([*(one.context for one, _ in made), plain.context], options)
        figures["models"][model.title] = _figures(names, made, times)
        rows += _rows(model, names, made, times, persistent)
        conclusions += _conclusions(model, names, made, times, count)
    head = ("context", "ms", "x the best", "untuned / it (95 %)", "persistent", "CPU s", "wall s")
    return Result(figures, head, rows, conclusions)


def _generated(model: Model, effort: str, name: str, options: argparse.Namespace) -> tuple[Generated, Cost]:
    began, before = time.monotonic(), _cpu_seconds()
    one = generated(model, effort, name, options)
    cost = Cost(_cpu_seconds() - before, time.monotonic() - began, _by_share(list(one.tasks.values())))
    kept = options.work / "stable" / f"{name}.bin"
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(one.context, kept)
    print(f"{name}: {cost.cpu_seconds:.0f} s of CPU, {cost.wall_seconds:.0f} s", file=sys.stderr, flush=True)
    return replace(one, context=kept), cost


def _cpu_seconds() -> float:
    """Of this process and its children, those that run not yet counted."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _by_share(tasks: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Trials by what their tasks take of the kernels' time, those apart that the context does not run."""
    whole = sum(task["weight"] * (task["tuned_ns"] or 0.0) for task in tasks)
    found = dict.fromkeys([*(title for _, title in BANDS), "not run"], 0)
    for task in tasks:
        part = task["weight"] * (task["tuned_ns"] or 0.0) / whole if whole else 0.0
        band = "not run" if not task["weight"] else next(title for least, title in BANDS if part >= least)
        found[band] += sum(task["trials"].values())
    return found


def _timed(files: Sequence[Path], options: argparse.Namespace) -> tuple[list[list[float]], list[str]]:
    """By context: the lower quartile of each turn in nanoseconds, and the share of runs by persistent kernels."""
    contexts = [runtime.load(file, device=device_of(options)) for file in files]
    numbers = np.random.default_rng(0)
    inputs = {t.name: numbers.standard_normal(t.shape).astype(t.dtype) for t in contexts[0].graph.inputs}
    times: list[list[float]] = [[] for _ in contexts]
    for number in range(3 if options.quick else ROUNDS):
        places = range(len(contexts))
        for place in places if number % 2 else reversed(places):
            contexts[place].run(inputs)
            taken: list[int] = []
            while sum(taken) < TURN_SECONDS * 1e9 or len(taken) < 2:
                taken.append(contexts[place].run_timed(inputs)[1])
            times[place].append(float(sorted(taken)[len(taken) // 4]))
    return times, [_persistent(context.runs) for context in contexts]


def _persistent(runs: runtime.Runs | None) -> str:
    return "" if runs is None else f"{runs.persistent / max(runs.inferences, 1):.0%}"


def _figures(
    names: Sequence[str], made: Sequence[tuple[Generated, Cost]], times: Sequence[Sequence[float]]
) -> dict[str, Any]:
    costs = {name: asdict(cost) for name, (_, cost) in zip(names, made, strict=True)}
    return {"costs": costs, "times_ns": dict(zip([*names, "untuned"], map(list, times), strict=True))}


def _of(over: Sequence[float], under: Sequence[float]) -> Ratio:
    interval = paired_interval(over, under)
    return Ratio(statistics.median(a / b for a, b in zip(over, under, strict=True)), interval.low, interval.high)


def _rows(
    model: Model,
    names: Sequence[str],
    made: Sequence[tuple[Generated, Cost]],
    times: Sequence[Sequence[float]],
    persistent: Sequence[str],
) -> list[tuple[str, ...]]:
    *tuned, plain = times
    best = min(tuned, key=statistics.median)
    rows = [
        (
            f"{model.title}, {name}",
            f"{statistics.median(own) / 1e6:.3f}",
            f"{_of(own, best).value:.3f}",
            str(_of(plain, own)),
            form,
            f"{cost.cpu_seconds:.0f}",
            f"{cost.wall_seconds:.0f}",
        )
        for name, (_, cost), own, form in zip(names, made, tuned, persistent[:-1], strict=True)
    ]
    return [*rows, (f"{model.title}, untuned", f"{statistics.median(plain) / 1e6:.3f}", "", "", persistent[-1], "", "")]


def _conclusions(
    model: Model,
    names: Sequence[str],
    made: Sequence[tuple[Generated, Cost]],
    times: Sequence[Sequence[float]],
    count: int,
) -> list[str]:
    *tuned, plain = times
    alike = tuned[:count]
    best = min(alike, key=statistics.median)
    behind = [_of(own, best).value for own in alike]
    slower = [_of(plain, own).high < 1 for own in alike]
    found = [
        f"{model.title}: within 5 % of the best generation: {share([one <= CLOSE for one in behind])}; within 10 %: "
        f"{share([one <= FARTHEST for one in behind])}; slower than untuned for certain: {share(slower)}",
        f"{model.title}: a generation took {statistics.median(cost.cpu_seconds for _, cost in made[:count]):.0f} s of "
        f"CPU and {statistics.median(cost.wall_seconds for _, cost in made[:count]):.0f} s (medians)",
    ]
    if len(tuned) > count:
        reached = [_of(tuned[count], own).value for own in alike]
        found.append(
            f"{model.title}: of the speed at {names[count]}, the generations reach {statistics.median(reached):.1%} "
            f"(median; {min(reached):.1%} to {max(reached):.1%})"
        )
    for title in made[0][1].trials:
        each = [cost.trials[title] for _, cost in made[:count]]
        found.append(f"{model.title}: trials of tasks of {title}: {statistics.median(each):.0f} (median)")
    return found
