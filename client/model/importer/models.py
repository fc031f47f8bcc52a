"""Open a model and put it together: its weights, its inputs, and its nodes."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy.typing as npt
import onnx
import onnx.checker

from gputune.client.errors import ModelError, Refusal, UnsupportedNodes
from gputune.client.model.graph import Array, Graph, Node, TensorInfo
from gputune.client.model.importer.graph_builder import GraphBuilder, Visited
from gputune.client.model.importer.halves import in_reals
from gputune.client.model.importer.inlining import with_functions_in_place
from gputune.client.model.importer.multiply_adds import multiply_adds
from gputune.client.model.importer.opening.checking import checked
from gputune.client.model.importer.opening.files import parsed
from gputune.client.model.importer.opening.input_values import constant_inputs
from gputune.client.model.importer.opening.inputs import (
    Interface,
    interface_of,
    names_of,
    refused_inputs,
    static_inputs,
)
from gputune.client.model.importer.opening.messages import first_lines
from gputune.client.model.importer.opening.narrowing import narrowed
from gputune.client.model.importer.opening.old_models import OLDEST_OPSET, modern
from gputune.client.model.importer.opening.operator_sets import opset_of
from gputune.client.model.importer.opening.types import check_declared
from gputune.client.model.importer.opening.weights import constant
from gputune.client.model.importer.operators import may_run, operator_of, why_not
from gputune.client.model.importer.shape_inputs import compile_time_inputs, computed_from
from gputune.runtime.context.states import LARGEST_RANK


def read_model(
    path: str | Path,
    input_dimensions: Mapping[str, tuple[int, ...]] | None = None,
    input_values: Mapping[str, npt.ArrayLike] | None = None,
    narrow: bool = False,
) -> Graph:
    """Return the model in the file `path` as a Graph with static shapes. narrow: with float32 in the place of float64.

    `input_dimensions` makes dynamic inputs static, e.g. {"x": (1, 3, 224, 224)}, or {"N": (1,)} for each dimension that
    is called so. `input_values` makes constants of inputs, e.g. {"sr": 16000}. An input without elements is a constant,
    too: there is nothing to give. Raises ModelError, one line, for everything that cannot be tuned: unreadable files,
    invalid models, dynamic shapes, quantised models, element types that no kernel knows, unsupported operators (all of
    them at once).
    """
    path = Path(path)
    return import_model(load(path, narrow), path, input_dimensions or {}, input_values)


def sized_names(path: Path) -> tuple[str, ...]:
    """Return what of a model sizes can be given for. Raises ModelError for a file that is no valid model."""
    return names_of(load(path).graph)


def dimension_names(path: Path) -> tuple[str, ...]:
    """Return the dimensions of a model's inputs that have names which no input has. Raises ModelError for a file that
    is no valid model."""
    graph = load(path).graph
    inputs = {item.name for item in graph.input}
    return tuple(name for name in names_of(graph) if name not in inputs)


def input_names(path: Path) -> tuple[str, ...]:
    """Return what of a model values can be given for. Raises ModelError for a file that is no valid model."""
    return tuple(item.name for item in load(path).graph.input)


def read_interface(path: Path) -> Interface:
    """Return the inputs and outputs that a model declares. Raises ModelError for a file that is no valid model."""
    return interface_of(load(path).graph)


def read_static_inputs(
    path: Path, input_dimensions: Mapping[str, tuple[int, ...]], input_values: Mapping[str, npt.ArrayLike]
) -> tuple[dict[str, TensorInfo], dict[str, Array]]:
    """Return the inputs of a model that `read_model` leaves inputs, and those that it makes constants. Raises
    ModelError."""
    model = modern(load(path), path)
    weights = {item.name for item in model.graph.initializer}
    given = static_inputs(path, model, weights, input_dimensions, input_values)
    fixed = constant_inputs(path, given, input_values)
    return {name: info for name, info in given.items() if name not in fixed}, fixed


@dataclass(frozen=True)
class Imported:
    """A model as a graph that also holds the nodes that cannot run; `refusals` says which, and why.

    `model` is the model with its nodes in order, in an operator set that is understood. `places` are the places in it
    of the nodes that have to run, by the names that are origins in the graph. `constants` are all known values, also
    those that the graph does not read. `looked_at` is how many nodes were looked at.
    """

    model: onnx.ModelProto
    path: Path
    graph: Graph
    refusals: tuple[Refusal, ...]
    places: Mapping[str, int]
    constants: Mapping[str, Array]
    trace: Sequence[Visited]
    tensors: Mapping[str, TensorInfo]
    looked_at: int

    def whole(self) -> Graph:
        """Return the graph if all of it can run. Raises UnsupportedNodes, ModelError for an input or output of too many
        dimensions."""
        if self.refusals:
            raise UnsupportedNodes(self.refusals, str(self.path), self.looked_at)
        for name in (*self.graph.inputs, *self.graph.outputs):
            if (rank := len(self.graph.shape(name))) > LARGEST_RANK:
                raise ModelError(
                    f"tensor {name!r} of model {self.path} has {rank} dimensions; {LARGEST_RANK} are supported"
                )
        return in_reals(self.graph)


def import_model(
    model: onnx.ModelProto,
    path: Path,
    input_dimensions: Mapping[str, tuple[int, ...]],
    input_values: Mapping[str, npt.ArrayLike] | None = None,
) -> Graph:
    """Return a valid model as a Graph, as `read_model` has it; `path` is what messages call it, and where its data
    lies.

    `input_values` makes constants of inputs: of those that say how to compute, like axes and shapes, and of weights.
    """
    return import_nodes(model, path, input_dimensions, input_values).whole()


def import_nodes(
    model: onnx.ModelProto,
    path: Path,
    input_dimensions: Mapping[str, tuple[int, ...]],
    input_values: Mapping[str, npt.ArrayLike] | None = None,
    declared: Mapping[str, TensorInfo] | None = None,
) -> Imported:
    """Import a valid model as `import_model` does, with the nodes that cannot run. Raises ModelError, but not for
    single nodes and inputs that cannot.

    declared: types and shapes of tensors, for those of which nothing can be inferred.
    """
    model = modern(model, path)
    opset = _opset(path, model)
    constants = {item.name: constant(path, item) for item in model.graph.initializer}
    given = static_inputs(path, model, constants, input_dimensions, input_values or {})
    fixed = constant_inputs(path, given, input_values or {})
    inputs = {name: info for name, info in given.items() if name not in fixed}
    constants.update(fixed)
    taken = [output for node in model.graph.node for output in node.output]
    outputs = _outputs(path, model)
    refused = refused_inputs(model, constants)

    def imported(both: bool) -> tuple[Imported, Collection[str]]:
        builder = GraphBuilder(path, opset, constants, inputs, taken, declared, both)
        for index, node in enumerate(model.graph.node):
            builder.visit(index, node)
        check_declared(path, model, {name: builder.tensors[name].dtype for name in outputs if name in builder.tensors})
        graph, refusals = builder.graph(
            model.graph.name or path.stem, tuple(inputs), outputs, {one.node for one in refused}
        )
        graph = replace(graph, constant_inputs=fixed, path=str(path))
        every = (*refused, *refusals)
        looked_at = len(builder.node_ops)
        known, visited, infos = builder.constants, builder.trace, builder.tensors
        one = Imported(model, path, graph, every, builder.places, known, visited, infos, looked_at)
        return one, builder.in_branches

    found, _ = imported(both=False)
    ifs = {one for one in found.refusals if one.op == "If"}
    if not ifs:
        return found
    try:
        other, branches = imported(both=True)
    except ModelError:  # a branch that is never taken may not fit the shapes
        return found
    few = _share(other.graph, branches) < MOST_OF_BRANCHES
    return other if few and {*other.refusals} <= {*found.refusals} - ifs else found


MOST_OF_BRANCHES = 0.05
"""The largest share of a model's work at which both branches of its Ifs are computed."""


