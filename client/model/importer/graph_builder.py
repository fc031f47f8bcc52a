"""Visit the nodes of a model in order, and build a graph of the nodes that have to run.

A single pass replaces several library passes. A node whose inputs are all known is computed. Any other node gets its
output shapes with the help of the known inputs. An operator without a kernel is replaced by its body if ONNX defines
one, and an If with a known condition by its branch. A tensor without elements is a constant, because there is nothing
to compute.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import TypeProto, helper

from gputune.client.errors import ModelError, Refusal
from gputune.client.model.graph import Array, Graph, Names, Node, Scaled, TensorInfo
from gputune.client.model.importer.deciding import Deciding
from gputune.client.model.importer.definitions import STANDARD, NotDefined, is_defined
from gputune.client.model.importer.folding import NEVER_FOLDED, Budget, as_scaled, folded
from gputune.client.model.importer.inlining import MOST_NODES, body_of, both_branches, branch, expanded, has_body
from gputune.client.model.importer.opening.operator_sets import opset_of
from gputune.client.model.importer.opening.ordering import taken_from_outside
from gputune.client.model.importer.opening.types import KNOWN_DTYPES, instead_of
from gputune.client.model.importer.opening.weights import constant
from gputune.client.model.importer.operators import in_onnx, is_supported, operator_of, why_not
from gputune.client.model.importer.shape_inputs import COMPILE_TIME, OF_SHAPES, STEERED
from gputune.client.model.importer.shapes import expected_bytes, inferred, type_of
from gputune.client.model.importer.unrolling import LOOPS, NotUnrolled, Unrolling
from gputune.core.dtypes import ELEMENT_TYPES


@dataclass(frozen=True)
class Visited:
    """A node as it was computed or kept: one of the model, or of what stands for one. opset: in which it is written;
    known: whether its results are constants."""

    node: onnx.NodeProto
    opset: int
    known: bool


class GraphBuilder:
    """Visits the nodes in order and knows each tensor as a constant, as static, or as undecided.

    Undecided are results of shape arithmetic behind an unsupported operator: whether they would fold is not
    known, so their operators are not reported beside the one that is to blame. Nor are those that a body defines, which
    is written for known shapes.
    """

    def __init__(
        self,
        path: Path,
        opset: int,
        constants: Mapping[str, Array],
        inputs: Mapping[str, TensorInfo],
        taken: Iterable[str],
        declared: Mapping[str, TensorInfo] | None = None,
        both: bool = False,
    ) -> None:
        """taken: the names of all tensors that the model's nodes compute. declared: tensors of which type and shape are
        known, whatever can be inferred of them. both: computes both branches of an If that follows from data."""
        self.path = path
        self.opset = opset
        self.named = frozenset(taken)
        self.given = Names([*self.named, *constants, *inputs])
        self.declared = declared or {}
        self.both = both
        self.in_branches: set[str] = set()  # the names of nodes in both branches of an If
        self.visited = 0
        self.places: dict[str, int] = {}  # of the model's nodes that have to run, by their names
        self.budget = Budget(sum(value.nbytes for value in constants.values()))
        self.origin = ""  # the model's node whose parts are being visited
        self.constants = dict(constants)
        self.scaled: dict[str, Scaled] = {}
        self.tensors = {name: TensorInfo(value.shape, str(value.dtype)) for name, value in constants.items()}
        self.tensors.update(inputs)
        self.deciding = Deciding(inputs, self.tensors, self.constants)
        self.undecided: set[str] = set()
        self.nodes: list[Node] = []
        self.trace: list[Visited] = []  # all nodes in order, of which some may be kept that nothing reads
        self.node_ops: dict[str, str] = {}
        self.labels = Names()
        self.refusals: dict[str, Refusal] = {}  # by the name of the model's node

    def visit(self, index: int, node: onnx.NodeProto) -> None:
        self.visited += 1
        if self.visited > MOST_NODES:
            raise ModelError(
                f"model {self.path} has more than {MOST_NODES} nodes once operators are replaced by their definitions"
            )
        node = in_onnx(node)
        reads = [name for name in node.input if name]
        known = all(name in self.constants for name in reads)
        standard = node.domain in STANDARD
        simple = standard and not any(item.HasField("g") for item in node.attribute)
        if node.op_type == "If" and standard and node.input[0] in self.constants:
            condition = self.constants[node.input[0]]
            self._visit_parts(index, node, branch(node, bool(condition.all()), self.given), self.opset)
            return
        if node.op_type == "If" and standard and self.both and node.input[0] in self.tensors:
            parts, before = both_branches(node, self.tensors[node.input[0]], self.given), len(self.nodes)
            self._visit_parts(index, node, parts, self.opset)
            self.in_branches.update(each.name for each in self.nodes[before:])
            return
        if standard and node.op_type in LOOPS and not self._at_run_time(node.op_type, node.input):
            self._unroll(index, node)
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

    def graph(
        self, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], refused: Collection[str] = ()
    ) -> tuple[Graph, list[Refusal]]:
        """Return the finished graph, and what of it cannot run: operators without kernels, types that no kernel knows,
        and shapes that depend on the data. refused: inputs of the model that are so already."""
        graph = Graph(name, self.opset, inputs, outputs, (), self.constants, self.tensors, self.named)
        graph = graph.rewritten(self.nodes)
        self._refuse_results(graph, refused)
        places = {node: place for place, node in enumerate(self.node_ops)}
        found = [self.refusals[origin] for origin in sorted(self.refusals, key=places.__getitem__)]
        origins = [origin for node in graph.nodes for origin in node.origins]
        open_ones = {name for node in graph.nodes for name in self._at_run_time(node.op, node.inputs)}
        instead = {name: advice for name in open_ones if (advice := self.deciding.instead([name]))}
        node_ops = {origin: self.node_ops[origin] for origin in origins}
        scaled = {name: each for name, each in self.scaled.items() if name in graph.constants}
        return replace(graph, node_ops=node_ops, instead=instead, scaled=scaled), found

    def _refuse_results(self, graph: Graph, refused: Collection[str]) -> None:
        """Refuse nodes that compute, or read as a constant, what no kernel knows, and those whose shapes depend on the
        data. refused: inputs that are so already."""
        uses, makers = graph.uses(), graph.producers()
        for node in graph.nodes:
            known = all(name in graph.tensors for name in node.reads)
            for tensor in filter(None, node.outputs):
                if uses[tensor] and tensor in graph.tensors:
                    self._check_type(node, "computes", graph.tensors[tensor].dtype)
                elif uses[tensor] and known and is_supported(node.op):
                    self._refuse_shape(node, tensor)
            for tensor in node.reads:
                if tensor not in makers and tensor not in refused and tensor in graph.tensors:
                    self._check_type(node, "reads a constant of", graph.tensors[tensor].dtype)

    def _check_type(self, node: Node, what: str, dtype: str) -> None:
        if dtype not in ELEMENT_TYPES:
            self._unsupported(node, f"it {what} {dtype}; {KNOWN_DTYPES}", instead_of(dtype))

    def _refuse_shape(self, node: Node, tensor: str) -> None:
        deciding = [name for name in self._at_run_time(node.op, node.inputs) if name not in self.undecided]
        whose = " and ".join(map(repr, deciding)) or "the data"
        self._unsupported(node, f"the shape of its output {tensor!r} depends on {whose}", self._as_constants(deciding))

    def _at_run_time(self, op: str, inputs: Sequence[str]) -> list[str]:
        """Return the inputs of a node whose values must be known before it runs, and are not."""
        places = COMPILE_TIME.get(op, ())
        return [name for place, name in enumerate(inputs) if name and place in places and name not in self.constants]

    def _as_constants(self, names: Sequence[str]) -> str:
        """Return the advice to make tensors constants: inputs of the model by their values, or others in the model;
        none for none."""
        several = "constants" if len(names) > 1 else "a constant"
        in_model = f"make {' and '.join(map(repr, names))} {several} of the model" if names else ""
        return self.deciding.instead(names) or in_model

    def _unsupported(self, node: Node, why: str, instead: str = "") -> None:
        """Refuse a node of the model, once: for itself, for what ONNX defines it by, or for what is in its branch."""
        origin = node.origins[0]
        op, name = self.node_ops[origin], origin
        if op in ("If", *LOOPS):
            op, name = node.op, node.name
        elif origin != node.name:
            defines = why == why_not(node.op)
            why += ", part of its ONNX definition" if defines else f", in the {node.op} that replaces it"
        self.refusals.setdefault(origin, Refusal(op, name, why, instead))

    def _expand(self, index: int, node: onnx.NodeProto) -> bool:
        """Visit the body of an operator that no kernel knows, where ONNX defines one."""
        operator = operator_of(node)
        if is_supported(operator) and not is_defined(node, self.opset):
            return False
        if any(name not in self.tensors for name in node.input if name):
            return False
        chosen = operator in ("If", "Loop")
        computable = chosen or operator in STEERED or has_body(node, self.opset)
        if computable and (deciding := self._at_run_time(operator, node.input)):
            names = " and ".join(map(repr, deciding))
            instead = self.deciding.instead(deciding) if chosen else self._as_constants(deciding)
            self._keep(index, node, f"{names} must be known before it runs", instead)
            return True
        types = [type_of(self.tensors[name]) if name else TypeProto() for name in node.input]
        try:
            body = body_of(node, self.opset, types, [self.constants.get(name) for name in node.input])
        except NotDefined as error:
            self._keep(index, node, str(error))
            return True
        if body is None:
            return False
        self._visit_parts(index, node, expanded(node, body, self.given), opset_of(body))
        return True

    def _visit_parts(self, index: int, node: onnx.NodeProto, parts: Iterable[onnx.NodeProto], opset: int) -> None:
        """Visit the nodes that a node stands for; they are written in an operator set of their own."""
        around = self.origin, self.opset
        self.origin, self.opset = self.origin or self._begin(index, node), opset
        try:
            for part in parts:
                self.visit(index, part)
        finally:
            self.origin, self.opset = around

    def _unroll(self, index: int, node: onnx.NodeProto) -> None:
        """Visit the rounds of a loop, or keep it where it cannot be written as its rounds."""
        kept, name = len(self.nodes), self.origin or self._begin(index, node)
        if not all(tensor in self.tensors for tensor in node.input if tensor):
            self._keep(index, node, name=name)
            return
        around, self.origin = self.origin, name
        try:
            unrolling = Unrolling(node, self.opset, self.constants, self.tensors, self.given)
            self._visit_parts(index, node, unrolling.nodes(), self.opset)
        except NotUnrolled as error:
            del self.nodes[kept:]
            self._keep(index, node, str(error), name=name)
        finally:
            self.origin = around

    def _begin(self, index: int, node: onnx.NodeProto) -> str:
        """Take in a node of the model that has to run, and return the name that it has here."""
        name = self.labels.free(node.name or f"{node.op_type}_{index}")
        self.node_ops[name], self.places[name] = operator_of(node), index
        return name

    def _keep(self, index: int, node: onnx.NodeProto, why: str = "", instead: str = "", name: str = "") -> None:
        """Keep a node that has to run; why: it cannot, and what to use instead; name: its own, if it has one by now."""
        if not name:
            name = self.labels.free(node.name or f"{node.op_type}_{index}") if self.origin else self._begin(index, node)
        operator, attributes = operator_of(node), _Attributes(node)
        kept = Node(
            operator,
            name,
            tuple(node.input),
            tuple(node.output),
            dict(attributes) if is_supported(operator) else attributes,
            operands=tuple(sorted(taken_from_outside(node))),
            origins=(self.origin or name,),
        )
        self._infer(kept, node)
        if all(output in self.constants for output in kept.outputs if output):
            return
        behind_unknown = has_body(node, self.opset) and any(tensor not in self.tensors for tensor in kept.reads)
        if not is_supported(operator) and (why or not behind_unknown):
            self._unsupported(kept, why or why_not(operator), instead)
        self.nodes.append(kept)
        self.trace.append(Visited(node, self.opset, known=False))
        self.deciding.take(kept)

    def _infer(self, kept: Node, node: onnx.NodeProto) -> None:
        """Types and shapes of the outputs; behind an unsupported operator they may stay unknown."""
        found: dict[str, TensorInfo] = {}
        if all(name in self.tensors for name in kept.reads):
            try:
                found = inferred(kept, node, self.opset, self.tensors, self.constants)
            except ValueError as error:
                self._refuse(kept.label, str(error))
        found |= {name: self.declared[name] for name in kept.outputs if name in self.declared and name not in found}
        self.tensors.update(found)
        self.constants.update({name: np.empty(info.shape, info.dtype) for name, info in found.items() if not info.size})

    def _fold_shape(self, node: onnx.NodeProto) -> None:
        """Fold what follows from the shape of a tensor: a stand-in of that shape takes its place, which costs no
        memory."""
        info = self.tensors[node.input[0]]
        self._compute(node, {node.input[0]: np.broadcast_to(np.zeros((), info.dtype), info.shape)})

    def _fold(self, node: onnx.NodeProto) -> None:
        data = next((item.t for item in node.attribute if item.t.data_location == onnx.TensorProto.EXTERNAL), None)
        if data is None:
            self._compute(node, {name: self.constants[name] for name in node.input if name})
            if (found := as_scaled(node, self.constants, self.scaled)) is not None:
                self.scaled[node.output[0]] = found
        else:  # onnx would look for the file in the folder that the command was called from
            self._know({node.output[0]: constant(self.path, data)})

    def _compute(self, node: onnx.NodeProto, feeds: Mapping[str, Array]) -> None:
        if node.op_type == "Constant":
            self.budget.hold(node.ByteSize())
        try:
            expected = expected_bytes(node, self.opset, feeds)
            self.budget.spend(expected)
            values = folded(node, feeds, self.opset)
            self.budget.spend(max(sum(value.nbytes for value in values.values()) - expected, 0))
        except ValueError as error:
            self._refuse(f"{node.op_type} node {node.name or node.output[0]!r}", str(error))
        self.trace.append(Visited(node, self.opset, known=True))
        self._know(values)

    def _know(self, values: Mapping[str, Array]) -> None:
        self.constants.update(values)
        self.tensors.update({name: TensorInfo(value.shape, str(value.dtype)) for name, value in values.items()})

    def _refuse(self, what: str, why: str) -> NoReturn:
        raise ModelError(f"{what} of model {self.path} {why}")


class _Attributes(Mapping[str, Any]):
    """Reads an attribute of a node once it is asked for: those of operators that cannot run may be millions of
    numbers, which nothing asks for."""

    def __init__(self, node: onnx.NodeProto) -> None:
        self._protos = {item.name: item for item in node.attribute}

    def __getitem__(self, name: str) -> object:
        return _plain(helper.get_attribute_value(self._protos[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._protos)

    def __len__(self) -> int:
        return len(self._protos)


def _cast(node: onnx.NodeProto, dtype: str) -> onnx.NodeProto:
    """Return a CastLike of which only the type of its second input matters, as a Cast."""
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_node("Cast", node.input[:1], node.output, node.name, to=to)


def _plain(value: object) -> object:
    """Return an attribute as plain Python: text instead of bytes, tuples instead of lists."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return tuple(map(_plain, value)) if isinstance(value, list) else value
