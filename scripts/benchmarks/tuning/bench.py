"""Measure the promises of tuning on a device (`scripts/bench tune TOOL`). One file per tool beside this one."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import tool
from benchmarks.tuning import exhaustive, gains, peer, remote, retime, stable, twice
from benchmarks.tuning.tools import WORK, NotTimed, Result
from gputune.client.errors import GputuneError


class _Tool(Protocol):
    """What each of the files is."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> Result: ...


TOOLS: Mapping[str, _Tool] = {
    "exhaustive": exhaustive,
    "gains": gains,
    "peer": peer,
    "remote": remote,
    "retime": retime,
    "stable": stable,
    "twice": twice,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `scripts/bench tune`."""
    tools = parser.add_subparsers(dest="tool", required=True, metavar="TOOL")
    for name, one in TOOLS.items():
        command = tools.add_parser(name, help=one.HELP, description=one.HELP)
        one.add_arguments(command)
        command.add_argument("--quick", action="store_true", help="only shows that everything works; see above")
        command.add_argument("--device", help="the device to use, as gputune's --device")
        command.add_argument(
            "--work", type=Path, default=WORK, metavar="DIR", help="for caches and contexts (default: build/tune)"
        )
        command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def main(options: argparse.Namespace) -> None:
    """Measure what tuning finds, how surely and how fast, and what it gains, with seven tools; each says how long it
    takes."""
    try:
        result = TOOLS[options.tool].run(options)
    except (GputuneError, NotTimed) as error:
        sys.exit(f"scripts/bench tune {options.tool}: {error}")
    print("\n" + tool.table(result.head, result.rows))
    print("\n" + "\n".join(result.conclusions), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(result.figures, indent=2) + "\n", encoding="utf-8")
