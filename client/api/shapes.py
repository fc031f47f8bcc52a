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
    """Name and shape of each. Several numbers are the shape of an input, or sizes of a dimension of the models for a
    graph each. Raises ConfigError for what is no shape, ModelError for a file that is no valid model."""
    given = {} if shapes is None else shapes
    several = [name for name, value in given.items() if _is_list(value) and len(value) > 1 and _is_sizes(value)]
    dimensions = _dimensions(models) if several else ()
    pairs = []
    for name, value in given.items():
        each = [(size,) for size in value] if name in several and name in dimensions else value
        pairs += [(name, shape) for shape in _each(name, each)]
    return pairs


def _dimensions(models: Sequence[Path]) -> set[str]:
    """The names of dimensions that are not those of inputs, with and without that of the model."""
    names = [(path.stem, name) for path in models for name in dimension_names(path)]
    return {text for stem, name in names for text in (name, f"{stem}:{name}")}


def values_of(input_values: InputValues | None) -> dict[str, Value]:
    """Return the value of each input. Raises ConfigError for what is no value."""
    given = input_values or {}
    return {name: value_of(value, f"input_values: the value of {name!r}") for name, value in given.items()}


def _each(name: str, value: int | Sequence[int] | Sequence[Sequence[int]]) -> Iterator[Shape]:
    if isinstance(value, int):
        value = (value,)
    if _is_list(value) and value and not any(isinstance(each, int) for each in value):
        for shape in value:
            yield _shape(name, shape)
    else:
        yield _shape(name, value)


def _shape(name: str, value: Sequence[object]) -> Shape:
    sizes = tuple(size for size in value if isinstance(size, int) and size >= 0) if _is_list(value) else ()
    if not sizes or len(sizes) != len(value):
        raise ConfigError(
            f"shapes: the shape of {name!r} is {value!r}; expected dimensions of at least 0, such as (1, 3, 224, 224)"
        )
    return sizes


def _is_sizes(value: Sequence[object]) -> bool:
    return all(isinstance(each, int) for each in value)


def _is_list(value: object) -> bool:
    """Whether a value is of the kind that it should be: programs need not be checked for types."""
    return isinstance(value, Sequence) and not isinstance(value, str)
