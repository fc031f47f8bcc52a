"""Compare persistent kernels in processes of a few inferences with launches one by one, in turns (`scripts/bench
short`)."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tool
from benchmarks.native.peers import environment
from benchmarks.peers.comparing import Failed
from benchmarks.persistent.contention import MODELS, busy, contexts_of
from gputune.client.tuning.measuring.intervals import ratio_interval
from gputune.core.json_text import json_value

INFERENCES, SETTLED, LAST = 20, 3, 3
"""Of a process; those before the form has to be a good one; those that say which form the process ends with."""
LARGEST_RATIO = 1.3
"""Promised, beside busy processes: of settled inferences to those by launches."""
FORMS = "persistent", "launches"
LANGUAGES = "Python", "C"


@dataclass(frozen=True)
class Process:
    """What loading and each inference of a process took, and of each whether it began by persistent kernels."""

    load_ns: int
    took_ns: list[int]
    persistent: list[bool]

    @property
    def settled_ns(self) -> float:
        """The mean inference after the first ones."""
        return statistics.fmean(self.took_ns[SETTLED:])

    @property
    def ends_persistent(self) -> bool:
        """Whether most of the last inferences were persistent: one of them may be there for a comparison."""
        return sum(self.persistent[-LAST:]) > LAST / 2


@dataclass(frozen=True)
class Measured:
    """Processes of both forms by the runtime of a language, beside so many others."""

    model: str
    others: int
    language: str
    processes: Mapping[str, Sequence[Process]]

    @property
    def ratio(self) -> float:
        """Of settled inferences, the median process by that of launches."""
        persistent, launches = (_median([one.settled_ns for one in self.processes[form]]) for form in FORMS)
        return persistent / launches

    @property
    def title(self) -> str:
        """What was measured, for people."""
        return f"{self.model} in {self.language}, {self.others} of {len(os.sched_getaffinity(0))} cores busy"

    def rows(self) -> list[tuple[str, ...]]:
        """A row of the table for each form."""
        over, under = ([one.settled_ns for one in self.processes[form]] for form in FORMS)
        interval = ratio_interval(over, under)
        mine = self.processes["persistent"]
        tried, back = ([not all(one.persistent) for one in mine], [one.ends_persistent for one in mine])
        more = (f"{self.ratio:.2f} ({interval.low:.2f}-{interval.high:.2f})", _share(tried), _share(back))
        return [
            (self.title, form, *_times(self.processes[form]), *(more if form == "persistent" else [""] * len(more)))
            for form in FORMS
        ]

    def broken(self) -> list[str]:
        """The promises that these figures break."""
        late = sum(not one.ends_persistent for one in self.processes["persistent"])
        if not self.others and late:
            return [f"{self.title}: {late} processes end by launches, but none may on a quiet machine"]
        if self.others and self.ratio > LARGEST_RATIO:
            return [f"{self.title}: {self.ratio:.2f} x launches, at most {LARGEST_RATIO} is promised"]
        return []


HEAD = (
    "model, beside",
    "form",
    "load ms",
    f"1 to {SETTLED}, each, ms",
    f"{SETTLED + 1} to {INFERENCES}, each, ms",
    "x launches",
    "tried launches",
    "ended persistent",
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    models = ["convolutions", "orientation"]
    command.add_argument("--models", nargs="+", choices=list(MODELS), default=models, help="(default: %(default)s)")
    command.add_argument("--processes", type=int, default=20, help="of each form (default: %(default)s)")
    command.add_argument(
        "--others", type=int, nargs="+", default=[0, 3], help="busy processes beside (default: %(default)s)"
    )
    command.add_argument("--device", help="the device to use, as gputune's --device")
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Measure persistent kernels in short processes, alone and next to busy processes. Each process loads a context of
    default configurations and runs 20 inferences; both forms and both runtimes take turns. Next to busy processes,
    inferences 4 to 20 must take at most 1.3 x launches. Alone, all must be persistent at their end."""
    found: list[Measured] = []
    for name in options.models:
        make, _ = MODELS[name]
        context, _ = contexts_of(name, make(), options.device)
        for others in options.others:
            with busy(others):
                found += _measured(name, context, others, options.processes)
            print("\n" + tool.table(HEAD, [row for one in found[-len(LANGUAGES) :] for row in one.rows()]), flush=True)
    print("\n" + tool.table(HEAD, [row for one in found for row in one.rows()]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in found]) + "\n", encoding="utf-8")
    if broken := [line for one in found for line in one.broken()]:
        raise Failed("; ".join(broken))


def _measured(model: str, context: Path, others: int, count: int) -> list[Measured]:
    processes: dict[tuple[str, str], list[Process]] = {(one, form): [] for one in LANGUAGES for form in FORMS}
    for turn in range(count):
        for key in sorted(processes, reverse=bool(turn % 2)):
            processes[key].append(_process(context, *key))
    return [
        Measured(model, others, language, {form: processes[language, form] for form in FORMS}) for language in LANGUAGES
    ]


def _process(context: Path, language: str, form: str) -> Process:
    """Raises Failed where it ends with an error."""
    program = Path(__file__).parents[1] / "native" / "short_process.py"
    command = [sys.executable, str(program), str(context), language, form, str(INFERENCES)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=tool.ROOT, check=False)
    if ended.returncode:
        raise Failed(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")
    return Process(**json_value(ended.stdout))


def _times(processes: Sequence[Process]) -> tuple[str, str, str]:
    parts = (
        [one.load_ns for one in processes],
        [statistics.fmean(one.took_ns[:SETTLED]) for one in processes],
        [one.settled_ns for one in processes],
    )
    first, second, third = (tool.milliseconds(_median(part)) for part in parts)
    return first, second, third


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _share(flags: Sequence[bool]) -> str:
    return f"{sum(flags)} of {len(flags)}"
