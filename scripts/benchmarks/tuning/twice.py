"""Check whether the same generation picks equally fast variants again (`scripts/bench tune twice`).

A model is generated twice, each time from an empty cache; per task the two picks and the default are timed again side
by side, until it is known well enough how fast one is beside the other. Picks that are the same configuration are
equally fast without timing. That is told of what each task's search has picked, and of what ships: whole contexts that
are equally fast may differ in every task, as a tuned and an untuned one do where tuning gains nothing end to end.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.agents.process import AgentProcess
from benchmarks.tuning.generate import add_arguments as add_common
from benchmarks.tuning.generate import chosen, generated
from benchmarks.tuning.tools import Ratio, Result, TaskOnTarget, device_of, paired_ratio, share, title_of
from gputune.client.model.plan import Task
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import choose_target
from gputune.kernels.space import Configuration, configuration_key
from models.tune_models import tasks_by_key

HELP = """Generates each model twice from empty caches and compares the picks of every task. With the demo model at
effort normal about 6,000 measurements: ten to thirty minutes on two cores. --quick: a small model on the null device, a
few seconds."""
WITHIN = 0.02
MARK = 0.9
ROUNDS, MOST_ROUNDS = 6, 30
"""Of timing two picks again: on until half the interval is at most half of what they may differ by."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, "demo")
    parser.add_argument("--agent", action="store_true", help="the second time, the device is behind an agent")


def run(options: argparse.Namespace) -> Result:
    models, effort = chosen(options)
    figures: dict[str, Any] = {"effort": effort, "models": {}}
    rows: list[tuple[str, ...]] = []
    compared: dict[str, list[Compared]] = {what: [] for what in ("what searches pick", "what ships")}
    for model in models:
        first = generated(model, effort, "first", options)
        with _second(options) as others:
            second = generated(model, effort, "second", others)
        plan_tasks = tasks_by_key(model)
        tasks = figures["models"][model.title] = {}
        with choose_target(None, os.environ, device_of(options)) as target, target.connect() as client:
            for key, one in first.tasks.items():
                task = plan_tasks[key]
                shipped = one["configuration"], second.tasks[key]["configuration"]
                pairs = [(first.winners[key], second.winners[key]), shipped]
                own = dict(zip(compared, compare(client, task, pairs), strict=True))
                for what, result in own.items():
                    compared[what].append(result)
                tasks[title_of(task)] = {what: result.figures for what, result in own.items()}
                rows.append((title_of(task), *map(str, own.values())))
        figures["models"][model.title + ", seconds"] = [first.seconds, second.seconds]
    conclusions = [
        f"{what}, within {WITHIN:.0%} of each other: {share([one.near for one in results])} (mark: {MARK:.0%}); the "
        f"same configuration: {share([one.same for one in results])}"
        for what, results in compared.items()
    ]
    return Result(figures, ("task", *(f"{what}: second / first" for what in compared)), rows, conclusions)


@contextmanager
def _second(options: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """Yield the options of the second generation, while an agent runs if they ask for it."""
    if not options.agent:
        yield options
        return
    with AgentProcess.on(device_of(options)) as agent:
        yield argparse.Namespace(**{**vars(options), "device": agent.device})


@dataclass(frozen=True)
class Compared:
    """Two picks of a task, and the time of the second by that of the first; None where they are the same."""

    picks: tuple[Configuration, Configuration]
    ratio: Ratio | None

    @property
    def same(self) -> bool:
        """Whether they are the same configuration."""
        return self.ratio is None

    @property
    def near(self) -> bool:
        """Whether they are equally fast."""
        return self.ratio is None or abs(self.ratio.value - 1) <= WITHIN

    @property
    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {"picks": self.picks, "second_by_first": 1.0 if self.ratio is None else self.ratio.value}

    def __str__(self) -> str:
        return "the same" if self.ratio is None else f"{self.ratio}{'' if self.near else ' no'}"


def compare(client: TargetClient, task: Task, pairs: Sequence[tuple[Configuration, Configuration]]) -> list[Compared]:
    """Pairs of picks of one task; a pair that comes again is timed once. Raises NotTimed, TargetError."""
    known: dict[tuple[str, ...], Compared] = {}
    results = []
    for pair in pairs:
        keys = tuple(map(configuration_key, pair))
        if keys not in known:
            known[keys] = Compared(pair, None if keys[0] == keys[1] else second_by_first(client, task, pair))
        results.append(known[keys])
    return results


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
