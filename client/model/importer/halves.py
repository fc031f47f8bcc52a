"""Take a graph's float16 numbers as numbers: passes and lowering then know one type of floats.

What is stored in float16 is decided for a whole plan (lowering/precision.py). So a model in float16 is lowered by the
same patterns as in float32, and what one operator hands to the next within a kernel may have more digits. A cast to or
from float16 takes them away: it becomes a step that rounds and overflows (ROUNDING). It does nothing if its input has
the digits of float16 already, and a plan drops the step if the number is stored in float16 anyway.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from gputune.client.model.graph import ROUNDING, Graph, Node, TensorInfo
from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, FLOATS, HALF

_CASTS = frozenset(("Cast", "CastLike"))
# fmt: off
_MOVES = frozenset((
    "Abs", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Max",
    "MaxPool", "Min", "Neg", "Relu", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze", "Where",
))
# fmt: on
"""Operators whose results are numbers of their inputs, or those with another sign, or zero."""

_TYPE_OF_RESULTS: Mapping[str, str] = {"Cast": "to", "EyeLike": "dtype"}
"""The attribute of operators that says which type they compute."""


def in_reals(graph: Graph) -> Graph:
    """Return the graph with float32 in the place of float16, in which `halves` names the tensors that were float16,
    `like_halves` those of float32 with its digits, and `half_nodes` what computes float16."""
    halves = {name for name, info in graph.tensors.items() if info.dtype == HALF}
    if not halves:
        return graph
    casts = _Casts(graph)
    for node in graph.nodes:
        casts.take(node)
    tensors = {**graph.tensors, **casts.added}
    return replace(
        graph,
        nodes=tuple(casts.nodes),
        constants={
            name: value.astype(np.float32) if name in halves else value for name, value in graph.constants.items()
        },
        tensors={name: replace(info, dtype=FLOAT) if name in halves else info for name, info in tensors.items()},
        halves=frozenset(halves),
        like_halves=frozenset(casts.rounded - halves - {*graph.outputs}),
        half_nodes=frozenset(
            origin for node in graph.nodes if not halves.isdisjoint(node.outputs) for origin in node.origins
        ),
    )


class _Casts:
    """Hold the nodes so far without float16. rounded: tensors whose numbers surely are of float16; added: new ones."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.added: dict[str, TensorInfo] = {}
        self.rounded = {name for name in (*graph.inputs, *graph.constants) if graph.tensors[name].dtype == HALF}
        self._graph, self._names = graph, graph.names()

    def take(self, node: Node) -> None:
        """Append what computes the same as a node of the model."""
        if node.op in _CASTS and HALF in (self._dtype(node.inputs[0]), self._dtype(node.output)):
            self._cast(node)
            return
        floats = [name for name in node.reads if self._dtype(name) in FLOATS]
        if node.op in _MOVES and floats and self.rounded.issuperset(floats):
            self.rounded.update(name for name in node.outputs if name and self._dtype(name) in FLOATS)
        attribute = _TYPE_OF_RESULTS.get(node.op)
        self.nodes.append(_of_floats(node, attribute) if attribute and self._dtype(node.output) == HALF else node)

    def _cast(self, node: Node) -> None:
        """Append a cast from or to float16, and a step that rounds beside it where that may change a number."""
        source, output = node.inputs[0], node.output
        before, after = self._dtype(source), self._dtype(output)
        changes = source not in self.rounded and not _fits(before)
        between = before in FLOATS and after in FLOATS
        if changes and not between:
            made = self._names.free(f"{output}/rounded" if before == HALF else f"{output}/float")
            self.added[made] = TensorInfo(self._graph.shape(output))
        if changes and between:
            self.nodes.append(_rounding(node, source, output))
        elif between:
            self.nodes.append(replace(node, op="Identity", inputs=(source,), attributes={}))
        elif changes and before == HALF:
            self.rounded.add(made)
            self.nodes.append(_rounding(node, source, made))
            self.nodes.append(replace(node, inputs=(made, *node.inputs[1:])))
        elif changes:
            self.nodes.append(replace(_of_floats(node, "to"), op="Cast", inputs=(source,), outputs=(made,)))
            self.nodes.append(_rounding(node, made, output))
        else:
            self.nodes.append(_of_floats(node, "to") if after == HALF else node)
        if after in FLOATS:
            self.rounded.add(output)

    def _dtype(self, tensor: str) -> str:
        info = self._graph.tensors.get(tensor)  # of an output that nothing reads there may be none
        return "" if info is None else info.dtype


def _fits(dtype: str) -> bool:
    """Return whether float16 holds every number of a type of whole numbers: it has 11 bits."""
    known = ELEMENT_TYPES[dtype]
    return not known.is_float and known.nbytes == 1


def _rounding(node: Node, source: str, output: str) -> Node:
    return replace(node, op=ROUNDING, inputs=(source,), outputs=(output,), attributes={})


def _of_floats(node: Node, attribute: str) -> Node:
    """Return the node, so that it computes float32."""
    attributes: dict[str, Any] = {**node.attributes, attribute: TensorProto.FLOAT}
    return replace(node, attributes=attributes)
