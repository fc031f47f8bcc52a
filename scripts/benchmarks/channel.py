"""Measure the cost of a token, which is a MAC on every frame (`scripts/bench channel`).

Two servers on the null device, with a token and without; uploads and pings take turns between them, and each round
gives a ratio. A figure is the median of the rounds, with its 95 % interval by order statistics.
"""

import argparse
import json
import statistics
from functools import partial
from pathlib import Path

import numpy as np

import tool
from benchmarks.rpc import alternate, repeated, upload_microseconds
from gputune.client.target.client import TargetClient
from gputune.client.target.transport.credentials import Credentials
from gputune.client.tuning.measuring.intervals import median_interval
from stress.server.observed import MIB, ObservedServer

SIZES_MIB = (16, 256)
UPLOADED_MIB = 768  # of each size in each round
PINGS = 128


def run(options: argparse.Namespace) -> None:
    """Measure the cost of the MAC of every frame: uploads and pings with a token and without."""
    with ObservedServer("null") as signed, ObservedServer("null", with_token=False) as plain:
        ours = TargetClient.connect(signed.host, signed.port, Credentials(signed.token))
        theirs = TargetClient.connect(plain.host, plain.port)
        with ours, theirs:
            figures = compare(ours, theirs, options.rounds)
    rows = [row(name, *values) for name, values in figures.items()]
    print("\n" + tool.table(["what", "with a token", "without", "ratio (95 % interval)", "mark"], rows), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def compare(ours: TargetClient, theirs: TargetClient, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """By what is measured: the figure of each round with a token, and without."""
    figures: dict[str, tuple[list[float], list[float]]] = {}
    for number in range(rounds + 1):  # the first one warms up
        measured = {f"upload of {size} MiB, MB/s": upload_rates(ours, theirs, size) for size in SIZES_MIB}
        measured["ping, us"] = alternate(repeated(ours.ping), repeated(theirs.ping))
        measured["ping of 64 under way, us"] = alternate(partial(ours.pings, PINGS), partial(theirs.pings, PINGS))
        for name, pair in measured.items():
            if number:
                for values, value in zip(figures.setdefault(name, ([], [])), pair, strict=True):
                    values.append(value)
    return figures


def upload_rates(ours: TargetClient, theirs: TargetClient, size_mib: int) -> tuple[float, float]:
    """Median MB/s with a token and without."""
    data = np.random.default_rng(size_mib).integers(0, 256, size_mib * MIB, np.uint8)
    times = [
        (upload_microseconds(ours, data), upload_microseconds(theirs, data)) for _ in range(UPLOADED_MIB // size_mib)
    ]
    mine, other = (data.nbytes / statistics.median(values) for values in zip(*times, strict=True))
    return mine, other


def row(name: str, ours: list[float], theirs: list[float]) -> tuple[str, ...]:
    """A line of the table."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    spread = median_interval(ratios)
    mark = "at least 0.8" if name.endswith("MB/s") else "at most 1.2"
    ratio = f"{statistics.median(ratios):.2f} ({spread.low:.2f} to {spread.high:.2f})"
    return name, f"{statistics.median(ours):.1f}", f"{statistics.median(theirs):.1f}", ratio, mark


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `scripts/bench channel`."""
    parser.add_argument("--rounds", type=int, default=9, help="repetitions (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")
