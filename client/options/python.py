"""Make arguments of Python functions of options, and reword errors for them.

Errors are written in the words of the command line, and translated when they leave `gputune.tune` and `gputune.check`.
An option that these functions do not have keeps its name: it is a key of the config file, or belongs to another
command.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from gputune.cache import CacheError
from gputune.client.advice import line_of
from gputune.client.errors import GputuneError
from gputune.client.options.generator import GENERATOR, MODEL_CHECK
from gputune.client.options.option import Option

Result = TypeVar("Result")
ARGUMENTS: Mapping[str, str] = {one.words: one.argument for one in GENERATOR if one.argument}
"""By option of the context binary generator, the argument of `gputune.tune`."""


def by_argument(options: Iterable[Option]) -> dict[str, Option]:
    """Return options by the arguments that they are in Python; of two for one argument the first."""
    found: dict[str, Option] = {}
    for one in options:
        if one.argument:
            found.setdefault(one.argument, one)
    return found


TUNE, CHECK = by_argument(GENERATOR), by_argument(MODEL_CHECK)
"""The arguments of `gputune.tune` and of `gputune.check`."""

_SHAPE = re.compile(r"--input_dimensions (.+?)=(\d+(?:,\d+)*)(?=$|[ :;])")
_VALUE = re.compile(r"--input_value (.+?)=([\w.,-]+)(?=$|[ :;])")
_CHOICES = {
    one.argument: re.compile(rf"{one.words} ({'|'.join(one.kind.choices)})\b")
    for one in TUNE.values()
    if one.kind.choices
}
_OPTION = re.compile(r"--[a-z_0-9]+")


def given_by(options: Mapping[str, Option], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what arguments say, by the names of options, without those that ask for nothing. Raises ConfigError."""
    asked = [(options[name], value) for name, value in arguments.items() if _asks(options[name], value)]
    return {option.name: option.kind.python(value, option.argument) for option, value in asked}


def _asks(option: Option, value: Any) -> bool:
    return value is not None and value is not False and not (option.kind.nothing == () and not len(value))


def as_arguments(line: str) -> str:
    """Return a message with arguments in the place of options, and shapes and values as a program writes them."""

    def shape(found: re.Match[str]) -> str:
        sizes = tuple(map(int, found[2].split(",")))
        return f"shapes={{{found[1]!r}: {sizes if len(sizes) > 1 else sizes[0]}}}"

    def value(found: re.Match[str]) -> str:
        numbers = ", ".join(each.capitalize() if each.isalpha() else each for each in found[2].split(","))
        return f"input_values={{{found[1]!r}: {f'[{numbers}]' if ',' in numbers else numbers}}}"

    line = _SHAPE.sub(shape, line).replace("} shapes={", ", ")
    line = _VALUE.sub(value, line).replace("} input_values={", ", ")
    for argument, given in _CHOICES.items():
        line = given.sub(rf"{argument}='\1'", line)
    return _OPTION.sub(lambda found: ARGUMENTS.get(found[0], found[0]), line)


def told_of(option: Option) -> str:
    """Return what is said of an argument."""
    return " ".join(as_arguments(option.python_help or option.help).split())


@contextmanager
def with_arguments() -> Iterator[None]:
    """Reword errors: they say what to do, as the command line does, but in the words of Python."""
    try:
        yield
    except GputuneError as error:
        error.args = (as_arguments(line_of(error)),)
        raise
    except CacheError as error:
        error.args = (as_arguments(str(error)),)
        raise


def in_python(
    options: Mapping[str, Option], first: int = 1
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Make a function whose arguments are options, besides those that it names itself: it gets them as `given`, by the
    names of options. Its signature and its documentation have them all. first: so many may go without their names."""

    def made(function: Callable[..., Result]) -> Callable[..., Result]:
        own = inspect.signature(function).parameters.keys() - {"given"}
        shown = _signature(function, options, first)

        @functools.wraps(function)
        def called(*positional: Any, **arguments: Any) -> Result:
            with with_arguments():
                named = shown.bind(*positional, **arguments).arguments
                mine = {name: value for name, value in named.items() if name in own}
                rest = {name: value for name, value in named.items() if name not in own}
                return function(**mine, given=given_by(options, rest))

        called.__signature__ = shown  # type: ignore[attr-defined]
        said = (f"{name}: {told_of(one)}" for name, one in options.items())
        lines = [textwrap.fill(each, 100, initial_indent="    ", subsequent_indent=" " * 8) for each in said]
        called.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Args:", *lines])
        return called

    return made


def _signature(function: Callable[..., Any], options: Mapping[str, Option], first: int) -> inspect.Signature:
    """Return the signature of a function with options as arguments, in their order; its own stand in their places."""
    own = inspect.signature(function)
    names = dict.fromkeys([*list(own.parameters)[:first], *options, *own.parameters])
    found = []
    for number, name in enumerate(name for name in names if name != "given"):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if number < first else inspect.Parameter.KEYWORD_ONLY
        if name in own.parameters:
            found.append(own.parameters[name].replace(kind=kind))
        else:
            read = options[name].kind
            found.append(inspect.Parameter(name, kind, default=read.nothing, annotation=read.annotation))
    return own.replace(parameters=found)
