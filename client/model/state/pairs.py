"""Find which outputs of a model are the next step's inputs: those that are named, or those that join an input with new
rows. An input that grows without such an output, as a mask of what was padded does, can be given one."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx
from onnx import helper

from gputune.client.errors import ConfigError
from gputune.client.model.graph import Names
from gputune.client.model.importer import graphs_of, operator_of

OPTION = "--state"
JOINING = {
    "Attention": {1: 4, 2: 5},
    "com.microsoft.GroupQueryAttention": {1: 3, 2: 4},
    "com.microsoft.MultiHeadAttention": {1: 6, 2: 7},
}
"""Operators with outputs that join inputs with new rows: the places of these outputs, and of these inputs."""


def joined(graph: onnx.GraphProto) -> dict[str, str]:
    """Return the outputs that join an input with something behind it, by the names of these inputs."""
    inputs = {item.name for item in graph.input}
    found: dict[str, str] = {}
    for output in graph.output:
        for name in _joined(graph, output.name):
            if name in inputs:
                found.setdefault(name, output.name)
    return found


def joining_branches(graph: onnx.GraphProto) -> dict[str, bool]:
    """Return, of inputs that choose the branch of an If, the value for the one that joins more inputs with others."""
    inputs, found = {item.name for item in graph.input}, dict[str, bool]()
    for node in graph.node:
        if node.op_type == "If" and node.input[0] in inputs:
            branches = {item.name: item.g for item in node.attribute}
            then, other = (
                sum(not inputs.isdisjoint(_joined(branches[name], one.name)) for one in branches[name].output)
                for name in ("then_branch", "else_branch")
            )
            if then or other:
                found[node.input[0]] = then >= other
    return found


def _joined(graph: onnx.GraphProto, name: str) -> Iterator[str]:
    """Yield what a tensor joins with something behind it, in the branches of an If, too."""
    makers = {output: node for node in graph.node for output in node.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    node = makers.get(name)
    if node is None:
        return
    place = list(node.output).index(name)
    if node.op_type == "Concat":
        yield node.input[0]
    elif (past := JOINING.get(operator_of(node), {}).get(place, len(node.input))) < len(node.input):
        yield node.input[past]
    elif node.op_type == "If":
        for item in node.attribute:
            yield from _joined(item.g, item.g.output[place].name)


def named(
    patterns: Sequence[tuple[str, str]], inputs: Sequence[str], outputs: Collection[str], path: Path
) -> dict[str, str]:
    """Return the pairs of names of inputs and outputs that patterns say; a * in both stands for the same text. Raises
    ConfigError for a pattern that fits nothing, or an input without its output."""
    found: dict[str, str] = {}
    for one, other in patterns:
        fitting = [(name, match) for name in inputs if (match := _regex(one).fullmatch(name))]
        if not fitting:
            raise ConfigError(f"{OPTION} {one}={other}: model {path} has no input {one!r}; it has {', '.join(inputs)}")
        for name, match in fitting:
            output = other
            for text in match.groups():
                output = output.replace("*", text, 1)
            if output not in outputs:
                raise ConfigError(f"{OPTION} {one}={other}: model {path} has input {name!r}, but no output {output!r}")
            found[name] = output
    return found


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile("(.*)".join(map(re.escape, pattern.split("*"))))


def told(pairs: Mapping[str, str]) -> str:
    """Return pairs in words."""
    return ", ".join(f"{past} becomes {present}" for past, present in pairs.items())


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
