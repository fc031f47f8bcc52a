"""Make random products by weights of a few bits: in blocks or not, of odd sizes, with zero points and without."""

import random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.strategies.graphs.making import Array, Made

RANGES = {
    TensorProto.INT4: (-8, 8), TensorProto.UINT4: (0, 16), TensorProto.INT8: (-128, 128), TensorProto.UINT8: (0, 256),
}  # fmt: skip
ROWS, INNER, COLUMNS = (1, 1, 2, 3, 5, 8, 17, 33, 40), (1, 7, 16, 31, 32, 64, 83, 96, 130), (1, 2, 5, 16, 37, 64, 131)
BLOCKS = (1, 3, 8, 16, 20, 32, 64, 128)


def made(seed: int) -> Made:
    """Return the model of a seed."""
    return _Maker(seed).make()


class _Maker:
    """Write a weight [inner, columns], a product by it, and one step behind that."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._rows, self._inner, self._columns = map(self._random.choice, (ROWS, INNER, COLUMNS))

    def make(self) -> Made:
        shape = (2, self._rows, self._inner) if self._flip(0.2) else (self._rows, self._inner)
        x = self._numbers.standard_normal(shape, dtype=np.float32)
        y = self._packed_product() if self._flip(0.4) else self._product(len(shape))
        if self._flip():
            y = self._add("Add", y, self._floats(self._columns))
        if self._flip(0.3):
            y = self._add("Relu", y)
        info = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), onnx.ValueInfoProto(name=y)]
        graph = helper.make_graph(self._nodes, "random", info[:1], info[1:], list(self._weights.values()))
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return Made(helper.make_model(graph, opset_imports=opsets, ir_version=10), {"x": x}, {}, {}, {})

    def _packed_product(self) -> str:
        """Return a MatMulNBits."""
        size, bits = self._random.choice((16, 32, 64, 128)), self._random.choice((4, 8))
        blocks = -(-self._inner // size)
        inputs = ["x", self._bytes(self._columns, blocks, size * bits // 8), self._floats(self._columns, blocks)]
        inputs.append(self._bytes(self._columns, -(-blocks * bits // 8)) if self._flip() else "")
        attributes = {"K": self._inner, "N": self._columns, "bits": bits, "block_size": size}
        return self._add("MatMulNBits", *inputs, domain="com.microsoft", **attributes)

    def _product(self, rank: int) -> str:
        """Return a product by a dequantised weight, which may lie turned, and be scaled once more."""
        turned = self._flip()
        make = self._dequantised if self._flip(0.7) else self._spelt
        weight = make(*((self._columns, self._inner) if turned else (self._inner, self._columns)))
        if self._flip(0.3):
            weight = self._add("Mul", weight, self._floats(*self._random.choice(((), (1,), (1, 1)))))
        if rank == 2 and self._flip():
            return self._add("Gemm", "x", weight, transB=int(turned), alpha=self._random.choice((1.0, 0.5)))
        return self._add("MatMul", "x", self._add("Transpose", weight, perm=[1, 0]) if turned else weight)

    def _dequantised(self, *shape: int) -> str:
        """Return a weight that a DequantizeLinear makes of whole numbers, which may be some of their type only."""
        kind = self._random.choice(list(RANGES))
        low, high = RANGES[kind]
        axis, block, along = self._random.choice((0, 1)), 0, self._random.choice(("", "axis", "blocks"))
        factors: tuple[int, ...] = ()
        attributes: dict[str, Any] = {}
        if along:
            attributes["axis"] = axis - 2 if self._flip() else axis
            factors = (shape[axis],)
        if along == "blocks":
            block = attributes["block_size"] = self._random.choice(BLOCKS)
            factors = tuple(-(-size // block) if place == axis else size for place, size in enumerate(shape))
        if self._flip(0.3):
            low = self._random.randrange(low, high)
            high = self._random.randrange(low + 1, min(high, low + 20) + 1)
        scales = self._floats(*factors)
        zeros = [self._whole(kind, *RANGES[kind], factors)] if self._flip() else []
        return self._add("DequantizeLinear", self._whole(kind, low, high, shape), scales, *zeros, **attributes)

    def _spelt(self, *shape: int) -> str:
        """Return a weight that is cast, less zero points, times scales, each of which may differ along both axes."""
        weight = self._add("Cast", self._whole(TensorProto.UINT8, *RANGES[TensorProto.UINT8], shape), to=1)
        zeros = self._numbers.integers(0, 256, self._part(shape)).astype(np.float32)
        if self._flip(0.7):
            weight = self._add("Sub", weight, self._constant(numpy_helper.from_array(self._repeated(zeros))))
        scales = self._numbers.uniform(-0.1, 0.1, self._part(shape)).astype(np.float32)
        return self._add("Mul", weight, self._constant(numpy_helper.from_array(self._repeated(scales))))

    def _part(self, shape: tuple[int, ...]) -> list[int]:
        return [self._random.choice((1, size)) for size in shape]

    def _repeated(self, value: Array) -> Array:
        """Return a value of which neighbours are often the same along its axes."""
        for axis, size in enumerate(value.shape):
            if size > 1 and self._flip():
                value = value.take(np.arange(size) // self._random.choice(BLOCKS), axis)
        return value

    def _flip(self, probability: float = 0.5) -> bool:
        return self._random.random() < probability

    def _floats(self, *shape: int) -> str:
        return self._constant(numpy_helper.from_array(self._numbers.uniform(-0.1, 0.1, shape).astype(np.float32)))

    def _bytes(self, *shape: int) -> str:
        return self._whole(TensorProto.UINT8, 0, 256, shape)

    def _whole(self, kind: int, low: int, high: int, shape: tuple[int, ...]) -> str:
        values: Array = self._numbers.integers(low, high, shape)
        return self._constant(helper.make_tensor("", kind, shape, values.ravel().tolist()))

    def _constant(self, tensor: onnx.TensorProto) -> str:
        tensor.name = f"w{len(self._weights)}"
        self._weights[tensor.name] = tensor
        return tensor.name

    def _add(self, op: str, *inputs: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(op, inputs, [f"t{len(self._nodes)}"], **attributes))
        return str(self._nodes[-1].output[0])
