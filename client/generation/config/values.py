"""What the values of a config file's keys mean: each function takes a value and the words that name its key, and raises
ConfigError that quotes both."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gputune.client.errors import ConfigError
from gputune.client.target.connecting import parse_address
from gputune.client.tuning.search.options import clean_patterns

Read = Callable[[Any, str], Any]
"""From a key's value and the words that name the key to what it means. Raises ConfigError, TargetError."""

LARGEST_COUNT = 10**12


def of_kind(kind: type, value: Any, key: str, wanted: str) -> Any:
    """The value, if it is of this type."""
    if not isinstance(value, kind):
        raise ConfigError(f"{key} must be {wanted}, not {json.dumps(value)}")
    return value


def flag(value: Any, key: str) -> bool:
    """true or false."""
    return bool(of_kind(bool, value, key, "true or false"))


def text(value: Any, key: str) -> str:
    """A text that is not blank."""
    found = str(of_kind(str, value, key, "a text"))
    if not found.strip():
        raise ConfigError(f"{key} is empty")
    return found


def one_of(choices: tuple[str, ...], what: str) -> Read:
    """Reads one of these texts; `what` is what they are, as in "precision"."""

    def read(value: Any, key: str) -> str:
        found = text(value, key)
        if found not in choices:
            raise ConfigError(f"{key}: {found!r} is no {what}; there are {', '.join(choices)}")
        return found

    return read


def path(value: Any, key: str) -> Path:
    """A file's or folder's path; ~ is the home folder."""
    found = text(value, key)
    try:
        if b"\0" in os.fsencode(found):
            raise ValueError("it holds a character that no path may hold")
        return Path(found).expanduser()
    except (ValueError, RuntimeError) as error:  # RuntimeError: a home folder that is not there
        raise ConfigError(f"{key}: {json.dumps(found)} is no path: {error}") from None


def addresses(value: Any, key: str) -> str:
    """Targets with commas between them. Raises TargetError for what is no address."""
    found = text(value, key)
    for address in found.split(","):
        parse_address(address, key)
    return found


def count(value: Any, key: str) -> int:
    """A whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_COUNT:
        raise ConfigError(f"{key} must be a whole number from 0 to {LARGEST_COUNT}, not {json.dumps(value)}")
    return value


def names(value: Any, key: str) -> tuple[str, ...]:
    """A list of different names, at least one."""
    form = 'a list of names, like ["detector"]'
    found = tuple(of_kind(str, each, key, form) for each in of_kind(list, value, key, form))
    if not found or not all(each.strip() for each in found):
        raise ConfigError(f"{key} {'has a name that is empty' if found else 'is empty'}; leave it out, or give names")
    if twins := [each for each in found if found.count(each) > 1]:
        raise ConfigError(f"{key} names {twins[0]!r} twice")
    return found


def tasks(value: Any, key: str) -> tuple[str, ...]:
    """Patterns of tasks."""
    form = 'a list of texts, like ["Conv", "/head/*"]'
    return clean_patterns([of_kind(str, each, key, form) for each in of_kind(list, value, key, form)], key)


def pins(value: Any, key: str) -> dict[str, dict[str, int]]:
    """Configurations by the patterns of tasks."""
    form = 'configurations by task, like {"Conv 1a2b3c4d5e": {"TILE": 4}}, with whole numbers'
    found: dict[str, dict[str, int]] = {}
    for pattern, configuration in of_kind(dict, value, key, form).items():
        (clean,) = clean_patterns([pattern], key)
        if clean in found:
            raise ConfigError(f"{key} pins {clean!r} twice")
        for number in of_kind(dict, configuration, key, form).values():
            if isinstance(number, bool) or not isinstance(number, int):
                raise ConfigError(f"{key} must be {form}, not {json.dumps(value)}")
        if not configuration:
            raise ConfigError(f"{key} pins {pattern!r} to nothing; give it a value for each parameter")
        found[clean] = configuration
    return found
