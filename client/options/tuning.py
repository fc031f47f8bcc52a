"""Define the options that say how to tune: which tasks, which configurations, how long, and with which strategy.

For how much to tune, see gputune.client.tuning.search.effort.
"""

import functools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from gputune.client.errors import CacheMiss, ConfigError, GainTooSmall
from gputune.client.options.files import OUTPUT
from gputune.client.options.kinds import BUDGET, FLAG, GAIN, SECONDS, choice, file, whole
from gputune.client.options.option import CACHE, CHECKS, FILES, MAIN, TUNING, Kind, option, over
from gputune.client.options.tasks import PINS, TASKS
from gputune.client.suggestions import near
from gputune.core.statuses import OK, STATUSES

_DIGEST = re.compile(r"[0-9a-f]{64}")
_DIGEST_PREFIX = re.compile(r"[0-9a-f]{6,64}")

STRATEGY_NAMES = ("auto", "model_based", "evolution", "descent", "random", "exhaustive")
CACHE_MODES = ("use", "off", "refresh", "frozen")
"""use: what is known is not measured again; off: nothing is read and nothing is kept; refresh: everything is measured
again, and kept; frozen: nothing may have to be measured, or the generation fails."""
COMPARE_SECONDS: Mapping[str, float] = {"quick": 20.0, "normal": 60.0, "full": 180.0}
"""How long whole contexts take turns at most, by effort."""
RULE = (
    "The last certain choice stays until another context is faster than it for certain; without a certain choice, the "
    "untuned context ships unless a tuned context is faster for certain."
)
"""How a comparison decides which context ships."""
FAILURES = tuple(status for status in STATUSES if status != OK)
MODE = "tuning_mode"


def _statuses(given: str, name: str) -> tuple[str, ...]:
    wanted = FAILURES if given == "all" else tuple(part.strip() for part in given.split(","))
    for status in wanted:
        if status not in FAILURES:
            raise click.BadParameter(f"{status!r} is not one of {', '.join(FAILURES)}, or all")
    return wanted


_FAILURES = Kind(_statuses, click={"is_flag": False, "flag_value": "all", "metavar": "[STATUS,...]"})
WAIT_FOR_QUIET = (
    whole(1, 7 * 24 * 60, "minutes", "MINUTES"),
    "If other programs keep the machine busy, wait up to this many minutes for quiet before measuring.",
)


_asked = functools.partial(option, group=TUNING, key=True, needs=MODE)


