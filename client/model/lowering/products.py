"""Lower matrix products and contractions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gputune.client.model.graph import Node
from gputune.client.model.lowering.contraction import product_of, reading_of
from gputune.client.model.lowering.emitting import Lowering
from gputune.kernels.ops.matmul import MatMulProblem


def gemm(lowering: Lowering, node: Node) -> None:
    weight, bias = lowering.constant(node, 1, "right side"), lowering.constant(node, 2, "bias")
    depth, columns = lowering.graph.shape(node.inputs[1])
    rows = lowering.graph.tensors[node.output].size // columns
    quantised, kept = lowering.quantised_matrix(node.inputs[1])
    inputs = {"a": lowering.layouts.get(node.inputs[0], on_device=False), **(kept or {"b": weight})}
    problem = MatMulProblem(rows, depth, columns, bool(bias), node.chain, quantised=quantised)
    lowering.run(node, "MatMul", problem, {**inputs, "bias": bias} if bias else inputs, on_device=False)


def einsum(lowering: Lowering, node: Node) -> None:
    """Lower a contraction of two tensors, each read in the order in which it lies, into the model's order."""
    layouts, shape_of = lowering.layouts, lowering.graph.shape
    inputs, result = node.attributes["equation"].split("->")
    parts = node.attributes.get("parts") or [tuple((0, size) for size in shape_of(name)) for name in node.inputs]
    sizes: dict[str, int] = {}
    tensors, sources = [], []
    for name, letters, part in zip(node.inputs, inputs.split(","), parts, strict=True):
        for letter, (_, size) in zip(letters, part, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
        on_device = layouts.lies_on_device(name)
        tensors.append(reading_of(letters, shape_of(name), layouts.order(name, on_device), part))
        sources.append(layouts.get(name, on_device))
    for name in (node.output, *node.operands):
        shape = shape_of(name)
        own = shape_of(node.output)[-len(shape) :] if shape else ()
        if len(own) < len(shape) or any(size not in (1, whole) for size, whole in zip(shape, own, strict=True)):
            raise ValueError(f"an input of shape {shape} does not broadcast to {shape_of(node.output)}")
        tensors.append(reading_of(result[len(result) - len(shape) :], shape, range(len(shape))))
    product = product_of(sizes, tensors, node.chain)
    a, b = sources if product.a_is_left else reversed(sources)
    lowering.run(node, "MatMul", product.problem, {"a": a, "b": b}, on_device=False)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Einsum": einsum,
    "Gemm": gemm,
}
