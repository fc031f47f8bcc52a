"""Measure what a device behind an agent costs a search (`scripts/bench agent`).

The same searches run through an embedded server with the device of this machine, with that device behind an agent, and
behind an agent that a relay keeps MILLISECONDS away, in turns. A turn is a process of its own, and its time that of its
searches. On a CPU both sides have a folder for compiled programs, and compile in a second process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tool
from benchmarks.agents.process import AgentProcess
from benchmarks.tuning.remote import TASKS, turn
from benchmarks.tuning.tools import WORK, NotTimed
from gputune.client.errors import GputuneError
from gputune.runtime.devices.discovery import AGENT_PREFIX

MILLISECONDS = 2.0
MARKS = {"agent": 1.3, "far agent": 1.6}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `scripts/bench agent`."""
    parser.add_argument("--device", help="the device to use, as gputune's --device")
    parser.add_argument("--effort", choices=["quick", "normal"], default="quick")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Compare the time of searches behind an agent, beside it and far away, with those of an embedded server."""
    try:
        seconds = _seconds(options)
    except (GputuneError, NotTimed) as error:
        sys.exit(f"scripts/bench agent: {error}")
    rows, figures = [], {}
    for way, found in seconds.items():
        ratios = [one / own for one, own in zip(found, seconds["embedded"], strict=True)]
        figures[way] = {"seconds_a_variant": found, "ratios": ratios}
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        mark = f"at most {MARKS[way]}" if way in MARKS else ""
        rows.append((way, f"{1e3 * statistics.median(found):.0f} ms", ratio, mark))
    print("\n" + tool.table(["way", "a variant", "by embedded (range)", "mark"], rows), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def _seconds(options: argparse.Namespace) -> dict[str, list[float]]:
    """Return by way what each variant took in each round."""
    found: dict[str, list[float]] = {way: [] for way in ("embedded", *MARKS)}
    for number in range(options.rounds):
        for way in list(found)[:: 1 if number % 2 == 0 else -1]:
            with _device(way, options.device) as device:
                done = turn("remote", TASKS, device, options.effort, WORK / "agent_cache")
            found[way].append(done["seconds"] / done["measured"])
            print(f"{number + 1}/{options.rounds} {way}: {done['seconds']:.2f} s", flush=True)
    return found


@contextmanager
def _device(way: str, wanted: str | None) -> Iterator[str | None]:
    """Yield what a turn is given as its device: that of this machine, or an agent of its own, which finds nothing that
    another turn has compiled."""
    if way == "embedded":
        yield wanted
        return
    with ExitStack() as stack:
        agent = stack.enter_context(AgentProcess.on(wanted))
        yield f"{AGENT_PREFIX}{stack.enter_context(_relayed(agent.address))}" if way == "far agent" else agent.device


@contextmanager
def _relayed(address: str) -> Iterator[str]:
    """Run the relay of an address; yield where it listens."""
    command = [*tool.module("benchmarks.agents.relay"), address, str(MILLISECONDS)]
    with subprocess.Popen(command, env=tool.environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
