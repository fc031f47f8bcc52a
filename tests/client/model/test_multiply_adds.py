"""Test how the work of nodes is counted when a model is cut."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from gputune.client.model.graph import Node, TensorInfo
from gputune.client.model.importer.multiply_adds import _COUNTS, multiply_adds

Shape = tuple[int, ...]
Attributes = Mapping[str, Any]
ONE: Shape = ()
"""A scale or a zero point."""


def computed(op: str, shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, int]:
    """The shape that onnxruntime computes, and the multiply-adds: of ones, each adds one to the sum of all numbers."""
    names = [f"x{place}" for place in range(len(shapes))]
    inputs = [
        helper.make_tensor_value_info(*each) for each in zip(names, [TensorProto.FLOAT] * 9, shapes, strict=False)
    ]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {name: np.ones(shape, np.float32) for name, shape in zip(names, shapes, strict=True)}
    (found,) = session.run(None, feeds)
    return found.shape, int(found.sum())


def counted(op: str, shapes: Sequence[Shape | None], attributes: Attributes, result: Shape) -> int:
    """shapes: of inputs, None if one is absent."""
    inputs = tuple("" if shape is None else f"x{place}" for place, shape in enumerate(shapes))
    tensors = {name: TensorInfo(shape) for name, shape in zip(inputs, shapes, strict=True) if shape is not None}
    return multiply_adds(Node(op, "n", inputs, ("y",), attributes), tensors | {"y": TensorInfo(result)})


CONVOLUTIONS: list[tuple[Shape, Shape, Attributes]] = [
    ((1, 3, 7, 5), (4, 3, 3, 2), {}),
    ((2, 6, 7, 5), (4, 3, 2, 3), {"group": 2, "strides": [2, 1]}),
    ((1, 5, 9, 4), (10, 1, 3, 1), {"group": 5, "dilations": [2, 1]}),
    ((3, 4, 11), (6, 2, 5), {"group": 2, "strides": [3]}),
    ((1, 2, 4, 3, 5), (3, 2, 2, 1, 3), {}),
]
TURNED: list[tuple[Shape, Shape, Attributes]] = [
    ((1, 3, 4, 5), (3, 4, 3, 2), {}),
    ((2, 6, 3, 5), (6, 2, 2, 3), {"group": 2, "strides": [2, 3]}),
    ((1, 5, 4, 3), (5, 1, 3, 1), {"group": 5, "output_padding": [1, 0], "strides": [2, 1]}),
    ((3, 4, 7), (4, 3, 5), {"group": 2, "dilations": [2]}),
]
PRODUCTS: list[tuple[Shape, Shape]] = [
    ((3, 7), (7, 5)),
    ((7,), (7, 5)),
    ((3, 7), (7,)),
    ((2, 1, 3, 7), (4, 7, 5)),
    ((2, 3, 7), (7, 5)),
]
TESTED: dict[str, set[str]] = {
    "convolutions": {"Conv", "ConvInteger", "FusedConv", "NhwcFusedConv", "QLinearConv"},
    "turned": {"ConvTranspose"},
    "products": {"MatMul", "MatMulInteger", "FusedMatMul", "DynamicQuantizeMatMul", "QLinearMatMul",
                 "MatMulIntegerToFloat", "MatMulInteger16"},
    "transposed": {"Gemm", "FusedGemm", "QGemm", "FusedMatMul"},
    "narrow": {"MatMulNBits", "MatMulBnb4"},
    "recurrent": {"LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"},
    "attention": {"QAttention"},
    "sums": {"Einsum"},
}  # fmt: skip


def test_every_operator_is_counted_against_a_computation() -> None:
    assert set().union(*TESTED.values()) == set(_COUNTS)


@pytest.mark.parametrize(("x", "w", "attributes"), CONVOLUTIONS)
def test_convolutions(x: Shape, w: Shape, attributes: Attributes) -> None:
    shape, right = computed("Conv", [x, w], attributes)
    for op in TESTED["convolutions"]:
        inputs = [x, ONE, ONE, w, ONE, ONE, ONE, ONE] if op == "QLinearConv" else [x, w]
        assert counted(f"com.microsoft.{op}", inputs, attributes, shape) == right, op


@pytest.mark.parametrize(("x", "w", "attributes"), TURNED)
def test_turned_convolutions(x: Shape, w: Shape, attributes: Attributes) -> None:
    shape, right = computed("ConvTranspose", [x, w], attributes)
    assert counted("ConvTranspose", [x, w], attributes, shape) == right


@pytest.mark.parametrize(("a", "b"), PRODUCTS)
def test_products(a: Shape, b: Shape) -> None:
    shape, right = computed("MatMul", [a, b], {})
    for op in TESTED["products"]:
        inputs = [a, ONE, ONE, b, ONE, ONE, ONE, ONE] if op == "QLinearMatMul" else [a, b]
        assert counted(op, inputs, {}, shape) == right, op


@pytest.mark.parametrize(("left", "right"), list(product((0, 1), repeat=2)))
def test_products_of_transposed_matrices(left: int, right: int) -> None:
    shapes, attributes = [(7, 3) if left else (3, 7), (5, 7) if right else (7, 5)], {"transA": left, "transB": right}
    shape, wanted = computed("Gemm", shapes, attributes)
    for op in TESTED["transposed"]:
        inputs = [shapes[0], ONE, ONE, shapes[1], ONE, ONE] if op == "QGemm" else shapes
        assert counted(op, inputs, attributes, shape) == wanted, op


@pytest.mark.parametrize("lines", [(3,), (2, 3), (2, 1, 3)])
def test_products_with_weights_of_a_few_bits(lines: Shape) -> None:
    """Whose shapes say neither K nor N."""
    shape, right = computed("MatMul", [(*lines, 40), (40, 5)], {})
    for op in TESTED["narrow"]:
        assert counted(op, [(*lines, 40), (5, 2, 16), (10,)], {"K": 40, "N": 5}, shape) == right, op


@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_networks(directions: int) -> None:
    """In each step, each gate multiplies the input and the state by a matrix, for each line and direction."""
    steps, lines, width, hidden = 5, 3, 7, 4
    for op in TESTED["recurrent"]:
        gates = {"GRU": 3, "RNN": 1}.get(op, 4)
        one = computed("MatMul", [(lines, width), (width, hidden)], {})[1]
        one += computed("MatMul", [(lines, hidden), (hidden, hidden)], {})[1]
        w, r = (directions, gates * hidden, width), (directions, gates * hidden, hidden)
        if op == "DynamicQuantizeLSTM":
            w, r = (w[0], w[2], w[1]), (r[0], r[2], r[1])
        shapes = [(steps, lines, width), w, r, None]
        found = counted(op, shapes, {"hidden_size": hidden}, (steps, directions, lines, hidden))
        assert found == steps * directions * gates * one, op


@pytest.mark.parametrize("heads", [1, 3])
def test_attention(heads: int) -> None:
    """One product makes queries, keys and values; then each head multiplies two pairs of matrices."""
    lines, tokens, width, inner = 2, 5, 7, 6
    right = computed("MatMul", [(lines * tokens, width), (width, 3 * inner)], {})[1]
    right += (
        2 * computed("MatMul", [(lines, heads, tokens, inner // heads), (lines, heads, inner // heads, tokens)], {})[1]
    )
    shapes = [(lines, tokens, width), (width, 3 * inner), (3 * inner,), ONE, ONE]
    assert counted("com.microsoft.QAttention", shapes, {"num_heads": heads}, (lines, tokens, inner)) == right


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ab,bc->ac", [(3, 7), (7, 5)]), ("bij, bkj -> bki", [(2, 3, 7), (2, 5, 7)]), ("i,j->ij", [(3,), (4,)])],
)
def test_sums_by_letters(equation: str, shapes: list[Shape]) -> None:
    shape, right = computed("Einsum", shapes, {"equation": equation})
    assert counted("Einsum", shapes, {"equation": equation}, shape) == right


def test_what_is_not_known_counts_nothing() -> None:
    assert counted("Relu", [(3, 7)], {}, (3, 7)) == 0
    assert counted("Conv", [(1, 3, 7, 5)], {}, (1, 4, 5, 4)) == 0
    assert multiply_adds(Node("MatMul", "n", ("a", "b"), ("y",)), {"a": TensorInfo((3, 7))}) == 0
