"""ONNX file -> Graph: everything static, constants folded, and whatever is not supported refused by name.

A single walk over the nodes does what several library passes would: a node whose inputs are all known is computed by
onnx's reference evaluator, any other gets its output shapes from onnx's shape inference with the known inputs at hand.
An operator that no kernel knows is replaced by its body where ONNX defines one, an If whose condition is known by its
branch. A tensor without elements is a constant: there is nothing to compute.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np
import onnx
import onnx.checker
import onnx.inliner
import onnx.shape_inference
from onnx import TensorProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from gputune.client.errors import ModelError, Refusal, UnsupportedNodes
from gputune.client.graph import Array, Graph, Node, TensorInfo
from gputune.client.inlining import STANDARD, body_of, branch, expanded, has_body, opset_of
from gputune.client.lowering.added import Shape, lowering_of, shape_of
from gputune.client.lowering.operators import LOWERINGS
from gputune.client.old_models import OLDEST_OPSET, modern
from gputune.client.passes.fuse_elementwise import ELEMENTWISE
from gputune.client.passes.one_form import ONE_FORM_OPS
from gputune.client.steering import OF_SHAPES, computed_from, steering_inputs
from gputune.kernels.dtypes import OPENCL_TYPES
from gputune.kernels.streaming import MOST_ELEMENTS

SUPPORTED_OPS = (frozenset(LOWERINGS) - {"Elementwise"}) | ELEMENTWISE | ONE_FORM_OPS
# fmt: off
QUANTISED_OPS = frozenset((
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv",
    "QLinearMatMul", "QuantizeLinear",
))
NEVER_FOLDED = frozenset((
    # Random results are not constants; the reference evaluator runs BatchNormalization in training mode, and does not
    # look at the activations, lengths and clip of recurrent cells.
    "BatchNormalization", "Bernoulli", "GRU", "LSTM", "Multinomial", "RNN", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike",
))
# fmt: on
KNOWN_DTYPES = f"supported are {', '.join(OPENCL_TYPES)}"
POSITIVE = frozenset(("dilations", "group", "kernel_shape", "strides"))
"""Attributes of windows that count something."""

SHAPED_AS_INPUT = frozenset(("GroupNormalization", "MeanVarianceNormalization"))
"""Operators with a body, for which onnx infers shapes within whole models only."""

FOLDED_AS = {"DequantizeLinear": 19}
"""Operators that onnx evaluates from an operator set on, though they mean the same in those before."""

INFERRED_AS = dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), 22)
"""Operators whose shapes onnx knows from an operator set on: before, windows could begin behind the map (ceil_mode)."""

LARGEST_HINT = 1024
"""Constants up to this many elements are handed to shape inference: they are the ones that hold shapes."""


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
    constants = {item.name: _constant(path, item) for item in model.graph.initializer}
    constants.update(input_values or {})
    inputs = _static_inputs(path, model, constants, input_dimensions)
    taken = [output for node in model.graph.node for output in node.output]
    walk = _Walk(path, opset, constants, inputs, taken)
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
        f"{_operator(node)} node {node.name or node.output[0]!r}"
        for node in nodes
        if not known.issuperset(node.output)
        and not _is_known(node, opset)
        and not (node.op_type == "If" and node.input[0] in known)
    ]
    if unknown:
        raise ModelError(f"model {model.graph.name} needs what is not supported: {', '.join(unknown)}")


def _is_known(node: onnx.NodeProto, opset: int) -> bool:
    operator = _operator(node)
    return operator in SUPPORTED_OPS or lowering_of(operator) is not None or has_body(node, opset)


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
        raise ModelError(f"model {path} is not valid: {_first_lines(error)}") from error
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _first_lines(error: Exception) -> str:
    """The part of onnx's long messages that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("==>")]
    return " ".join(lines[:2]) or type(error).__name__


def _listing(items: Iterable[str], most: int) -> str:
    known = list(items)
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")


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


