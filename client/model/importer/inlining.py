"""Replace a node by the nodes that it stands for: a function of the model, its operator's ONNX-defined body, or the
branch of an If that is taken.

The new nodes belong to the surrounding graph. Names that are defined inside get a prefix, and a number if another
tensor has that name. The node's own inputs and outputs replace the formal names.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

import onnx
import onnx.defs
import onnx.inliner
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper

from gputune.client.model.graph import Array, Names, TensorInfo
from gputune.client.model.importer.definitions import defined_body, is_defined
from gputune.client.model.importer.opening.operator_sets import opset_of
from gputune.client.model.importer.opening.ordering import every_node

MOST_NODES = 100_000
"""Nodes of a model once what stands for other nodes is replaced by them. Small files may stand for very many."""


def body_of(
    node: NodeProto, opset: int, types: Sequence[TypeProto], known: Sequence[Array | None]
) -> FunctionProto | None:
    """Return the function that defines a node's operator in this operator set, None where there is none. `types` are
    those of its inputs, in order, an empty one for an input that is absent, and `known` the values of those that are
    constants: some bodies depend on them."""
    if (body := defined_body(node, opset, types, known)) is not None:
        return body
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None
    content = _newest(schema.function_opset_versions, opset, schema.get_function_with_opset_version)
    if not content and schema.context_dependent_function_opset_versions:
        given, known = node.SerializeToString(), [each.SerializeToString() for each in types]
        content = _newest(
            schema.context_dependent_function_opset_versions,
            opset,
            lambda version: schema.get_context_dependent_function_with_opset_version(version, given, known),
        )
    if not content:
        return None
    body = FunctionProto()
    body.ParseFromString(content)
    if not opset_of(body):  # that of an operator of another domain may not say in which it is written
        body.opset_import.append(helper.make_opsetid("", opset))
    if node.op_type == "AffineGrid":
        _squeeze_rows_only(body.node)
    return body


def _squeeze_rows_only(nodes: Iterable[NodeProto]) -> None:
    """Has the body of AffineGrid squeeze the axis of rows by its number: as ONNX has it, every axis of size 1 goes,
    that of a batch of one included."""
    for node in every_node(nodes):
        if node.op_type == "Squeeze" and len(node.input) == 1:
            node.input.append("one_1d")


def has_body(node: NodeProto, opset: int) -> bool:
    """Return whether there may be a function that defines a node's operator."""
    if is_defined(node, opset):
        return True
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.function_opset_versions or schema.context_dependent_function_opset_versions)


def with_functions_in_place(model: ModelProto) -> ModelProto:
    """Return a valid model with the bodies of its functions in place of their calls. Raises ValueError where these make
    too many nodes of it.

    onnx's inliner knows no default attributes. So calls get those first, and functions that no other calls go before
    the rest: what a function hands on may be an attribute that its own call omits.
    """
    check_size(model)
    if not any(each.attribute_proto for each in model.functions):
        return onnx.inliner.inline_local_functions(model) if model.functions else model
    left = {_called(each.name, each): each for each in model.functions}
    whole, kept = ModelProto(), list[FunctionProto]()
    whole.CopyFrom(model)
    while left:
        inner = {_called(node.op_type, node) for each in left.values() for node in every_node(each.node)}
        if not (outer := {key: left.pop(key) for key in left.keys() - inner}):
            raise ValueError("has functions that call each other in a circle")
        _give_defaults(whole, outer)
        del whole.functions[:]
        whole.functions.extend(outer.values())
        whole = onnx.inliner.inline_local_functions(whole)
        kept += whole.functions  # those that are written in another operator set
    del whole.functions[:]
    whole.functions.extend(kept)
    return whole


def _called(name: str, one: FunctionProto | NodeProto) -> tuple[str, str, str]:
    """Return what a function and its calls have in common."""
    return one.domain, name, one.overload


def _give_defaults(model: ModelProto, functions: Mapping[tuple[str, str, str], FunctionProto]) -> None:
    """Give the calls of these functions in a model's graph every attribute that has a default."""
    for node in every_node(model.graph.node):
        if (function := functions.get(_called(node.op_type, node))) is not None:
            given = {item.name for item in node.attribute}
            node.attribute.extend(item for item in function.attribute_proto if item.name not in given)


def check_size(model: ModelProto) -> None:
    """Raise ValueError where the functions that a model defines make too many nodes of it."""
    functions = {_called(each.name, each): each.node for each in model.functions}

    @cache
    def size(key: tuple[str, str, str]) -> int:
        return total(functions[key])

    def total(nodes: Iterable[NodeProto]) -> int:
        count = 0
        for node in nodes:
            key = _called(node.op_type, node)
            count += size(key) if key in functions else 1
            count += sum(total(item.g.node) for item in node.attribute if item.HasField("g"))
        return count

    if (nodes := total(model.graph.node)) > MOST_NODES:
        raise ValueError(f"has {nodes} nodes once its functions are expanded; {MOST_NODES} are supported")


