"""Measure what gputune claims.

    scripts/bench models       compares networks with other engines
    scripts/bench kernels      compares kernels with other engines and the device's limits
    scripts/bench forms        compares persistent kernels and recorded queues with launches one by one
    scripts/bench halves       compares contexts that store float16
    scripts/bench weights      compares products by weights of 4 and 8 bits
    scripts/bench parts        compares models of which gputune runs a part
    scripts/bench stable       tunes again and again from empty caches
    scripts/bench search       replays search strategies on recorded spaces
    scripts/bench agent        searches behind an agent
    scripts/bench native       compares the C runtime
    scripts/bench sessions     measures sessions of onnxruntime in C
    scripts/bench profiling    measures the cost of recording inferences

The page of its subject in docs/ has the question that each answers, and its last figures. The exit code is 1 when a
promise is broken or something could not be measured.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Protocol

import tool
from benchmarks import forms, halves, kernels, networks, parts, profiling, sessions, stable, weights
from benchmarks.agents import bench as agents
from benchmarks.native import bench as native
from benchmarks.result import NotTimed, Result
from benchmarks.search import bench as search
from gputune.client.errors import GputuneError
from gputune.client.progress import reporting
from gputune.client.tuning.measuring.quiet import Quiet
from gputune.runtime.devices import load

WORK = tool.ROOT / "build" / "bench"


class Bench(Protocol):
    """A module that is one of the benchmarks; the first sentence of its docstring is its help."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Adds its options, all but --work and --json."""

    def run(self, options: argparse.Namespace, /) -> Result:
        """Measures. Raises GputuneError, NotTimed, RuntimeError, ValueError and OSError."""


BENCHES: dict[str, Bench] = {
    "agent": agents,
    "forms": forms,
    "halves": halves,
    "kernels": kernels,
    "models": networks,
    "native": native,
    "parts": parts,
    "profiling": profiling,
    "search": search,
    "sessions": sessions,
    "stable": stable,
    "weights": weights,
}


def sentences() -> dict[str, str]:
    """Return by name the sentence that says the purpose of each benchmark; it is its help, too."""
    return {name: tool.first_sentence(module.__doc__) for name, module in BENCHES.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=tool.first_sentence(__doc__))
    parser.add_argument(
        "--wait_for_quiet", type=int, metavar="MINUTES", help="wait for a busy machine to become quiet, at most so long"
    )
    commands = parser.add_subparsers(dest="bench", required=True)
    for name, sentence in sentences().items():
        command = commands.add_parser(name, help=sentence, description=sentence)
        BENCHES[name].add_arguments(command)
        command.add_argument("--work", type=Path, default=WORK, metavar="DIR", help="for files (default: build/bench)")
        command.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to this file as well")
    options = parser.parse_args(arguments)
    with reporting(sys.stderr) as progress:
        Quiet([load.read], progress, options.wait_for_quiet).settle()
    try:
        result = BENCHES[options.bench].run(options)
        if options.json is not None:
            options.json.write_text(json.dumps(result.figures, indent=2) + "\n", encoding="utf-8")
    except (GputuneError, NotTimed, RuntimeError, ValueError, OSError) as error:
        print(f"scripts/bench {options.bench}: {error}", file=sys.stderr)
        return 1
    for head, rows in result.tables:
        print("\n" + tool.table(head, rows))
    if lines := [*result.lines, *(f"failed: {line}" for line in result.broken)]:
        print("\n" + "\n".join(lines), flush=True)
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main())
