"""Read the input shapes and input values that a program passes for a model."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy.typing as npt

from gputune.client.errors import ConfigError
from gputune.client.model.importer import Value, dimension_names, value_of
from gputune.client.model.model_files import Shape

Shapes = Mapping[str, int | Sequence[int] | Sequence[Sequence[int]]]
"""By the name of an input its shape, or of a dimension its size; several of them, as sequences, for a graph each."""

InputValues = Mapping[str, npt.ArrayLike]
"""By the name of an input the value that makes it a constant: a number, numbers, or an array of the input's shape."""


def pairs_of(shapes: Shapes | None, models: Sequence[Path]) -> list[tuple[str, Shape]]:
    """Return the name and the shape of each. Several numbers are the shape of an input, or sizes of a dimension of the
    models for a graph each. Raises ConfigError for what is no shape, ModelError for a file that is no valid model."""
    given = {} if shapes is None else shapes
    several = {name: sizes for name, value in given.items() if len(sizes := _sizes(value)) > 1}
    dimensions = _dimensions(models) if several else set()
    lists = {name: [(size,) for size in several[name]] for name in dimensions & several.keys()}
    return [(name, shape) for name in given for shape in _each(name, lists.get(name, given[name]))]


def _dimensions(models: Sequence[Path]) -> set[str]:
    """Return the names of dimensions that are not those of inputs, with and without that of the model."""
    names = [(path.stem, name) for path in models for name in dimension_names(path)]
    return {text for stem, name in names for text in (name, f"{stem}:{name}")}


def values_of(input_values: InputValues | None) -> dict[str, Value]:
    """Return the value of each input. Raises ConfigError for what is no value."""
    given = input_values or {}
    return {name: value_of(value, f"input_values: the value of {name!r}") for name, value in given.items()}


def _each(name: str, value: int | Sequence[int] | Sequence[Sequence[int]]) -> Iterator[Shape]:
    if isinstance(value, int):
        yield _shape(name, (value,))
    elif _is_list(value) and value and not any(isinstance(each, int) for each in value):
        for shape in value:
            yield _shape(name, shape)
    else:
        yield _shape(name, value)


def _shape(name: str, value: object) -> Shape:
    if min(sizes := _sizes(value), default=-1) < 0:
        raise ConfigError(
            f"shapes: the shape of {name!r} is {value!r}; expected dimensions of at least 0, such as (1, 3, 224, 224)"
        )
    return tuple(sizes)


def _sizes(value: object) -> list[int]:
    """Return the numbers of a list of numbers, none for anything else."""
    sizes = [each for each in value if isinstance(each, int)] if isinstance(value, Sequence) else []
    return sizes if isinstance(value, Sequence) and len(sizes) == len(value) else []


def _is_list(value: object) -> bool:
    """Return whether a value is of the kind that it should be: programs need not be checked for types."""
    return isinstance(value, Sequence) and not isinstance(value, str)
