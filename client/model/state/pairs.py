"""Find which outputs of a model are the next step's inputs: those that are named, or those that join an input with new
rows."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from gputune.client.errors import ConfigError

OPTION = "--state"
PAST_OF_ATTENTION = {1: 4, 2: 5}
"""The outputs of ONNX's Attention that join its inputs with new rows, and these inputs."""


def joined(graph: onnx.GraphProto) -> dict[str, str]:
    """Return the outputs that join an input with something behind it, by the names of these inputs."""
    inputs = {item.name for item in graph.input}
    found: dict[str, str] = {}
    for output in graph.output:
        for name in _joined(graph, output.name):
            if name in inputs:
                found.setdefault(name, output.name)
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
    elif node.op_type == "Attention" and len(node.input) > PAST_OF_ATTENTION.get(place, len(node.input)):
        yield node.input[PAST_OF_ATTENTION[place]]
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
