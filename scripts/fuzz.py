"""Look for failures with random inputs, which a seed repeats.

    scripts/fuzz tests          runs the property tests with new examples: files, frames, models and graphs
    scripts/fuzz graphs         compares random ONNX models with onnxruntime, on a device
    scripts/fuzz native         reads changed files in C as in Python, and guided by coverage
    scripts/fuzz agent          tampers with frames that the agent reads in C, and guided by coverage
    scripts/fuzz connections    sends malformed and hostile inputs to a target server

Each prints its seed and takes --seed N; --help names the other options. The exit code is 1 when a failure was found.
"""

import argparse
import random
import sys
from typing import Protocol

from stress import graphs
from stress.fuzz import connections, native, tests
from stress.native import agent


class Command(Protocol):
    """A module that is one of the commands; the first line of its docstring is its help."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add its options, all but --seed."""

    def run(self, options: argparse.Namespace) -> int:
        """Run with options.seed and return the exit code. Raises RuntimeError, ValueError and OSError."""


COMMANDS: dict[str, Command] = {
    "agent": agent,
    "connections": connections,
    "graphs": graphs,
    "native": native,
    "tests": tests,
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command as the command line asks; return its exit code."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="name", required=True)
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("--seed", type=int, help="repeats the run with this seed (default: a new one)")
        module.add_arguments(command)
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(2**32)
    print(f"scripts/fuzz {options.name}: seed {options.seed}", flush=True)
    try:
        return COMMANDS[options.name].run(options)
    except KeyboardInterrupt:
        print("fuzz: interrupted", file=sys.stderr)
        return 130
    except (RuntimeError, ValueError, OSError) as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
