"""Define the options that say how to tune a model; for how much to tune, see gputune.client.tuning.search.options.

`performance-cache explain` takes the options that decide what is measured.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from gputune.client.cli.options.common import wait_for_quiet as wait_for_quiet_option
from gputune.client.cli.options.files import OUTPUT
from gputune.client.durations import parse_duration
from gputune.client.errors import CacheMiss, ConfigError, GainTooSmall
from gputune.client.tuning.measuring.end_to_end import RULE
from gputune.client.tuning.measuring.quiet import OPTION
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.options import (
    CACHE_MODES,
    FAIL_UNDER,
    TuningOptions,
    check_gain,
    parse_budget,
    parse_patterns,
    parse_pin,
)
from gputune.client.tuning.search.strategies.catalogue import STRATEGIES
from gputune.core.statuses import OK, STATUSES

FAILURES = tuple(status for status in STATUSES if status != OK)


@dataclass(frozen=True)
class TuningWishes:
    """What a command line asks for: `fields` of TuningOptions, and the options that say so."""

    fields: Mapping[str, Any]
    given: tuple[str, ...]

    def over(self, config: TuningOptions) -> TuningOptions:
        """Return the config file's wishes with these in their place. Pins are put beside the file's, whose own are
        replaced where they are for the same pattern."""
        fields = dict(self.fields)
        if "pins" in fields:
            fields["pins"] = {**config.pins, **fields["pins"]}
        return replace(config, **fields)


def _wishes(
    tasks: tuple[str, ...],
    pin: tuple[str, ...],
    cold: bool,
    retry_failures: tuple[str, ...],
    cache_mode: str | None,
    tuning_budget: str | None = None,
    compare_seconds: str | None = None,
    compare_again: bool = False,
    tuning_strategy: str | None = None,
    report: Path | None = None,
    wait_for_quiet: int | None = None,
    fail_under: float | None = None,
) -> TuningWishes:
    """Return what the values of the options mean. Raises ConfigError."""
    patterns = [pattern for text in tasks for pattern in parse_patterns(text, "--tasks")]
    budget_seconds = None if tuning_budget is None else parse_budget(tuning_budget, "--tuning_budget")
    options = (
        ("--tuning_budget", "budget_seconds", budget_seconds),
        ("--compare_seconds", "compare_seconds", _seconds(compare_seconds)),
        ("--compare_again", "compare_again", compare_again),
        ("--tuning_strategy", "strategy", tuning_strategy),
        ("--tasks", "only", tuple(dict.fromkeys(patterns))),
        ("--pin", "pins", _pins(pin)),
        ("--cold", "cold", cold),
        ("--retry_failures", "retry_failures", retry_failures),
        ("--report", "report", report),
        ("--cache_mode", "cache_mode", cache_mode),
        (OPTION, "wait_for_quiet", wait_for_quiet),
        (FAIL_UNDER, "fail_under", None if fail_under is None else check_gain(fail_under, FAIL_UNDER)),
    )
    given = [(option, name, value) for option, name, value in options if value]
    return TuningWishes({name: value for _, name, value in given}, tuple(option for option, _, _ in given))


def _seconds(text: str | None) -> float | None:
    return None if text is None else parse_duration(text, "--compare_seconds")


def _pins(texts: tuple[str, ...]) -> dict[str, dict[str, int]]:
    pins: dict[str, dict[str, int]] = {}
    for text in texts:
        pattern, configuration = parse_pin(text, "--pin")
        if pattern in pins:
            raise ConfigError(f"--pin: {pattern!r} is pinned twice")
        pins[pattern] = configuration
    return pins


def _statuses(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Convert --retry_failures."""
    if text is None:
        return ()
    wanted = FAILURES if text == "all" else tuple(part.strip() for part in text.split(","))
    for status in wanted:
        if status not in FAILURES:
            raise click.BadParameter(f"{status!r} is not one of {', '.join(FAILURES)}, or all")
    return wanted


