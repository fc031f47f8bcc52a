"""The options that say how a model is tuned, beside how much of it: see gputune.client.tuning.search.options.

`performance-cache explain` takes those of them that decide what is measured.
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
from gputune.client.errors import ConfigError, GainTooSmall
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
        """The config file's wishes with these in their place. Pins are put beside the file's, whose own are replaced
        where they are for the same pattern."""
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
    """What the values of the options mean. Raises ConfigError."""
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
    """Callback of --retry_failures."""
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
        help="What tuning may take at most, such as 90s, 10m or 1h30m. The time goes where the model gains most; the "
        "same command goes on where it ended.",
    ),
    "compare_seconds": click.option(
        "--compare_seconds",
        metavar="SECONDS",
        help="How long whole contexts of a graph may take turns in the end, unless they differ for certain before: "
        f"{', '.join(f'{one.compare_seconds:g} at effort {one.name}' for one in EFFORTS.values() if one.trials != 0)}. "
        f"{RULE}",
    ),
    "compare_again": click.option(
        "--compare_again",
        is_flag=True,
        help="Compare whole contexts anew, as if there were no last choice. No task is measured that the performance "
        "cache knows.",
    ),
    "wait_for_quiet": wait_for_quiet_option,
    "fail_under": click.option(
        FAIL_UNDER,
        type=float,
        metavar="GAIN",
        help=f"End with exit code {GainTooSmall.exit_code} if the recorded gain is smaller than this, such as 1.05. If "
        "the untuned context ships, its gain is 1; of several graphs the smallest counts. All files are written first.",
    ),
    "tuning_strategy": click.option(
        "--tuning_strategy",
        type=click.Choice(tuple(STRATEGIES)),
        help="What decides which variants are measured; auto, the default, begins with what won for near problems. The "
        "others are for comparison.",
    ),
    "tasks": click.option(
        "--tasks",
        metavar="PATTERN[,...]",
        multiple=True,
        help="Tune these tasks only. A task answers to its op (Conv), its title ('Conv 1a2b3c4d5e'), its key's digest, "
        "and the names of the model's nodes that run it; *, ? and [...] stand for any characters, as in '/head/*'; a "
        "name with a comma stands in double quotes. All others get what the cache knows, else their default.",
    ),
    "pin": click.option(
        "--pin",
        metavar="TASK=NAME=VALUE,...",
        multiple=True,
        help="Give tasks this configuration, whatever else is faster; TASK is a pattern as in --tasks, and every "
        "parameter needs its value. It is verified, and measured beside the default. Once per pattern.",
    ),
    "cold": click.option(
        "--cold",
        is_flag=True,
        help="Measure every launch with empty caches, for kernels that run seldom. Such times are kept apart.",
    ),
    "retry_failures": click.option(
        "--retry_failures",
        is_flag=False,
        flag_value="all",
        metavar="[STATUS,...]",
        callback=_statuses,
        help="Measure again what failed before, also where tuning had come to an end: all of it, or what has one of "
        f"these statuses: {', '.join(FAILURES)}.",
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
        help="use, the default: what is known is not measured again; off: nothing is read and nothing kept; refresh: "
        "everything is measured again, and kept; frozen: fail, with exit code 11, where anything had to be measured.",
    ),
}
_DECIDING = ("tasks", "pin", "cold", "retry_failures", "cache_mode")
"""Those that decide what is measured; the others say how, how long, and where a report goes."""


def tuning_options(
    command: Callable[..., Any] | None = None, *, deciding: bool = False, reporting: bool = True
) -> Callable[..., Any]:
    """Adds these options; the command gets them as `wishes`, a TuningWishes. deciding: those alone that decide what is
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
