"""Make the ONNX model in which a node stands for each part, and everything else is as it was."""

from collections.abc import Callable, Iterator

import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from gputune.client.model.graph import Names
from gputune.client.model.importer import every_node, in_order, read_by, taken_by
from gputune.client.model.parts.cutting import Cut, Part
from gputune.client.model.parts.tensors import constant_tensor, described_tensor

IR_VERSION = 8
"""In older versions weights are inputs, too."""

StandIn = Callable[[Part, bool], NodeProto]
"""Makes the node for a part. It is told whether this is the first of its graph, which is the model's or a branch."""


def rest_of(cut: Cut, stand_in: StandIn) -> onnx.ModelProto:
    """Return the model with nodes in place of its parts.

    Inputs have the shapes that the parts were made for, and inputs that were given as constants are constants. So are
    results of shapes. Weights that only parts read have gone, and all others are inside.
    """
    whole = cut.imported.model
    rest = onnx.ModelProto(ir_version=max(whole.ir_version, IR_VERSION), opset_import=whole.opset_import)
    rest.metadata_props.extend(whole.metadata_props)
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(rest, name, getattr(whole, name))
    _Rest(cut, stand_in).fill(rest.graph)
    domains = {opset.domain for opset in rest.opset_import}
    used = dict.fromkeys(node.domain for node in every_node(rest.graph.node))
    rest.opset_import.extend(helper.make_opsetid(name, 1) for name in used if name not in domains and name != "ai.onnx")
    return in_order(rest)


class _Rest:
    """Makes the graph that is left of a model, or of a branch that was cut as a model."""

    def __init__(self, cut: Cut, stand_in: StandIn, around: frozenset[str] = frozenset()) -> None:
        """around: the names that a branch takes from around it; for the graph there they are neither inputs nor
        weights."""
        self._cut = cut
        self._stand_in = stand_in
        self._around = around
        self._graph = cut.imported.graph
        self._whole = cut.imported.model.graph
        self._constants = cut.imported.constants
        self._weights = {item.name: item for item in self._whole.initializer}
        self._makers = {name: node for node in self._whole.node for name in node.output if name}
        given = {item.name for item in self._whole.input} - self._weights.keys()
        fixed = {name for name, value in cut.imported.graph.constant_inputs.items() if value.size}
        self._inputs = given - fixed  # an input without elements is still given

    def fill(self, graph: onnx.GraphProto) -> None:
        """Write what is left into an empty graph."""
        stand_ins = [self._stand_in(part, number == 0) for number, part in enumerate(self._cut.own)]
        nodes, values = self._nodes_and_values()
        graph.name = self._whole.name
        graph.node.extend([*nodes, *stand_ins])
        graph.initializer.extend(values)
        mine = self._inputs - self._around
        graph.input.extend(self._sized(item) for item in self._whole.input if item.name in mine)
        graph.output.extend(map(self._typed, self._whole.output))
        between = {name for node in stand_ins for name in node.output} - {item.name for item in graph.output}
        graph.value_info.extend(described_tensor(name, self._graph.tensors[name]) for name in sorted(between))

    def _nodes_and_values(self) -> tuple[list[NodeProto], list[TensorProto]]:
        """Return the nodes, and the constants that nodes of the host read. Constants that follow from constants are
        computed as they were; those that follow from shapes are there as values, because what has the shape may be
        gone."""
        nodes = [self._host_node(place) for place in self._cut.host]
        taken = {id(self._whole.node[place]) for place in self._cut.host}
        computed = {name for node in nodes for name in node.output}  # a node may have known outputs and others
        waiting = [name for place in self._cut.host for name in read_by(self._whole.node[place])]
        shown = {name for part in self._cut.own for name in part.graph.outputs}  # by the part of a whole model
        waiting += [name for name in self._graph.outputs if name in self._constants and name not in shown]
        values: dict[str, TensorProto] = {}
        while waiting:
            name = waiting.pop()
            known = name in self._constants or name in self._weights
            if not known or name in values or name in computed or name in self._inputs or name in self._around:
                continue
            maker = self._makers.get(name)
            if name in self._weights or maker is None or not self._follows_from_constants(maker):
                values[name] = self._value(name)
            elif id(maker) not in taken:
                taken.add(id(maker))
                nodes.append(maker)
                waiting += read_by(maker)
        return [*nodes, *self._shown(values)], list(values.values())

    def _host_node(self, place: int) -> NodeProto:
        """Return a node that stays, with what is left of its branches."""
        node: NodeProto = self._whole.node[place]
        if place not in self._cut.inner:
            return node
        copy = NodeProto()
        copy.CopyFrom(node)
        for item in copy.attribute:
            if (cut := self._cut.inner[place].get(item.name)) is not None and cut.parts:
                around = frozenset(taken_by(item.g))
                item.g.Clear()
                _Rest(cut, self._stand_in, around).fill(item.g)
        return copy

    def _shown(self, values: dict[str, TensorProto]) -> Iterator[NodeProto]:
        """Nodes that compute the outputs which are values."""
        names = Names([*self._makers, *self._weights, *self._inputs])
        shown = {item.name for item in self._whole.output}
        for name in [name for name in values if name in shown]:
            free = names.free(f"{name}/value")
            values[name].name = free
            yield helper.make_node("Identity", [free], [name])

    def _follows_from_constants(self, node: NodeProto) -> bool:
        """Return whether a node, and all that it follows from, is computed from weights alone."""
        waiting, seen = [node], set[str]()
        while waiting:
            for name in read_by(waiting.pop()):
                if name in self._inputs or name in self._around:
                    return False
                if name in self._makers and name not in seen:
                    seen.add(name)
                    waiting.append(self._makers[name])
        return True

    def _value(self, name: str) -> TensorProto:
        fixed = name in self._graph.constant_inputs  # whatever weight has its name
        if name in self._weights and not fixed and self._weights[name].data_location != TensorProto.EXTERNAL:
            copy = TensorProto()
            copy.CopyFrom(self._weights[name])
            return copy
        return constant_tensor(name, self._constants[name])

    def _typed(self, item: ValueInfoProto) -> ValueInfoProto:
        """Return an output with its shape where that is known: models often omit it."""
        known = self._graph.tensors.get(item.name)
        return item if known is None else described_tensor(item.name, known)

    def _sized(self, item: ValueInfoProto) -> ValueInfoProto:
        """Return an input with the shape that the parts were made for. If a branch does not fit this shape, onnxruntime
        would refuse the model; then parts check the shapes of what they read."""
        known = self._graph.tensors.get(item.name)
        if any(cut.misfit for cut in self._cut.scopes):
            known = None if any(item.name in part.graph.inputs for part in self._cut.parts) else known
        return item if known is None else described_tensor(item.name, known)
