"""Check kernels for GPUs without a GPU: render them for the limits of devices, compile them, and read what they became.

    scripts/setup --gpu-tools
    scripts/gpu/check
    scripts/gpu/check --family MatMul,Conv --device h100 --random 20 --json F

Defaults and starters of all families are compiled for the problems of scripts/gpu/checking/problems.py, in float and,
for one device with its starters, in half. Products that are multiplied in half are compiled for devices that can.
The exit code is 1 if a kernel breaks a rule for which scripts/gpu/checking/exceptions.py has no exception, or if an
exception is not needed any more; the second is only known when everything is checked.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tool
from gpu.checking.cases import DEFAULT, PERSISTENT, STARTER, Case, cases, persistent_case
from gpu.checking.devices import DEVICES, PHONES
from gpu.checking.problems import IN_HALF, MULTIPLIED_IN_HALF, PROBLEMS
from gpu.checking.report import Report
from gpu.checking.results import Results
from gpu.checking.rules import RULES
from gputune.client.progress import Progress, reporting
from gputune.core.dtypes import HALF_EXTENSION
from gputune.core.json_text import json_text
from gputune.runtime.devices.load import usable_processors

STARTED_IN_HALF, STARTED_MULTIPLIED = "h100", "gfx1030"
"""The devices for which starters are checked in half, and multiplied in half. On the others that would take as long
again as in float."""


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    rules = (f"  {name}: {rule.__doc__}" for name, rule in RULES.items())
    result = tool.parser("scripts/gpu/check", __doc__, "rules:", *rules)
    families = sorted({each.family for each in PROBLEMS} | {PERSISTENT})
    result.add_argument(
        "--family", type=_names(families), default=families, metavar="F,..", help="check these families only"
    )
    usual = [name for name in DEVICES if name not in PHONES]
    result.add_argument(
        "--device", type=_names(list(DEVICES)), default=usual, metavar="D,..",
        help=f"check for these devices only, of {', '.join(DEVICES)}; phones are not checked unless named",
    )  # fmt: skip
    result.add_argument(
        "--random", type=int, default=0, metavar="N", help="list the spills of N random configurations of each problem"
    )
    result.add_argument("--json", type=Path, metavar="F", help="write all that was found to a file")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Check; returns the exit code."""
    options = parser().parse_args(arguments)
    results = Results()
    chosen = chosen_cases(options.family, options.device, options.random)
    everything = options.device == parser().get_default("device") and options.family == parser().get_default("family")
    makers = {DEVICES[name].maker for name in options.device}
    left_out = [line for line in results.left_out if line.partition("'")[0] in makers]
    report = Report(everything and not left_out, left_out)
    with reporting(sys.stderr, "info") as progress:
        check(chosen, results, report, progress)
    print(report.text())
    if options.json:
        options.json.write_text(json_text(report.plain(), indent=1) + "\n", encoding="utf-8")
    return int(report.failed)


def check(chosen: Sequence[Case], results: Results, report: Report, progress: Progress) -> None:
    """Add the kernels of all cases to a report."""
    with progress.running("checking", len(chosen)), ThreadPoolExecutor(max(round(usable_processors()), 1)) as pool:
        for case, looks in zip(chosen, pool.map(lambda case: list(results.looks(case)), chosen), strict=True):
            for look in looks:
                report.add(look)
            progress.advance(1, f"{case.problem.name} on {case.device.name}")


def chosen_cases(families: Sequence[str], devices: Sequence[str], drawn: int) -> list[Case]:
    """Return the cases of families for devices; the persistent kernel is for NVIDIA's, whose fences can be read."""
    wanted = [DEVICES[name] for name in devices]
    problems = [each for each in PROBLEMS if each.family in families]
    found = list(cases(problems, wanted, (DEFAULT, STARTER), drawn))
    for device in wanted:
        multiplied = MULTIPLIED_IN_HALF if HALF_EXTENSION in device.limits.extensions else ()
        for halves, started in ((IN_HALF, STARTED_IN_HALF), (multiplied, STARTED_MULTIPLIED)):
            kinds = (DEFAULT, STARTER) if device.name == started else (DEFAULT,)
            found += cases([each for each in halves if each.family in families], [device], kinds, drawn)
    if PERSISTENT in families:
        found += [persistent_case(device) for device in wanted if device.maker == "nvidia"]
    return found


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    """A reader of names with commas between them, of those there are."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        if wrong := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"there is no {wrong[0]}; there are {', '.join(known)}")
        return names

    return read


if __name__ == "__main__":
    sys.exit(main())
