"""Represent the values that make inputs of a model constants, as a user gives them and as a context tells them."""

import hashlib
from typing import TypeAlias

from gputune.client.errors import ConfigError

Value: TypeAlias = bool | int | float | tuple["Value", ...]
"""The value of an input that becomes a constant: a number, or nested lists of numbers, which have a shape."""


MOST_TOLD = 64
"""Elements of a value that a context repeats; of a longer one it keeps a digest."""


def value_of(given: object, what: str) -> Value:
    """Return what an option, a config file or a program gives as the value of an input: a number, or a list or an array
    of numbers. Raises ConfigError that begins with `what`."""
    import numpy as np  # which options do without

    mixed = isinstance(given, list | tuple) and len({isinstance(each, bool) for each in given}) > 1
    try:
        array = np.asarray(None if mixed else given)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise ConfigError(f"{what}: {given!r} is no value; give a number, several numbers, or true or false")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ConfigError(f"{what}: {given!r} has a number that is not finite; give finite numbers")
    return _plain(array.tolist())


def told_value(value: Value) -> object:
    """Return how a context tells a value, as JSON values."""
    import numpy as np

    array = np.asarray(value)
    if array.size <= MOST_TOLD:
        return array.tolist()
    return {"shape": list(array.shape), "sha256": hashlib.sha256(array.tobytes()).hexdigest()}


def _plain(numbers: object) -> Value:
    if isinstance(numbers, list):
        return tuple(map(_plain, numbers))
    assert isinstance(numbers, bool | int | float)
    return numbers
