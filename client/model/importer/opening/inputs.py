"""The inputs of a model, with every dimension decided."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from gputune.client.errors import ModelError
from gputune.client.model.graph import Array, TensorInfo
from gputune.client.suggestions import instead
from gputune.core.dtypes import OPENCL_TYPES
from gputune.kernels.tiling.streaming import MOST_ELEMENTS

KNOWN_DTYPES = f"supported are {', '.join(OPENCL_TYPES)}"


def static_inputs(
    path: Path, model: onnx.ModelProto, constants: Mapping[str, Array], wanted: Mapping[str, tuple[int, ...]]
) -> dict[str, TensorInfo]:
    """The inputs with every dimension decided; initializers listed as inputs (IR 3) are not inputs.

    `wanted` are dimensions by name, as --input_dimensions gives them. Raises ModelError for those that do not fit, that
    are missing, and for types that no kernel knows.
    """
    real = {item.name: item for item in model.graph.input if item.name not in constants}
    for name in wanted:
        if name not in real:
            raise ModelError(f"model {path} has no input {name!r}; {instead(name, real, 'its inputs are')}")
    undecided = [item for name, item in real.items() if name not in wanted and _is_dynamic(item)]
    if undecided:
        first, *more = undecided
        others = f", and so has {' and '.join(repr(item.name) for item in more)}" if more else ""
        shown = _shown(first) or "of unknown rank"
        raise ModelError(
            f"input {first.name!r} of model {path} has dynamic dimensions ({shown}){others}; "
            f"give them, e.g. {' '.join(map(_as_option, undecided))}"
        )
    return {name: _static_input(path, item, wanted.get(name)) for name, item in real.items()}


def _is_dynamic(item: onnx.ValueInfoProto) -> bool:
    """Whether its sizes have to be given; an input of a type that no kernel knows is refused for that."""
    kind = item.type.tensor_type
    return _dtype(kind.elem_type) in OPENCL_TYPES and (not kind.HasField("shape") or 0 in _sizes(item))


def _sizes(item: onnx.ValueInfoProto) -> list[int]:
    """Those that are known; 0 stands for the others."""
    return [max(dim.dim_value, 0) for dim in item.type.tensor_type.shape.dim]


def _shown(item: onnx.ValueInfoProto) -> str:
    dims = item.type.tensor_type.shape.dim
    return "x".join(str(dim.dim_value) if dim.dim_value > 0 else dim.dim_param or "?" for dim in dims)


def _as_option(item: onnx.ValueInfoProto) -> str:
    """An example of what decides an input."""
    return f"--input_dimensions {item.name}={','.join(str(size or 1) for size in _sizes(item)) or '1'}"


def _static_input(path: Path, item: onnx.ValueInfoProto, wanted: tuple[int, ...] | None) -> TensorInfo:
    where = f"input {item.name!r} of model {path}"
    kind = item.type.tensor_type
    if not item.type.HasField("tensor_type"):
        raise ModelError(f"{where} is not a tensor; {KNOWN_DTYPES}")
    dtype = _dtype(kind.elem_type)
    if dtype not in OPENCL_TYPES:
        raise ModelError(f"{where} is {dtype}; {KNOWN_DTYPES}")
    ranked = kind.HasField("shape")
    sizes, shown = _sizes(item), _shown(item)
    if wanted is None:
        return _countable(where, tuple(sizes), dtype)
    option = f"--input_dimensions {item.name}={','.join(map(str, wanted))}"
    if any(size < 1 for size in wanted):
        raise ModelError(f"{option}: every dimension must be at least 1")
    if ranked and len(sizes) != len(wanted):
        raise ModelError(f"{option} has {len(wanted)} dimensions, {where} has {len(sizes)} ({shown})")
    for axis, size in enumerate(sizes):
        if size and size != wanted[axis]:
            raise ModelError(f"{option}: dimension {axis} of {where} is fixed at {size} ({shown})")
    return _countable(option, tuple(wanted), dtype)


def _dtype(elem_type: int) -> str:
    """numpy's name of an element type, ONNX's where numpy has none."""
    if elem_type in (TensorProto.STRING, TensorProto.UNDEFINED) or elem_type not in TensorProto.DataType.values():
        return TensorProto.DataType.Name(elem_type).lower() if elem_type in TensorProto.DataType.values() else "unknown"
    return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type)).name


def _countable(where: str, shape: tuple[int, ...], dtype: str) -> TensorInfo:
    info = TensorInfo(shape, dtype)
    if info.size > MOST_ELEMENTS:
        raise ModelError(f"{where} has {info.size} elements; {MOST_ELEMENTS} are supported")
    return info