def _share(graph: Graph, names: Collection[str]) -> float:
    """Return the share of the work, multiply-adds and written elements, of nodes with these names."""

    def work(node: Node) -> int:
        known = [graph.tensors[name].size for name in node.outputs if name in graph.tensors]
        return multiply_adds(node, graph.tensors) + sum(known)

    return sum(work(node) for node in graph.nodes if node.name in names) / max(sum(map(work, graph.nodes)), 1)


DECIDED = {"If": 0, "Loop": 2, "Scan": 0}
"""Operators that become others, and how many of their first inputs must be known."""


def check_operators(model: onnx.ModelProto) -> None:
    """Raise ModelError for operators that nothing can run, whatever else is found out about the inputs of the model.

    What follows from values and shapes that may still become known is not looked at."""
    nodes = model.graph.node
    opset = _opset(Path(model.graph.name), model)
    known = computed_from(nodes, {*compile_time_inputs(nodes), *(item.name for item in model.graph.initializer)})
    unknown = [
        Refusal(operator_of(node), node.name or node.output[0], why_not(operator_of(node)))
        for node in nodes
        if not known.issuperset(node.output)
        and not may_run(node, opset)
        and not (node.op_type in DECIDED and known.issuperset(filter(None, node.input[: DECIDED[node.op_type]])))
    ]
    if unknown:
        raise UnsupportedNodes(unknown, model.graph.name)


def _outputs(path: Path, model: onnx.ModelProto) -> tuple[str, ...]:
    """Return the names of the outputs, each of which a context has once."""
    names = tuple(item.name for item in model.graph.output)
    if not names:
        raise ModelError(f"model {path} has no outputs; there is nothing to compute")
    for name in names:
        if names.count(name) > 1:
            raise ModelError(f"output {name!r} of model {path} is listed twice; list it once")
    return names


def load(path: Path, narrow: bool = False) -> onnx.ModelProto:
    """Return the model in a file, once it is checked, with its functions in place. narrow: with float32 in the place of
    float64. Raises ModelError."""
    model = parsed(path)
    try:
        model = checked(model, _in_utf8(path))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(f"model {path} is not valid: {first_lines(error)}") from error
    try:
        model = with_functions_in_place(model)
    except ValueError as error:
        raise ModelError(f"model {path} {error}") from error
    return narrowed(model, path) if narrow else model


def _in_utf8(path: Path) -> str:
    """Return the path as onnx wants it, whatever the encoding of file names here is."""
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError:
        raise ModelError(f"model {path} has a name that is not UTF-8; rename the file") from None


def _opset(path: Path, model: onnx.ModelProto) -> int:
    newest = onnx.defs.onnx_opset_version()
    opset = opset_of(model, newest)
    if opset < OLDEST_OPSET:
        raise ModelError(f"model {path} uses operator set {opset}; {OLDEST_OPSET} is the oldest supported")
    if opset > newest:
        raise ModelError(f"model {path} uses operator set {opset}; onnx {onnx.__version__} knows {newest} at most")
    if model.graph.sparse_initializer:
        raise ModelError(f"model {path} holds sparse weights, which are not supported")
    return opset
