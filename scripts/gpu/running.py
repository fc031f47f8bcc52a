"""Run the phases one after the other, each as a process with a time box, and keep what each has written."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu import card, keeping
from gpu.plan import Phase, box, chosen, rehearsed

MARK = "GPU_DAY_PHASE"
"""A variable by which the processes of a phase are known, those in sessions of their own, too."""

RESERVE_S = 6.0
"""Kept back for packing."""
LEAST_S = 3.0
"""A phase with less time than this is left out."""
DYING_S = 5.0
STARTING_S = 0.1
FAILED = 1


@dataclass(frozen=True)
class Outcome:
    """How a phase ended: ok, failed, crashed, over its box, or left out; code: the process's, negative for a signal."""

    name: str
    how: str
    code: int | None
    seconds: float
    box: float

    @property
    def failed(self) -> bool:
        """Return whether it ended badly: a phase for which no time is left has not failed."""
        return self.how not in ("ok", "left out")


def run_day(options: argparse.Namespace, work: Path) -> int:
    """Runs the phases that are asked for; returns the exit code."""
    if options.out is None:
        print("scripts/gpu/day: error: --out is missing", file=sys.stderr)
        return 2
    try:
        phases = rehearsed(chosen(options.only)) if options.rehearse else chosen(options.only)
    except ValueError as error:
        print(f"scripts/gpu/day: error: {error}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    found = card.find(work, any_device=options.rehearse)
    if found is None or not (found.is_gpu or options.rehearse):
        print("scripts/gpu/day: error: no OpenCL device that is a GPU; what is known is above", file=sys.stderr)
        return 3
    environment = {**found.environment, **({card.CACHE: str(options.cache.resolve())} if options.cache else {})}
    outcomes = run_phases(phases, work, options.out, environment, options.start + options.budget, options.rehearse)
    for outcome in outcomes:
        print(f"{outcome.name:13} {outcome.how:9} {outcome.seconds:6.1f} of {outcome.box:5.1f} s")
    if failed := [outcome.name for outcome in outcomes if outcome.failed]:
        print(f"scripts/gpu/day: error: not all phases ended well: {', '.join(failed)}", file=sys.stderr)
    return FAILED if failed else 0


def run_phases(
    phases: Sequence[Phase], work: Path, out: Path, environment: Mapping[str, str], end: float, rehearse: bool
) -> list[Outcome]:
    """Runs phases until the moment `end` of time.monotonic(), and packs what there is after each."""
    outcomes: list[Outcome] = []
    for place, phase in enumerate(phases):
        seconds = box(phases, place, end - RESERVE_S - time.monotonic())
        outcomes.append(run_phase(phase, work, environment, seconds, rehearse))
        keeping.keep(work, out, [vars(outcome) for outcome in outcomes])
        _say(outcomes[-1], work)
    return outcomes


def run_phase(phase: Phase, work: Path, environment: Mapping[str, str], seconds: float, rehearse: bool) -> Outcome:
    """Runs one phase for so many seconds at most; nothing of it is left then."""
    if seconds < LEAST_S:
        return Outcome(phase.name, "left out", None, 0.0, seconds)
    mark = f"{phase.name}-{os.getpid()}"
    command = [sys.executable, "-X", "faulthandler", "-m", phase.command]
    command += [*("--record", str(keeping.record_of(work, phase.name))), *("--seconds", f"{seconds:.1f}")]
    command += ["--rehearse"] if rehearse else []
    start = time.monotonic()
    with keeping.log_of(work, phase.name).open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment, MARK: mark},
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_all(mark, process)
    how = "over" if code is None else "ok" if code == 0 else "crashed" if code < 0 else "failed"
    return Outcome(phase.name, how, code, round(time.monotonic() - start, 1), round(seconds, 1))


def end_all(mark: str, process: subprocess.Popen[bytes]) -> None:
    """Ends a phase's process and all that it has started and that still runs."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for again in (True, False):
        for number in marked(mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        if again:
            time.sleep(STARTING_S)  # a program that starts at this moment does not show its environment yet
    with contextlib.suppress(subprocess.TimeoutExpired):  # a process that waits for a card may not die
        process.wait(DYING_S)


def marked(mark: str) -> list[int]:
    """Return the processes whose environment has the mark; none where the system does not show it."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _say(outcome: Outcome, work: Path) -> None:
    print(f"== {outcome.name}: {outcome.how}, {outcome.seconds:.1f} of {outcome.box:.1f} s", flush=True)
    record = keeping.read(keeping.record_of(work, outcome.name))
    for line in record.get("says", []):
        print(f"   {line}", flush=True)
    if outcome.how not in ("ok", "left out"):
        text = keeping.log_of(work, outcome.name).read_text(encoding="utf-8", errors="replace")
        print("\n".join(f"   | {line[:200]}" for line in text.splitlines()[-12:]), flush=True)
    if "error" in record:
        print(f"   error: {json.dumps(record['error'])[:400]}", flush=True)
