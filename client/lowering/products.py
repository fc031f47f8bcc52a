"""Lowering of matrix products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gputune.client.graph import Node
from gputune.kernels.ops.matmul import MatMulProblem

if TYPE_CHECKING:  # operators.py has the table that names these functions
    from gputune.client.lowering.lowering import Lowering


def gemm(lowering: Lowering, node: Node) -> None:
    weight, bias = lowering.constant(node, 1, "right side"), lowering.constant(node, 2, "bias")
    depth, columns = lowering.graph.shape(node.inputs[1])
    rows = lowering.graph.tensors[node.output].size // columns
    inputs = {"a": lowering.layouts.get(node.inputs[0], on_device=False), "b": weight}
    problem = MatMulProblem(rows, depth, columns, bool(bias), node.chain)
    lowering.run(node, "MatMul", problem, {**inputs, "bias": bias} if bias else inputs, on_device=False)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "Gemm": gemm,
}
