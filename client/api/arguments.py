"""Check arguments of Python callers, and reword errors for them: a command-line option is an argument here.

Errors are written in the words of the command line, and translated when they leave `gputune.tune` and `gputune.check`.
An option that these functions do not have keeps its name: it is a key of the config file, or belongs to another
command.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from gputune.cache import CacheError
from gputune.client.advice import line_of
from gputune.client.errors import ConfigError, GputuneError
from gputune.client.suggestions import instead

ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "--model": "model",
        "--input_dimensions": "shapes",
        "--input_value": "input_values",
        "--binary_file": "output",
        "--output_dir": "output",
        "--target": "target",
        "--device": "device",
        "--token_file": "token_file",
        "--tuning_effort": "effort",
        "--tuning_budget": "budget",
        "--compare_seconds": "compare_seconds",
        "--compare_again": "compare_again",
        "--wait_for_quiet": "wait_for_quiet",
        "--fail_under": "fail_under",
        "--performance_cache_dir": "cache",
        "--config_file": "config_file",
        "--verify": "verify",
        "--op_packages": "op_packages",
        "--unsupported": "unsupported",
        "--precision_mode": "precision_mode",
        "--io_type": "io_type",
        "--keep_float32": "keep_float32",
        "--float64": "float64",
        "--quantised": "quantised",
    }
)
"""By option of the context binary generator, the argument of `gputune.tune`."""

_SHAPE = re.compile(r"--input_dimensions (.+?)=(\d+(?:,\d+)*)(?=$|[ :;])")
_VALUE = re.compile(r"--input_value (.+?)=([\w.,-]+)(?=$|[ :;])")
_OPTION = re.compile(r"--[a-z_0-9]+")


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
    line = line.replace("--unsupported host", "unsupported='host'").replace("--float64 float32", "float64='float32'")
    line = line.replace("--quantised float", "quantised='float'")
    return _OPTION.sub(lambda found: ARGUMENTS.get(found[0], found[0]), line)


@contextmanager
def with_arguments() -> Iterator[None]:
    """Has errors say what to do, as the command line does, but in the words of Python."""
    try:
        yield
    except GputuneError as error:
        error.args = (as_arguments(line_of(error)),)
        raise
    except CacheError as error:
        error.args = (as_arguments(str(error)),)
        raise


def check_known(**arguments: tuple[str | None, Collection[str]]) -> None:
    """Raise ConfigError with the nearest name for one that there is not. arguments: with the names that there are."""
    for argument, (name, known) in arguments.items():
        if name is not None and name not in known:
            raise ConfigError(f"{argument}: there is no {name!r}; {instead(name, known)}")
