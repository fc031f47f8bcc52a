"""Define the kinds of options: how each is read from a command line, from a config file and from Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gputune.client.durations import parse_duration, seconds_with_units
from gputune.client.errors import ConfigError
from gputune.client.options.option import Kind, Read, as_it_is
from gputune.client.strict_json import a_flag, a_number, a_path, a_text, of_kind, one_of, wrong_kind
from gputune.client.suggestions import instead

LARGEST_GAIN = 1e6
"""More than anything gains."""
LARGEST_PEAK = 1e12
COUNT = Kind(json=a_number(0, 10**12), hint="int", value="a whole number from 0")
FLAG = Kind(json=a_flag, click={"is_flag": True}, hint="bool", nothing=False, value="`true`, `false`")
NOT = Kind(json=lambda value, key: not a_flag(value, key), value="`true`, `false`")
"""A key that turns off what its field turns on."""


def choice(*names: str, value: str = "") -> Kind:
    """Return the kind of options with one of these values."""

    def python(given: Any, argument: str) -> str:
        if given not in names:
            raise ConfigError(f"{argument}: there is no {given!r}; {instead(str(given), names)}")
        return str(given)

    said = value or ", ".join(f"`{name}`" for name in names)
    return Kind(json=one_of(*names), python=python, click={"type": click.Choice(names)}, choices=names, value=said)


def text(metavar: str, **click: Any) -> Kind:
    """Return the kind of options that are a text."""
    return Kind(json=a_text, click={"metavar": metavar, **click})


def file(type_: click.ParamType[Any], metavar: str | None = None, value: str = "file", text: Read = as_it_is) -> Kind:
    """Return the kind of options that name a file or folder of this type."""
    taken = {"type": type_} | ({} if metavar is None else {"metavar": metavar})
    return Kind(text, a_path, lambda given, _: Path(given), taken, hint="AnyPath", value=value)


def whole(least: int, most: int, unit: str, metavar: str) -> Kind:
    """Return the kind of options with a whole number of a unit."""

    def python(given: Any, argument: str) -> int:
        if not isinstance(given, int) or not least <= given <= most:
            raise ConfigError(f"{argument}: {given} is not a number of {unit} from {least} to {most}")
        return given

    taken = {"type": click.IntRange(least, most), "metavar": metavar}
    return Kind(
        json=a_number(least, most),
        python=python,
        click=taken,
        hint="int",
        value=f"a whole number of {unit} from {least}",
    )


def at_least(least: int, **taken: Any) -> Kind:
    """Return the kind of options with a whole number."""
    return Kind(click={"type": click.IntRange(min=least), **taken})


def repeated(kind: Kind, joined: Callable[[list[Any], str], Any]) -> Kind:
    """Return the kind of options that may be given several times, whose values are joined."""

    def read(values: tuple[Any, ...], name: str) -> Any:
        return joined([kind.text(value, name) for value in values], name)

    return replace(kind, text=read, click={**kind.click, "multiple": True})


def parse_budget(given: str, origin: str) -> float:
    """Return the seconds of a time such as 90s, 10m or 1h30m. Raises ConfigError that names the origin."""
    seconds = seconds_with_units(given)
    if not seconds:
        raise ConfigError(f"{origin}: {given!r} is not a time such as 90s, 10m or 1h30m")
    return seconds


def _budget(given: Any, argument: str) -> float:
    seconds = parse_budget(given, argument) if isinstance(given, str) else float(given)
    if seconds <= 0:
        raise ConfigError(f"{argument}: {given} s is too short; give a time above 0")
    return seconds


BUDGET = Kind(
    parse_budget,
    lambda value, key: parse_budget(a_text(value, key), key),
    _budget,
    {"metavar": "TIME"},
    hint="float | str",
    value='time, such as `"10m"`',
)


def _seconds(value: Any, key: str) -> float:
    """Return a time in seconds, as a number or as a text such as "2m"."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong_kind(value, key, 'a number of seconds, or a time such as "2m"')
    return parse_duration(str(value), key)


SECONDS = Kind(
    parse_duration,
    _seconds,
    _seconds,
    {"metavar": "SECONDS"},
    hint="float",
    value='seconds, or time, such as `"2m"`',
)


def check_gain(value: float, origin: str) -> float:
    """Return the least gain that is enough, when it can be one. Raises ConfigError that names the origin."""
    if not 0 < value <= LARGEST_GAIN:
        raise ConfigError(f"{origin}: {value} is no gain; give it as 1.05, for 1.05 times as fast")
    return value


def _gain(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_kind(value, key, "a number, like 1.05")
    return check_gain(float(value), key)


GAIN = Kind(
    check_gain, _gain, check_gain, {"type": float, "metavar": "GAIN"}, hint="float", value="a number, such as `1.05`"
)


def _peak(value: float, name: str) -> float:
    if not 0 < value <= LARGEST_PEAK:
        raise ConfigError(f"{name}: {value:g} is not a device's peak: give a number above 0")
    return value


PEAK = Kind(_peak, click={"type": float})


def texts(value: Any, key: str, form: str) -> tuple[str, ...]:
    """Return a list of texts. Raises ConfigError that says its form."""
    found = of_kind(list, value, key, form)
    if not all(isinstance(each, str) for each in found):
        raise wrong_kind(value, key, form)
    return tuple(found)


def names(value: Any, key: str) -> tuple[str, ...]:
    """Return a list of different names, at least one."""
    found = texts(value, key, 'a list of names, like ["detector"]')
    if not found or not all(each.strip() for each in found):
        raise ConfigError(f"{key} {'has a name that is empty' if found else 'is empty'}; leave it out, or give names")
    if twins := [each for each, times in Counter(found).items() if times > 1]:
        raise ConfigError(f"{key} names {twins[0]!r} twice")
    return found


NAMES = Kind(json=names, hint="Sequence[str]", nothing=(), value="list of names")


def by_name(value: Any, key: str, form: str) -> Mapping[str, Any]:
    """Return an object of a config file. Raises ConfigError that says its form."""
    return of_kind(dict, value, key, form)
