"""Gives operators that are written in many ways one form, so that later passes and lowering know only that
one.

Clip           bounds as attributes "min" and "max", whatever the operator set
Reshape        also for Flatten, Squeeze and Unsqueeze; the shape is the output's, the one input is the data
Softmax        attribute "axes": the first and last of the neighbouring axes that it runs over together
BatchNorm      a Mul and an Add with one number per channel
Sum            Adds, one behind the other; an Identity for one input
Gemm, MatMul   Gemm of inputs a, b with b a constant [K, N]; a computed or full-sized C is an Add behind it
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from gputune.client.graph import Array, Graph, Node, TensorInfo, as_constant
from gputune.client.passes.refusing import refusing

LARGEST = float(np.finfo(np.float32).max)


def one_form(graph: Graph) -> Graph:
    """The same graph in canonical operators. Raises ModelError for uses of them that are not supported."""
    work = _Work(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        with refusing(node):
            nodes += FORMS.get(node.op, _as_is)(work, node)
    return graph.rewritten(nodes, work.constants, work.tensors)


class _Work:
    """The graph being read, and what the new nodes need beside it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = graph.uses()
        self.constants: dict[str, Array] = {}
        self.tensors: dict[str, TensorInfo] = {}

    def constant(self, wanted: str, value: Array | float) -> str:
        name = self._name(wanted)
        self.constants[name] = as_constant(value)
        return name

    def tensor(self, wanted: str, info: TensorInfo) -> str:
        name = self._name(wanted)
        self.tensors[name] = info
        return name

    def known(self, node: Node, index: int, what: str) -> Array | None:
        """The constant input number `index`, None when it is absent."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        if not name:
            return None
        if name not in self.graph.constants:
            raise node.unsupported(f"its {what} {name!r} is computed at run time")
        return self.graph.constants[name]

    def _name(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.graph.tensors or name in self.constants or name in self.tensors:
            number += 1
            name = f"{wanted}.{number}"
        return name


def _as_is(work: _Work, node: Node) -> Iterator[Node]:
    yield node


def _clip(work: _Work, node: Node) -> Iterator[Node]:
    bounds = {}
    for index, (name, default) in enumerate((("min", -LARGEST), ("max", LARGEST)), start=1):
        value = work.known(node, index, f"{name}imum")
        if value is not None and value.size != 1:
            raise node.unsupported(f"its {name}imum has {value.size} elements; 1 is supported")
        bounds[name] = float(node.attributes.get(name, default) if value is None else value.reshape(()))
    yield replace(node, inputs=node.inputs[:1], attributes=bounds)


def _conv(work: _Work, node: Node) -> Iterator[Node]:
    rank, seen = (len(work.graph.shape(name)) for name in node.inputs[:2])
    if rank != seen:
        raise node.unsupported(f"its weight has {seen} dimensions, its input has {rank}")
    yield node


def _conv_transpose(work: _Work, node: Node) -> Iterator[Node]:
    if (groups := node.attributes.get("group", 1)) != 1:
        raise node.unsupported(f"it has {groups} groups; 1 is supported")
    yield from _conv(work, node)


def _reshape(work: _Work, node: Node) -> Iterator[Node]:
    before, after = work.graph.tensors[node.inputs[0]], work.graph.tensors[node.output]
    if before.size != after.size:
        raise node.unsupported(f"its input has {before.size} elements, its output {after.size}")
    yield replace(node, op="Reshape", inputs=node.inputs[:1], attributes={})


def _softmax(work: _Work, node: Node) -> Iterator[Node]:
    rank = len(work.graph.shape(node.output))
    together = work.graph.opset < 13  # then the axes from `axis` on count as one
    axis = int(node.attributes.get("axis", 1 if together else -1)) % max(rank, 1)
    yield replace(node, attributes={"axes": (axis, rank - 1 if together else axis)})


def _batch_normalization(work: _Work, node: Node) -> Iterator[Node]:
    if node.attributes.get("training_mode", 0) or any(work.uses[name] for name in node.outputs[1:]):
        raise node.unsupported("it is in training mode")
    if not node.attributes.get("spatial", 1):
        raise node.unsupported("it normalises each position on its own (spatial=0)")
    parts = [work.known(node, index, "statistic") for index in range(1, 5)]
    scale, bias, mean, variance = (np.asarray(part, dtype=np.float64) for part in parts)
    factor = scale / np.sqrt(variance + float(node.attributes.get("epsilon", 1e-5)))
    channels = (-1,) + (1,) * (len(work.graph.shape(node.output)) - 2)
    scaled = work.tensor(f"{node.output}/scaled", work.graph.tensors[node.output])
    factors = work.constant(f"{node.output}/factor", factor.reshape(channels))
    shifts = work.constant(f"{node.output}/shift", (bias - mean * factor).reshape(channels))
    yield Node("Mul", node.name, (node.inputs[0], factors), (scaled,), origins=node.origins)
    yield Node("Add", f"{node.name}/shift", (scaled, shifts), (node.output,), origins=node.origins)


def _sum(work: _Work, node: Node) -> Iterator[Node]:
    total, *others = node.inputs
    if not others:
        yield replace(node, op="Identity")
    for number, other in enumerate(others, start=1):
        name, result = node.name, node.output
        if number < len(others):
            shape = np.broadcast_shapes(*map(work.graph.shape, node.inputs[: number + 1]))
            name, result = f"{node.name}/{number}", work.tensor(f"{node.output}/{number}", TensorInfo(shape))
        yield Node("Add", name, (total, other), (result,), origins=node.origins)
        total = result


def _gemm(work: _Work, node: Node) -> Iterator[Node]:
    if node.attributes.get("transA", 0):
        raise node.unsupported("its left side is transposed (transA)")
    right = work.known(node, 1, "right side")
    if right is None or node.inputs[0] in work.graph.constants:
        raise node.unsupported("its left side is a constant")
    if right.ndim != 2:
        raise node.unsupported(f"its right side has {right.ndim} dimensions; 2 are supported")
    if len(work.graph.shape(node.inputs[0])) < 2:
        raise node.unsupported("its left side is a vector")
    matrix = right.T if node.attributes.get("transB", 0) else right
    depth = work.graph.shape(node.inputs[0])[-1]
    if not matrix.size or len(matrix) != depth:
        raise node.unsupported(f"its right side is {matrix.shape[0]}x{matrix.shape[1]}, rows of its left side {depth}")
    weight = work.constant(f"{node.inputs[1]}/matrix", matrix * np.float32(node.attributes.get("alpha", 1.0)))
    addend = node.inputs[2] if len(node.inputs) > 2 else ""
    beta = float(node.attributes.get("beta", 1.0))
    if not addend or beta == 0:
        yield Node("Gemm", node.name, (node.inputs[0], weight), node.outputs, origins=node.origins)
        return
    product = work.tensor(f"{node.output}/product", work.graph.tensors[node.output])
    yield Node("Gemm", node.name, (node.inputs[0], weight), (product,), origins=node.origins)
    if beta != 1 and addend in work.graph.constants:
        addend = work.constant(f"{addend}/beta", work.graph.constants[addend] * np.float32(beta))
    elif beta != 1:
        scaled = work.tensor(f"{addend}/beta", work.graph.tensors[addend])
        factor = work.constant(f"{node.output}/beta", beta)
        yield Node("Mul", f"{node.name}/beta", (addend, factor), (scaled,), origins=node.origins)
        addend = scaled
    yield Node("Add", f"{node.name}/add", (product, addend), node.outputs, origins=node.origins)


FORMS: dict[str, Callable[[_Work, Node], Iterator[Node]]] = {
    "BatchNormalization": _batch_normalization,
    "Clip": _clip,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Flatten": _reshape,
    "Gemm": _gemm,
    "MatMul": _gemm,
    "Reshape": _reshape,
    "Softmax": _softmax,
    "Squeeze": _reshape,
    "Sum": _sum,
    "Unsqueeze": _reshape,
}
ONE_FORM_OPS = frozenset(FORMS)