_OPTIONS = {
    "tuning_budget": click.option(
        "--tuning_budget",
        metavar="TIME",
        help="Longest time for the whole command, such as 90s, 10m or 1h30m: checks, tuning, compiling, comparing and "
        "writing, but not --wait_for_quiet. It is spent where the model gains most. If making the untuned context "
        "takes longer, nothing is tuned or compared. The same command continues where tuning ended.",
    ),
    "compare_seconds": click.option(
        "--compare_seconds",
        metavar="SECONDS",
        help="Longest time, in seconds, to compare whole contexts of a graph after tuning; it ends earlier when the "
        "difference is certain. Default: "
        f"{', '.join(f'{one.compare_seconds:g} at effort {one.name}' for one in EFFORTS.values() if one.trials != 0)}. "
        f"{RULE}",
    ),
    "compare_again": click.option(
        "--compare_again",
        is_flag=True,
        help="Compare whole contexts again, and ignore the last choice. No task is measured: a task that the "
        f"performance cache does not know is an error, with exit code {CacheMiss.exit_code}.",
    ),
    "wait_for_quiet": wait_for_quiet_option,
    "fail_under": click.option(
        FAIL_UNDER,
        type=float,
        metavar="GAIN",
        help=f"End with exit code {GainTooSmall.exit_code} if the recorded gain is smaller than this, such as 1.05. "
        "If the untuned context ships, the gain is 1; of several graphs, the smallest gain counts. All files are "
        "written first.",
    ),
    "tuning_strategy": click.option(
        "--tuning_strategy",
        type=click.Choice(tuple(STRATEGIES)),
        help="How to choose the variants to measure. auto, the default, starts with the winners of similar problems; "
        "the others are for comparison.",
    ),
    "tasks": click.option(
        "--tasks",
        metavar="PATTERN[,...]",
        multiple=True,
        help="Tune only these tasks. A pattern matches an op (Conv), a title ('Conv 1a2b3c4d5e'), a digest, or the "
        "name of a node that the task runs; *, ? and [...] are wildcards, as in '/head/*'. Put a name with a comma in "
        "double quotes. Other tasks use what the cache knows, else their default.",
    ),
    "pin": click.option(
        "--pin",
        metavar="TASK=NAME=VALUE,...",
        multiple=True,
        help="Use this configuration for the matching tasks, even if another configuration is faster. TASK is a "
        "pattern as in --tasks; give every parameter a value. The configuration is verified, and measured next to the "
        "default. Repeat it for each pattern.",
    ),
    "cold": click.option(
        "--cold",
        is_flag=True,
        help="Measure every launch with empty caches, for kernels that rarely run. These times are kept apart.",
    ),
    "retry_failures": click.option(
        "--retry_failures",
        is_flag=False,
        flag_value="all",
        metavar="[STATUS,...]",
        callback=_statuses,
        help="Measure failed variants again, even if tuning was complete: all of them, or those with one of these "
        f"statuses: {', '.join(FAILURES)}.",
    ),
    "report": click.option(
        "--report",
        type=OUTPUT,
        metavar="FILE.html",
        help="Write a page about the tuning, as `gputune tuning-report` does.",
    ),
    "cache_mode": click.option(
        "--cache_mode",
        type=click.Choice(CACHE_MODES),
        help="use, the default: measure only what is not known. off: read nothing and keep nothing. refresh: measure "
        "everything again, and keep it. frozen: end with exit code 11 if anything has to be measured.",
    ),
}
_DECIDING = ("tasks", "pin", "cold", "retry_failures", "cache_mode")
"""Those that decide what is measured; the others say how, how long, and where a report goes."""


def tuning_options(
    command: Callable[..., Any] | None = None, *, deciding: bool = False, reporting: bool = True
) -> Callable[..., Any]:
    """Add these options; the command gets them as `wishes`, a TuningWishes. deciding: those alone that decide what is
    measured; reporting: also the one that writes a report."""
    if command is None:
        return functools.partial(tuning_options, deciding=deciding, reporting=reporting)
    names = _DECIDING if deciding else tuple(name for name in _OPTIONS if reporting or name != "report")
    chosen = {name: option for name, option in _OPTIONS.items() if name in names}

    @functools.wraps(command)
    def with_wishes(*arguments: Any, **options: Any) -> Any:
        wishes = _wishes(**{name: options.pop(name) for name in chosen})
        return command(*arguments, wishes=wishes, **options)

    for option in reversed(chosen.values()):
        with_wishes = option(with_wishes)
    return with_wishes
