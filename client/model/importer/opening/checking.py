"""Check a model with onnx, and accept sound models that its checker refuses."""

from collections.abc import Iterator

import onnx
import onnx.checker
import onnx.onnx_cpp2py_export.checker as c_checker
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from gputune.client.model.importer.definitions import STANDARD, is_defined
from gputune.client.model.importer.opening.operator_sets import opset_of
from gputune.client.model.importer.opening.ordering import check_defined, graphs_of, in_order

PER_GROUP = range(18, 21)
"""The operator sets in which GroupNormalization has a scale and a bias for each group. onnx's checker calls it
deprecated there; onnxruntime and ONNX's reference run it."""
PER_CHANNEL = 21
"""The one in which its attributes and inputs are called the same."""

UNCHECKED = "gputune.unchecked"
"""A domain of which onnx's checker knows nothing."""


def checked(model: ModelProto, file: str | None = None) -> ModelProto:
    """Return the model with its nodes in an order in which they can run, once onnx has checked it. file: its path, for
    a model that may be too large to be checked in memory. Raises ValidationError."""
    try:
        ordered = in_order(model)
        check_defined(ordered)
    except ValueError as error:
        raise onnx.checker.ValidationError(str(error)) from error
    unknown = [(node, opset) for node, opset in _nodes(ordered) if _is_unknown(node, opset)]
    for node, opset in unknown:
        if _is_per_group(node, opset):
            check_node(node, opset)
    if not unknown and ordered is model and all(map(_is_typed, (*model.graph.input, *model.graph.output))):
        onnx.checker.check_model(file or model)
    else:
        onnx.checker.check_model(_in_plainer_terms(ordered))
    _check_names(ordered)
    return ordered


def _check_names(model: ModelProto) -> None:
    """Raise ValidationError for a name with a zero character, at which a text ends in C."""
    names = [model.graph.name, *(item.name for item in (*model.graph.input, *model.graph.output))]
    names += [name for node, _ in _nodes(model) for name in (node.name, *node.output)]
    if wrong := next((name for name in names if "\0" in name), ""):
        raise onnx.checker.ValidationError(f"the name {wrong!r} has a zero character; rename it")


def check_node(node: NodeProto, opset: int) -> None:
    """Have onnx check a node of an operator set. Raises ValidationError."""
    context = c_checker.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = {"": PER_CHANNEL if _is_per_group(node, opset) else opset}
    onnx.checker.check_node(node, context)


def _is_per_group(node: NodeProto, opset: int) -> bool:
    return node.op_type == "GroupNormalization" and node.domain in STANDARD and opset in PER_GROUP


def _is_unknown(node: NodeProto, opset: int) -> bool:
    """Return whether onnx's checker refuses a node that onnxruntime runs."""
    return _is_per_group(node, opset) or (node.domain in STANDARD and is_defined(node, opset))


def _nodes(model: ModelProto) -> Iterator[tuple[NodeProto, int]]:
    """Yield every node, those of branches and functions included, and the operator set that it is written in."""
    for part in (model, *model.functions):
        opset = opset_of(part)
        lists = [part.graph.node if isinstance(part, ModelProto) else part.node]
        while lists:
            nodes = lists.pop()
            lists += [graph.node for graph in graphs_of(nodes)]
            yield from ((node, opset) for node in nodes)


def _in_plainer_terms(model: ModelProto) -> ModelProto:
    """Return a copy for the checker only, with types and shapes that onnxruntime does without, and without nodes that
    were checked by themselves."""
    copy = ModelProto()
    copy.CopyFrom(model)
    for part in (copy, *copy.functions):
        part.opset_import.append(helper.make_opsetid(UNCHECKED, 1))
    for node, opset in _nodes(copy):
        if _is_unknown(node, opset):
            node.domain = UNCHECKED
    for item in (*copy.graph.input, *copy.graph.output):
        if not item.HasField("type"):
            item.type.tensor_type.elem_type = TensorProto.FLOAT
        if item.type.HasField("tensor_type"):
            item.type.tensor_type.shape.SetInParent()
    for weight in copy.graph.initializer:
        if weight.data_location == TensorProto.EXTERNAL:  # which is looked for beside a file only; weights.py checks it
            weight.data_location, weight.dims[:] = TensorProto.DEFAULT, [0]
            del weight.external_data[:]
    return copy


def _is_typed(item: ValueInfoProto) -> bool:
    kind = item.type
    return item.HasField("type") and (not kind.HasField("tensor_type") or kind.tensor_type.HasField("shape"))
