"""Make inputs of a model constants: those that have a value, and those without elements.

A single number fills an input of any shape. Several numbers are as many as the input has, in its order; the shape of
more than one dimension has to be the input's own.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gputune.client.errors import INPUT_VALUE as OPTION
from gputune.client.errors import ModelError
from gputune.client.model.graph import Array, TensorInfo
from gputune.core.dtypes import is_float


def shape_by_value(
    path: Path, name: str, dims: tuple[int | None, ...] | None, value: npt.ArrayLike, wanted: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Return the shape that a value gives an input; None if it fits several. dims: as the model has them, None for what
    is open; wanted: as --input_dimensions has them. Raises ModelError for a value that does not fit."""
    given = np.asarray(value)
    known = wanted if wanted is not None else dims
    if known is not None and given.ndim != len(known):
        if given.ndim > 1:
            raise _unfit(path, name, f"has {_counted(len(known), 'dimension')}, its value has {given.ndim}")
        return None
    for axis, (size, count) in enumerate(zip(known or (), given.shape, strict=False)):
        if size not in (None, count):
            raise _unfit(path, name, f"has {_counted(size, 'element')} along axis {axis}, its value has {count}")
    return given.shape


def constant_inputs(
    path: Path, infos: Mapping[str, TensorInfo], values: Mapping[str, npt.ArrayLike]
) -> dict[str, Array]:
    """Return those of the inputs that are constants. Raises ModelError for a value that does not fit."""
    found = {}
    for name, info in infos.items():
        if name in values:
            found[name] = _filled(path, name, info, np.asarray(values[name]))
        elif not info.size:
            found[name] = np.empty(info.shape, info.dtype)
    return found


def _filled(path: Path, name: str, info: TensorInfo, given: Array) -> Array:
    typed = _typed(path, name, info.dtype, given)
    if not given.ndim:
        return np.full(info.shape, typed)
    if given.size != info.size:
        raise _unfit(path, name, f"takes {_counted(info.size, 'number')}, its value has {given.size}")
    return typed.reshape(info.shape)


def _typed(path: Path, name: str, dtype: str, given: Array) -> Array:
    """Return the numbers in the type of the input."""
    wanted = np.dtype(dtype)
    if given.dtype == wanted:
        return given
    if "b" in (given.dtype.kind, wanted.kind):
        raise _unfit(path, name, f"is {dtype}; give it {'true or false' if wanted.kind == 'b' else 'numbers'}")
    with np.errstate(all="ignore"):
        typed = given.astype(wanted)
    if is_float(dtype):
        fits = np.isfinite(typed.astype(np.float64))
    else:
        fits = np.asarray(typed.astype(object) == given.astype(object))
    if not fits.all():
        raise _unfit(path, name, f"is {dtype}, and {given[~fits].flat[0]} is no number of that type")
    return typed


def _unfit(path: Path, name: str, why: str) -> ModelError:
    return ModelError(f"{OPTION}: input {name!r} of model {path} {why}")


def _counted(count: int | None, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
