"""Interpret the values of a config file's keys beyond their JSON type.

Each function takes a value and the words that name its key. It raises a ConfigError that quotes both.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gputune.client.durations import parse_duration
from gputune.client.errors import ConfigError
from gputune.client.strict_json import a_text, of_kind, wrong_kind
from gputune.client.tuning.search.options import check_gain, clean_patterns

if TYPE_CHECKING:
    from gputune.client.model.importer import Value


def addresses(value: object, key: str) -> str:
    """Targets with commas between them. Raises TargetError for what is no address."""
    from gputune.client.target.connecting import parse_address  # what most commands only need later

    found = a_text(value, key)
    for address in found.split(","):
        parse_address(address, key)
    return found


def names(value: object, key: str) -> tuple[str, ...]:
    """Return a list of different names, at least one."""
    found = _texts(value, key, 'a list of names, like ["detector"]')
    if not found or not all(each.strip() for each in found):
        raise ConfigError(f"{key} {'has a name that is empty' if found else 'is empty'}; leave it out, or give names")
    if twins := [each for each, times in Counter(found).items() if times > 1]:
        raise ConfigError(f"{key} names {twins[0]!r} twice")
    return found


def seconds(value: object, key: str) -> float:
    """Return a time in seconds, as a number or as a text such as "2m"."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong_kind(value, key, 'a number of seconds, or a time such as "2m"')
    return parse_duration(str(value), key)


def gain(value: object, key: str) -> float:
    """Return how many times as fast something is to be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_kind(value, key, "a number, like 1.05")
    return check_gain(float(value), key)


def tasks(value: object, key: str) -> tuple[str, ...]:
    """Patterns of tasks."""
    return clean_patterns(_texts(value, key, 'a list of texts, like ["Conv", "/head/*"]'), key)


def pins(value: object, key: str) -> dict[str, dict[str, int]]:
    """Return configurations by the patterns of tasks."""
    form = 'configurations by task, like {"Conv 1a2b3c4d5e": {"TILE": 4}}, with whole numbers'
    found: dict[str, dict[str, int]] = {}
    for pattern, configuration in of_kind(dict, value, key, form).items():
        (clean,) = clean_patterns([pattern], key)
        if clean in found:
            raise ConfigError(f"{key} pins {clean!r} twice")
        if not isinstance(configuration, dict) or any(type(number) is not int for number in configuration.values()):
            raise wrong_kind(value, key, form)
        if not configuration:
            raise ConfigError(f"{key} pins {pattern!r} to nothing; give it a value for each parameter")
        found[clean] = configuration
    return found


def input_values(value: object, key: str) -> dict[str, Value]:
    """Values by the names of inputs."""
    from gputune.client.model.importer import value_of  # needs onnx, and options do not

    form = 'values by the names of inputs, like {"sr": 16000}'
    return {name: value_of(each, f"{key}: {name}") for name, each in of_kind(dict, value, key, form).items()}


def _texts(value: object, key: str, form: str) -> tuple[str, ...]:
    found = of_kind(list, value, key, form)
    if not all(isinstance(each, str) for each in found):
        raise wrong_kind(value, key, form)
    return tuple(found)
