"""Types and shapes of what a node computes, from those of what it reads."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.checker
import onnx.shape_inference
from onnx import TypeProto, helper, numpy_helper

from gputune.client.graph import Array, Node, TensorInfo
from gputune.client.importer.operators import is_supported
from gputune.client.importer.texts import first_lines
from gputune.client.lowering.added import Shape, shape_of
from gputune.kernels.streaming import MOST_ELEMENTS

POSITIVE = frozenset(("dilations", "group", "kernel_shape", "strides"))
"""Attributes of windows that count something."""

SHAPED_AS_INPUT = frozenset(("GroupNormalization", "MeanVarianceNormalization"))
"""Operators with a body, for which onnx infers shapes within whole models only."""

INFERRED_AS = dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), 22)
"""Operators whose shapes onnx knows from an operator set on: before, windows could begin behind the map (ceil_mode)."""

LARGEST_HINT = 1024
"""Constants up to this many elements are handed to shape inference: they are the ones that hold shapes."""


def inferred(
    node: Node,
    proto: onnx.NodeProto,
    opset: int,
    tensors: Mapping[str, TensorInfo],
    constants: Mapping[str, Array],
) -> dict[str, TensorInfo]:
    """The outputs of a node of which types and shapes are known; `proto` is the node as onnx has it.

    `tensors` has all that it reads, `constants` what of that is known. Raises ValueError for a node that is not valid.
    """
    _check_counts(node)
    if (shape := shape_of(node.op)) is not None:
        return _asked(shape, node, tensors, constants)
    if node.op in SHAPED_AS_INPUT:
        return {node.output: tensors[node.inputs[0]]}
    types = {name: type_of(tensors[name]) for name in node.reads}
    hints = {
        name: numpy_helper.from_array(constants[name], name)
        for name in node.reads
        if name in constants and constants[name].size <= LARGEST_HINT
    }
    opset = max(opset, INFERRED_AS.get(proto.op_type, 0))
    try:
        schema = onnx.defs.get_schema(proto.op_type, opset, proto.domain)
        found = onnx.shape_inference.infer_node_outputs(
            schema, proto, types, hints, None, [helper.make_opsetid("", opset)]
        )
    except (onnx.defs.SchemaError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        if is_supported(node.op):
            raise ValueError(f"is not valid: {first_lines(error)}") from error
        return {}
    infos = {name: _info(found[name].tensor_type) for name in node.outputs if name and name in found}
    return {name: info for name, info in infos.items() if info is not None}


def type_of(info: TensorInfo) -> TypeProto:
    """A tensor's type as onnx has it."""
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(info.dtype)), info.shape)


def _info(kind: TypeProto.Tensor) -> TensorInfo | None:
    """None where a dimension or the type is open."""
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    if not kind.HasField("shape") or None in sizes or not kind.elem_type:
        return None
    dtype = str(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    info = TensorInfo(tuple(size for size in sizes if size is not None), dtype)
    if info.size > MOST_ELEMENTS:
        raise ValueError(f"computes {info.size} elements; {MOST_ELEMENTS} are supported")
    return info


def _asked(
    shape: Shape, node: Node, tensors: Mapping[str, TensorInfo], constants: Mapping[str, Array]
) -> dict[str, TensorInfo]:
    """Types and shapes of the outputs, from an op package."""
    try:
        found = tuple(shape(node, tensors, constants))
    except ValueError as error:
        raise ValueError(f"is not valid: {first_lines(error)}") from error
    if len(found) != len(node.outputs) or not all(isinstance(info, TensorInfo) for info in found):
        raise ValueError(f"has {len(node.outputs)} outputs; its op package knows other shapes: {found}")
    return {name: info for name, info in zip(node.outputs, found, strict=True) if name}


def _check_counts(node: Node) -> None:
    for attribute in POSITIVE & node.attributes.keys():  # onnx's shape inference divides by strides unchecked
        values = node.attributes[attribute]
        counts = values if isinstance(values, tuple) else (values,)
        if any(isinstance(count, int) and count < 1 for count in counts):
            raise ValueError(f"is not valid: its {attribute} {values} must be positive")
