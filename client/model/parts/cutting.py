"""Decide which nodes of a model run on the device, and in which parts.

A node's level is the highest of its producers, and one more if it runs on the device and reads what the host computes.
The device's nodes of one level are a part. So no path leaves a part and comes back, and each part is a graph that runs
at once. A part with a small share of the multiply-adds stays on the host, because each part costs a wait of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from gputune.client.errors import Refusal, UnsupportedNodes
from gputune.client.model.graph import Graph, Node, TensorInfo
from gputune.client.model.importer import Imported, Value, graphs_of, import_nodes, load, operator_of, read_by
from gputune.client.model.lowering import lower
from gputune.client.model.parts.host_types import host_types
from gputune.client.model.parts.multiply_adds import multiply_adds
from gputune.core.dtypes import ELEMENT_TYPES

LEAST_SHARE = 0.05
"""A part with less of the model's multiply-adds stays on the host."""
MOST_ROUNDS = 3
"""So often onnxruntime is asked for shapes that follow from those which it knew before."""


@dataclass(frozen=True)
class Part:
    """The nodes of a model that run on the device as one graph, which has the model's names of tensors.

    share: of the model's multiply-adds, or of the elements that its nodes compute if it has none.
    """

    graph: Graph
    share: float

    @property
    def crossing_bytes(self) -> int:
        """Return the bytes of its inputs and outputs."""
        return sum(self.graph.tensors[name].nbytes for name in (*self.graph.inputs, *self.graph.outputs))

    @property
    def ops(self) -> Counter[str]:
        """Return how many of the model's nodes of each operator it has."""
        return Counter(self.graph.node_ops.values())


@dataclass(frozen=True)
class Cut:
    """A model and its parts. host: the places of the model's nodes that stay in onnxruntime and are needed there.
    refusals: why nodes cannot run on the device; the others of the host are not worth a part of their own. title: what
    tells it from other models and shapes of the same request, "" if there are none."""

    imported: Imported
    parts: tuple[Part, ...]
    host: tuple[int, ...]
    refusals: tuple[Refusal, ...]
    title: str = ""

    @property
    def share(self) -> float:
        """Return the parts' share of the multiply-adds."""
        return sum(part.share for part in self.parts)

    @property
    def is_whole(self) -> bool:
        """Return whether all of the model runs on the device."""
        return not self.host

    @property
    def crossing_bytes(self) -> int:
        """Return the bytes that an inference hands to parts and takes from them."""
        return sum(part.crossing_bytes for part in self.parts)

    @property
    def host_ops(self) -> Counter[str]:
        """Return how many nodes of each operator stay in onnxruntime."""
        nodes = self.imported.model.graph.node
        return Counter(operator_of(nodes[place]) for place in self.host)

    def named(self, name: str, title: str) -> Cut:
        """Return this cut with the name in its parts' names; if there are several, each has a number."""
        several = len(self.parts) > 1
        names = (f"{name}_part{number}" if several else name for number in range(1, len(self.parts) + 1))
        parts = (
            replace(part, graph=replace(part.graph, name=each)) for part, each in zip(self.parts, names, strict=True)
        )
        return replace(self, parts=tuple(parts), title=title)


def cut_model(
    path: Path, input_dimensions: Mapping[str, tuple[int, ...]], input_values: Mapping[str, Value] | None = None
) -> Cut:
    """Cut the model in a file. Raises ModelError for what is wrong with the model and not with single nodes,
    ConfigError if onnxruntime is not installed."""
    model = load(path)
    imported = import_nodes(model, path, input_dimensions, input_values)
    declared: dict[str, TensorInfo] = {}
    for _ in range(MOST_ROUNDS):
        computed = {name for node in imported.graph.nodes for name in node.outputs if name}
        if not (unknown := computed - imported.graph.tensors.keys()):
            break
        found = host_types(imported.model, path, imported.graph.tensors)
        if not (more := {name: info for name, info in found.items() if name in unknown}):
            break
        declared |= more
        imported = import_nodes(model, path, input_dimensions, input_values, declared)
    return _Cutter(imported).cut()


