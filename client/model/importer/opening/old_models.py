"""Convert models with onnx if their operator set gives Add, BatchNormalization and others another meaning."""

from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.shape_inference
import onnx.version_converter
from onnx import ModelProto, NodeProto, helper

from gputune.client.errors import ModelError
from gputune.client.model.graph import Names
from gputune.client.model.importer.opening.operator_sets import opset_of

OLDEST_OPSET = 7
"""The oldest operator set that is understood as it is."""


def modern(model: ModelProto, path: Path) -> ModelProto:
    """Return the model in the oldest operator set that is understood, where its own is older; `path` is what messages
    call it. Raises ModelError when onnx cannot convert it."""
    opset = opset_of(model)
    if not 0 < opset < OLDEST_OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(_with_slopes_per_channel(model), OLDEST_OPSET)
    except Exception as error:  # whatever the converter's C++ raises
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            f"model {path} uses operator set {opset}; {OLDEST_OPSET} is the oldest supported, and onnx cannot convert "
            f"it: {reason}"
        ) from error


def _with_slopes_per_channel(model: ModelProto) -> ModelProto:
    """Return the model with a slope of PRelu that is a vector, and belongs to channels, in a shape that broadcasts to
    them: the one thing that onnx's converter overlooks."""
    if all(node.op_type != "PRelu" for node in model.graph.node):
        return model
    inferred = onnx.shape_inference.infer_shapes(model).graph
    ranks = {
        item.name: len(item.type.tensor_type.shape.dim)
        for item in (*inferred.input, *inferred.value_info)
        if item.type.tensor_type.HasField("shape")
    } | {item.name: len(item.dims) for item in inferred.initializer}
    changed = ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    taken = Names(name for node in model.graph.node for name in (*node.input, *node.output))
    for node in model.graph.node:
        changed.graph.node.extend(_with_slope(node, ranks, taken) if node.op_type == "PRelu" else [node])
    return changed


def _with_slope(node: NodeProto, ranks: dict[str, int], taken: Names) -> Iterator[NodeProto]:
    data, slope = node.input
    behind = ranks.get(data, 0) - 2
    if ranks.get(slope) == 1 and behind > 0:
        slope = taken.free(f"{node.output[0]}/slope")
        yield helper.make_node("Unsqueeze", [node.input[1]], [slope], axes=list(range(1, 1 + behind)))
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[1] = slope
    yield copy
