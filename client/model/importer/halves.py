"""Take a graph's float16 numbers as numbers: passes and lowering then know one type of floats.

What is stored in float16 is decided for a whole plan (lowering/precision.py). Casts between the two types do nothing
here. So a model in float16 is lowered by the same patterns as in float32. What a cast makes float32 of float16 has the
digits of float16, and what only a cast to float16 reads needs no more: both count as float16.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from gputune.client.model.graph import Graph, Node
from gputune.core.dtypes import FLOAT, HALF

_TYPE_OF_RESULTS: Mapping[str, str] = {"Cast": "to", "EyeLike": "dtype"}
"""The attribute of operators that says which type they compute."""


def in_reals(graph: Graph) -> Graph:
    """Return the graph with float32 in the place of float16, in which `halves` names the tensors that were float16."""
    halves = {name for name, info in graph.tensors.items() if info.dtype == HALF}
    if not halves:
        return graph
    casts, uses = [node for node in graph.nodes if node.op == "Cast"], graph.uses()
    alike = {node.output for node in casts if node.inputs[0] in halves and graph.tensors[node.output].dtype == FLOAT}
    alike |= {node.inputs[0] for node in casts if node.output in halves and uses[node.inputs[0]] == 1}
    computed = {name for name in alike if graph.tensors[name].dtype == FLOAT} - {*graph.inputs, *graph.outputs}
    return replace(
        graph,
        nodes=tuple(_in_reals(graph, node) for node in graph.nodes),
        constants={
            name: value.astype(np.float32) if name in halves else value for name, value in graph.constants.items()
        },
        tensors={name: replace(info, dtype=FLOAT) if name in halves else info for name, info in graph.tensors.items()},
        halves=frozenset(halves | computed),
    )


def _in_reals(graph: Graph, node: Node) -> Node:
    key = _TYPE_OF_RESULTS.get(node.op)
    if key is None or (graph.tensors[node.output].dtype != HALF and not _widens(graph, node)):
        return node
    if node.op == "Cast" and graph.tensors[node.inputs[0]].dtype in (FLOAT, HALF):
        return replace(node, op="Identity", attributes={})
    attributes: dict[str, Any] = {**node.attributes, key: TensorProto.FLOAT}
    return replace(node, attributes=attributes)


def _widens(graph: Graph, node: Node) -> bool:
    """Return whether a node makes float32 of float16."""
    return node.op == "Cast" and [graph.tensors[name].dtype for name in (node.inputs[0], node.output)] == [HALF, FLOAT]
