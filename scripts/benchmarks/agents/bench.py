"""Compare the time of searches behind an agent, beside it and far away, with those of an embedded server.

The same searches run through an embedded server with the device of this machine, with that device behind an agent, and
behind an agent that a relay keeps MILLISECONDS away, in turns. A turn has a server of its own, and its time is that of
its searches. On a CPU both sides have a folder for compiled programs, and compile in a second process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.agents.process import AgentProcess, Relay
from benchmarks.options import add_options
from benchmarks.result import Result
from gputune.cache import PerformanceCache
from gputune.client.model.plan import Task
from gputune.client.options.tuning import TuningOptions
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import choose_target
from gputune.client.tuning.search.effort import EFFORTS, Effort
from gputune.client.tuning.tuner import Tuner
from gputune.runtime.devices.discovery import AGENT_PREFIX
from models import tune_models

MILLISECONDS = 2.0
MARKS = {"agent": 1.3, "far agent": 1.6}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_options(parser, device=None, rounds=5, quick=False)
    parser.add_argument("--effort", choices=["quick", "normal"], default="quick", help="(default: %(default)s)")


def run(options: argparse.Namespace) -> Result:
    """Measure what a variant takes each way. Raises GputuneError."""
    effort, rounds, tasks = EFFORTS[options.effort], options.rounds, tune_models.three_tasks()
    if options.quick:
        effort, rounds, tasks = _of_one_trial(effort), 1, tasks[-1:]
    found: dict[str, list[float]] = {way: [] for way in ("embedded", *MARKS)}
    for number in range(rounds):
        for way in list(found)[:: 1 if number % 2 == 0 else -1]:
            with _device(way, options.device) as device:
                found[way].append(_seconds(device, effort, tasks))
            print(f"{number + 1}/{rounds} {way}: {1e3 * found[way][-1]:.0f} ms a variant", flush=True)
    rows, figures = [], {}
    for way, seconds in found.items():
        ratios = [one / own for one, own in zip(seconds, found["embedded"], strict=True)]
        figures[way] = {"seconds_a_variant": seconds, "ratios": ratios}
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        mark = f"at most {MARKS[way]}" if way in MARKS else ""
        rows.append((way, f"{1e3 * statistics.median(seconds):.0f} ms", ratio, mark))
    return Result(figures, [(("way", "a variant", "by embedded (range)", "mark"), rows)])


def _seconds(device: str | None, effort: Effort, tasks: Sequence[Task]) -> float:
    """Return what each variant of a turn took. Raises GputuneError."""
    with choose_target(None, os.environ, device) as target, target.connect() as client:
        _searched(client, _of_one_trial(effort), tasks[:1])  # whatever is loaded once is loaded now
        began = time.monotonic()
        measured = _searched(client, effort, tasks)
        return (time.monotonic() - began) / measured


def _of_one_trial(effort: Effort) -> Effort:
    return replace(effort, trials=1, light_trials=1)


def _searched(client: TargetClient, effort: Effort, tasks: Sequence[Task]) -> int:
    """Tune at random from an empty cache, which takes the same variants each way; return how many were measured."""
    with TemporaryDirectory() as folder, PerformanceCache.open(Path(folder) / "tune.sqlite") as cache:
        tuner = Tuner([client], cache, effort, options=TuningOptions(strategy="random"))
        return sum(outcome.measured for outcome in tuner.tune(tasks))


@contextmanager
def _device(way: str, wanted: str | None) -> Iterator[str | None]:
    """Yield what a turn is given as its device: that of this machine, or an agent of its own, which finds nothing that
    another turn has compiled."""
    if way == "embedded":
        yield wanted
        return
    with AgentProcess.on(wanted) as agent:
        if way != "far agent":
            yield agent.device
            return
        with closing(Relay(agent.address, MILLISECONDS)) as relay:
            yield f"{AGENT_PREFIX}{relay.address}"
