"""Provide what operators that move elements have in common: turn loops over axes into a Move, or into a view.

For each axis of its output, an operator says which axes of its input it follows. This module finds the order in which
both lie in memory, so that moving a map needs no conversion before or after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.passes.fuse_elementwise import POOLING
from gputune.kernels.chain import EMPTY
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops.move import MoveProblem, move
from gputune.kernels.ops.transpose import TransposeProblem

READ_AS_MAPS = POOLING | {"Conv", "ConvTranspose", "Resize"}
READ_IN_ONNX_ORDER = frozenset(("Gemm", "MatMul", "Reshape"))


@dataclass(frozen=True)
class Along:
    """One loop over an output: `size` elements along an axis of the input, `step` positions apart.

    With no axis the same is repeated. `before` positions come before the axis' first, and `extent` of its positions
    are no border; where none is given all are read.
    """

    size: int
    axis: int | None
    step: int = 1
    before: int = 0
    extent: int = -1


@dataclass(frozen=True)
class Border:
    """What lies beside the extents: see MoveProblem."""

    kind: str = "constant"
    fill: float = 0


PLAIN = Border()


def rearrange(
    lowering: Lowering,
    node: Node,
    axes: Sequence[Sequence[Along]],
    starts: Mapping[int, int] | None = None,
    border: Border = PLAIN,
    output: str = "",
) -> None:
    """Make an output of a node out of its first input: the loops of each output axis, outermost first.

    `starts` says at which position of an input axis the output begins. Where the elements need not move, the output is
    a view.
    """
    output = output or node.output
    layouts = lowering.layouts
    source = node.inputs[0]
    lies = layouts.lies_on_device(source)
    shape = lowering.graph.shape(source)
    steps, step = {}, 1
    for axis in reversed(layouts.order(source, lies)):
        steps[axis] = step
        step *= shape[axis]
    start = sum(first * steps[axis] for axis, first in (starts or {}).items())
    chain, operands = (node.chain, node.operands) if output == node.output else (EMPTY, ())

    def problem(on_device: bool) -> MoveProblem:
        loops = [
            Loop(each.size, 0 if each.axis is None else each.step * steps[each.axis], each.before, each.extent)
            for axis in layouts.order(output, on_device)
            for each in axes[axis]
        ]
        return move(prod(shape), start, loops, border.kind, border.fill, chain, layouts.dtype(output))

    tensor = layouts.get(source, lies)
    wanted = _wanted_on_device(lowering, output, lies)
    moved = problem(wanted)
    if not moved.is_copy and (other := problem(not wanted)).is_copy:
        wanted, moved = not wanted, other
    if moved.is_copy and not chain.steps:
        layouts.view(output, wanted, tensor)
        return
    inputs = {"input": tensor, **{f"operand{k}": layouts.get(name, wanted) for k, name in enumerate(operands)}}
    turned = _as_matrices(moved)
    target = layouts.define(output, wanted)
    lowering.emit(node.name, "Transpose" if turned else "Move", turned or moved, inputs, target, node.stands_for)


def _wanted_on_device(lowering: Lowering, tensor: str, lies: bool) -> bool:
    """In which order the readers of a tensor want it; where they do not care, as its elements lie already."""
    nodes = [node for node in lowering.graph.nodes if tensor in node.reads]
    readers = {"Conv" if node.output in lowering.joined else node.op for node in nodes}
    if readers & READ_AS_MAPS:
        return True
    return lies and tensor not in lowering.graph.outputs and not (readers and readers <= READ_IN_ONNX_ORDER)


def _as_matrices(problem: MoveProblem) -> TransposeProblem | None:
    """Return the same move as matrices that are turned one by one, None where it is none."""
    *batch, columns, rows = (1, 1, *problem.sizes)[-3:]
    loops = [Loop(size, step) for size, step in zip((*batch, columns, rows), (rows * columns, 1, columns), strict=True)]
    turned = move(prod(problem.sizes), 0, loops, dtype=problem.dtype)
    if len(problem.sizes) > 3 or min(rows, columns) == 1 or turned != problem:
        return None
    return TransposeProblem(batch[0], rows, 1, columns, "NCHW", "NHWC", problem.dtype)
