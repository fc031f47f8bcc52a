"""Read what names tasks and their configurations: patterns, pins, and NAME=VALUE,..."""

import re
from collections.abc import Iterable
from typing import Any

from gputune.client.errors import ConfigError
from gputune.client.lists import comma_separated
from gputune.client.options.kinds import by_name, repeated, texts
from gputune.client.options.option import Kind
from gputune.client.strict_json import wrong_kind

_VALUE = r"[A-Za-z_]\w*=-?\d{1,18}"
_VALUES = re.compile(rf"{_VALUE}(?:,{_VALUE})*", re.ASCII)
_PIN = re.compile(rf"(?P<pattern>.+?)=(?P<values>{_VALUES.pattern})", re.ASCII)


def parse_patterns(given: str, origin: str) -> tuple[str, ...]:
    """Return the patterns in "A,B"; one with a comma stands in double quotes. Raises ConfigError that names the
    origin."""
    try:
        return clean_patterns(comma_separated(given), origin)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from None


def clean_patterns(given: Iterable[str], origin: str) -> tuple[str, ...]:
    """Return the patterns without the space around them and without repetition. Raises ConfigError for an empty one."""
    patterns = tuple(dict.fromkeys(each.strip() for each in given))
    if not patterns or "" in patterns:
        raise ConfigError(f"{origin}: a pattern is empty; give names or patterns of tasks, such as Conv or /head/*")
    return patterns


def parse_pin(given: str, origin: str) -> tuple[str, dict[str, int]]:
    """Return the pattern and the configuration of TASK=NAME=VALUE,NAME=VALUE. Raises ConfigError that names the
    origin."""
    match = _PIN.fullmatch(given.strip())
    if match is None:
        raise ConfigError(f"{origin}: {given!r} is not of the form TASK=NAME=VALUE,NAME=VALUE with whole numbers")
    return match["pattern"].strip(), _values(match["values"], given, origin)


def parse_configuration(given: str, origin: str) -> dict[str, int]:
    """Return the configuration of NAME=VALUE,NAME=VALUE. Raises ConfigError that names the origin."""
    if _VALUES.fullmatch(given.strip()) is None:
        raise ConfigError(f"{origin}: {given!r} is not of the form NAME=VALUE,NAME=VALUE with whole numbers")
    return _values(given.strip(), given, origin)


def _values(values: str, given: str, origin: str) -> dict[str, int]:
    pairs = [pair.split("=") for pair in values.split(",")]
    for name, _ in pairs:
        if [first for first, _ in pairs].count(name) > 1:
            raise ConfigError(f"{origin}: {name} has two values in {given!r}")
    return {name: int(value) for name, value in pairs}


def _pins(given: list[tuple[str, dict[str, int]]], origin: str) -> dict[str, dict[str, int]]:
    pins: dict[str, dict[str, int]] = {}
    for pattern, configuration in given:
        if pattern in pins:
            raise ConfigError(f"{origin}: {pattern!r} is pinned twice")
        pins[pattern] = configuration
    return pins


def _pins_of_file(value: Any, key: str) -> dict[str, dict[str, int]]:
    form = 'configurations by task, like {"Conv 1a2b3c4d5e": {"TILE": 4}}, with whole numbers'
    found: dict[str, dict[str, int]] = {}
    for pattern, configuration in by_name(value, key, form).items():
        (clean,) = clean_patterns([pattern], key)
        if clean in found:
            raise ConfigError(f"{key}: {clean!r} is pinned twice")
        if not isinstance(configuration, dict) or any(type(number) is not int for number in configuration.values()):
            raise wrong_kind(value, key, form)
        if not configuration:
            raise ConfigError(f"{key}: {pattern!r} is pinned to nothing; give it a value for each parameter")
        found[clean] = configuration
    return found


PATTERNS = Kind(
    text=parse_patterns,
    json=lambda value, key: clean_patterns(texts(value, key, 'a list of texts, like ["Conv", "/head/*"]'), key),
    click={"metavar": "PATTERN[,...]"},
    value="list of patterns",
)
TASKS = repeated(PATTERNS, lambda given, _: tuple(dict.fromkeys(pattern for each in given for pattern in each)))
PIN = Kind(parse_pin, _pins_of_file, click={"metavar": "TASK=NAME=VALUE,..."}, value="`{pattern: {name: value}}`")
PINS = repeated(PIN, _pins)