def expanded(node: NodeProto, body: FunctionProto, taken: Names) -> list[NodeProto]:
    """Return the nodes of an operator's body for one use of it."""
    names = dict(zip_longest(body.input, node.input, fillvalue=""))
    names |= {formal: actual for formal, actual in zip(body.output, node.output, strict=False) if actual}
    given = {item.name: item for item in (*_defaults(node, body), *body.attribute_proto, *node.attribute)}
    return renamed(node, body.node, names, taken, given)


def branch(node: NodeProto, condition: bool, taken: Names) -> list[NodeProto]:
    """Return the nodes of the branch of an If that is taken."""
    wanted = "then_branch" if condition else "else_branch"
    graph = next(item.g for item in node.attribute if item.name == wanted)
    constants = [helper.make_node("Constant", [], [item.name], value=item) for item in graph.initializer]
    inside = {name for each in (*constants, *graph.node) for name in each.output}
    names: dict[str, str] = {}
    copies = []
    for result, output in zip(graph.output, node.output, strict=True):
        if output and result.name in inside and result.name not in names:
            names[result.name] = output
        elif output:  # it comes from outside, or twice
            source = names.get(result.name, result.name)
            copies.append(helper.make_node("Identity", [source], [output], f"{label_of(node)}/{output}"))
    return [*renamed(node, [*constants, *graph.node], names, taken, {}), *copies]


def both_branches(node: NodeProto, condition: TensorInfo, taken: Names) -> list[NodeProto]:
    """Return the nodes of both branches of an If, and what selects from their results; condition: its first input."""
    results, nodes = list[dict[str, str]](), list[NodeProto]()
    for chosen in (True, False):
        ends = {name: taken.free(f"{label_of(node)}/{name}") for name in node.output if name}
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.output[:] = [ends.get(name, "") for name in node.output]
        nodes += branch(copy, chosen, taken)
        results.append(ends)
    single = node.input[0]
    if condition.shape:
        shape, single = (taken.free(f"{label_of(node)}/{name}") for name in ("scalar", "condition"))
        empty = helper.make_tensor(shape, TensorProto.INT64, [0], [])
        nodes.append(helper.make_node("Constant", [], [shape], shape, value=empty))
        nodes.append(helper.make_node("Reshape", [node.input[0], shape], [single], single))
    for name, end in results[0].items():
        nodes.append(helper.make_node("Where", [single, end, results[1][name]], [name], f"{label_of(node)}/{name}"))
    return nodes


def _newest(versions: Iterable[int], opset: int, get: Callable[[int], bytes]) -> bytes:
    """Return the newest body that is not newer than the operator set: that of the operator set where it still holds,
    else as it was written."""
    for version in (opset, *sorted((each for each in versions if each < opset), reverse=True)):
        if content := bytes(get(version)):
            return content
    return b""


def _defaults(node: NodeProto, body: FunctionProto) -> Iterator[AttributeProto]:
    """Yield the attributes that a node leaves to its schema."""
    if is_defined(node, opset_of(body)):
        return
    schema = onnx.defs.get_schema(node.op_type, opset_of(body), node.domain)
    for name in body.attribute:
        if name in schema.attributes and schema.attributes[name].default_value.name:
            yield schema.attributes[name].default_value


def renamed(
    whole: NodeProto,
    parts: Iterable[NodeProto],
    names: Mapping[str, str],
    taken: Names,
    attributes: Mapping[str, AttributeProto],
) -> list[NodeProto]:
    """Return copies of the parts of a node with other names, and with what refers to an attribute of the function in
    its place."""
    originals, prefix = list(parts), f"{label_of(whole)}/"
    inner = (name for name in dict.fromkeys(_defined(originals)) if name not in names)
    every = {**{name: taken.free(f"{prefix}{name}") for name in inner}, **names}
    return [_copy(node, every, prefix, attributes) for node in originals]


def label_of(node: NodeProto) -> str:
    """Return what stands in front of the names of a node's parts."""
    return str(node.name or node.output[0])


def _copy(
    node: NodeProto, names: Mapping[str, str], prefix: str, attributes: Mapping[str, AttributeProto]
) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.name = f"{prefix}{node.name or node.op_type}"
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    del copy.attribute[:]
    for item in node.attribute:
        if item.ref_attr_name and item.ref_attr_name not in attributes:
            continue  # an attribute that the node does not have, and that has no default
        put = copy.attribute.add()
        put.CopyFrom(attributes[item.ref_attr_name] if item.ref_attr_name else item)
        put.name = item.name
        if put.HasField("g"):
            _rename_graph(put.g, names, prefix, attributes)
    return copy


def _rename_graph(
    graph: GraphProto, names: Mapping[str, str], prefix: str, attributes: Mapping[str, AttributeProto]
) -> None:
    copies = [_copy(node, names, prefix, attributes) for node in graph.node]
    del graph.node[:]
    graph.node.extend(copies)
    for item in (*graph.output, *graph.initializer):
        item.name = names.get(item.name, item.name)


def _defined(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """Yield the names that nodes define, those in their branches included."""
    for node in nodes:
        yield from filter(None, node.output)
        for item in node.attribute:
            if item.HasField("g"):
                yield from (each.name for each in item.g.initializer)
                yield from _defined(item.g.node)
