"""Hold the options that benchmarks share, and what --only chooses."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

SHARED: Mapping[str, Mapping[str, Any]] = {
    "only": {"metavar": "TEXT,...", "help": "cases whose names are or hold one of these; all if empty"},
    "seconds": {"type": float, "help": "of a case, or of a turn of kernels and models (default: %(default)s)"},
    "rounds": {"type": int, "help": "turns of each, at least (default: %(default)s)"},
    "effort": {"choices": ["none", "quick", "normal", "full"], "help": "of the tuning (default: %(default)s)"},
    "tuning_budget": {"help": "of each context (default: %(default)s)"},
    "device": {"help": "the device to use, as gputune's --device"},
    "quick": {"action": "store_true", "help": "only show that everything works, with the smallest case"},
}


def add_options(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Add shared options by their names, each with its default."""
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", default=default, **SHARED[name])


def chosen(names: Sequence[str], only: str) -> list[str]:
    """Return the names that hold one of the texts in the comma list `only`, a text that is a whole name only that one;
    all of them when it is empty."""
    texts = [text.strip().lower() for text in only.split(",") if text.strip()]
    whole = {name.lower() for name in names}.intersection(texts)
    parts = [text for text in texts if text not in whole]
    kept = [name for name in names if not texts or name.lower() in whole or any(part in name.lower() for part in parts)]
    if not kept:
        sys.exit(f"--only: no case is called {only!r}; the cases are: {'; '.join(names)}")
    return kept
