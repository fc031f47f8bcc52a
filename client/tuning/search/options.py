"""Hold what a user asks of tuning besides its effort: which tasks, which configurations, how long, which strategy."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from gputune.client.durations import seconds_with_units
from gputune.client.errors import ConfigError
from gputune.client.lists import comma_separated
from gputune.client.suggestions import near
from gputune.client.tuning.search.strategies.catalogue import STRATEGIES

_DIGEST = re.compile(r"[0-9a-f]{64}")
_DIGEST_PREFIX = re.compile(r"[0-9a-f]{6,64}")
_VALUE = r"[A-Za-z_]\w*=-?\d{1,18}"
_VALUES = re.compile(rf"{_VALUE}(?:,{_VALUE})*", re.ASCII)
_PIN = re.compile(rf"(?P<pattern>.+?)=(?P<values>{_VALUES.pattern})", re.ASCII)


CACHE_MODES = ("use", "off", "refresh", "frozen")
"""use: what is known is not measured again; off: nothing is read and nothing is kept; refresh: everything is measured
again, and kept; frozen: nothing may have to be measured, or the generation fails."""


FAIL_UNDER = "--fail_under"
LARGEST_GAIN = 1e6
"""More than anything gains."""


@dataclass(frozen=True)
class TuningOptions:
    """What is asked of the tuner.

    only: patterns of the tasks that are tuned, none for all of them; pins: by a task's pattern, the configuration that
    it gets whatever else is faster; budget_seconds: what the whole generation may take, None for as long as it takes;
    strategy: a name of the catalogue; cold: every launch finds empty caches; retry_failures: what was stored
    with one of these statuses is measured again; report: where the report of the tuning is written; cache_mode: one of
    CACHE_MODES; compare_seconds: what comparing the whole contexts of a graph may take, None for what the effort says;
    compare_again: whether whole contexts are compared as if they never were; wait_for_quiet: the minutes to wait at
    most until a busy machine is quiet, None to measure at once; fail_under: the least gain that is enough, if any.
    """

    only: tuple[str, ...] = ()
    pins: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    budget_seconds: float | None = None
    strategy: str = "auto"
    cold: bool = False
    retry_failures: tuple[str, ...] = ()
    report: Path | None = None
    cache_mode: str = "use"
    compare_seconds: float | None = None
    compare_again: bool = False
    wait_for_quiet: int | None = None
    fail_under: float | None = None

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


def parse_budget(text: str, origin: str) -> float:
    """Seconds of a time such as 90s, 10m or 1h30m. Raises ConfigError that names the origin."""
    seconds = seconds_with_units(text)
    if not seconds:
        raise ConfigError(f"{origin}: {text!r} is not a time such as 90s, 10m or 1h30m")
    return seconds


def parse_patterns(text: str, origin: str) -> tuple[str, ...]:
    """Return the patterns in "A,B"; one with a comma stands in double quotes. Raises ConfigError that names the
    origin."""
    try:
        return clean_patterns(comma_separated(text), origin)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from None


def clean_patterns(texts: Iterable[str], origin: str) -> tuple[str, ...]:
    """Return the patterns without the space around them and without repetition. Raises ConfigError for an empty one."""
    patterns = tuple(dict.fromkeys(text.strip() for text in texts))
    if not patterns or "" in patterns:
        raise ConfigError(f"{origin}: a pattern is empty; give names or patterns of tasks, such as Conv or /head/*")
    return patterns


def parse_pin(text: str, origin: str) -> tuple[str, dict[str, int]]:
    """Pattern and configuration of TASK=NAME=VALUE,NAME=VALUE. Raises ConfigError that names the origin."""
    match = _PIN.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{origin}: {text!r} is not of the form TASK=NAME=VALUE,NAME=VALUE with whole numbers")
    return match["pattern"].strip(), _values(match["values"], text, origin)


def parse_configuration(text: str, origin: str) -> dict[str, int]:
    """Return the configuration of NAME=VALUE,NAME=VALUE. Raises ConfigError that names the origin."""
    if _VALUES.fullmatch(text.strip()) is None:
        raise ConfigError(f"{origin}: {text!r} is not of the form NAME=VALUE,NAME=VALUE with whole numbers")
    return _values(text.strip(), text, origin)


def _values(values: str, text: str, origin: str) -> dict[str, int]:
    pairs = [pair.split("=") for pair in values.split(",")]
    for name, _ in pairs:
        if [first for first, _ in pairs].count(name) > 1:
            raise ConfigError(f"{origin}: {name} has two values in {text!r}")
    return {name: int(value) for name, value in pairs}


def check_cache_mode(name: str, origin: str) -> str:
    """Return the name, when it is a cache mode. Raises ConfigError that names the origin."""
    if name not in CACHE_MODES:
        raise ConfigError(f"{origin}: {name!r} is no cache mode; there are {', '.join(CACHE_MODES)}")
    return name


def check_gain(value: float, origin: str) -> float:
    """Return the least gain that is enough, when it can be one. Raises ConfigError that names the origin."""
    if not 0 < value <= LARGEST_GAIN:
        raise ConfigError(f"{origin}: {value} is no gain; give it as 1.05, for 1.05 times as fast")
    return value


def check_strategy(name: str, origin: str) -> str:
    """Return the name, when a strategy has it. Raises ConfigError that names the origin."""
    if name not in STRATEGIES:
        raise ConfigError(f"{origin}: {name!r} is no strategy; there are {', '.join(STRATEGIES)}")
    return name
