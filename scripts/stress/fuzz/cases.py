"""Run the cases of `scripts/fuzz native` and `scripts/fuzz agent`, each made from its number and the seed."""

import argparse
import random
import resource
import traceback
from collections import Counter
from collections.abc import Callable

from tests.strategies.changes import Broken

__all__ = ["Broken", "add_arguments", "chance_of", "explore"]

MOST_BYTES = 4 << 30
"""Of address space, for the whole process: what would need more fails with a MemoryError, which is a finding."""
SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser, count: int) -> None:
    """Add the options of such a command."""
    parser.add_argument("--count", type=int, default=count, help="cases (default: %(default)s)")
    parser.add_argument("--case", type=int, help="only the one with this number")


def explore(name: str, options: argparse.Namespace, examine: Callable[[random.Random], str]) -> int:
    """Examine the cases; return 1 if one has raised anything. `examine` says in a word how one has ended."""
    numbers = range(options.count) if options.case is None else [options.case]
    ended: Counter[str] = Counter()
    broken = 0
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, before[1]))
    try:
        for number in numbers:
            try:
                ended[examine(chance_of(options.seed, number))] += 1
            except Exception as error:
                broken += 1
                if broken <= SHOWN:
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    print(f"{type(error).__name__}: {str(error)[:300]} ({where.filename}:{where.lineno})")
                    print(f"  repeat with: scripts/fuzz {name} --seed {options.seed} --case {number}", flush=True)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    print(f"{len(numbers)} cases, {broken} broken: {dict(ended.most_common())}")
    return 1 if broken else 0


def chance_of(seed: int, number: int) -> random.Random:
    """Return what decides all of a case."""
    return random.Random(f"{seed}/{number}")
