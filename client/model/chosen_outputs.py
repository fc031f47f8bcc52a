"""Make inner tensors of a model into outputs of its graph: the tensors that are named, or all that kernels write.

They become outputs before any pass, so that fusion, layouts and lowering treat them like the model's own outputs. A
tensor that would have been fused away is therefore computed, in the model's element order.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gputune.client.errors import ConfigError
from gputune.client.lists import comma_separated, parts_outside_quotes

if TYPE_CHECKING:
    from gputune.client.model.graph import Graph

OPTION = "set_output_tensors"
MOST_NEAR = 3


@dataclass(frozen=True)
class ChosenOutputs:
    """every: all tensors of the model that operations of its plan write. named: lists of tensors as
    --set_output_tensors has them, each as it was written."""

    every: bool = False
    named: tuple[str, ...] = ()

    @classmethod
    def parse(cls, every: bool, text: str | None) -> ChosenOutputs:
        """Return what the two options say; names are looked up when there are graphs. Raises ConfigError."""
        if text is None:
            return cls(every)
        if every:
            raise ConfigError(
                f"--enable_intermediate_outputs and --{OPTION} contradict each other: all tensors, or those that are "
                "named; drop one of them"
            )
        lists = tuple(parts_outside_quotes(text, ";"))
        for one in lists:
            if not (names := _names(one)) or not all(names):
                raise ConfigError(f"--{OPTION} {text!r} has a name that is empty")
        return cls(named=lists)

    def of(self, graphs: Sequence[Graph]) -> list[Graph]:
        """Return the graphs with these outputs behind the model's own, in the order in which they are computed. Raises
        ConfigError for a tensor that a graph does not compute, with the names that are nearest."""
        if self.every:
            return list(map(_with_all, graphs))
        wanted: dict[str, set[str]] = {graph.name: set() for graph in graphs}
        for one in self.named:
            for graph, names in _meant(one, graphs):
                wanted[graph.name].update(names)
        return [_with(graph, wanted[graph.name]) for graph in graphs]

    def __str__(self) -> str:
        return "all" if self.every else ";".join(self.named)


def _with_all(graph: Graph) -> Graph:
    """Until nothing is written any more that is none: an output may end a fusion, and then more is."""
    from gputune.client.model.lowering import lower  # needs all kernels, and options do not

    while True:
        plan = lower(graph)
        written = {plan.holds[each.output].name for each in plan.operations if each.output in plan.holds}
        more = _with(graph, {name for name in written & graph.named if name in graph.producers()})
        if more.outputs == graph.outputs:
            return graph
        graph = more


def _with(graph: Graph, names: set[str]) -> Graph:
    added = [name for node in graph.nodes for name in node.outputs if name in names and name not in graph.outputs]
    return replace(graph, outputs=(*graph.outputs, *added))


def _meant(text: str, graphs: Sequence[Graph]) -> Iterator[tuple[Graph, list[str]]]:
    """Yield the graphs that a list is for, and its tensors. What comes before a colon is a graph's name where there is
    a graph of that name and no tensor of the whole one."""
    computed = {graph.name: graph.producers() for graph in graphs}
    named = [graph for graph in graphs if text.startswith(f"{graph.name}:")]
    if not named or all(_names(text)[0] in tensors for tensors in computed.values()):
        named = list(graphs)
    else:
        named = [max(named, key=lambda graph: len(graph.name))]
        text = text.removeprefix(f"{named[0].name}:")
    names = _names(text)
    for graph in named:
        for name in names:
            if name not in computed[graph.name]:
                raise ConfigError(_unknown(name, graph, [each.name for each in graphs]))
        yield graph, names


def _unknown(name: str, graph: Graph, graphs: Sequence[str]) -> str:
    """Return what is wrong with a name."""
    said = f"--{OPTION}: graph {graph.name!r} computes no tensor {name!r}"
    if name in graph.inputs:
        return f"{said}: it is an input"
    if name in graph.named:
        return f"{said}: it is constant, or no output depends on it"
    before = re.match(r"([^:]+):", name)
    if before and len(graphs) > 1:
        return f"{said}; if {before[1]!r} names a graph, the graphs are {', '.join(map(repr, graphs))}"
    near = difflib.get_close_matches(name, [n for n in graph.producers() if n in graph.named], MOST_NEAR, 0.5)
    return f"{said}; the nearest are {', '.join(map(repr, near))}" if near else f"{said}, nor one with a similar name"


def _names(text: str) -> list[str]:
    """Return the names in a list. Raises ConfigError for quotes that do not fit."""
    try:
        return comma_separated(text)
    except ValueError as error:
        raise ConfigError(f"--{OPTION}: {error}") from None
