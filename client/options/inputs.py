"""Read what options, keys and arguments say of a model's inputs and outputs: shapes, values and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from gputune.client.errors import INPUT_VALUE, ConfigError
from gputune.client.input_values import Value, value_of
from gputune.client.options.kinds import by_name
from gputune.client.options.option import Kind
from gputune.client.strict_json import a_number, a_text, one_of
from gputune.core.dtypes import FLOATS
from gputune.runtime.context.states import LARGEST_CAPACITY

EVERY = ""
"""In the place of a name: all inputs and outputs."""


def parse_input_dimensions(values: Iterable[str], name: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return names and shapes of NAME=1,3,224,224[;NAME=...], for `model_files`."""
    return tuple(_shape_of(part.strip()) for text in values for part in text.split(";"))


def _shape_of(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name and the shape of NAME=1,3,224,224."""
    name, separator, sizes = text.rpartition("=")
    try:
        shape = tuple(int(part) for part in sizes.split(","))
    except ValueError:
        shape = ()
    if not separator or not name or not shape or min(shape) < 0:
        raise click.BadParameter(f"{text!r} is not of the form NAME=1,3,224,224 with dimensions of at least 0")
    return name, shape


def _values(texts: Iterable[str], option: str) -> dict[str, Value]:
    """Return values by the names of inputs, of NAME=V0[,V1,...]."""
    found: dict[str, Value] = {}
    for text in texts:
        name, separator, numbers = text.rpartition("=")
        if not separator or not name:
            raise click.BadParameter(f"{text!r} is not of the form NAME=16000")
        if name in found:
            raise click.BadParameter(f"input {name!r} is given twice")
        parsed = [_number(part.strip()) for part in numbers.split(",")]
        found[name] = value_of(parsed if len(parsed) > 1 else parsed[0], INPUT_VALUE)
    return found


def _number(text: str) -> bool | int | float:
    """Return a number, true or false."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number, and neither true nor false") from None


def _values_of_file(value: Any, key: str) -> dict[str, Value]:
    """Return values by the names of inputs."""
    given = by_name(value, key, 'values by the names of inputs, like {"sr": 16000}')
    return {name: value_of(each, f"{key}: {name}") for name, each in given.items()}


def io_types(value: Any, key: str) -> dict[str, str]:
    """Return the types of inputs and outputs of a config file: a type for all, or types by name. Raises ConfigError."""
    read = one_of(*FLOATS)
    if isinstance(value, Mapping):
        return {a_text(name, key): str(read(each, f"{key} of {name}")) for name, each in value.items()}
    return {EVERY: str(read(value, key))}


def told_io_types(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return the types of TYPE and NAME=TYPE. Raises ConfigError."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, dtype = text.rpartition("=")
        if dtype not in FLOATS:
            raise ConfigError(f"{option}: {dtype!r} is no type of floats; give {' or '.join(FLOATS)}, or NAME=TYPE")
        found[name] = dtype
    return found


def _states(value: Any, name: str) -> tuple[str, ...]:
    """Return the parts of auto, IN=OUT;... or the name of a dimension. Raises ConfigError."""
    parts = tuple(part.strip() for part in a_text(value, name).split(";"))
    if not all(parts):
        raise ConfigError(f"{name}: {value!r} has a part that is empty; give auto, IN=OUT;..., or a dimension")
    return parts


def _capacities(value: Any, name: str) -> tuple[int, ...]:
    """Return capacities of a number or several, the largest first: what runs a single graph takes the first. Raises
    ConfigError."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    read = a_number(1, LARGEST_CAPACITY)
    numbers = [read(int(part) if isinstance(part, str) and part.strip().isdecimal() else part, name) for part in parts]
    if not numbers or len(set(numbers)) < len(numbers):
        raise ConfigError(f"{name}: {value!r} is no number of rows, or several that differ, as in 64,256")
    return tuple(sorted(numbers, reverse=True))


STATES = Kind(_states, _states, _states, {"metavar": "auto|IN=OUT;...|NAME"}, value="text")
CAPACITIES = Kind(
    _capacities,
    _capacities,
    _capacities,
    {"metavar": "ROWS[,ROWS...]"},
    hint="int | Sequence[int]",
    value="a whole number of rows from 1, or a list of them",
)
SHAPES = Kind(parse_input_dimensions, click={"metavar": "NAME=D0,D1,...", "multiple": True}, hint="Shapes")
VALUES = Kind(
    _values,
    _values_of_file,
    click={"metavar": "NAME=V0[,V1,...]", "multiple": True},
    hint="InputValues",
    value='values by input name, such as `{"sr": 16000}`',
)
IO_TYPES = Kind(
    told_io_types,
    io_types,
    io_types,
    {"metavar": "TYPE|NAME=TYPE", "multiple": True},
    hint="str | Mapping[str, str]",
    value="a type, or `{name: type}`",
)
