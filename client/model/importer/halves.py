"""Take a graph's float16 numbers as numbers: passes and lowering then know one type of floats.

What is stored in float16 is decided for a whole plan (lowering/precision.py). So a model in float16 is lowered by the
same patterns as in float32, and what one operator hands to the next within a kernel may have more digits. A cast to or
from float16 takes them away: it becomes a step that rounds and overflows (ROUNDINGS). It does nothing if its input has
the digits of float16 already, and a plan drops the step if the number is stored in float16 anyway. All types of HALVES
are treated so, each by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from gputune.client.model.graph import ROUNDINGS, Graph, Node, TensorInfo
from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, FLOATS, HALVES

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
    """Return the graph with float32 in the place of shorter floats, in which `halves` says which tensors had which of
    these types, `like_halves` names those of float32 with their digits, and `half_nodes` what computes them."""
    halves = {name: info.dtype for name, info in graph.tensors.items() if info.dtype in HALVES}
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
        halves=halves,
        like_halves=frozenset(casts.rounded.keys() - halves.keys() - {*graph.outputs}),
        half_nodes=frozenset(
            origin for node in graph.nodes if not halves.keys().isdisjoint(node.outputs) for origin in node.origins
        ),
    )


class _Casts:
    """Hold the nodes so far without shorter floats. rounded: tensors whose numbers surely are of such a type, with that
    type; added: new ones."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.added: dict[str, TensorInfo] = {}
        given = ((name, graph.tensors[name].dtype) for name in (*graph.inputs, *graph.constants))
        self.rounded = {name: dtype for name, dtype in given if dtype in HALVES}
        self._graph, self._names = graph, graph.names()

    def take(self, node: Node) -> None:
        """Append what computes the same as a node of the model."""
        if node.op in _CASTS and not {self._dtype(node.inputs[0]), self._dtype(node.output)}.isdisjoint(HALVES):
            self._cast(node)
            return
        digits = {self.rounded.get(name, "") for name in node.reads if self._dtype(name) in FLOATS}
        if node.op in _MOVES and len(digits) == 1 and (dtype := digits.pop()):
            self.rounded.update({name: dtype for name in node.outputs if name and self._dtype(name) in FLOATS})
        attribute = _TYPE_OF_RESULTS.get(node.op)
        self.nodes.append(_of_floats(node, attribute) if attribute and self._dtype(node.output) in HALVES else node)

    def _cast(self, node: Node) -> None:
        """Append a cast from or to a shorter type, and steps that round beside it where that may change a number."""
        source, output = node.inputs[0], node.output
        before, after = self._dtype(source), self._dtype(output)
        if before in FLOATS and after in FLOATS:
            self._round(node, source, output, (before, after))
        elif before in HALVES:
            if self.rounded.get(source) != before:
                source = self._made(f"{output}/rounded", output)
                self._round(node, node.inputs[0], source, (before,))
            self.nodes.append(replace(node, inputs=(source, *node.inputs[1:])))
        elif _fits(before):
            self.nodes.append(_of_floats(node, "to"))
            self.rounded[output] = after
        else:
            made = self._made(f"{output}/float", output)
            self.nodes.append(replace(_of_floats(node, "to"), op="Cast", inputs=(source,), outputs=(made,)))
            self._round(node, made, output, (after,))

    def _round(self, node: Node, source: str, output: str, dtypes: Sequence[str]) -> None:
        """Append what rounds a tensor to one type after the other, as far as that may change a number."""
        digits, steps = self.rounded.get(source, ""), list[str]()
        for dtype in dtypes:
            if dtype in HALVES and dtype != digits:
                steps.append(digits := dtype)
        for number, dtype in enumerate(steps, 1):
            made = output if number == len(steps) else self._made(f"{output}/rounded", output)
            self.nodes.append(_replaced(node, ROUNDINGS[dtype], source, made))
            self.rounded[made] = dtype
            source = made
        if not steps:
            self.nodes.append(_replaced(node, "Identity", source, output))
            self.rounded[output] = digits

    def _made(self, name: str, like: str) -> str:
        """Return a new tensor in float32, of the shape of another."""
        made = self._names.free(name)
        self.added[made] = TensorInfo(self._graph.shape(like))
        return made

    def _dtype(self, tensor: str) -> str:
        info = self._graph.tensors.get(tensor)  # of an output that nothing reads there may be none
        return "" if info is None else info.dtype


def _fits(dtype: str) -> bool:
    """Return whether every type of floats holds all numbers of a type of whole numbers: they have 8 bits and more."""
    known = ELEMENT_TYPES[dtype]
    return not known.is_float and known.nbytes == 1


def _replaced(node: Node, op: str, source: str, output: str) -> Node:
    """Return an operator of one tensor in the place of a node."""
    return replace(node, op=op, inputs=(source,), outputs=(output,), attributes={})


def _of_floats(node: Node, attribute: str) -> Node:
    """Return the node, so that it computes float32."""
    attributes: dict[str, Any] = {**node.attributes, attribute: TensorProto.FLOAT}
    return replace(node, attributes=attributes)
