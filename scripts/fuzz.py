"""Look for failures with random inputs, which a seed repeats.

    scripts/fuzz agent          tampers with frames that the agent reads in C
    scripts/fuzz connections    sends malformed and hostile inputs to a target server
    scripts/fuzz frames         tampers with the frames of authenticated sessions
    scripts/fuzz models         imports hostile and broken models
    scripts/fuzz farm           sends hostile frames to the processes of a farm
    scripts/fuzz graphs         compares random ONNX models with onnxruntime
    scripts/fuzz cache          works with changed performance caches and exports
    scripts/fuzz context        loads and runs changed context binaries
    scripts/fuzz epcontext      reads changed ONNX files with EPContext nodes
    scripts/fuzz native         reads changed files in C as in Python, and guided by coverage
    scripts/fuzz package        reads, splits and loads changed packages of contexts
    scripts/fuzz profile        shows changed profile logs and schematics
    scripts/fuzz sources        looks for assembly that the filter of sources overlooks
    scripts/fuzz tests          runs the property tests with new examples

Each prints its seed and takes --seed N; --help names the other options. The exit code is 1 when a failure was found.
"""

import argparse
import random
import sys
from typing import Protocol

import tool

sys.path.append(str(tool.ROOT))
from stress import graphs
from stress.farm import hostile
from stress.fuzz import cache, connections, context, ep_context, frames, models, native, package, profile, tests
from stress.native import agent
from stress.sources import fuzzing as sources


class Command(Protocol):
    """A module that is one of the commands; the first line of its docstring is its help."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds its options, all but --seed."""

    def run(self, options: argparse.Namespace) -> int:
        """Runs with options.seed and returns the exit code. Raises RuntimeError, ValueError and OSError."""


COMMANDS: dict[str, Command] = {
    "agent": agent,
    "cache": cache,
    "connections": connections,
    "context": context,
    "epcontext": ep_context,
    "farm": hostile,
    "frames": frames,
    "graphs": graphs,
    "models": models,
    "native": native,
    "package": package,
    "profile": profile,
    "sources": sources,
    "tests": tests,
}


def main(arguments: list[str] | None = None) -> int:
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
