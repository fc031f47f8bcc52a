"""Read the types and shapes that a model states of its tensors."""

from collections.abc import Mapping

import onnx

from gputune.client.model.graph import TensorInfo
from gputune.client.model.importer.opening.types import dtype_of, is_number

Sizes = Mapping[str, int]
"""Of dimensions, by their names."""


def stated_types(model: onnx.ModelProto, known: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Return what a model states in full of tensors that are not known, dimensions by name included.

    known: of its inputs and other tensors. A model may have been exported for other sizes of its inputs. So nothing is
    believed if it states another shape of a known tensor.
    """
    graph = model.graph
    sizes = {
        dim.dim_param: size
        for item in graph.input
        if item.name in known
        for dim, size in zip(item.type.tensor_type.shape.dim, known[item.name].shape, strict=False)
        if dim.dim_param
    }
    stated = {
        item.name: info for item in (*graph.value_info, *graph.output) if (info := _info(item, sizes)) is not None
    }
    if any(known[name].shape != info.shape for name, info in stated.items() if name in known):
        return {}
    return {name: info for name, info in stated.items() if name not in known}


def _info(item: onnx.ValueInfoProto, sizes: Sizes) -> TensorInfo | None:
    """Return the shape and the type of a tensor; None for what is no tensor, and where a dimension is open. A single
    number may be meant by no shape, or none."""
    kind = item.type.tensor_type
    dtype = dtype_of(kind.elem_type)
    if not is_number(dtype) or not kind.shape.dim:
        return None
    shape = [dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param, -1) for dim in kind.shape.dim]
    return TensorInfo(tuple(shape), dtype) if all(size >= 0 for size in shape) else None
