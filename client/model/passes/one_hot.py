"""Take rows of a table if a model multiplies one-hot vectors by it, which sums terms of which all but one are zero.

MatMul(Cast(Equal(x, [0 1 2 ... n-1])), table) becomes a Gather from the table and an added row of zeros. Every x that
equals none of the numbers selects this row.
"""

from collections.abc import Mapping

import numpy as np

from gputune.client.model.graph import Graph, Node, TensorInfo
from gputune.client.model.passes.additions import Additions

WHOLE = ("int32", "int64")


def look_up_one_hot(graph: Graph) -> Graph:
    """Return the same graph with rows looked up in the place of such products."""
    nodes: list[Node] = []
    added = Additions(graph)
    producers, uses = graph.producers(), graph.uses()
    for node in graph.nodes:
        indices = _indices(graph, producers, uses, node) if node.op == "MatMul" else ""
        if not indices:
            nodes.append(node)
            continue
        result, table, whole = node.output, graph.constants[node.inputs[1]], graph.tensors[indices].dtype
        low = added.exact(f"{result}/low", np.array(-1, whole))  # the last row, as is whatever is too large
        shape = added.exact(f"{result}/shape", np.array(graph.shape(result)[:-1], np.int64))
        rows = added.exact(f"{result}/rows", np.concatenate([table, np.zeros_like(table[:1])]))
        known = added.tensor(f"{result}/known", graph.tensors[indices])
        index = added.tensor(f"{result}/index", TensorInfo(graph.shape(result)[:-1], whole))
        cast = producers[node.inputs[0]]
        origins = (*producers[cast.inputs[0]].origins, *cast.origins, *node.origins)
        nodes += [
            Node("Max", f"{node.name}/known", (indices, low), (known,), origins=origins),
            Node("Reshape", f"{node.name}/index", (known, shape), (index,), origins=origins),
            Node("Gather", node.name, (rows, index), node.outputs, {"axis": 0}, origins=origins),
        ]
    return graph.rewritten(nodes, added.constants, added.tensors)


def _indices(graph: Graph, producers: Mapping[str, Node], uses: Mapping[str, int], node: Node) -> str:
    """Return the tensor of which a product makes one-hot vectors, with an axis of size 1 for them; "" where it does
    not."""
    table = graph.constants.get(node.inputs[1])
    cast = producers.get(node.inputs[0])
    equal = producers.get(cast.inputs[0]) if cast is not None and cast.op == "Cast" else None
    if table is None or cast is None or equal is None or equal.op != "Equal":
        return ""
    if table.ndim != 2 or not graph.is_float(node) or not np.isfinite(table).all():
        return ""
    if uses[cast.output] != 1 or uses[equal.output] != 1:
        return ""
    for indices, numbers in (equal.inputs, equal.inputs[::-1]):
        known, shape = graph.constants.get(numbers), graph.shape(indices)
        if known is None or graph.tensors[indices].dtype not in WHOLE or shape[-1:] != (1,):
            continue
        along = known.size == known.shape[-1] == len(table) and (known.ravel() == np.arange(len(table))).all()
        if along and graph.shape(equal.output) == (*shape[:-1], len(table)):
            return indices
    return ""
