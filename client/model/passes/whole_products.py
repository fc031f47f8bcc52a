"""Write products of whole numbers in float32, which is exact while no sum reaches 2 ** 24.

A product whose sums may be larger is cut along what is summed up, into as few runs as keep it so. The sum of two runs
is rounded once as a sum of floats, like an integer that becomes one; more runs are added as integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gputune.client.model.graph import WHOLE_SUM, Array, Node, Scaled, TensorInfo
from gputune.client.model.passes.additions import Work
from gputune.core.dtypes import FLOAT

LIMIT = 2**24
"""Up to here float32 has all whole numbers."""


@dataclass(frozen=True)
class Factor:
    """Hold one side of a product: a float32 tensor of whole numbers up to `most`, or such numbers that are known.
    `scales` make numbers of them: one, or one along each axis."""

    numbers: str | Array
    most: int
    scales: Array


def output_scales(work: Work, node: Node, left: Factor, right: Factor) -> Array | None:
    """Return what sums of products are multiplied with, so that it broadcasts to the output; None where scales differ
    within a sum."""
    scales = right.scales
    if left.scales.size > 1:
        return None
    if scales.size > 1:
        axis = {"Conv": 0, "Gemm": 0 if node.attributes.get("transB", 0) else 1}.get(node.op, scales.ndim - 1)
        if scales.size != scales.shape[axis]:
            return None
        spatial = len(work.graph.shape(node.output)) - 2 if node.op.startswith("Conv") else 0
        scales = scales.reshape(-1, *[1] * spatial)
    else:
        scales = scales.reshape(())
    return np.asarray(np.float32(left.scales.reshape(())) * scales.astype(np.float32), np.float32)


def whole_product(work: Work, node: Node, left: Factor, right: Factor, bias: Array | None = None) -> tuple[str, str]:
    """Append a Conv, Gemm or MatMul of whole numbers. Return the tensor of its sums, each as the float32 next to it,
    and that of the integers where float32 does not have them all, else "". bias: whole numbers. Raises UnsupportedNodes
    where nothing can be cut."""
    costs = _costs(work, node, left, right)
    added = 0.0 if bias is None else float(np.abs(bias).max(initial=0))
    if costs.sum(0).max() + added < LIMIT:
        return _product(work, node, (left, right), bias, f"{node.output}/sum"), ""
    if int(node.attributes.get("group", 1)) > 1 or costs.max() >= LIMIT:
        raise node.unsupported(f"its sums of quantised numbers may reach {int(costs.sum(0).max() + added)}")
    room = costs[0].max() + added < LIMIT
    return _in_runs(work, node, (left, right), list(_runs(costs, added * room)), bias, room)


def _axes(work: Work, node: Node) -> tuple[int, int]:
    """Return the axes of both inputs along which a product adds up."""
    if node.op == "Conv":
        return 1, 1
    left, right = (len(work.info(name).shape) for name in node.inputs[:2])
    if node.op == "Gemm":
        return 0 if node.attributes.get("transA", 0) else 1, 1 if node.attributes.get("transB", 0) else 0
    return left - 1, max(right - 2, 0)


def _costs(work: Work, node: Node, left: Factor, right: Factor) -> Array:
    """Return by how much each step along what is summed up may make a sum larger. [step, several sums]"""
    axes = _axes(work, node)
    for side, other, axis in ((right, left, axes[1]), (left, right, axes[0])):
        if isinstance(side.numbers, np.ndarray):
            known = np.moveaxis(np.abs(side.numbers.astype(np.int64)), axis, 0)
            if node.op == "Conv":  # of each filter all taps
                known = known.reshape(*known.shape[:2], -1).sum(2)
            return known.reshape(len(known), -1).astype(np.float64) * other.most
    return np.full((work.info(node.inputs[0]).shape[axes[0]], 1), float(left.most * right.most))


def _runs(costs: Array, added: float) -> Iterator[tuple[int, int]]:
    """Yield the first step of each run and the one behind it. added: by how much a bias may make the first one
    larger."""
    start, total = 0, np.full(costs.shape[1], added)
    for step, cost in enumerate(costs):
        if (total + cost).max() >= LIMIT:
            yield start, step
            start, total = step, np.zeros_like(total)
        total = total + cost
    yield start, len(costs)


def _tensor(work: Work, node: Node, index: int, numbers: str | Array) -> str:
    if isinstance(numbers, str):
        return numbers
    return work.constant(f"{node.inputs[index]}/whole", numbers, Scaled(numbers.astype(np.int16)))


def _product(work: Work, node: Node, sides: tuple[Factor, Factor], bias: Array | None, wanted: str) -> str:
    """Append a product whose sums float32 has."""
    inputs = [_tensor(work, node, index, side.numbers) for index, side in enumerate(sides)]
    if bias is not None:
        inputs.append(work.constant(f"{node.name}/whole_bias", bias))
    info = TensorInfo(work.info(node.output).shape)
    product, total = work.tensor(f"{wanted}/product", info), work.tensor(wanted, info)
    work.nodes.append(
        Node(node.op, wanted, tuple(inputs), (product,), node.attributes, origins=node.origins),
    )
    work.nodes.append(Node(WHOLE_SUM, f"{wanted}/whole", (product,), (total,), origins=node.origins))
    return total


def _in_runs(
    work: Work, node: Node, sides: tuple[Factor, Factor], runs: list[tuple[int, int]], bias: Array | None, room: bool
) -> tuple[str, str]:
    """Append all runs. room: whether the first one has room for the bias, which else is a term of its own."""
    shape, terms = work.info(node.output).shape, []
    for number, run in enumerate(runs):
        parts = [
            Factor(_part(work, node, index, side.numbers, axis, *run), side.most, side.scales)
            for index, (side, axis) in enumerate(zip(sides, _axes(work, node), strict=True))
        ]
        added = bias if room and number == 0 else None
        terms.append(_product(work, node, (parts[0], parts[1]), added, f"{node.output}/run{number}"))

    def join(op: str, inputs: tuple[str, ...], wanted: str, dtype: str) -> str:
        result = work.tensor(wanted, TensorInfo(shape, dtype))
        work.nodes.append(Node(op, result, inputs, (result,), origins=node.origins))
        return result

    integers = "" if room or bias is None else work.exact(f"{node.name}/whole_bias", _over(node, bias, len(shape)))
    for term in terms:
        whole = join("Cast", (term,), f"{term}/int", "int32")
        integers = join("Add", (integers, whole), f"{term}/total", "int32") if integers else whole
    if len(terms) == 2 and (room or bias is None):
        return join("Add", (terms[0], terms[1]), f"{node.output}/sum", FLOAT), integers
    return join("Cast", (integers,), f"{node.output}/sum", FLOAT), integers


def _over(node: Node, bias: Array, rank: int) -> Array:
    """Return a bias that broadcasts to the output."""
    shape = (-1, *[1] * (rank - 2)) if node.op == "Conv" else bias.shape
    return bias.astype(np.int32).reshape(shape)


def _part(work: Work, node: Node, index: int, numbers: str | Array, axis: int, start: int, end: int) -> str:
    """Return a part of a factor along an axis."""
    if isinstance(numbers, np.ndarray):
        return _tensor(work, node, index, numbers.take(range(start, end), axis))
    shape = list(work.info(numbers).shape)
    shape[axis] = end - start
    taken = work.tensor(f"{numbers}/{start}", TensorInfo(tuple(shape)))
    bounds = [
        work.exact(f"{taken}/{what}", np.array([value], np.int64))
        for what, value in (("start", start), ("end", end), ("axis", axis))
    ]
    work.nodes.append(Node("Slice", taken, (numbers, *bounds), (taken,), origins=node.origins))
    return taken
