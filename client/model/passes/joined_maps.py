"""Omit a Concat along channels if only 1x1 convolutions read it.

Such a convolution is a matrix product, which reads the parts of its left side in place, so nothing has to run the
Concat. A pooling between the two is applied to each part.
"""

from dataclasses import replace

from gputune.client.model.graph import Graph, Node, TensorInfo
from gputune.client.model.passes.additions import Additions
from gputune.client.model.passes.fuse_elementwise import POOLING
from gputune.kernels.ops.matmul import MOST_PARTS


def pool_parts(graph: Graph) -> Graph:
    """Return the same graph in which what is pooled for 1x1 convolutions alone is joined behind the pooling."""
    producers, uses, readers = graph.producers(), graph.uses(), graph.readers()
    nodes: list[Node] = []
    added = Additions(graph)
    for node in graph.nodes:
        concat = producers.get(node.inputs[0]) if node.op in POOLING else None
        parts = parts_of(graph, concat) if concat is not None and uses[concat.output] == 1 else ()
        plain = not node.operands and not any(uses[name] for name in node.outputs[1:])
        if concat is None or not parts or not plain or not _for_points(graph, node.output, readers):
            nodes.append(node)
            continue
        batch, _, *size = graph.shape(node.output)
        pooled: dict[str, str] = {}
        for part in dict.fromkeys(parts):
            info = TensorInfo((batch, graph.shape(part)[1], *size))
            name = pooled[part] = added.tensor(f"{node.output}/part{len(pooled)}", info)
            nodes.append(replace(node, name=name, inputs=(part,), outputs=(name,)))
        nodes.append(replace(concat, inputs=tuple(pooled[part] for part in parts), outputs=node.outputs[:1]))
    return graph.rewritten(nodes, tensors=added.tensors)


def joined_maps(graph: Graph) -> dict[str, Node]:
    """Return the Concats that nothing has to run, by the map that each would write."""
    readers = graph.readers()
    joining = (node for node in graph.nodes if parts_of(graph, node))
    return {node.output: node for node in joining if _for_points(graph, node.output, readers)}


def parts_of(graph: Graph, node: Node) -> tuple[str, ...]:
    """Return the maps that a node joins along their channels; none where it does not, or of more than a product
    reads."""
    info = graph.tensors[node.output] if node.op == "Concat" else TensorInfo(())
    if len(info.shape) != 4 or info.dtype != "float32" or int(node.attributes["axis"]) % 4 != 1:
        return ()
    return node.inputs if len(node.inputs) <= MOST_PARTS else ()


def _for_points(graph: Graph, tensor: str, readers: dict[str, list[Node]]) -> bool:
    """Return whether 1x1 convolutions are the only readers of a tensor."""
    return tensor not in graph.outputs and all(_is_point(graph, node, tensor) for node in readers.get(tensor, ()))


def _is_point(graph: Graph, node: Node, tensor: str) -> bool:
    """Return whether a node convolves a tensor position by position, in one group, and reads it for nothing else."""
    if node.op != "Conv" or node.inputs[0] != tensor or node.reads.count(tensor) > 1:
        return False
    whole = int(node.attributes.get("group", 1)) == 1 and not any(node.attributes.get("pads", ()))
    each = all(step == 1 for step in node.attributes.get("strides", ()))
    return whole and each and graph.shape(node.inputs[1])[2:] == (1, 1)
