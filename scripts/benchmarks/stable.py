"""Check whether generations from empty caches choose contexts that are equally fast.

The generations run beside processes that keep the cores busy, or alone. All contexts are then timed in turns with that
of a generation without tuning and, where asked for, that of a greater effort.
"""

import argparse
import resource
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tool
from benchmarks.forms import busy
from benchmarks.networks import wanted
from benchmarks.options import add_options
from benchmarks.result import Result, told
from benchmarks.turns import in_turns
from gputune.client.tuning.measuring.intervals import Ratio
from models.tune_models import Model

CLOSE, FARTHEST = 1.05, 1.10
NAME, UNTUNED = "stable", "untuned"


@dataclass(frozen=True)
class Cost:
    """Count the cost of a generation."""

    cpu_seconds: float
    wall_seconds: float
    trials: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_options(parser, only="page orientation", seconds=120.0, effort="normal", device=None, quick=False)
    parser.add_argument("--generations", type=int, default=10, help="from empty caches (default: %(default)s)")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="processes that compute beside generations")
    parser.add_argument("--against", choices=["normal", "full"], help="one more generation, at this effort and alone")


def run(options: argparse.Namespace) -> Result:
    """Generate and time the networks that the options ask for. Raises DeviceOrContextError."""
    shutil.rmtree(options.work / NAME, ignore_errors=True)
    rows, lines, figures = [], list[str](), {}
    for name, (make, _) in wanted(options).items():
        model = make()
        titles = [f"generation {number + 1}" for number in range(options.generations)]
        with busy(options.busy):
            made = {title: _generated(model, options.effort, title, options) for title in titles}
        if options.against:
            made[f"effort {options.against}"] = _generated(model, options.against, options.against, options)
        made[UNTUNED] = _generated(model, "none", UNTUNED, options)
        with in_turns({title: context for title, (context, _) in made.items()}, options) as turns:
            times = turns.times
        best = min(titles, key=lambda title: statistics.median(times[title]))
        ratios = {title: turns.ratio(title, best) for title in times}
        gains = {title: turns.ratio(UNTUNED, title) for title in times}
        for title, (_, cost) in made.items():
            figure = (tool.milliseconds(statistics.median(times[title])), f"{ratios[title].median:.3f}")
            more = (str(cost.trials), f"{cost.cpu_seconds:.0f}", f"{cost.wall_seconds:.0f}")
            rows.append((f"{name}, {title}", *figure, told(gains[title]), *more))
        figures[name] = {"costs": {title: asdict(cost) for title, (_, cost) in made.items()}, "times_ns": times}
        lines += [f"{name}: {line}" for line in conclusions(titles, ratios, gains)]
    head = ("context", "ms", "x the best", "untuned / it (95 %)", "trials", "CPU s", "wall s")
    return Result(figures, [(head, rows)], lines)


def conclusions(titles: Sequence[str], ratios: Mapping[str, Ratio], gains: Mapping[str, Ratio]) -> list[str]:
    """Return what the generations have in common. ratios: times by the best generation's; gains: speeds by untuned."""
    behind = [ratios[title].median for title in titles]
    found = [
        f"within {limit - 1:.0%} of the best generation: {_share([one <= limit for one in behind])}"
        for limit in (CLOSE, FARTHEST)
    ]
    found.append(f"slower than untuned for certain: {_share([gains[title].high < 1 for title in titles])}")
    for other in ratios.keys() - {*titles, UNTUNED}:
        reached = [ratios[other].median / one for one in behind]
        found.append(f"reached of the speed at {other}: {statistics.median(reached):.1%} (median)")
    return found


def _share(flags: Sequence[bool]) -> str:
    return f"{sum(flags)} of {len(flags)}"


def _generated(model: Model, effort: str, title: str, options: argparse.Namespace) -> tuple[Path, Cost]:
    folder, before = options.work / NAME / f"{model.path.stem}_{title}".replace(" ", "_"), _cpu_seconds()
    cache = folder.with_suffix(".cache")
    ran = tool.generate(folder, model.path, model.shapes, effort, device=options.device, cache=cache)
    trials = sum(sum(task["trials"].values()) for task in ran.summary["tasks"])
    return ran.context, Cost(_cpu_seconds() - before, ran.seconds, trials)


def _cpu_seconds() -> float:
    """Of this process's children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
