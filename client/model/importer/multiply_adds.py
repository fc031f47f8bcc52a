"""Count the multiply-adds of a node, whether it runs on the device or not."""

import math
from collections.abc import Callable, Mapping, Sequence

from gputune.client.model.graph import Node, TensorInfo

Shapes = Sequence[tuple[int, ...]]
"""The shapes of a node's inputs in order; () if an input is absent."""


def multiply_adds(node: Node, tensors: Mapping[str, TensorInfo]) -> int:
    """Return the multiply-adds of a node's convolutions and products; 0 for other operators, and where shapes are not
    known."""
    op = node.op.rpartition(".")[2]
    count = _COUNTS.get(op)
    first = node.outputs[0] if node.outputs else ""
    if count is None or first not in tensors or any(name not in tensors for name in node.inputs if name):
        return 0
    inputs = [tensors[name].shape if name else () for name in node.inputs]
    try:
        return count(node, inputs, tensors[first].size)
    except IndexError:  # fewer inputs or dimensions than the operator has
        return 0


def _convolution(weights: int) -> Callable[[Node, Shapes, int], int]:
    """weights: which input they are; they have (outputs, inputs of a group, lines, columns...)."""
    return lambda node, inputs, size: size * math.prod(inputs[weights][1:])


def _turned_convolution(node: Node, inputs: Shapes, size: int) -> int:
    return math.prod(inputs[0]) * math.prod(inputs[1][1:])


def _product(left: int = 0) -> Callable[[Node, Shapes, int], int]:
    """left: which input the left matrix is."""

    def count(node: Node, inputs: Shapes, size: int) -> int:
        turned = node.attributes.get("transA", 0)
        return size * inputs[left][-2 if turned else -1]

    return count


def _narrow_product(node: Node, inputs: Shapes, size: int) -> int:
    return size * int(node.attributes.get("K", 0))


def _steps(node: Node, inputs: Shapes, size: int) -> int:
    """Return the multiply-adds of a recurrent network: each step of each line is multiplied by both of its matrices."""
    steps, lines = inputs[0][:2]
    return steps * lines * (math.prod(inputs[1]) + math.prod(inputs[2]))


def _projection(node: Node, inputs: Shapes, size: int) -> int:
    """Attention of onnxruntime: one product for queries, keys and values, and two between tokens."""
    lines, tokens, _ = inputs[0]
    return math.prod(inputs[0][:2]) * math.prod(inputs[1]) + 2 * lines * tokens * tokens * (inputs[1][1] // 3)


def _einsum(node: Node, inputs: Shapes, size: int) -> int:
    """As many as the sizes of all letters multiplied, if each dimension has a letter."""
    terms = str(node.attributes.get("equation", "")).replace(" ", "").partition("->")[0].split(",")
    sizes = {
        letter: size
        for term, shape in zip(terms, inputs, strict=False)
        for letter, size in zip(term, shape, strict=False)
    }
    return math.prod(sizes.values())


_COUNTS: Mapping[str, Callable[[Node, Shapes, int], int]] = {
    **dict.fromkeys(("Conv", "ConvInteger", "FusedConv", "NhwcFusedConv"), _convolution(1)),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _turned_convolution,
    **dict.fromkeys(
        ("MatMul", "Gemm", "MatMulInteger", "FusedMatMul", "FusedGemm", "DynamicQuantizeMatMul", "QLinearMatMul",
         "QGemm", "MatMulIntegerToFloat", "MatMulInteger16"),
        _product(),
    ),
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4"), _narrow_product),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _steps),
    **dict.fromkeys(("QAttention",), _projection),
    "Einsum": _einsum,
}  # fmt: skip
"""By operator, whatever its domain."""
