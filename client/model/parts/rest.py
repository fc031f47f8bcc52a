"""Make the ONNX model in which a node stands for each part, and everything else is as it was."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from gputune.client.model.graph import Names, TensorInfo
from gputune.client.model.importer import in_order, read_by
from gputune.client.model.parts.cutting import Cut

IR_VERSION = 8
"""In older versions weights are inputs, too."""


def rest_of(cut: Cut, stand_ins: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """Return the model with these nodes in place of its parts.

    Inputs have the shapes that the parts were made for, and inputs that were given as constants are constants. So are
    results of shapes. Weights that only parts read have gone, and all others are inside. Raises ValueError for a model
    of more than 2 GiB.
    """
    return _Rest(cut, stand_ins).model()


class _Rest:
    def __init__(self, cut: Cut, stand_ins: Sequence[onnx.NodeProto]) -> None:
        self._cut = cut
        self._graph = cut.imported.graph
        self._whole = cut.imported.model
        self._constants = cut.imported.constants
        self._stand_ins = stand_ins
        self._weights = {item.name: item for item in self._whole.graph.initializer}
        self._makers = {name: node for node in self._whole.graph.node for name in node.output if name}
        given = {item.name for item in self._whole.graph.input} - self._weights.keys()
        fixed = {name for name, value in cut.imported.graph.constant_inputs.items() if value.size}
        self._inputs = given - fixed  # an input without elements is still given

    def model(self) -> onnx.ModelProto:
        rest = onnx.ModelProto()
        rest.CopyFrom(self._without_graph())
        nodes, values = self._nodes_and_values()
        graph = rest.graph
        graph.name = self._whole.graph.name
        graph.node.extend(nodes)
        graph.initializer.extend(values)
        graph.input.extend(self._sized(item) for item in self._whole.graph.input if item.name in self._inputs)
        graph.output.extend(self._whole.graph.output)
        between = {name for node in self._stand_ins for name in node.output} - {item.name for item in graph.output}
        graph.value_info.extend(_described(name, self._graph.tensors[name]) for name in sorted(between))
        domains = {opset.domain for opset in rest.opset_import}
        added = dict.fromkeys(node.domain for node in self._stand_ins if node.domain not in domains)
        rest.opset_import.extend(helper.make_opsetid(domain, 1) for domain in added)
        return in_order(rest)

    def _without_graph(self) -> onnx.ModelProto:
        """What a model says of itself."""
        about = onnx.ModelProto()
        about.ir_version = max(self._whole.ir_version, IR_VERSION)
        about.opset_import.extend(self._whole.opset_import)
        about.metadata_props.extend(self._whole.metadata_props)
        for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
            setattr(about, name, getattr(self._whole, name))
        return about

    def _nodes_and_values(self) -> tuple[list[onnx.NodeProto], list[TensorProto]]:
        """The nodes, and the constants that nodes of the host read. Constants that follow from constants are computed
        as they were; those that follow from shapes are there as values, because what has the shape may be gone."""
        nodes = [self._whole.graph.node[place] for place in self._cut.host]
        taken = {id(node) for node in nodes}
        waiting = [name for node in nodes for name in read_by(node)]
        waiting += [name for name in self._graph.outputs if name in self._constants]
        values: dict[str, TensorProto] = {}
        while waiting:
            name = waiting.pop()
            maker = self._makers.get(name)
            if name in values or (name not in self._constants and name not in self._weights):
                continue
            if name in self._weights or maker is None or not self._follows_from_constants(maker):
                values[name] = self._value(name)
            elif id(maker) not in taken:
                taken.add(id(maker))
                nodes.append(maker)
                waiting += read_by(maker)
        shown = {item.name for item in self._whole.graph.output}
        names = Names([*self._makers, *self._weights, *self._inputs])
        copies = []
        for name in [name for name in values if name in shown]:  # an output is computed
            free = names.free(f"{name}/value")
            values[name].name = free
            copies.append(helper.make_node("Identity", [free], [name]))
        return [*nodes, *copies, *self._stand_ins], list(values.values())

    def _follows_from_constants(self, node: onnx.NodeProto) -> bool:
        """Whether a node, and all that it follows from, is computed from weights alone."""
        waiting, seen = [node], set[int]()
        while waiting:
            one = waiting.pop()
            seen.add(id(one))
            for name in read_by(one):
                if name in self._inputs:
                    return False
                maker = self._makers.get(name)
                if maker is not None and id(maker) not in seen:
                    waiting.append(maker)
        return True

    def _value(self, name: str) -> TensorProto:
        if name in self._weights and self._weights[name].data_location != TensorProto.EXTERNAL:
            copy = TensorProto()
            copy.CopyFrom(self._weights[name])
            return copy
        return numpy_helper.from_array(np.asarray(self._constants[name], order="C"), name)

    def _sized(self, item: ValueInfoProto) -> ValueInfoProto:
        """An input with the shape that the parts were made for."""
        known = self._graph.tensors.get(item.name)
        return item if known is None else _described(item.name, known)


def _described(name: str, info: TensorInfo) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(info.dtype)), info.shape)
