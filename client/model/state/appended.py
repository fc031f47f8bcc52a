"""Give an input that grows with the past, as a mask of what was padded does, a past of its own: a step is given its new
part only."""

from collections.abc import Iterable

import onnx
from onnx import helper

from gputune.client.model.graph import Names
from gputune.client.model.importer import graphs_of


def with_past(graph: onnx.GraphProto, name: str, axis: int, symbol: str) -> tuple[str, str]:
    """Have an input of a graph be the new rows of what it was along an axis; return its past and what that becomes.

    symbol: the dimension that grows, which is one of a sum."""
    taken = Names(each.name for each in (*graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        for output in node.output:
            taken.free(output)
    past, whole, present = (taken.free(f"{name}.{word}") for word in ("past", "whole", "present"))
    given = next(item for item in graph.input if item.name == name)
    before, after = onnx.ValueInfoProto(), onnx.ValueInfoProto()
    before.CopyFrom(given)
    after.CopyFrom(given)
    before.name, after.name = past, present
    before.type.tensor_type.shape.dim[axis].dim_param = symbol
    dim = given.type.tensor_type.shape.dim[axis]
    rest = [part for each in dim.dim_param.split("+") if (part := each.strip()) != symbol]
    dim.dim_param = " + ".join(rest)
    _rename(graph.node, name, whole)
    graph.node.insert(0, helper.make_node("Concat", [past, name], [whole], whole, axis=axis))
    graph.node.append(helper.make_node("Identity", [whole], [present], present))
    graph.input.append(before)
    graph.output.append(after)
    return past, present


def _rename(nodes: Iterable[onnx.NodeProto], name: str, new: str) -> None:
    """Have nodes, those in branches, too, read another tensor."""
    for node in nodes:
        node.input[:] = [new if each == name else each for each in node.input]
        for inner in graphs_of([node]):
            _rename(inner.node, name, new)
            for item in inner.output:
                item.name = new if item.name == name else item.name
