"""Decide which nodes of a model run on the device, and in which parts.

A node's level is the highest of its producers, and one more if it runs on the device and reads what the host computes.
The device's nodes of one level are a part. So no path leaves a part and comes back, and each part is a graph that runs
at once. Three kinds of nodes stay on the host though they could run: a part with a small share of the multiply-adds,
because each part costs a wait of its own; a part that hands over more numbers than it does multiply-adds, because
that takes longer than to compute it; and what belongs to a quantised product of which a node cannot run. Such a group
is in one part otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import onnx

from gputune.client.errors import ModelError, UnsupportedNodes
from gputune.client.model.graph import Graph, Node, TensorInfo
from gputune.client.model.importer import (
    Imported,
    Value,
    graphs_of,
    import_nodes,
    in_reals,
    load,
    operator_of,
    read_by,
    taken_by,
)
from gputune.client.model.importer.multiply_adds import multiply_adds
from gputune.client.model.lowering import lower
from gputune.client.model.parts.host_types import host_types
from gputune.client.model.parts.quantised_groups import QuantisedGroup, quantised_groups
from gputune.client.model.parts.stated_types import stated_types
from gputune.client.model.parts.tensors import constant_tensor, described_tensor
from gputune.core.dtypes import ELEMENT_TYPES

LEAST_SHARE = 0.05
"""A part with less of the model's multiply-adds stays on the host."""
LEAST_PER_BYTE = 0.25
"""A part with fewer multiply-adds for each byte that it hands over stays on the host: one for a number in float32. Two
cores of a CPU do ten while they copy it, so this is certain wherever the rest runs."""
TOO_SMALL = f"their parts have less than {LEAST_SHARE:.0%} of the multiply-adds"
COSTLY = "their parts hand over more numbers than they do multiply-adds"
TOGETHER = "a node of their quantised group cannot"
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
        graph = self.graph
        given = (replace(graph.tensors[name], dtype=graph.stored(name)) for name in (*graph.inputs, *graph.outputs))
        return sum(info.nbytes for info in given)

    @property
    def ops(self) -> Counter[str]:
        """Return how many of the model's nodes of each operator it has."""
        return Counter(self.graph.node_ops.values())


@dataclass(frozen=True)
class Cut:
    """A model and its parts.

    own: the parts between the nodes of the model itself. inner: the branches of nodes that stay on the host, by the
    node's place and the attribute's name, each a model of its own that is cut, too. host: the places of the model's
    nodes that stay in onnxruntime and are needed there. reasons: why nodes that could run stay there, and how many.
    misfit: whether a branch on the host does not fit the shapes of the inputs, so that it cannot be taken. title: what
    tells it from other models and shapes of the same request, "" if there are none.
    """

    imported: Imported
    own: tuple[Part, ...]
    inner: Mapping[int, Mapping[str, Cut]]
    host: tuple[int, ...]
    reasons: Counter[str]
    misfit: bool = False
    title: str = ""

    @property
    def scopes(self) -> Iterator[Cut]:
        """Yield this cut and those of all branches."""
        yield self
        for branches in self.inner.values():
            for cut in branches.values():
                yield from cut.scopes

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return all parts, those in branches included."""
        return tuple(part for cut in self.scopes for part in cut.own)

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
        """Return the bytes that are handed to parts and taken from them."""
        return sum(part.crossing_bytes for part in self.parts)

    @property
    def host_ops(self) -> Counter[str]:
        """Return how many nodes of each operator stay in onnxruntime, those in branches included."""
        return Counter(operator_of(cut.imported.model.graph.node[place]) for cut in self.scopes for place in cut.host)

    @property
    def stays(self) -> Counter[str]:
        """Return why nodes that could run stay in onnxruntime, and how many, those in branches included."""
        return sum((cut.reasons for cut in self.scopes), Counter[str]())

    def named(self, name: str, title: str) -> Cut:
        """Return this cut with the name in its parts' names; if there are several, each has a number."""
        names = [name] if len(self.parts) == 1 else [f"{name}_part{number}" for number in range(1, len(self.parts) + 1)]
        left = iter(names)
        return replace(self.changed(lambda graph: replace(graph, name=next(left))), title=title)

    def places_of(self, part: Part) -> list[int]:
        """Return the places of the model's nodes that one of its own parts has."""
        return sorted({self.imported.places[name] for name in part.graph.node_ops})

    def without(self, names: Collection[str], why: str) -> Cut:
        """Return this cut with the nodes of these parts in onnxruntime, and why; the other parts are as they were."""
        lost = [place for part in self.own if part.graph.name in names for place in self.places_of(part)]
        own = tuple(part for part in self.own if part.graph.name not in names)
        inner = {
            place: {name: cut.without(names, why) for name, cut in branches.items()}
            for place, branches in self.inner.items()
        }
        reasons = self.reasons + Counter({why: len(lost)})
        return replace(self, own=own, inner=inner, host=tuple(sorted({*self.host, *lost})), reasons=reasons)

    def changed(self, change: Callable[[Graph], Graph]) -> Cut:
        """Return this cut with other graphs of its parts, changed in their order."""
        own = tuple(replace(part, graph=change(part.graph)) for part in self.own)
        inner = {
            place: {name: cut.changed(change) for name, cut in branches.items()}
            for place, branches in self.inner.items()
        }
        return replace(self, own=own, inner=inner)


