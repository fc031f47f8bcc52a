"""Say which element types kernels support, and what to do about other types."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper

from gputune.client.errors import ModelError
from gputune.core.dtypes import ELEMENT_TYPES

KNOWN_DTYPES = f"supported are {', '.join(ELEMENT_TYPES)}"

NO_TENSOR = "not a tensor"
"""What stands for the type of a sequence, a map or an optional value."""

_DOUBLES = (
    "--float64 float32, which computes it in float32, or a model in float32: export it so (PyTorch: model.float())"
)
_FLOATS = "a model in float32: export it so (PyTorch: model.float()), or use the model that this one was made from"
_TEXTS = "process text on the host, and give the model numbers"
_TENSORS = "export the model with tensors in place of sequences, maps and optional values"


def dtype_of(elem_type: int) -> str:
    """Return numpy's name of an element type, ONNX's where numpy has none."""
    if elem_type in (TensorProto.STRING, TensorProto.UNDEFINED) or elem_type not in TensorProto.DataType.values():
        return TensorProto.DataType.Name(elem_type).lower() if elem_type in TensorProto.DataType.values() else "unknown"
    return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type)).name


def is_number(dtype: str) -> bool:
    """Return whether numpy can hold elements of a type, so that shapes can be found out."""
    return dtype not in ("string", "undefined", "unknown", NO_TENSOR)


def instead_of(dtype: str) -> str:
    """Return what to use in place of a type that no kernel knows."""
    if dtype == NO_TENSOR:
        return _TENSORS
    if dtype == "float64":
        return _DOUBLES
    return _TEXTS if dtype in ("string", "object", "str") else _FLOATS


def check_declared(path: Path, model: ModelProto, computed: Mapping[str, str]) -> None:
    """Raise ModelError for an output that has another type than the model declares: an application takes the declared
    type for that of its memory. computed: numpy's names of types, of outputs of which they are known."""
    for item in model.graph.output:
        declared = item.type.tensor_type.elem_type
        if not declared or item.name not in computed:
            continue
        own = dtype_of(helper.np_dtype_to_tensor_dtype(np.dtype(computed[item.name])))
        if own != dtype_of(declared):
            raise ModelError(
                f"output {item.name!r} of model {path} is declared as {dtype_of(declared)}, but what computes it gives "
                f"{own}; declare it so, or put a Cast before it"
            )