@dataclass(frozen=True)
class TuningOptions:
    """Hold what is asked of the tuner.

    only: patterns of the tasks that are tuned, none for all of them; pins: by a task's pattern, the configuration that
    it gets whatever else is faster; budget_seconds, compare_seconds, wait_for_quiet, fail_under: None for none, or what
    the effort says; retry_failures: what was stored with one of these statuses is measured again.
    """

    only: tuple[str, ...] = _asked(
        (),
        TASKS,
        "Tune only these tasks. A pattern matches an op (Conv), a title ('Conv 1a2b3c4d5e'), a digest, or the "
        "name of a node that the task runs; *, ? and [...] are wildcards, as in '/head/*'. Put a name with a comma in "
        "double quotes. Other tasks use what the cache knows, else their default.",
        name="tasks",
        decides=True,
    )
    pins: Mapping[str, Mapping[str, int]] = _asked(
        dict,
        PINS,
        "Use this configuration for the matching tasks, even if another configuration is faster. TASK is a "
        "pattern as in --tasks; give every parameter a value. The configuration is verified, and measured next to the "
        "default. Repeat it for each pattern.",
        name="pin",
        key="pins",
        decides=True,
    )
    budget_seconds: float | None = _asked(
        None,
        BUDGET,
        "Longest time for the whole command, such as 90s, 10m or 1h30m: checks, tuning, compiling, comparing and "
        "writing, but not --wait_for_quiet. It is spent where the model gains most. If making the untuned context "
        "takes longer, nothing is tuned or compared. The same command continues where tuning ended.",
        name="tuning_budget",
        group=MAIN,
        told="tuning_budget_seconds",
        argument="budget",
        python_help='Longest time for the whole call, in seconds or as "10m", but without wait_for_quiet. The next '
        "call continues where tuning ended.",
    )
    strategy: str = _asked(
        STRATEGY_NAMES[0],
        choice(*STRATEGY_NAMES, value="name"),
        "How to choose the variants to measure. auto, the default, starts with the winners of similar problems; "
        "the others are for comparison.",
        name="tuning_strategy",
    )
    cold: bool = _asked(
        False,
        FLAG,
        "Measure every launch with empty caches, for kernels that rarely run. These times are kept apart.",
        decides=True,
    )
    retry_failures: tuple[str, ...] = _asked(
        (),
        _FAILURES,
        "Measure failed variants again, even if tuning was complete: all of them, or those with one of these "
        f"statuses: {', '.join(FAILURES)}.",
        key=False,
        decides=True,
    )
    report: Path | None = _asked(
        None,
        file(OUTPUT, "FILE.html"),
        "Write a page about the tuning, as `gputune tuning-report` does.",
        group=FILES,
        told="",
    )
    cache_mode: str = _asked(
        CACHE_MODES[0],
        choice(*CACHE_MODES),
        "use, the default: measure only what is not known. off: read nothing and keep nothing. refresh: measure "
        f"everything again, and keep it. frozen: end with exit code {CacheMiss.exit_code} if anything has to be "
        "measured.",
        group=CACHE,
        decides=True,
    )
    compare_seconds: float | None = _asked(
        None,
        SECONDS,
        "Longest time, in seconds, to compare whole contexts of a graph after tuning; it ends earlier when the "
        "difference is certain. Default: "
        f"{', '.join(f'{seconds:g} at effort {name}' for name, seconds in COMPARE_SECONDS.items())}. {RULE}",
        argument="compare_seconds",
    )
    compare_again: bool = _asked(
        False,
        FLAG,
        "Compare whole contexts again, and ignore the last choice. No task is measured: a task that the "
        f"performance cache does not know is an error, with exit code {CacheMiss.exit_code}.",
        argument="compare_again",
        python_help="Compare whole contexts again, and ignore the last choice. Raise CacheMiss for a task that the "
        "performance cache does not know.",
    )
    wait_for_quiet: int | None = _asked(None, *WAIT_FOR_QUIET, told="", argument="wait_for_quiet")
    fail_under: float | None = _asked(
        None,
        GAIN,
        f"End with exit code {GainTooSmall.exit_code} if the recorded gain is smaller than this, such as 1.05. "
        "If the untuned context ships, the gain is 1; of several graphs, the smallest gain counts. All files are "
        "written first.",
        group=CHECKS,
        told="",
        argument="fail_under",
        python_help="Raise GainTooSmall for a smaller recorded gain, such as 1.05, after all files are written.",
    )

    def having(self, given: Mapping[str, Any]) -> "TuningOptions":
        """Return it with what options say. Pins are put beside those that are there, which they replace where they are
        for the same pattern."""
        pins = {"pin": {**self.pins, **given["pin"]}} if "pin" in given else {}
        return over(self, {**given, **pins})

    def wants(self, names: Collection[str]) -> bool:
        """Return whether the task with these names is one of those to be tuned."""
        return not self.only or any(matches(pattern, names) for pattern in self.only)

    def pin_of(self, names: Collection[str]) -> Mapping[str, int] | None:
        """Return the configuration pinned for the task with these names. Raises ConfigError when two pins disagree on
        it."""
        found = [(pattern, values) for pattern, values in self.pins.items() if matches(pattern, names)]
        for pattern, values in found[1:]:
            if values != found[0][1]:
                raise ConfigError(f"pins {found[0][0]!r} and {pattern!r} are for the same task and differ; drop one")
        return found[0][1] if found else None

    def check_bound(self, tasks: Collection[Collection[str]]) -> None:
        """Raise ConfigError for a pattern that none of these tasks, each given by its names, answers to."""
        for what, patterns in (("tasks", self.only), ("pins", self.pins)):
            for pattern in patterns:
                if not any(matches(pattern, names) for names in tasks):
                    known = list(dict.fromkeys(name for names in tasks for name in names))
                    similar = near(pattern, known)
                    more = f"did you mean {similar!r}?" if similar else "`performance-cache explain` lists them"
                    raise ConfigError(f"{what}: no task of this model is called {pattern!r}; {more}")


def matches(pattern: str, names: Iterable[str]) -> bool:
    """Return whether one of a task's names is meant: by the name itself, by a pattern with *, ? and [...] for the whole
    name, or by the first characters (6 at least) of its key's digest, when the whole digest is one of the names."""
    begins = _DIGEST_PREFIX.fullmatch(pattern)
    return any(
        name == pattern
        or fnmatchcase(name, pattern)
        or bool(begins and _DIGEST.fullmatch(name) and name.startswith(pattern))
        for name in names
    )


def check_compare_again(options: TuningOptions) -> None:
    """Raise ConfigError for what rules out what compare_again asks for: modes of the cache, and measuring tasks."""
    why = {
        "frozen": "measures nothing",
        "refresh": "compares whole contexts anew in any case",
        "off": "remembers no comparison",
    }.get(options.cache_mode)
    if options.compare_again and why is not None:
        raise ConfigError(f"--compare_again: cache_mode {options.cache_mode!r} {why}; drop one of them")
    if options.compare_again and options.retry_failures:
        raise ConfigError("--compare_again measures no task, and --retry_failures measures failures; drop one of them")
