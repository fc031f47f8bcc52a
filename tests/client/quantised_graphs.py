"""Make up quantised models: operators in a row, between pairs of QuantizeLinear and DequantizeLinear."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.client.models import Array

TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}


class QuantisedMaker:
    """A model of a picture, drawn by a seed. bytes: the quantised tensors, in order, which are all outputs; input: a
    value of its input."""

    def __init__(self, seed: int, nodes: int = 8) -> None:
        self._random, self._numbers = random.Random(seed), np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.bytes: list[str] = []
        shape = (self._random.choice([1, 2]), self._random.choice([3, 8, 12]), *self._random.sample([5, 6, 8, 9], 2))
        self.input = self._numbers.standard_normal(shape).astype(np.float32)
        last = self._pair(self._have("x", shape))
        for _ in range(nodes):
            last = self._random.choice(STEPS)(self, last)
            if self._random.random() < 0.7:
                last = self._pair(last)
        last = self._pair(last)
        graph = helper.make_graph(
            self._nodes,
            "made_up",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_empty_tensor_value_info(name) for name in (*self.bytes, last)],
            self._weights,
        )
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    def _have(self, name: str, shape: tuple[int, ...]) -> str:
        self._shapes[name] = shape
        return name

    def _weight(self, value: Array) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(value, name))
        return name

    def _node(self, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return self._have(name, shape)

    def _pair(self, value: str) -> str:
        """Quantise and dequantise a tensor, mostly alike."""
        dtype = self._random.choice(["uint8", "int8"])
        zero = self._random.randrange(100, 150) - (128 if dtype == "int8" else 0)
        scale = self._weight(np.array(self._random.uniform(0.02, 0.06), np.float32))
        point = self._weight(np.array(zero, dtype))
        byte = self._node("QuantizeLinear", [value, scale, point], self._shapes[value])
        self.bytes.append(byte)
        other = scale if self._random.random() < 0.8 else self._weight(np.array(0.05, np.float32))
        return self._node("DequantizeLinear", [byte, other, point], self._shapes[value])

    def _dequantised(self, *shape: int, axis: int) -> str:
        """Return a weight of int8 or uint8 whose sums keep their size."""
        channels = self._random.random() < 0.5
        count, fan_in = shape[axis], np.prod(shape) / shape[axis]
        scale = (self._numbers.uniform(0.5, 1.5, count if channels else 1) / 70 / np.sqrt(fan_in)).astype(np.float32)
        dtype = self._random.choice(["uint8", "int8"])
        value = self._numbers.integers(-127, 128, shape) + (0 if dtype == "int8" else 128)
        zero = np.full(count if channels else 1, 0 if dtype == "int8" else 128)
        parameters = [scale, zero.astype(dtype)]
        alike = parameters if channels else [each.reshape(()) for each in parameters]
        inputs = [self._weight(each) for each in (value.astype(dtype), *alike)]
        return self._node("DequantizeLinear", inputs, shape, axis=axis)

    def conv(self, value: str) -> str:
        batch, channels, height, width = self._shapes[value]
        side, groups = self._random.choice([(1, 1), (3, 1), (3, channels)])
        filters = channels if groups > 1 else self._random.choice([8, 11, 16])
        inputs = [value, self._dequantised(filters, channels // groups, side, side, axis=0)]
        if self._random.random() < 0.5:
            inputs.append(self._weight(self._numbers.standard_normal(filters).astype(np.float32)))
        pads = [side // 2] * 4
        return self._node("Conv", inputs, (batch, filters, height, width), group=groups, pads=pads)

    def matmul(self, value: str) -> str:
        *rest, width = self._shapes[value]
        columns = self._random.choice([5, 9])
        return self._node("MatMul", [value, self._dequantised(width, columns, axis=1)], (*rest, columns))

    def square(self, value: str) -> str:
        batch, channels, height, width = self._shapes[value]
        turned = self._node("Transpose", [value], (batch, channels, width, height), perm=[0, 1, 3, 2])
        return self._pair(self._node("MatMul", [value, turned], (batch, channels, height, height)))

    def pool(self, value: str) -> str:
        op = self._random.choice(["MaxPool", "AveragePool"])
        options = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        return self._node(op, [value], self._shapes[value], **options)

    def activation(self, value: str) -> str:
        return self._node(self._random.choice(["Relu", "Sigmoid", "Tanh"]), [value], self._shapes[value])

    def residual(self, value: str) -> str:
        known = [name for name, shape in self._shapes.items() if shape == self._shapes[value] and name[0] in "tx"]
        others = [name for name in known if name not in self.bytes]
        return self._node(
            self._random.choice(["Add", "Mul"]), [value, self._random.choice(others)], self._shapes[value]
        )

    def turn(self, value: str) -> str:
        a, b, c, d = self._shapes[value]
        return self._node("Transpose", [value], (a, b, d, c), perm=[0, 1, 3, 2])

    def join(self, value: str) -> str:
        a, b, c, d = self._shapes[value]
        return self._node("Concat", [value, value], (a, 2 * b, c, d), axis=1) if b < 16 else value


STEPS: list[Callable[[QuantisedMaker, str], str]] = [
    QuantisedMaker.conv, QuantisedMaker.conv, QuantisedMaker.matmul, QuantisedMaker.square, QuantisedMaker.pool,
    QuantisedMaker.activation, QuantisedMaker.residual, QuantisedMaker.turn, QuantisedMaker.join,
]  # fmt: skip
