"""Find one operator set for nodes of several: a model's own, and those of functions that stand for nodes of it."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx.checker

from gputune.client.model.graph import Array
from gputune.client.model.importer import Visited
from gputune.client.model.importer.definitions import STANDARD
from gputune.client.model.importer.opening.checking import check_node

CHANGED = {"Softmax": 13, "LogSoftmax": 13, "Hardmax": 13, "Split": 18}
"""Operators that mean something else from an operator set on, though they look the same."""
AXES_AS_INPUT = {"ReduceSum": 13}
"""The operator sets from which axes of a reduction are an input; 18 for all others."""


class Differs(Exception):
    """A node means something else in all operator sets that others need."""

    def __init__(self, node: onnx.NodeProto, own: int, others: int) -> None:
        super().__init__(f"it is of operator set {own}, and other nodes are of {others}")
        self.node = node


def common(own: int, trace: Sequence[Visited]) -> int:
    """Return an operator set in which all nodes that compute at run time mean what they do in their own. own: that of
    the model. Raises Differs."""
    kept = [visited for visited in trace if not visited.known and visited.node.domain in STANDARD]
    sets = sorted({own, *(visited.opset for visited in kept)}, reverse=True)
    wrong = {opset: next((one for one in kept if not _fits(one, opset)), None) for opset in sets}
    for opset in sets:
        if wrong[opset] is None:
            return opset
    first = wrong[sets[0]]
    assert first is not None
    raise Differs(first.node, first.opset, sets[0])


def _fits(visited: Visited, opset: int) -> bool:
    """Return whether a node means the same in an operator set."""
    if visited.opset == opset:
        return True
    since = CHANGED.get(visited.node.op_type, 0)
    if (visited.opset < since) != (opset < since):
        return False
    try:
        check_node(in_opset(visited.node, opset, lambda axes: "axes"), opset)
    except onnx.checker.ValidationError:
        return False
    return True


def in_opset(node: onnx.NodeProto, opset: int, value: Callable[[Array], str]) -> onnx.NodeProto:
    """Return a node with axes of a reduction as an input, where the operator set has them there. value: writes axes,
    and returns the name of that tensor."""
    axes = next((list(item.ints) for item in node.attribute if item.name == "axes"), None)
    reduces = node.op_type.startswith("Reduce") and node.domain in STANDARD
    if not reduces or axes is None or opset < AXES_AS_INPUT.get(node.op_type, 18):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(item for item in node.attribute if item.name != "axes")
    copy.input.append(value(np.array(axes, np.int64)))
    return copy