def cut_model(
    path: Path,
    input_dimensions: Mapping[str, tuple[int, ...]],
    input_values: Mapping[str, Value] | None = None,
    narrow: bool = False,
) -> Cut:
    """Cut the model in a file. narrow: with float32 in the place of float64. Raises ModelError for what is wrong with
    the model and not with single nodes, ConfigError if onnxruntime is not installed."""
    return cut_of(load(path, narrow), path, input_dimensions, input_values)


def cut_of(
    model: onnx.ModelProto,
    path: Path,
    input_dimensions: Mapping[str, tuple[int, ...]],
    input_values: Mapping[str, Value] | None = None,
    imported: Imported | None = None,
) -> Cut:
    """Cut a valid model; `path` is what messages call it, and where its data lies. imported: the model with these
    inputs, if it is already. Raises as `cut_model` does."""
    scope = _Scope.of(model, path, input_dimensions, input_values, imported)
    cut = scope.cut(Work(list(scope.all())))
    return cut.named(cut.imported.graph.name, "")


class Work:
    """How much work nodes are: their multiply-adds, or how many elements they compute if no node has any. Of the latter
    nothing is known next to bodies of loops, so that nothing runs on the device then."""

    def __init__(self, scopes: Sequence[_Scope]) -> None:
        self._count: Callable[[_Scope, int], int] = _Scope.multiply_adds
        self.is_one = len(scopes) == 1
        self.in_multiply_adds = any(scope.multiply_adds(place) for scope in scopes for place in scope.nodes)
        if not self.in_multiply_adds:
            self._count = _Scope.elements if all(map(_Scope.is_open, scopes)) else _Scope.unknown
        self._total = sum(self._count(scope, place) for scope in scopes for place in scope.places)

    def share(self, scope: _Scope, places: Iterable[int]) -> float:
        """Return the share of these nodes in the work of the model."""
        return sum(self._count(scope, place) for place in places) / self._total if self._total else 1.0