def _constant(path: Path, item: onnx.TensorProto) -> Array:
    """The value of an initializer."""
    shape = "x".join(map(str, item.dims))
    try:
        if any(size < 0 for size in item.dims):
            raise ValueError("a dimension is negative")
        if item.data_location == TensorProto.EXTERNAL:
            return _mapped(path.parent, item)
        return numpy_helper.to_array(item)
    except KeyError as error:
        raise ModelError(f"weight {item.name!r} of model {path} has the unknown data type {item.data_type}") from error
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"weight {item.name!r} ({shape}) of model {path} is not valid: {error}") from error


def _mapped(folder: Path, item: onnx.TensorProto) -> Array:
    """A weight in a file of its own: mapped, not read, since there may be more of them than memory. Raises ValueError
    for what lies outside of the model's folder or of the file."""
    entries = {entry.key: entry.value for entry in item.external_data}
    root = folder.resolve()
    file = (root / entries.get("location", "")).resolve()
    if not file.is_relative_to(root) or not file.is_file():
        raise ValueError(f"its data file {entries.get('location', '')!r} is not in the folder of the model")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(item.data_type))
    count, offset = math.prod(item.dims), int(entries.get("offset", 0))
    if dtype.hasobject or offset < 0 or offset + count * dtype.itemsize > file.stat().st_size:
        raise ValueError(f"{count} {dtype} numbers from byte {offset} on are not in {file.name}")
    if not count:
        return np.empty(tuple(item.dims), dtype)
    values: Array = np.memmap(file, dtype, "r", offset, tuple(item.dims) or (1,))
    return values.reshape(tuple(item.dims))


def _static_inputs(
    path: Path, model: onnx.ModelProto, constants: Mapping[str, Array], wanted: Mapping[str, tuple[int, ...]]
) -> dict[str, TensorInfo]:
    """The inputs with every dimension decided; initializers listed as inputs (IR 3) are not inputs."""
    real = {item.name: item for item in model.graph.input if item.name not in constants}
    for name in wanted:
        if name not in real:
            near = difflib.get_close_matches(name, real, 1)
            known = ", ".join(map(repr, real)) or "none"
            hint = f"did you mean {near[0]!r}?" if near else f"its inputs are {known}"
            raise ModelError(f"model {path} has no input {name!r}; {hint}")
    return {name: _static_input(path, item, wanted.get(name)) for name, item in real.items()}


def _static_input(path: Path, item: onnx.ValueInfoProto, wanted: tuple[int, ...] | None) -> TensorInfo:
    where = f"input {item.name!r} of model {path}"
    kind = item.type.tensor_type
    if not item.type.HasField("tensor_type"):
        raise ModelError(f"{where} is not a tensor; {KNOWN_DTYPES}")
    dtype = _dtype(kind.elem_type)
    if dtype not in OPENCL_TYPES:
        raise ModelError(f"{where} is {dtype}; {KNOWN_DTYPES}")
    ranked = kind.HasField("shape")
    sizes = [max(dim.dim_value, 0) for dim in kind.shape.dim]
    shown = "x".join(str(dim.dim_value) if dim.dim_value > 0 else dim.dim_param or "?" for dim in kind.shape.dim)
    if wanted is None:
        if not ranked or 0 in sizes:
            example = ",".join(str(size or 1) for size in sizes) or "1"
            raise ModelError(
                f"{where} has dynamic dimensions ({shown or 'of unknown rank'}); "
                f"give them, e.g. --input_dimensions {item.name}={example}"
            )
        return _countable(where, tuple(sizes), dtype)
    option = f"--input_dimensions {item.name}={','.join(map(str, wanted))}"
    if any(size < 1 for size in wanted):
        raise ModelError(f"{option}: every dimension must be at least 1")
    if ranked and len(sizes) != len(wanted):
        raise ModelError(f"{option} has {len(wanted)} dimensions, {where} has {len(sizes)} ({shown})")
    for axis, size in enumerate(sizes):
        if size and size != wanted[axis]:
            raise ModelError(f"{option}: dimension {axis} of {where} is fixed at {size} ({shown})")
    return _countable(option, tuple(wanted), dtype)


