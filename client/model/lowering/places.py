"""Lower the operators in which an element's position decides its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops.gather import GatherProblem
from gputune.kernels.ops.move import move
from gputune.kernels.ops.scatter import along
from gputune.kernels.ops.typed import TypedProblem

MOST_PLACES = 1 << 24
"""Of a ReverseSequence: a table of them is computed on the host."""


def trilu(lowering: Lowering, node: Node) -> None:
    """Lower a triangle of each matrix; zeros are elsewhere."""
    shape, dtype = lowering.graph.shape(node.output), lowering.layouts.dtype(node.output)
    diagonal = lowering.value(node, 1, "diagonal")
    first = 0 if diagonal is None else int(diagonal.reshape(()))
    rows, columns = np.ogrid[: shape[-2], : shape[-1]]
    kept = columns - rows >= first if node.attributes.get("upper", 1) else columns - rows <= first
    problem = TypedProblem("where", shape, (kept.shape, shape, ()), ("bool", dtype, dtype), dtype)
    inputs = {
        "input0": lowering.layouts.constant(f"{node.output}/kept", kept),
        "input1": lowering.layouts.get(node.inputs[0], on_device=False),
        "input2": lowering.layouts.constant(f"{node.output}/zero", np.zeros((), dtype)),
    }
    lowering.run(node, "Typed", problem, inputs, on_device=False)


def eye_like(lowering: Lowering, node: Node) -> None:
    """Ones on a diagonal: a constant, which an output of a graph needs memory of its own for."""
    info = lowering.graph.tensors[node.output]
    rows, columns = info.shape
    eye = np.eye(rows, columns, int(node.attributes.get("k", 0)), info.dtype)
    problem = move(eye.size, 0, [Loop(eye.size, 1)], dtype=info.dtype)
    lowering.run(node, "Move", problem, {"input": lowering.layouts.constant(f"{node.output}/eye", eye)}, False)


def one_hot(lowering: Lowering, node: Node) -> None:
    """Everything is off, and then what indices point at is on."""
    layouts = lowering.layouts
    source, _, values = node.inputs
    shape, output = layouts.shape(source), layouts.shape(node.output)
    axis = int(node.attributes.get("axis", -1)) % len(output)
    outer, depth, inner = prod(output[:axis]), output[axis], prod(output[axis + 1 :])
    dtype, count = layouts.dtype(values), prod(shape)
    tensors = {}
    for which, (name, size) in enumerate((("data", prod(output)), ("updates", count))):  # off comes first
        tensors[name] = layouts.temporary(f"{node.output}/{name}", (size,), dtype)
        filled = move(2, which, [Loop(size, 0)], dtype=dtype)
        lowering.emit(node.name, "Move", filled, {"input": layouts.get(values, False)}, tensors[name], node.stands_for)
    tensors["indices"] = layouts.get(source, on_device=False)
    if (given := layouts.dtype(source)) != "int64":
        whole = layouts.temporary(f"{node.output}/indices", shape, "int64")
        cast = TypedProblem("cast", shape, (shape,), (given,), "int64")
        lowering.emit(node.name, "Typed", cast, {"input0": tensors["indices"]}, whole, node.stands_for)
        tensors["indices"] = whole
    problem = along((outer, depth, inner), (outer, 1, inner), 1, dtype=dtype)
    lowering.run(node, "Scatter", problem, tensors, on_device=False)


def reverse_sequence(lowering: Lowering, node: Node) -> None:
    """Lower a Gather with the places that the known lengths say."""
    layouts = lowering.layouts
    shape, dtype = layouts.shape(node.output), layouts.dtype(node.output)
    lengths = lowering.value(node, 1, "list of lengths")
    time, batch = int(node.attributes.get("time_axis", 0)), int(node.attributes.get("batch_axis", 1))
    if lengths is None or {time, batch} != {0, 1}:
        raise node.unsupported(f"its time and batch axes are {time} and {batch}; 0 and 1 are supported")
    if prod(shape[:2]) > MOST_PLACES:
        raise node.unsupported(f"its times and batches make {prod(shape[:2])} places; {MOST_PLACES} are supported")
    places = np.indices(shape[:2])
    length = lengths.reshape(-1)[places[batch]]
    indices = np.where(places[time] < length, length - 1 - places[time], places[time]).astype(np.int64)
    strides = (prod(shape[1:]), prod(shape[2:]))
    problem = GatherProblem(
        prod(shape), indices.size, shape[:2], tuple(0 if axis == time else strides[axis] for axis in (0, 1)),
        (shape[1], 1), (shape[time],), (strides[time],), strides[1], dtype=dtype,
    )  # fmt: skip
    inputs = {
        "input": layouts.get(node.inputs[0], on_device=False),
        "indices": layouts.constant(f"{node.output}/places", indices),
    }
    lowering.run(node, "Gather", problem, inputs, on_device=False)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    "EyeLike": eye_like,
    "OneHot": one_hot,
    "ReverseSequence": reverse_sequence,
    "Trilu": trilu,
}
