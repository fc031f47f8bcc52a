"""Measure how busy the devices of a farm are, and how soon it notices changes (`scripts/bench farm`)."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import tool
from benchmarks.farm import efficiency, times

WORK = tool.ROOT / "build" / "bench" / "farm"
MARKS = {4: ">= 0.93", 8: ">= 0.85"}

Row = tuple[str, str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `scripts/bench farm`."""
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=tuple(PARTS), help="what is measured (all)")
    parser.add_argument("--devices", default="4,8", help="numbers of devices (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each number (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=20, help="of batches, farm and target (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")


def run(options: argparse.Namespace) -> None:
    """Measure how busy the devices of a farm are, the cost of a farm of one device, and how soon it notices losses."""
    rows = []
    for part in options.parts:
        for row in PARTS[part](options):
            print(": ".join(row[:2]), flush=True)
            rows.append(row)
    print("\n" + tool.table(["what", "result", "mark"], rows), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def shares(options: argparse.Namespace) -> Iterator[Row]:
    """Of the devices' time."""
    for engine in efficiency.ENGINES:
        for devices in map(int, options.devices.split(",")):
            one = efficiency.efficiency(engine, WORK, devices, options.seconds)
            what = f"{engine}, {devices} devices, {one.batches} batches of {one.batch_seconds:.2f} s"
            yield what, f"{one.share:.3f} at work", MARKS.get(devices, "")


def alone(options: argparse.Namespace) -> Iterator[Row]:
    """A farm of one."""
    ratios = efficiency.farm_of_one(WORK, options.pairs)
    yield "farm of one by a direct target", efficiency.median(ratios), "<= 1.03"


def noticing(options: argparse.Namespace) -> Iterator[Row]:
    """What comes, dies and leaves."""
    late, freed = times.late_and_dead_client(WORK)
    yield "a late device has work after", f"{late:.1f} s", "<= 2 s"
    yield "a killed client's devices are free after", f"{freed:.1f} s", "<= 30 s"
    for what, number in {"killed": times.KILL, "silent": times.STOP}.items():
        yield f"the batch of a {what} worker is elsewhere after", f"{times.dead_worker(WORK, number):.1f} s", "<= 5 s"
    drained, left = times.drain(WORK)
    yield "a batch that is drained", drained, "8 of 8, 0"
    yield "after which its worker has left in", f"{left:.1f} s", ""


PARTS = {"shares": shares, "alone": alone, "noticing": noticing}
