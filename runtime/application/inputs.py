"""Find out which graph takes what an application gives, and say what that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.runtime.arrays import is_of
from gputune.runtime.context.records import GraphRecord, TensorRecord
from gputune.runtime.memory.handles import MemHandle, is_empty
from gputune.runtime.values import Values

Array = npt.NDArray[Any]
Inputs = Values | Array
"""By input name, arrays or memory handles; or the array of the only input."""


def takes(tensors: Sequence[TensorRecord], inputs: Inputs) -> bool:
    """Return whether these are inputs for tensors."""
    if not isinstance(inputs, Mapping):
        return len(tensors) == 1 and fits(tensors[0], inputs)
    known = {tensor.name for tensor in tensors}
    others = (value for name, value in inputs.items() if name not in known)
    fitting = (tensor.name in inputs and fits(tensor, inputs[tensor.name]) for tensor in tensors)
    return all(fitting) and all(map(is_empty, others))


def fits(tensor: TensorRecord, value: object) -> bool:
    """Return whether a value is one for a tensor. Of a handle only the size is known."""
    if isinstance(value, MemHandle):
        return value.nbytes >= tensor.nbytes
    array = np.asarray(value)
    return array.shape == tensor.shape and is_of(array, tensor.dtype)


def named(inputs: Inputs, graph: GraphRecord, tensors: Sequence[TensorRecord]) -> Values:
    """Return inputs by name. Raises ValueError for an array alone where the graph takes not just one.
    tensors: what it takes of its inputs."""
    if isinstance(inputs, Mapping):
        return inputs
    if len(tensors) != 1:
        names = [tensor.name for tensor in tensors]
        raise ValueError(f"graph {graph.name!r} has {len(tensors)} inputs; give arrays by name: {names}")
    return {tensors[0].name: inputs}


def tensors_in_words(tensors: Sequence[TensorRecord]) -> str:
    """Return names, types and shapes."""
    return ", ".join(f"{each.name} {each.dtype}{list(each.shape)}" for each in tensors) or "nothing"


def given_in_words(inputs: Inputs) -> str:
    """Return what an application has given."""
    if not isinstance(inputs, Mapping):
        return _value(inputs)
    return ", ".join(f"{name} {_value(value)}" for name, value in inputs.items()) or "nothing"


def _value(value: object) -> str:
    if isinstance(value, MemHandle):
        return f"memory of {value.nbytes} bytes"
    array = np.asarray(value)
    return f"{array.dtype}{list(array.shape)}"
