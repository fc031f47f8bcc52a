"""Sort nodes into an order in which they can run. ONNX requires this; onnxruntime and some exporters do not."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto

SHOWN = 4
"""So many nodes of a cycle are named."""


def in_order(model: ModelProto) -> ModelProto:
    """Return the model if its nodes, those of branches and functions included, are in such an order, else a copy in
    which they are. Nodes keep their order where they can. Raises ValueError for nodes that wait for each other."""
    if all(_sorted(list(nodes)) is None for nodes in _node_lists(model)):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for nodes in _node_lists(copy):
        if (ordered := _sorted(list(nodes))) is not None:
            copies = [NodeProto.FromString(node.SerializeToString()) for node in ordered]
            del nodes[:]
            nodes.extend(copies)
    return copy


def _node_lists(model: ModelProto) -> Iterator[Any]:
    """Yield the lists of nodes of a model: those of inner graphs come before those around them."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        yield from _inner_lists(nodes)
        yield nodes


def _inner_lists(nodes: Iterable[NodeProto]) -> Iterator[Any]:
    for graph in graphs_of(nodes):
        yield from _inner_lists(graph.node)
        yield graph.node


def graphs_of(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    """Yield the graphs that nodes hold as attributes, themselves without those in them."""
    for node in nodes:
        for item in node.attribute:
            if item.HasField("g"):
                yield item.g
            yield from item.graphs


def every_node(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes and those of the branches and bodies in them."""
    for node in nodes:
        yield node
        for graph in graphs_of([node]):
            yield from every_node(graph.node)


def _sorted(nodes: Sequence[NodeProto]) -> list[NodeProto] | None:
    """Return the nodes in order; None where they are. A name that none of them computes comes from elsewhere; of one
    that two compute onnx's checker complains."""
    computed = [(name, place) for place, node in enumerate(nodes) for name in node.output if name]
    makers = dict(computed)
    if len(makers) < len(computed):
        return None
    needs = [{makers[name] for name in read_by(node) if name in makers} for node in nodes]
    if all(place > max(needed, default=-1) for place, needed in enumerate(needs)):
        return None
    readers: list[list[int]] = [[] for _ in nodes]
    for place, needed in enumerate(needs):
        for maker in needed:
            readers[maker].append(place)
    missing = [len(needed) for needed in needs]
    ready = [place for place, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for reader in readers[place]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        raise ValueError(_cycle(nodes, makers, [place for place, count in enumerate(missing) if count]))
    return [nodes[place] for place in order]


def check_defined(model: ModelProto) -> None:
    """Raise ValueError for a name that nodes, those of branches and functions included, read and nothing makes."""
    graph = model.graph
    known = {item.name for item in (*graph.input, *graph.initializer)}
    known.update(item.values.name for item in graph.sparse_initializer)
    for made, nodes in ((known, graph.node), *((set(one.input), one.node) for one in model.functions)):
        made.update(name for node in nodes for name in node.output)
        for node in nodes:
            if (name := next((name for name in read_by(node) if name not in made), None)) is not None:
                reader = _reader(node, name)
                whose = f"{reader.op_type} node {reader.name or next(iter(reader.output), '')!r}"
                raise ValueError(f"no node, input or weight makes {name!r}, which {whose} reads")


def _reader(node: NodeProto, name: str) -> NodeProto:
    """Return the node that reads a name: this one, or one of its branches."""
    inner = (one for graph in graphs_of([node]) for one in graph.node if name in taken_by(graph))
    return next((_reader(one, name) for one in inner if name in read_by(one)), node)


def read_by(node: NodeProto) -> Iterator[str]:
    """Yield the tensors that a node reads, those that its branches take from around them included."""
    yield from filter(None, node.input)
    yield from sorted(taken_from_outside(node))


def taken_from_outside(node: NodeProto) -> set[str]:
    """Return the tensors that the branches and bodies of a node take from around them."""
    return {name for graph in graphs_of([node]) for name in taken_by(graph)}


def taken_by(graph: GraphProto) -> set[str]:
    """Return the tensors that a branch or a body takes from around it."""
    own = {item.name for item in (*graph.input, *graph.initializer)}
    own.update(name for node in graph.node for name in node.output)
    read = {name for node in graph.node for name in read_by(node)} | {item.name for item in graph.output}
    return read - own


def _cycle(nodes: Sequence[NodeProto], makers: dict[str, int], waiting: Sequence[int]) -> str:
    """Name the nodes of a cycle among those that wait."""
    left = set(waiting)
    path: list[int] = []
    place, names = waiting[0], list[str]()
    while place not in path:
        path.append(place)
        name = next(name for name in read_by(nodes[place]) if makers.get(name) in left)
        names.append(name)
        place = makers[name]
    first = path.index(place)
    steps = [
        f"{nodes[each].op_type} node {nodes[each].name or nodes[each].output[0]!r} reads {name!r}"
        for each, name in zip(path[first:], names[first:], strict=True)
    ]
    more = f", and so on through {len(steps) - SHOWN} more" if len(steps) > SHOWN else ""
    return f"its nodes form a cycle: {', '.join(steps[:SHOWN])}{more}"
