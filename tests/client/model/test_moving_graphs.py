"""Compare random graphs of everything that moves elements, with convolutions among them, with onnxruntime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from gputune.client.model.importer import import_model
from gputune.client.model.lowering import lower
from gputune.client.model.reference import evaluate

LARGEST = 4000
"""Elements that a tensor may grow to."""

Shape = tuple[int, ...]


class Growing:
    """A model that grows by one node after the other; `value` and its `shape` are what the last one computes."""

    def __init__(self, shape: Shape) -> None:
        self.shape = self.input = shape
        self.value = "x"
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, op: str, shape: Shape, *known: Any, inputs: tuple[str, ...] = (), **attributes: Any) -> None:
        names = []
        for value in known:
            names.append(f"c{len(self.constants)}")
            self.constants.append(numpy_helper.from_array(np.asarray(value), names[-1]))
        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*(inputs or (self.value,)), *names], [output], **attributes))
        self.value, self.shape = output, shape

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            [*self.nodes, helper.make_node("Tanh", [self.value], ["y"])],
            "moving",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.input)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, self.shape)],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def transpose(draw: st.DrawFn, graph: Growing) -> None:
    order = draw(st.permutations(range(len(graph.shape))))
    graph.add("Transpose", tuple(graph.shape[axis] for axis in order), perm=order)


def slice_(draw: st.DrawFn, graph: Growing) -> None:
    axis = draw(st.integers(0, len(graph.shape) - 1))
    size = graph.shape[axis]
    first, step = draw(st.integers(0, size - 1)), draw(st.sampled_from([-2, -1, 1, 2, 3]))
    kept = range(first, size if step > 0 else -1, step)
    shape = (*graph.shape[:axis], len(kept), *graph.shape[axis + 1 :])
    graph.add("Slice", shape, [first], [size if step > 0 else -(2**31)], [axis], [step])


def pad(draw: st.DrawFn, graph: Growing) -> None:
    rank = len(graph.shape)
    mode = draw(st.sampled_from(["constant", "edge", "reflect", "wrap"]))
    sides = [[draw(st.integers(0, min(2, size - 1))) for size in graph.shape] for _ in range(2)]
    shape = tuple(size + sides[0][axis] + sides[1][axis] for axis, size in enumerate(graph.shape))
    graph.add("Pad", shape, np.array([*sides[0], *sides[1]]), mode=mode)
    assert rank == len(shape)


def tile(draw: st.DrawFn, graph: Growing) -> None:
    times = [draw(st.integers(1, 2)) for _ in graph.shape]
    graph.add("Tile", tuple(size * n for size, n in zip(graph.shape, times, strict=True)), np.array(times))


def expand(draw: st.DrawFn, graph: Growing) -> None:
    shape = tuple(draw(st.integers(1, 3)) if size == 1 else size for size in graph.shape)
    graph.add("Expand", shape, np.array(shape))


def reshape(draw: st.DrawFn, graph: Growing) -> None:
    """Puts two neighbouring axes together, takes one apart, or adds an axis of 1."""
    axis = draw(st.integers(0, len(graph.shape) - 1))
    before, size, behind = graph.shape[:axis], graph.shape[axis], graph.shape[axis + 1 :]
    divisor = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
    together = draw(st.booleans())
    shape: Shape
    if behind and together:
        shape = (*before, size * behind[0], *behind[1:])
    else:
        shape = (*before, divisor, size // divisor, *behind)
    graph.add("Reshape", shape, np.array(shape))


def split(draw: st.DrawFn, graph: Growing) -> None:
    axis = draw(st.integers(0, len(graph.shape) - 1))
    if (size := graph.shape[axis]) == 1:
        return
    first = draw(st.integers(1, size - 1))
    graph.add(
        "Split",
        (*graph.shape[:axis], size - first, *graph.shape[axis + 1 :]),
        np.array([first, size - first]),
        axis=axis,
    )
    graph.nodes[-1].output.insert(0, graph.value + "/first")
    if draw(st.booleans()):
        whole = (*graph.shape[:axis], size, *graph.shape[axis + 1 :])
        graph.add("Concat", whole, inputs=(graph.value, graph.value + "/first"), axis=axis)


def gather(draw: st.DrawFn, graph: Growing) -> None:
    axis = draw(st.integers(0, len(graph.shape) - 1))
    size = graph.shape[axis]
    indices = draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=4))
    graph.add("Gather", (*graph.shape[:axis], len(indices), *graph.shape[axis + 1 :]), np.array(indices), axis=axis)


def convolve(draw: st.DrawFn, graph: Growing) -> None:
    """So that maps lie in the device's order."""
    if len(graph.shape) == 4:
        filters = draw(st.integers(1, 4))
        weight = np.random.default_rng(filters).standard_normal((filters, graph.shape[1], 1, 1), dtype=np.float32)
        graph.add("Conv", (graph.shape[0], filters, *graph.shape[2:]), weight)


STEPS = (transpose, slice_, pad, tile, expand, reshape, split, gather, convolve, convolve)


@st.composite
def graphs(draw: st.DrawFn) -> Growing:
    graph = Growing(tuple(draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))))
    for _ in range(draw(st.integers(1, 7))):
        if np.prod(graph.shape) < LARGEST and len(graph.shape) < 6:
            draw(st.sampled_from(STEPS))(draw, graph)
    return graph


@pytest.mark.slow
@settings(max_examples=60)
@given(graphs())
def test_random_graphs_of_moves_agree_with_onnxruntime(graph: Growing) -> None:
    model = graph.model()
    given_ = {"x": np.random.default_rng(1).standard_normal(graph.input, dtype=np.float32)}
    plan = lower(import_model(model, Path("moving.onnx"), {}))
    (want,) = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, given_
    )
    got = evaluate(plan, given_)["y"]
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
