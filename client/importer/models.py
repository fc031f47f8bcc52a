"""Opens a model and brings it together: its weights, its inputs, and its nodes."""

from collections.abc import Mapping
from pathlib import Path

import onnx
import onnx.checker
import onnx.inliner

from gputune.client.errors import ModelError
from gputune.client.graph import Array, Graph
from gputune.client.importer.inlining import STANDARD
from gputune.client.importer.inputs import static_inputs
from gputune.client.importer.old_models import OLDEST_OPSET, modern
from gputune.client.importer.operators import may_run, operator_of
from gputune.client.importer.steering import computed_from, steering_inputs
from gputune.client.importer.texts import first_lines
from gputune.client.importer.walk import Walk
from gputune.client.importer.weights import constant


def read_model(path: str | Path, input_dimensions: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """The model in the file `path` as a Graph with static shapes.

    `input_dimensions` makes dynamic inputs static, e.g. {"x": (1, 3, 224, 224)}. Raises ModelError, one
    line, for everything that cannot be tuned: unreadable files, invalid models, dynamic shapes, quantised
    models, element types that no kernel knows, unsupported operators (all of them at once).
    """
    path = Path(path)
    return import_model(_load(path), path, input_dimensions or {})


def import_model(
    model: onnx.ModelProto,
    path: Path,
    input_dimensions: Mapping[str, tuple[int, ...]],
    input_values: Mapping[str, Array] | None = None,
) -> Graph:
    """A valid model as a Graph, as `read_model` has it; `path` is what messages call it, and where its data lies.

    `input_values` makes constants of inputs: of those that say how to compute, like axes and shapes, and of weights.
    """
    model = modern(model, path)
    opset = _opset(path, model)
    constants = {item.name: constant(path, item) for item in model.graph.initializer}
    constants.update(input_values or {})
    inputs = static_inputs(path, model, constants, input_dimensions)
    taken = [output for node in model.graph.node for output in node.output]
    walk = Walk(path, opset, constants, inputs, taken)
    for index, node in enumerate(model.graph.node):
        walk.visit(index, node)
    walk.refuse_unsupported()
    outputs = tuple(item.name for item in model.graph.output)
    return walk.graph(model.graph.name or path.stem, tuple(inputs), outputs)


def check_operators(model: onnx.ModelProto) -> None:
    """Raises ModelError for operators that nothing can run, whatever else is found out about the inputs of the model.

    What follows from values and shapes that may still become known is not looked at."""
    nodes = model.graph.node
    opset = _opset(Path(model.graph.name), model)
    known = computed_from(nodes, {*steering_inputs(nodes), *(item.name for item in model.graph.initializer)})
    unknown = [
        f"{operator_of(node)} node {node.name or node.output[0]!r}"
        for node in nodes
        if not known.issuperset(node.output)
        and not may_run(node, opset)
        and not (node.op_type == "If" and node.input[0] in known)
    ]
    if unknown:
        raise ModelError(f"model {model.graph.name} needs what is not supported: {', '.join(unknown)}")


def _load(path: Path) -> onnx.ModelProto:
    if not path.is_file():
        raise ModelError(f"model {path} {'is not a file' if path.exists() else 'does not exist'}")
    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except OSError as error:
        raise ModelError(f"model {path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf's DecodeError, which onnx does not export
        raise ModelError(f"model {path} is not an ONNX file: {error}") from error
    try:
        onnx.checker.check_model(str(path))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(f"model {path} is not valid: {first_lines(error)}") from error
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _opset(path: Path, model: onnx.ModelProto) -> int:
    newest = onnx.defs.onnx_opset_version()
    opset = max((item.version for item in model.opset_import if item.domain in STANDARD), default=newest)
    if opset < OLDEST_OPSET:
        raise ModelError(f"model {path} uses operator set {opset}; {OLDEST_OPSET} is the oldest supported")
    if opset > newest:
        raise ModelError(f"model {path} uses operator set {opset}; onnx {onnx.__version__} knows {newest} at most")
    if model.graph.sparse_initializer:
        raise ModelError(f"model {path} holds sparse weights, which are not supported")
    return opset