class _Scope:
    """The nodes of a model, or of a branch as a model, which is to be cut. Nodes are called by their places."""

    def __init__(self, imported: Imported) -> None:
        self._imported = imported
        self._graph = imported.graph
        self._protos: Sequence[onnx.NodeProto] = imported.model.graph.node
        self.nodes: dict[int, list[Node]] = {}  # of the graph, for each node of the model that has to run
        for node in self._graph.nodes:
            self.nodes.setdefault(self._place(node.origins[0]), []).append(node)
        self._makers = {name: place for place, proto in enumerate(self._protos) for name in proto.output if name}
        self._refusals = {one.node: one for one in imported.refusals}
        self._misfit = False
        self._why: dict[int, str] = {}  # of nodes that stay on the host without a refusal
        self._on_host = set[int]()
        for place, nodes in self.nodes.items():
            if any(map(self._is_refused, nodes)):
                self._on_host.add(place)
            elif unknown := next(filter(None, map(self._unknown, nodes)), None):
                self._stay([place], f"the shapes after {self._origin_of(unknown)} are unknown")
        self._inner = {place: found for place in sorted(self._on_host) if (found := self._branches(place))}
        self._groups = list(quantised_groups(self._graph, imported.places))

    @classmethod
    def of(
        cls,
        model: onnx.ModelProto,
        path: Path,
        input_dimensions: Mapping[str, tuple[int, ...]],
        input_values: Mapping[str, Value] | None = None,
        imported: Imported | None = None,
    ) -> _Scope:
        """Import a model, with shapes that onnx does not know from onnxruntime or the model itself. Raises ModelError,
        ConfigError."""
        read = partial(import_nodes, model, path, input_dimensions, input_values)
        imported, declared = imported or read(), dict[str, TensorInfo]()
        for _ in range(MOST_ROUNDS):
            tensors = imported.graph.tensors
            unknown = {name for node in imported.graph.nodes for name in node.outputs if name} - tensors.keys()
            refused = {one.node for one in imported.refusals}
            left = (node for node in imported.graph.nodes if refused.isdisjoint((node.name, *node.origins)))
            if not (any(name in unknown for node in left for name in node.reads) or _has_types_to_check(imported)):
                break
            inferred, stated = host_types(imported.model, path, tensors), stated_types(imported.model, tensors)
            more = {name: info for name, info in (stated | inferred).items() if name in unknown}
            if not more:
                break
            try:
                imported = read(declared | more)
            except ModelError:  # what the model states may be wrong
                more = {name: info for name, info in more.items() if name in inferred}
                imported = read(declared | more)
            declared |= more
        return cls(imported)

    def _branches(self, place: int) -> dict[str, _Scope]:
        """Return the branches of an If that may be taken, by the names of attributes. What such a branch takes from
        around it is an input."""
        if operator_of(self._protos[place]) != "If":
            return {}
        found = {}
        condition = self._imported.constants.get(self._protos[place].input[0])
        taken = None if condition is None else "then_branch" if condition.all() else "else_branch"
        for item in (item for item in self._protos[place].attribute if taken in (None, item.name)):
            model = branch_model(self._imported, item.g)
            try:
                found[item.name] = _Scope.of(model, self._imported.path, {}) if model is not None else None
            except ModelError:  # all of the branch stays on the host
                self._misfit = True
        return {name: scope for name, scope in found.items() if scope is not None}

    def all(self) -> Iterator[_Scope]:
        """Yield this and all that are in branches."""
        yield self
        for branches in self._inner.values():
            for scope in branches.values():
                yield from scope.all()

    @property
    def places(self) -> range:
        return range(len(self._protos))

    def is_open(self) -> bool:
        """Return whether there are no bodies or branches but those that are scopes of their own."""
        closed = (place for place in self.places if next(graphs_of([self._protos[place]]), None) is not None)
        return all(place in self._inner for place in closed)

    def multiply_adds(self, place: int) -> int:
        return sum(multiply_adds(node, self._graph.tensors) for node in self._counted(place))

    def elements(self, place: int) -> int:
        """Return how many elements a node computes that has to run."""
        infos = (self._graph.tensors.get(name) for node in self._counted(place) for name in node.outputs)
        return sum(info.size for info in infos if info is not None)

    def _counted(self, place: int) -> Sequence[Node]:
        """Return what runs for a node; what is in branches counts there."""
        return () if place in self._inner else self.nodes.get(place, ())

    def unknown(self, place: int) -> int:
        """Return 1 for a node that has a body or branches, else 0."""
        return int(next(graphs_of([self._protos[place]]), None) is not None)

    def cut(self, work: Work) -> Cut:
        """Cut until every part can be lowered and has its share."""
        on_host = self._on_host
        while True:
            self._keep_groups(on_host)
            needed = self._needed(on_host)
            parts, small, costly, refused = list[Part](), set[int](), set[int](), set[int]()
            whole = work.is_one and not any(self._is_host(place, on_host) for place in needed)
            for places in self._levels(needed, on_host):
                share = work.share(self, places)
                if share < LEAST_SHARE:
                    small |= places
                    continue
                part = Part(in_reals(self._part(places, needed, on_host)), share)
                if not whole and work.in_multiply_adds and self._costs_more(part, places):
                    costly |= places
                    continue
                refused |= self._refused(part.graph)
                parts.append(part)
            if not small and not costly and not refused:
                break
            if refused:
                on_host |= refused
            else:
                self._stay(small, TOO_SMALL)
                self._stay(costly, COSTLY)
        host = tuple(sorted(place for place in needed if self._is_host(place, on_host)))
        if parts and not host:
            parts = [replace(parts[0], graph=in_reals(self._graph))]
        inner = {
            place: {name: scope.cut(work) for name, scope in branches.items()}
            for place, branches in self._inner.items()
            if place in host
        }
        reasons = Counter(self._why[place] for place in host if place in self._why)
        return Cut(self._imported, tuple(parts), inner, host, reasons, self._misfit)

    def _keep_groups(self, on_host: set[int]) -> None:
        """Let quantised groups stay on the host of which a node cannot run, or belongs to another such group, too."""
        left = list(self._groups)
        while found := [each for each in left if any(self._is_broken(place, each, on_host) for place in each.every)]:
            left = [each for each in left if each not in found]
            for each in found:
                self._stay(each.own, TOGETHER)

    def _is_broken(self, place: int, group: QuantisedGroup, on_host: set[int]) -> bool:
        why = self._why.get(place)
        return place in on_host and (why is None or (why == TOGETHER and place in group.own))

    def _stay(self, places: Iterable[int], why: str) -> None:
        """Let nodes stay on the host that could run, and note why."""
        added = [place for place in places if place not in self._on_host]
        self._why |= dict.fromkeys(added, why)
        self._on_host.update(added)

    def _costs_more(self, part: Part, places: Iterable[int]) -> bool:
        """Return whether it takes longer to hand over what a part reads and computes than to compute it."""
        return sum(map(self.multiply_adds, places)) < LEAST_PER_BYTE * part.crossing_bytes

    def _place(self, origin: str) -> int:
        return self._imported.places[origin]

    def _is_refused(self, node: Node) -> bool:
        """Return whether a node is refused, by its name or by that of the model's node whose part it is, or has a
        tensor of a type without kernels."""
        if any(name in self._refusals for name in (node.name, *node.origins)):
            return True
        infos = [self._graph.tensors.get(name) for name in (*node.reads, *filter(None, node.outputs))]
        return any(info is not None and info.dtype not in ELEMENT_TYPES for info in infos)

    def _unknown(self, node: Node) -> str:
        """Return a tensor of a node of which type and shape are not known; "" if there is none."""
        names = (*node.reads, *filter(None, node.outputs))
        return next((name for name in names if name not in self._graph.tensors), "")

    def _origin_of(self, unknown: str) -> str:
        """Return the operator behind which types and shapes are unknown, for a tensor for which they are."""
        proto = self._protos[self._makers[unknown]] if unknown in self._makers else None
        while proto is not None:
            before = [name for name in proto.input if name in self._makers and name not in self._graph.tensors]
            if not before:
                return operator_of(proto)
            proto = self._protos[self._makers[before[0]]]
        return "a branch"

    def _is_host(self, place: int, on_host: set[int]) -> bool:
        """Return whether a node of the model runs on the host, as arithmetic on unknown shapes does."""
        return place in on_host or place not in self.nodes

    def _reads(self, place: int, on_host: set[int]) -> Iterator[str]:
        """Return the tensors from outside that a node needs; constants come with it."""
        if self._is_host(place, on_host):
            names: Iterable[str] = read_by(self._protos[place])
        else:
            computed = {name for node in self.nodes[place] for name in node.outputs}
            names = (name for node in self.nodes[place] for name in node.reads if name not in computed)
        return (name for name in names if name not in self._imported.constants)

    def _needed(self, on_host: set[int]) -> set[int]:
        """Return the nodes from which the outputs of the model follow."""
        found = set[int]()
        waiting = [name for name in self._graph.outputs if name not in self._imported.constants]
        while waiting:
            place = self._makers.get(waiting.pop())
            if place is not None and place not in found:
                found.add(place)
                waiting += self._reads(place, on_host)
        return found

    def _levels(self, needed: set[int], on_host: set[int]) -> list[set[int]]:
        """Return the nodes of each part, in an order in which they can run."""
        levels, found = dict[int, int](), dict[int, set[int]]()
        for place in sorted(needed):
            host = self._is_host(place, on_host)
            makers = {self._makers[name] for name in self._reads(place, on_host) if name in self._makers}
            ups = (levels[maker] + (not host and self._is_host(maker, on_host)) for maker in makers)
            levels[place] = max(ups, default=0)
        for group in self._groups:
            inside = [place for place in group.every if place in levels and not self._is_host(place, on_host)]
            levels |= dict.fromkeys(group.own.intersection(inside), max((levels[place] for place in inside), default=0))
        for place in (place for place in levels if not self._is_host(place, on_host)):
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
        """Return the nodes for which lowering knows no kernels after all."""
        try:
            lower(part)
        except UnsupportedNodes as error:
            return {self._place(one.node) for one in error.refusals}
        return set()


def branch_model(around: Imported, branch: onnx.GraphProto) -> onnx.ModelProto | None:
    """Return a branch as a model: what it takes from around it are inputs, or weights where the values are known. None
    where it takes a tensor of which type and shape are not known."""
    model = onnx.ModelProto(ir_version=around.model.ir_version, opset_import=around.model.opset_import)
    model.graph.CopyFrom(branch)
    for name in sorted(taken_by(branch)):
        if name in around.constants:
            model.graph.initializer.append(constant_tensor(name, around.constants[name]))
        elif name in around.graph.tensors:
            model.graph.input.append(described_tensor(name, around.graph.tensors[name]))
        else:
            return None
    return model


def _has_types_to_check(imported: Imported) -> bool:
    """Return whether an operator of ONNX computes an output of the model whose type only onnxruntime infers. It is not
    asked about others: to open large models of trees takes it minutes."""
    makers = {name: operator_of(node) for node in imported.model.graph.node for name in node.output if name}
    outputs = {item.name for item in imported.model.graph.output} - imported.graph.tensors.keys()
    return any("." not in makers.get(name, ".") for name in outputs)
