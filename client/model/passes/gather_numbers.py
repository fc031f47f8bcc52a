"""Gather rows of a table that is whole numbers with scales as numbers, and scale what was gathered.

So the table stays as short as it is in the model: bytes, or pairs of 4 bits, of which a byte has a number of the row's
first half and one of its second half. The same float32 numbers come out, as they are computed alike.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gputune.client.model.graph import Array, Graph, Node, Scaled, TensorInfo
from gputune.client.model.passes.additions import Work

LEAST_ELEMENTS = 1 << 16
"""What tables of fewer elements save is not worth the launches that follow the gather."""


def gather_numbers(graph: Graph) -> Graph:
    """Return the same graph with short tables."""
    work = Work(graph)
    for node in graph.nodes:
        table = graph.scaled.get(node.inputs[0]) if node.op == "Gather" else None
        if table is not None and _is_short(node, table):
            _take(work, node, table)
        else:
            work.nodes.append(node)
    return graph.rewritten(work.nodes, work.constants, work.tensors)


def _is_short(node: Node, table: Scaled) -> bool:
    """Return whether rows of a table can be scaled by themselves, and are gathered."""
    numbers, block = table.numbers, table.block
    if numbers.ndim != 2 or numbers.size < LEAST_ELEMENTS or int(node.attributes.get("axis", 0)) % 2:
        return False
    if numbers.dtype not in (np.int8, np.uint8):
        return False
    if block > 1:
        return table.axis == 1 and numbers.shape[1] % block == 0
    return all(each is None or 1 in each.shape for each in (table.scales, table.zeros))


def _take(work: Work, node: Node, table: Scaled) -> None:
    indices, result = node.inputs[1], node.output
    (_, columns), shape = table.numbers.shape, work.info(result).shape
    blocks = columns // table.block if table.block > 1 else 1
    apart = (*shape[:-1], blocks, columns // blocks) if blocks > 1 else shape

    def new(op: str, inputs: tuple[str, ...], shape: tuple[int, ...], dtype: str = "float32", **more: object) -> str:
        output = work.tensor(f"{result}/numbers", TensorInfo(shape, dtype))
        work.nodes.append(Node(op, output, inputs, (output,), more, origins=node.origins))
        return output

    def rows(what: str, values: Array) -> str:
        dtype = str(values.dtype)
        known = work.exact(f"{node.inputs[0]}/{what}", values)
        return new("Gather", (known, indices), (*shape[:-1], values.shape[1]), dtype, axis=0)

    def beside(what: str, values: Array) -> str:
        """Return scales or zero points as they broadcast to the numbers."""
        if len(values) == 1:
            return work.constant(f"{node.inputs[0]}/{what}", values)
        gathered = rows(what, values.astype(np.float32))
        return new("Reshape", (gathered,), (*shape[:-1], blocks, 1)) if blocks > 1 else gathered

    numbers, zeros = _halves(work, new, rows, table, shape)
    value = new("Cast", (numbers,), shape)
    if blocks > 1:
        value = new("Reshape", (value,), apart)
    if zeros is not None:
        value = new("Sub", (value, beside("zeros", zeros)), apart)
    if table.scales is not None:
        value = new("Mul", (value, beside("scales", table.scales)), apart)
    op = "Reshape" if blocks > 1 else "Identity"
    work.nodes.append(Node(op, node.name, (value,), node.outputs, origins=node.origins))


def _halves(
    work: Work, new: Callable[..., str], rows: Callable[[str, Array], str], table: Scaled, shape: tuple[int, ...]
) -> tuple[str, Array | None]:
    """Append what gathers numbers, from a table of pairs if 4 bits are enough for them. Return their tensor, and the
    zero points to take away."""
    numbers, zeros, (_, columns) = table.numbers, table.zeros, table.numbers.shape
    low, high = int(numbers.min()), int(numbers.max())
    moved = 0 if low >= 0 and high < 16 else -8 if low >= -8 and high < 8 else low
    if high - moved >= 16 or columns % 2:
        return rows("rows", numbers), zeros
    bits = (numbers.astype(np.int16) - moved).astype(np.uint8)
    pairs = rows("pairs", bits[:, : columns // 2] | bits[:, columns // 2 :] << 4)
    half = (*shape[:-1], columns // 2)
    first = new("BitwiseAnd", (pairs, work.exact("pairs/lower", np.array(15, np.uint8))), half, "uint8")
    four = work.exact("pairs/upper", np.array(4, np.uint8))
    second = new("BitShift", (pairs, four), half, "uint8", direction="RIGHT")
    whole = new("Concat", (first, second), shape, "uint8", axis=len(shape) - 1)
    if moved:
        zeros = (np.zeros((1, 1), np.int64) if zeros is None else zeros) - moved
    return whole, zeros
