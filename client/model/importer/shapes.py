"""Infer types and shapes of a node's outputs from its inputs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.shape_inference
from onnx import TypeProto, helper, numpy_helper

from gputune.client.model.graph import Array, Node, TensorInfo
from gputune.client.model.importer.bounds import check_bounds
from gputune.client.model.importer.folding import STRING_BYTES
from gputune.client.model.importer.opening.messages import first_lines
from gputune.client.model.importer.operators import is_supported
from gputune.client.model.lowering.added import Shape, shape_of
from gputune.kernels.tiling.streaming import MOST_ELEMENTS

POSITIVE = frozenset(("dilations", "group", "kernel_shape", "strides"))
"""Attributes of windows that count something."""

WINDOWED = frozenset(("AveragePool", "Conv", "LpPool", "MaxPool"))
"""Operators with a window that must not be larger than the map."""

SHAPED_AS_INPUT = frozenset(("GroupNormalization", "MeanVarianceNormalization"))
"""Operators with a body, for which onnx infers shapes within whole models only."""

INFERRED_AS = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), 22),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual"), 16),
    "Constant": 13,
}
"""Operators whose shapes onnx knows from an operator set on: before, windows could begin behind the map (ceil_mode),
comparisons were functions of others, without shapes of their own, and constants were floats, though exporters have
always written integers."""

ALONG_AXES = {"Squeeze": ("axes",), "Slice": ("axes", "starts", "ends")}
"""Operators, and those of their attributes that belong together. Of axes that are not in order, or count
from the end, onnx infers a wrong shape (Squeeze) or none (Slice)."""

REFUSED_BY_ONNX = (
    onnx.defs.SchemaError,
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
)
"""What onnx's shape inference raises for nodes that it does not know or that are not valid."""

LARGEST_HINT = 1024
"""Constants up to this many elements are handed to shape inference: they are the ones that hold shapes."""


OF_SCALARS = frozenset(("Range",))
"""Operators whose inputs are numbers. Tensors with one element will do, as in onnxruntime: the function by which ONNX
defines AffineGrid has such."""


def inferred(
    node: Node,
    proto: onnx.NodeProto,
    opset: int,
    tensors: Mapping[str, TensorInfo],
    constants: Mapping[str, Array],
) -> dict[str, TensorInfo]:
    """Return the outputs of a node of which types and shapes are known; `proto` is the node as onnx has it.

    `tensors` has all that it reads, `constants` what of that is known. Raises ValueError for a node that is not valid.
    """
    _check_counts(node.attributes)
    if (shape := shape_of(node.op)) is not None:
        return _asked(shape, node, tensors, constants)
    if node.op in SHAPED_AS_INPUT:
        check_bounds(node.op, node.inputs, node.attributes, tensors, constants)
        return {node.output: tensors[node.inputs[0]]}
    try:
        found = _types_by_onnx(
            _in_order(proto, node, tensors),
            opset,
            {name: type_of(tensors[name]) for name in node.reads},
            {name: constants[name] for name in node.reads if name in constants},
        )
    except REFUSED_BY_ONNX as error:
        if is_supported(node.op):
            raise ValueError(f"is not valid: {first_lines(error)}") from error
        return {}
    check_bounds(node.op, node.inputs, node.attributes, tensors, constants)
    _check_window(node, tensors)
    infos = {name: _info(found[name].tensor_type) for name in node.outputs if name and name in found}
    return {name: info for name, info in infos.items() if info is not None}


def expected_bytes(proto: onnx.NodeProto, opset: int, feeds: Mapping[str, Array]) -> int:
    """Return how many bytes the outputs of a node take for these values of its inputs: as onnx infers it, or as many as
    what the node reads where it does not know. Raises ValueError for a node that is not valid: numpy would compute it
    and may end the process where sizes overflow."""
    infos = {name: TensorInfo(value.shape, str(value.dtype)) for name, value in feeds.items()}
    types = {name: type_of(info) for name, info in infos.items()}
    attributes = {item.name: helper.get_attribute_value(item) for item in proto.attribute}
    _check_counts(attributes)
    kinds = []
    try:
        kinds = [found.tensor_type for found in _types_by_onnx(proto, opset, types, feeds).values()]
    except onnx.defs.SchemaError:  # folding says what is wrong with it
        pass
    except REFUSED_BY_ONNX as error:
        if proto.op_type not in SHAPED_AS_INPUT:
            raise ValueError(f"is not valid: {first_lines(error)}") from error
    check_bounds(proto.op_type, proto.input, attributes, infos, feeds)
    sizes = [
        math.prod(max(dim.dim_value, 0) for dim in kind.shape.dim) * _item_bytes(kind.elem_type)
        for kind in kinds
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim)
    ]
    if len(sizes) < sum(map(bool, proto.output)):
        sizes = [feeds[name].nbytes for name in proto.input if name]
    return sum(sizes)