def _dtype(elem_type: int) -> str:
    """numpy's name of an element type, ONNX's where numpy has none."""
    if elem_type in (TensorProto.STRING, TensorProto.UNDEFINED) or elem_type not in TensorProto.DataType.values():
        return TensorProto.DataType.Name(elem_type).lower() if elem_type in TensorProto.DataType.values() else "unknown"
    return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type)).name


def _countable(where: str, shape: tuple[int, ...], dtype: str) -> TensorInfo:
    info = TensorInfo(shape, dtype)
    if info.size > MOST_ELEMENTS:
        raise ModelError(f"{where} has {info.size} elements; {MOST_ELEMENTS} are supported")
    return info


class _Walk:
    """Visits the nodes in order and knows each tensor as a constant, as static, or as undecided.

    Undecided are results of shape arithmetic behind an unsupported operator: whether they would fold is not
    known, so their operators are not reported beside the one that is to blame.
    """

    def __init__(
        self,
        path: Path,
        opset: int,
        constants: Mapping[str, Array],
        inputs: Mapping[str, TensorInfo],
        taken: Iterable[str],
    ) -> None:
        """taken: the names of all tensors that the model's nodes compute."""
        self.path = path
        self.opset = opset
        self.taken = tuple(taken)
        self.origin = ""  # the model's node whose parts are being visited
        self.constants = dict(constants)
        self.tensors = {name: TensorInfo(value.shape, str(value.dtype)) for name, value in constants.items()}
        self.tensors.update(inputs)
        self.undecided: set[str] = set()
        self.nodes: list[Node] = []
        self.names: set[str] = set()
        self.unsupported: list[Node] = []
        self.quantised: list[Node] = []

    def visit(self, index: int, node: onnx.NodeProto) -> None:
        reads = [name for name in node.input if name]
        known = all(name in self.constants for name in reads)
        standard = node.domain in STANDARD
        simple = standard and not any(item.HasField("g") for item in node.attribute)
        if node.op_type == "If" and standard and node.input[0] in self.constants:
            condition = self.constants[node.input[0]]
            self._visit_parts(index, node, branch(node, bool(condition.all()), self._prefix(node)), self.opset)
            return
        simple = simple and node.op_type not in NEVER_FOLDED
        if node.op_type == "CastLike" and reads[0] in self.constants and reads[1] in self.tensors:
            node, known = _cast(node, self.tensors[reads[1]].dtype), True
        if node.op_type in OF_SHAPES and simple:
            if reads[0] in self.tensors:
                self._fold_shape(node)
            else:
                self.undecided.update(node.output)
        elif simple and known and (reads or node.op_type == "Constant"):
            self._fold(node)
        elif reads and simple and all(name in self.constants or name in self.undecided for name in reads):
            self.undecided.update(node.output)
        elif not self._expand(index, node):
            self._keep(index, node)

    def refuse_unsupported(self) -> None:
        """Raises ModelError for what was met; what is quantised has an answer of its own."""
        if self.quantised:
            labels = _listing((node.label for node in self.quantised), 3)
            raise UnsupportedNodes(
                f"model {self.path} is quantised ({labels}); only float32 models are supported, use the one it was made "
                "from",
                [Refusal(node.op, node.name, "it computes with quantised numbers") for node in self.quantised],
                len(self.nodes),
            )
        if self.unsupported:
            names = ", ".join(node.label for node in self.unsupported)
            raise UnsupportedNodes(
                f"model {self.path} needs what is not supported: {names}",
                [Refusal(node.op, node.name, "no kernels for this operator") for node in self.unsupported],
                len(self.nodes),
            )

    def graph(self, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Graph:
        """The finished graph, once all was supported; whatever it reads and computes has a type that kernels know."""
        graph = Graph(name, self.opset, inputs, outputs, (), self.constants, self.tensors).rewritten(self.nodes)
        makers, uses = graph.producers(), graph.uses()
        for node in graph.nodes:
            for tensor in node.outputs:
                if uses[tensor] and tensor not in graph.tensors:
                    self._refuse(node.label, f"has an output {tensor!r} whose shape depends on the data")
        for tensor in uses:
            dtype = graph.tensors[tensor].dtype
            if dtype not in OPENCL_TYPES:
                maker = makers[tensor].label if tensor in makers else "a constant"
                self._refuse(f"tensor {tensor!r} ({maker})", f"is {dtype}; {KNOWN_DTYPES}")
        return graph

    def _expand(self, index: int, node: onnx.NodeProto) -> bool:
        """Visits the body of an operator that no kernel knows, where ONNX defines one."""
        operator = _operator(node)
        if operator in SUPPORTED_OPS or operator in QUANTISED_OPS or lowering_of(operator) is not None:
            return False
        if any(name not in self.tensors for name in node.input if name):
            return False
        types = [_type_of(self.tensors[name]) if name else TypeProto() for name in node.input]
        body = body_of(node, self.opset, types)
        if body is None:
            return False
        self._visit_parts(index, node, expanded(node, body, self._prefix(node)), opset_of(body))
        return True

    def _visit_parts(self, index: int, node: onnx.NodeProto, parts: Iterable[onnx.NodeProto], opset: int) -> None:
        """Visits the nodes that a node stands for; they are written in an operator set of their own."""
        around = self.origin, self.opset
        self.origin, self.opset = self.origin or node.name or f"{node.op_type}_{index}", opset
        for part in parts:
            self.visit(index, part)
        self.origin, self.opset = around

    def _prefix(self, node: onnx.NodeProto) -> str:
        """What the names of a node's parts begin with, and no other name does."""
        name = node.name or node.output[0]
        prefix, number = f"{name}/", 1
        while any(each.startswith(prefix) for each in (*self.taken, *self.tensors)):
            number += 1
            prefix = f"{name}.{number}/"
        return prefix

    def _keep(self, index: int, node: onnx.NodeProto) -> None:
        name = node.name or f"{node.op_type}_{index}"
        number = 1
        while name in self.names:
            number += 1
            name = f"{node.name or node.op_type}.{number}"
        self.names.add(name)
        operator = _operator(node)
        kept = Node(
            operator,
            name,
            tuple(node.input),
            tuple(node.output),
            {item.name: _plain(helper.get_attribute_value(item)) for item in node.attribute},
            origins=(self.origin or name,),
        )
        for attribute in POSITIVE & kept.attributes.keys():  # onnx's shape inference divides by strides unchecked
            values = kept.attributes[attribute]
            counts = values if isinstance(values, tuple) else (values,)
            if any(isinstance(count, int) and count < 1 for count in counts):
                self._refuse(kept.label, f"is not valid: its {attribute} {values} must be positive")
        self._infer(kept, node)
        if all(output in self.constants for output in kept.outputs if output):
            return
        if operator in QUANTISED_OPS or operator.startswith("QLinear"):
            self.quantised.append(kept)
        elif operator not in SUPPORTED_OPS and lowering_of(operator) is None:
            self.unsupported.append(kept)
        self.nodes.append(kept)

    def _infer(self, kept: Node, node: onnx.NodeProto) -> None:
        """Types and shapes of the outputs; behind an unsupported operator they may stay unknown."""
        if any(name not in self.tensors for name in kept.reads):
            return
        if (shape := shape_of(kept.op)) is not None:
            self._ask(shape, kept)
            return
        if kept.op in SHAPED_AS_INPUT:
            self.tensors[kept.output] = self.tensors[kept.inputs[0]]
            return
        types = {name: _type_of(self.tensors[name]) for name in kept.reads}
        hints = {
            name: numpy_helper.from_array(self.constants[name], name)
            for name in kept.reads
            if name in self.constants and self.constants[name].size <= LARGEST_HINT
        }
        opset = max(self.opset, INFERRED_AS.get(node.op_type, 0))
        opsets = [helper.make_opsetid("", opset)]
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
            found = onnx.shape_inference.infer_node_outputs(schema, node, types, hints, None, opsets)
        except (onnx.defs.SchemaError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
            if kept.op in SUPPORTED_OPS:
                self._refuse(kept.label, f"is not valid: {_first_lines(error)}")
            return
        for output in (name for name in kept.outputs if name):
            kind = found[output].tensor_type if output in found else TypeProto.Tensor()
            sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
            if kind.HasField("shape") and None not in sizes and kind.elem_type:
                dtype = str(helper.tensor_dtype_to_np_dtype(kind.elem_type))
                info = TensorInfo(tuple(size for size in sizes if size is not None), dtype)
                if info.size > MOST_ELEMENTS:
                    self._refuse(kept.label, f"computes {info.size} elements; {MOST_ELEMENTS} are supported")
                self.tensors[output] = info
                if not info.size:
                    self.constants[output] = np.empty(info.shape, dtype)

    def _ask(self, shape: Shape, node: Node) -> None:
        """Types and shapes of the outputs, from an op package."""
        try:
            found = tuple(shape(node, self.tensors, self.constants))
        except ValueError as error:
            self._refuse(node.label, f"is not valid: {_first_lines(error)}")
        if len(found) != len(node.outputs) or not all(isinstance(info, TensorInfo) for info in found):
            self._refuse(node.label, f"has {len(node.outputs)} outputs; its op package knows other shapes: {found}")
        self.tensors.update((name, info) for name, info in zip(node.outputs, found, strict=True) if name)

    def _fold_shape(self, node: onnx.NodeProto) -> None:
        """What follows from the shape of a tensor: a stand-in of that shape, which costs no memory, is folded."""
        info = self.tensors[node.input[0]]
        self._compute(node, {node.input[0]: np.broadcast_to(np.zeros((), info.dtype), info.shape)})

    def _fold(self, node: onnx.NodeProto) -> None:
        self._compute(node, {name: self.constants[name] for name in node.input if name})

    def _compute(self, node: onnx.NodeProto, feeds: dict[str, Array]) -> None:
        outputs = [name for name in node.output if name]
        opsets = [helper.make_opsetid("", max(self.opset, FOLDED_AS.get(node.op_type, 0)))]
        inputs = list(feeds)
        function = helper.make_function("gputune", "folded", inputs, outputs, [node], opsets)
        try:
            values = ReferenceEvaluator(function).run(None, feeds, attributes={})
        except Exception as error:  # the evaluator raises whatever its numpy code meets
            label = f"{node.op_type} node {node.name or node.output[0]!r}"
            self._refuse(label, f"has constant inputs but cannot be computed: {_first_lines(error)}")
        for name, value in zip(outputs, values, strict=True):
            self.constants[name] = np.asarray(value)
            self.tensors[name] = TensorInfo(self.constants[name].shape, str(self.constants[name].dtype))

    def _refuse(self, what: str, why: str) -> NoReturn:
        raise ModelError(f"{what} of model {self.path} {why}")


def _cast(node: onnx.NodeProto, dtype: str) -> onnx.NodeProto:
    """A CastLike of which only the type of its second input matters, as a Cast."""
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_node("Cast", node.input[:1], node.output, node.name, to=to)


def _operator(node: onnx.NodeProto) -> str:
    """What an operator is called in tables: with its domain, unless that is ONNX's own."""
    return node.op_type if node.domain in STANDARD else f"{node.domain}.{node.op_type}"


def _type_of(info: TensorInfo) -> TypeProto:
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(info.dtype)), info.shape)


def _plain(value: object) -> object:
    """An attribute as plain Python: text instead of bytes, tuples instead of lists."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return tuple(map(_plain, value)) if isinstance(value, list) else value
