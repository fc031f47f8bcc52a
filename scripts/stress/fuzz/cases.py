"""Make the cases of `scripts/fuzz context` and `scripts/fuzz cache` from their number and the seed."""

import argparse
import random
import resource
import traceback
from collections import Counter
from collections.abc import Callable

MOST_BYTES = 4 << 30
"""Of address space, for the whole process: what would need more fails with a MemoryError, which is a finding."""
LONGEST_LINE = 3000
SHOWN = 20


class Broken(Exception):
    """A case ended in a way that was promised not to be."""


def add_arguments(parser: argparse.ArgumentParser, count: int) -> None:
    """Adds the options of such a command."""
    parser.add_argument("--count", type=int, default=count, help="cases (default: %(default)s)")
    parser.add_argument("--case", type=int, help="only the one with this number")


def explore(name: str, options: argparse.Namespace, examine: Callable[[random.Random], str]) -> int:
    """Examines the cases and returns the exit code: 1 where one has raised anything. `examine` says in a word how one
    has ended."""
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
                    what = f"{type(error).__name__}: {str(error)[:300]} ({where.filename}:{where.lineno})"
                    print(
                        f"{what}\n  repeat with: scripts/fuzz {name} --seed {options.seed} --case {number}", flush=True
                    )
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{len(numbers)} cases, {broken} broken, {peak} MiB at most: {dict(ended.most_common())}")
    return 1 if broken else 0


def chance_of(seed: int, number: int) -> random.Random:
    """What decides all of a case."""
    return random.Random(f"{seed}/{number}")


def check_line(error: Exception) -> str:
    """The name of an error that may end a case. Raises Broken where its text is not one line that can be shown."""
    text = str(error)
    if not text or len(text) > LONGEST_LINE:
        raise Broken(f"{type(error).__name__} has a text of {len(text)} characters") from error
    if not text.isprintable():
        raise Broken(f"{type(error).__name__} has a text that is not one printable line: {text[:200]!r}") from error
    return type(error).__name__
