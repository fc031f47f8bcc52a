"""Make the graph of a fixed capacity: that of the longest past, in which the past is written at the length.

A row of a tensor that grows is right if it lies before the end, and anything behind it. rules.py has the operators for
which that follows from their inputs, and what others need."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gputune.client.errors import Refusal, UnsupportedNodes
from gputune.client.model.graph import Array, Names
from gputune.client.model.importer import Visited, operator_of
from gputune.client.model.importer.definitions import STANDARD
from gputune.client.model.importer.shape_inputs import OF_SHAPES
from gputune.client.model.state.conversion import Conversion, NotApart
from gputune.client.model.state.growing import Growing
from gputune.client.model.state.operator_sets import Differs, common, in_opset
from gputune.client.model.state.rules import convert


def rewritten(growing: Growing, pairs: Mapping[str, str], tokens: int) -> tuple[onnx.ModelProto, str]:
    """Return the model of the fixed capacity, and the name of its input for the length.

    pairs: the outputs that pasts become, by the names of these inputs. tokens: rows that one step adds, 0 where there
    is no past. Raises UnsupportedNodes for the first node that cannot be in it."""
    to = Conversion(growing, pairs, tokens)
    try:
        to.opset = common(to.opset, to.kept)
    except Differs as error:
        raise _refused(to, error.node, str(error)) from None
    for visited in to.kept:
        if not visited.known:
            try:
                convert(to, visited.node)
            except NotApart as error:
                raise _refused(to, visited.node, str(error)) from None
        elif not to.by_length.names.intersection(visited.node.output):
            _constant(to, visited)
    _check_pairs(to)
    for name in to.outputs:
        if name in to.by_length.names:
            to.writing.op("Identity", [to.lookups.read(name)], name)
    return _assembled(to), to.writing.length


def _constant(to: Conversion, visited: Visited) -> None:
    """Keep a node whose result is a constant, so that later passes see from what. Of shapes, and of functions in other
    operator sets, keep the result only."""
    node = visited.node
    if node.op_type in OF_SHAPES or visited.opset != to.opset:
        for name in filter(None, node.output):
            to.writing.value(to.imported.constants[name], name)
    else:
        to.writing.nodes.append(node)


def _refused(to: Conversion, node: onnx.NodeProto, why: str) -> UnsupportedNodes:
    refusal = Refusal(operator_of(node), node.name or node.output[0], why)
    return UnsupportedNodes([refusal], str(to.imported.path))


def _check_pairs(to: Conversion) -> None:
    """Raise UnsupportedNodes for an output that is not the past with the new rows."""
    makers = {name: node for node in to.writing.nodes for name in node.output}
    for past, present in to.pairs.items():
        if not to.axes(past):
            continue
        name = present
        while name in makers and makers[name].op_type == "Identity":
            name = makers[name].input[0]
        if to.joined.get(name) != past:
            node = makers.get(name) or helper.make_node("Identity", [past], [present])
            raise _refused(to, node, f"output {present!r} is not the past {past!r} with the new rows behind it")


def _assembled(to: Conversion) -> onnx.ModelProto:
    graph, model = to.imported.graph, to.imported.model
    inputs = [_typed(to, name) for name in graph.inputs]
    inputs.append(helper.make_tensor_value_info(to.writing.length, onnx.TensorProto.INT32, [1]))
    outputs = [_typed(to, name) for name in to.outputs]
    names = Names()
    for node in to.writing.nodes:  # what stands for one node may have several of a name
        node.name = names.free(node.name or node.output[0])
    nodes = [in_opset(node, to.opset, to.writing.value) for node in to.writing.nodes]
    made = helper.make_graph(nodes, graph.name, inputs, outputs, _weights(to, nodes))
    others = [each for each in model.opset_import if each.domain not in STANDARD]
    opsets = [helper.make_opsetid("", to.opset), *others]
    return helper.make_model(made, opset_imports=opsets, ir_version=model.ir_version)


def _typed(to: Conversion, name: str) -> onnx.ValueInfoProto:
    """Return an input or output at the capacity: pasts are as large as what they become."""
    past = name in to.pairs and to.axes(name)
    shape = to.growing.shape(to.pairs[name] if past else name, to.growing.longest)
    dtype = np.dtype(to.imported.tensors[name].dtype)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


def _weights(to: Conversion, nodes: Sequence[onnx.NodeProto]) -> list[onnx.TensorProto]:
    """Return the weights that the nodes read: the model's own as they are."""
    written = to.writing.weights
    made = {name for node in nodes for name in node.output}
    names = dict.fromkeys(name for node in nodes for name in node.input if name and name not in made)
    own = {item.name: item for item in to.imported.model.graph.initializer}
    values = {**to.imported.constants, **written}
    return [
        own[name] if name in own and name not in written else _tensor(values[name], name)
        for name in names
        if name in values
    ]


def _tensor(value: Array, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