class _Cutter:
    """Cuts an imported model. Nodes are called by their places in the model."""

    def __init__(self, imported: Imported) -> None:
        self._imported = imported
        self._graph = imported.graph
        self._protos: Sequence[onnx.NodeProto] = imported.model.graph.node
        self._nodes: dict[int, list[Node]] = {}  # of the graph, for each node of the model that has to run
        for node in self._graph.nodes:
            self._nodes.setdefault(self._place(node.origins[0]), []).append(node)
        self._makers = {name: place for place, proto in enumerate(self._protos) for name in proto.output if name}
        self._refusals = {one.node: one for one in imported.refusals}

    def cut(self) -> Cut:
        """Cut until every part can be lowered and has its share."""
        on_host = {place for place, nodes in self._nodes.items() if not all(map(self._may_run, nodes))}
        while True:
            needed = self._needed(on_host)
            work = self._work(needed)
            parts, small, refused = list[Part](), set[int](), set[int]()
            for places in self._levels(needed, on_host):
                share = sum(work[place] for place in places) / sum(work.values())
                if share < LEAST_SHARE:
                    small |= places
                    continue
                part = Part(self._part(places, needed, on_host), share)
                refused |= self._refused(part.graph)
                parts.append(part)
            if not small and not refused:
                host = tuple(sorted(place for place in needed if self._is_host(place, on_host)))
                if parts and not host:
                    parts = [replace(parts[0], graph=self._graph)]
                cut = Cut(self._imported, tuple(parts), host, tuple(self._refusals.values()))
                return cut.named(self._graph.name, "")
            on_host |= refused or small

    def _place(self, origin: str) -> int:
        return self._imported.places[origin]

    def _may_run(self, node: Node) -> bool:
        """Whether a node is not refused, and all that it reads and computes is static and of a type with kernels."""
        if any(origin in self._refusals for origin in node.origins):
            return False
        infos = [self._graph.tensors.get(name) for name in (*node.reads, *filter(None, node.outputs))]
        return all(info is not None and info.dtype in ELEMENT_TYPES for info in infos)

    def _is_host(self, place: int, on_host: set[int]) -> bool:
        """Whether a node of the model runs on the host; so does shape arithmetic of unknown shapes."""
        return place in on_host or place not in self._nodes

    def _reads(self, place: int, on_host: set[int]) -> Iterator[str]:
        """The tensors from outside that a node needs; constants come with it."""
        if self._is_host(place, on_host):
            names: Iterable[str] = read_by(self._protos[place])
        else:
            computed = {name for node in self._nodes[place] for name in node.outputs}
            names = (name for node in self._nodes[place] for name in node.reads if name not in computed)
        return (name for name in names if name not in self._imported.constants)

    def _needed(self, on_host: set[int]) -> set[int]:
        """The nodes from which the outputs of the model follow."""
        found = set[int]()
        waiting = [name for name in self._graph.outputs if name not in self._imported.constants]
        while waiting:
            place = self._makers.get(waiting.pop())
            if place is not None and place not in found:
                found.add(place)
                waiting += self._reads(place, on_host)
        return found

    def _work(self, places: set[int]) -> dict[int, int]:
        """The multiply-adds of each node. Where no node has any, it is how many elements a node computes, and 0 next to
        branches and bodies, whose work is not known."""
        tensors = self._graph.tensors
        nodes = {place: self._nodes.get(place, ()) for place in places}
        work = {place: sum(multiply_adds(node, tensors) for node in several) for place, several in nodes.items()}
        if any(work.values()):
            return work
        if inner := {place: 1 for place in places if next(graphs_of([self._protos[place]]), None) is not None}:
            return dict.fromkeys(places, 0) | inner
        sizes = {name: info.size for name, info in tensors.items()}
        return {
            place: 1 + sum(sizes.get(name, 0) for node in several for name in node.outputs)
            for place, several in nodes.items()
        }

    def _levels(self, needed: set[int], on_host: set[int]) -> list[set[int]]:
        """The nodes of each part, in an order in which they can run."""
        levels, found = dict[int, int](), dict[int, set[int]]()
        for place in sorted(needed):
            host = self._is_host(place, on_host)
            makers = {self._makers[name] for name in self._reads(place, on_host) if name in self._makers}
            ups = (levels[maker] + (not host and self._is_host(maker, on_host)) for maker in makers)
            levels[place] = max(ups, default=0)
            if not host:
                found.setdefault(levels[place], set()).add(place)
        return [found[level] for level in sorted(found)]

    def _part(self, places: set[int], needed: set[int], on_host: set[int]) -> Graph:
        graph, makers = self._graph, self._makers
        elsewhere = {name for place in needed - places for name in self._reads(place, on_host)} | set(graph.outputs)
        nodes = [node for node in graph.nodes if self._place(node.origins[0]) in places]
        outputs = tuple(name for node in nodes for name in node.outputs if name in elsewhere)
        read = {name for place in places for name in self._reads(place, on_host) if makers.get(name) not in places}
        given = [name for name in graph.inputs if name in read]
        given += sorted(read - set(given), key=lambda name: (makers[name], name))
        part = replace(graph, inputs=tuple(given), outputs=outputs, constant_inputs={}).rewritten(nodes)
        return replace(part, node_ops={name: graph.node_ops[name] for node in part.nodes for name in node.origins})

    def _refused(self, part: Graph) -> set[int]:
        """The nodes for which lowering knows no kernels after all."""
        try:
            lower(part)
        except UnsupportedNodes as error:
            self._refusals |= {one.node: one for one in error.refusals}
            return {self._place(one.node) for one in error.refusals}
        return set()
