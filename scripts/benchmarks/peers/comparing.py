"""Hold the outside of `scripts/bench kernels` and `scripts/bench models`: options, refusals, tables, pages."""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import tool
from benchmarks.options import add_options
from benchmarks.peers.chart import draw
from benchmarks.peers.comparison import (
    DEFAULTS,
    FMA,
    MEMORY,
    PEER,
    PEER_MODULES,
    TUNED,
    Case,
    Measured,
    Settings,
    is_settled,
    measure_all,
)
from benchmarks.result import Result, Table
from gputune.client.tuning.measuring.intervals import Ratio
from gputune.runtime.devices.discovery import NULL, find, wanted_device

LARGEST_DEVIATION = 1e-3
BEST = "x best engine"
RATIOS_ON_PAGES = frozenset([BEST, f"x {DEFAULTS}"])
NOT_ON_PAGES = frozenset([f"{DEFAULTS} x {PEER}", "deviation, defaults"])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of both benchmarks."""
    add_options(parser, only="", effort="normal", rounds=30, seconds=0.1, device=None, quick=False)
    parser.add_argument(
        "--most_rounds", type=int, default=90, help="turns until the intervals are narrow (default: %(default)s)"
    )
    parser.add_argument(
        "--prepare", action="store_true", help="only make the contexts anew, which may take hours of tuning"
    )
    parser.add_argument("--chart", type=Path, help="draw an SVG of it")
    parser.add_argument(
        "--page",
        type=Path,
        help="put the most important columns into this page, between the marks of this benchmark and its device",
    )


def settings_of(options: argparse.Namespace) -> Settings:
    """What the options ask for."""
    if options.quick:
        return Settings(2, 2, 0.01, "quick", options.device or NULL, options.device not in (None, NULL))
    rounds = options.rounds, options.most_rounds
    return Settings(*rounds, options.seconds, options.effort, options.device, options.device != NULL)


def compare(
    name: str,
    options: argparse.Namespace,
    make: Callable[[Settings], list[Case]],
    tell: Callable[[Sequence[Case], Sequence[Measured]], tuple[Table, list[str]]],
) -> Result:
    """Measure for `scripts/bench NAME` the cases that `make` makes. tell: makes a table and lines below it. Raises
    GputuneError, ValueError."""
    settings = settings_of(options)
    cases = make(settings)
    if options.prepare:
        return Result(None, ())
    facts = machine(settings)
    measured = measure_all(cases, settings)
    table, conclusions = tell(cases, measured)
    first = [
        *(f"* {what}: {value}" for what, value in facts.items()),
        f"\n{rounds_of(measured)} rounds of {settings.seconds} s for each contender, "
        f"effort {settings.effort}. " + limits_line(measured),
    ]
    if options.chart is not None:
        draw(measured, options.chart, f"{facts['processor']}, {facts['device']}")
    last = [f"* {line}" for line in conclusions]
    if options.page is not None:
        command = name if options.device is None else f"{name} --device {options.device}"
        parts = ["\n".join(first), tool.table(*for_page(*table)), "\n".join(last)]
        put_into(options.page, command, "\n\n".join(parts))
    figures = {"machine": facts, "settings": asdict(settings), "cases": list(map(asdict, measured))}
    wrong = [f"more than {LARGEST_DEVIATION} away from onnxruntime: {one}" for one in wrong_ones(measured)]
    return Result(figures, [table], [*first, "", *last], wrong)


def machine(settings: Settings) -> dict[str, str]:
    """What the numbers are of: processor, system, device, and the versions of who took part. Raises DeviceNotFound."""
    report = find(wanted_device(settings.device)).report
    assert report.identity is not None
    return {
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "device": report.title,
        "driver": f"{report.identity.platform_version}, {report.identity.driver_version}",
        **{name: version(name) for name in ("numpy", PEER, *PEER_MODULES.values()) if find_spec(name) is not None},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def rounds_of(measured: Sequence[Measured]) -> str:
    """How many there were, from the fewest to the most."""
    counts = sorted({len(next(iter(one.rounds.values()))) for one in measured})
    return " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))


def limits_line(measured: Sequence[Measured]) -> str:
    """What the device could do meanwhile."""
    flops, bandwidth = ([rate for one in measured for rate in one.rates(limit)] for limit in (FMA, MEMORY))
    if not flops:
        return "The limits of this device are not measured."
    return (
        f"Multiply-add limit {statistics.median(flops):.0f} GFLOP/s ({min(flops):.0f} to {max(flops):.0f} in "
        f"{len(flops)} blocks), memory {statistics.median(bandwidth):.1f} GB/s "
        f"({min(bandwidth):.1f} to {max(bandwidth):.1f}), in the same run."
    )


def wrong_ones(measured: Sequence[Measured]) -> list[str]:
    """The contexts whose outputs are too far from onnxruntime's."""
    return [
        f"{one.name}, {name} ({deviation:.1e})"
        for one in measured
        for name, deviation in one.deviations.items()
        if not deviation <= LARGEST_DEVIATION
    ]


def for_page(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table without the columns that a page omits: ratios to each engine, and what developers look at."""
    omitted = {name for name in head if name.startswith("x ")} - RATIOS_ON_PAGES | NOT_ON_PAGES
    kept = [column for column, name in enumerate(head) if name not in omitted]
    return [head[column] for column in kept], [[row[column] for column in kept] for row in rows]


def put_into(page: Path, command: str, text: str) -> None:
    """Replaces what stands between the marks of `scripts/bench COMMAND` in a page; its tables go nowhere else. Raises
    ValueError."""
    begin, end = f"<!-- scripts/bench {command}: begin -->", f"<!-- scripts/bench {command}: end -->"
    before = page.read_text(encoding="utf-8")
    after, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n\n{text}\n\n{end}", before, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"--page: {page} does not hold {begin} and {end} once")
    page.write_text(after, encoding="utf-8")


def shown(speed: Ratio | None, interval: bool = False) -> str:
    """A ratio of speeds in a table's cell; one that has not settled has only its interval."""
    if speed is None:
        return ""
    if not is_settled(speed):
        return f"not measured ({speed.low:.2f}-{speed.high:.2f})"
    return f"{speed.median:.2f} ({speed.low:.2f}-{speed.high:.2f})" if interval else f"{speed.median:.2f}"


def mean_speed(speeds: Sequence[tuple[Ratio | None, int]], other: str) -> str:
    """The geometric mean of ratios to `other` by their weights, in words; also those of no ratio."""
    known = [speed.median for speed, weight in speeds if speed is not None for _ in range(weight)]
    return f"{statistics.geometric_mean(known):.2f} x {other}" if known else f"not measured beside {other}"


def beside_best(measured: Sequence[tuple[Case, Measured]], mark: float, least: float) -> str:
    """How many times as fast as the best engine cases are together, by their weights, which of them are below the
    least that is promised, and how many are not known well enough to take part."""
    speeds = [(case, one.speed(TUNED, one.best)) for case, one in measured]
    known = [(case, speed) for case, speed in speeds if speed is not None and is_settled(speed)]
    below = [f"{case.name} ({speed.median:.2f})" for case, speed in known if speed.median < least]
    mean = mean_speed([(speed, case.weight) for case, speed in known], "the best engine")
    return (
        f"{mean}, mark: {mark}; below {least}: {', '.join(below) or 'none'}; "
        f"not measured: {len(speeds) - len(known)} of {len(speeds)}"
    )


def deviation_cell(measured: Measured, contender: str) -> str:
    """How far a contender's outputs are off."""
    return f"{measured.deviations[contender]:.0e}" if contender in measured.deviations else ""