def _in_order(proto: onnx.NodeProto, node: Node, tensors: Mapping[str, TensorInfo]) -> onnx.NodeProto:
    """Return the node with the axes that are attributes counted from the start and in order, and what belongs to each
    with it."""
    lists = {each.name: each.ints for each in proto.attribute if each.name in ALONG_AXES.get(proto.op_type, ())}
    if "axes" not in lists or len({len(values) for values in lists.values()}) > 1:
        return proto
    rank = max(len(tensors[node.inputs[0]].shape), 1)
    axes = [axis % rank if -rank <= axis < rank else axis for axis in lists["axes"]]
    order = sorted(range(len(axes)), key=axes.__getitem__)
    ordered = onnx.NodeProto()
    ordered.CopyFrom(proto)
    for each in ordered.attribute:
        if each.name in lists:
            values = axes if each.name == "axes" else lists[each.name]
            each.ints[:] = [values[place] for place in order]
    return ordered


def type_of(info: TensorInfo) -> TypeProto:
    """Return a tensor's type as onnx has it."""
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(info.dtype)), info.shape)


def _types_by_onnx(
    proto: onnx.NodeProto, opset: int, types: dict[str, TypeProto], known: Mapping[str, Array]
) -> dict[str, TypeProto]:
    """Types and shapes of a node's outputs by onnx's shape inference. Raises one of REFUSED_BY_ONNX."""
    if proto.op_type in OF_SCALARS and all(value.size == 1 for value in known.values()):
        known = {name: value.reshape(()) for name, value in known.items()}
        types = types | {name: type_of(TensorInfo((), str(value.dtype))) for name, value in known.items()}
    hints = {name: numpy_helper.from_array(value, name) for name, value in known.items() if value.size <= LARGEST_HINT}
    opset = max(opset, INFERRED_AS.get(proto.op_type, 0))
    schema = onnx.defs.get_schema(proto.op_type, opset, proto.domain)
    found: dict[str, TypeProto] = onnx.shape_inference.infer_node_outputs(
        schema, proto, types, hints, None, [helper.make_opsetid("", opset)]
    )
    return found


def _item_bytes(elem_type: int) -> int:
    if elem_type == onnx.TensorProto.STRING:
        return STRING_BYTES
    return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type)).itemsize


def _info(kind: TypeProto.Tensor) -> TensorInfo | None:
    """Return the shape and the type of a tensor; None where a dimension or the type is open."""
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    if not kind.HasField("shape") or None in sizes or not kind.elem_type:
        return None
    dtype = str(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    info = TensorInfo(tuple(size for size in sizes if size is not None), dtype)
    if any(size < 0 for size in info.shape):
        raise ValueError(f"computes a tensor of the shape {info.shape}")
    if math.prod(filter(None, info.shape)) > MOST_ELEMENTS:  # without elements, too, numpy counts so far
        raise ValueError(f"computes a tensor of the shape {info.shape}; {MOST_ELEMENTS} elements are supported")
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
        raise ValueError(f"has {len(node.outputs)} outputs, but its op package returned other shapes: {found}")
    return {name: info for name, info in zip(node.outputs, found, strict=True) if name}


def _check_window(node: Node, tensors: Mapping[str, TensorInfo]) -> None:
    """Raise ValueError for a window that is larger than its padded map: onnxruntime refuses such a convolution and
    computes nothing for such a pooling, unless rounding up (ceil_mode) leaves one window that begins within the map.

    And for a pooling that pads by itself with strides that leave out the last positions. ONNX does not say where its
    windows begin; onnxruntime refuses some of these, and in others leaves out the first positions instead.
    """
    if node.op not in WINDOWED:
        return
    size = tensors[node.inputs[0]].shape[2:]
    kernel = tensors[node.inputs[1]].shape[2:] if node.op == "Conv" else node.attributes["kernel_shape"]
    strides, dilations = (node.attributes.get(name, (1,) * len(size)) for name in ("strides", "dilations"))
    pads = node.attributes.get("pads", (0,) * 2 * len(size))
    rounded_up, mode = node.attributes.get("ceil_mode", 0), node.attributes.get("auto_pad", "NOTSET")
    for axis, (extent, taps, stride, step) in enumerate(zip(size, kernel, strides, dilations, strict=False)):
        window, padded = (taps - 1) * step + 1, extent + pads[axis] + pads[axis + len(size)]
        where = f"along axis {axis + 2} of its input"
        if mode in ("NOTSET", "VALID") and window > padded + (stride - 1 if rounded_up else 0):
            raise ValueError(f"has a window of {window} {where}, which has only {padded} with padding")
        if mode.startswith("SAME") and node.op != "Conv" and (extent - 1) // stride * stride + window < extent:
            raise ValueError(f"has auto_pad and strides that skip the last positions {where}; give it pads")


def _check_counts(attributes: Mapping[str, Any]) -> None:
    for attribute in POSITIVE & attributes.keys():  # onnx's shape inference divides by strides unchecked
        values = attributes[attribute]
        counts = values if isinstance(values, tuple | list) else (values,)
        if any(isinstance(count, int) and count < 1 for count in counts):
            raise ValueError(f"is not valid: its {attribute} {values} must be positive")
