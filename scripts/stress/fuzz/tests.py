"""Run the property tests with new examples; scripts/test uses the same examples in every run.

    scripts/fuzz tests [--seed N] [--count 1] [-k EXPRESSION] [FILE ...]

Each run has a seed of its own, the next whole number. The first run that fails is the last, and the command that
repeats it is printed.
"""

import argparse
import shlex
import subprocess
import sys

import tool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `scripts/fuzz tests`."""
    parser.add_argument("--count", type=int, default=1, help="runs, each with another seed (default: %(default)s)")
    parser.add_argument("-k", metavar="EXPRESSION", dest="select", help="only tests that match, as pytest's -k")
    parser.add_argument("files", nargs="*", metavar="FILE", help="test files or folders (default: all)")


def run(options: argparse.Namespace) -> int:
    """Run the property tests so many times; return pytest's exit code of the last run."""
    selection = [*(["-k", options.select] if options.select else []), *options.files]
    for seed in range(options.seed, options.seed + options.count):
        code = subprocess.run(command(seed, selection), cwd=tool.ROOT).returncode
        if code:
            print(f"repeat with: scripts/fuzz tests --seed {seed} {shlex.join(selection)}".rstrip(), file=sys.stderr)
            return code
    return 0


def command(seed: int, selection: list[str]) -> list[str]:
    """Return the pytest command of one run; the profile `exploring` is registered in tests/conftest.py."""
    explore = ["-m", "hypothesis", "--hypothesis-profile=exploring", f"--hypothesis-seed={seed}"]
    return [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", *explore, *selection]
