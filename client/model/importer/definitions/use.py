"""A use of an operator, as definitions see it, and the error of one that is not known."""

from collections.abc import Sequence

import onnx.helper
from onnx import NodeProto, TypeProto


class NotDefined(Exception):
    """A use of an operator that its definition does not know; its text says why."""


class Use:
    """A node, of which the k-th input is called ik where a definition is written."""

    def __init__(self, node: NodeProto, opset: int, types: Sequence[TypeProto]) -> None:
        self.attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        self.opset = opset
        self._node, self._types = node, types

    @property
    def inputs(self) -> int:
        return len(self._node.input)

    @property
    def outputs(self) -> int:
        """How many results are wanted, the last one included."""
        return max((k + 1 for k, name in enumerate(self._node.output) if name), default=0)

    def has(self, index: int) -> bool:
        return index < self.inputs and bool(self._node.input[index])

    def shape(self, index: int) -> tuple[int, ...]:
        return tuple(dim.dim_value for dim in self._types[index].tensor_type.shape.dim)

    def name(self, index: int) -> str:
        return f"i{index}" if self.has(index) else ""

    def call(self, op: str, *inputs: str) -> str:
        """Write a call without the inputs that are absent behind the others."""
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        return f"{op}({', '.join(given)})"

    def read(self, index: int) -> str:
        """Dequantise an input that has a scale and a zero point behind it."""
        return self.call("DequantizeLinear", *(self.name(k) for k in range(index, index + 3)))

    def whole(self, index: int, zero: str) -> str:
        """Read an input without its scale."""
        return self.call("DequantizeLinear", self.name(index), "one", zero)

    def write(self, value: str, index: int) -> str:
        """Quantise the result by the scale and zero point at a place."""
        return "y = " + self.call("QuantizeLinear", value, self.name(index), self.name(index + 1))

    def write_whole(self, value: str, zero: str) -> str:
        return "y = " + self.call("QuantizeLinear", value, "one", zero)

    def zeros(self, index: int = 0) -> str:
        """Write the zero of an input's type, as z0."""
        return f"n0 = Constant<value = float {{0.0}}>() z0 = Cast<to = {self._types[index].tensor_type.elem_type}>(n0)"

    def normalised(self, value: str, gamma: str, beta: str) -> str:
        """Write the normalisation of a tensor over its last axis, times gamma, plus beta if it is given, as y."""
        epsilon = float(self.attributes.get("epsilon", 1e-12))
        if self.opset >= 17:
            return f"y = {self.call(f'LayerNormalization<axis = -1, epsilon = {epsilon!r}>', value, gamma, beta)}"
        return (
            f"m = ReduceMean<axes = [-1]>({value}) d = Sub({value}, m) p = Mul(d, d) v = ReduceMean<axes = [-1]>(p) "
            f"small = Constant<value = float {{{epsilon!r}}}>() e = Add(v, small) r = Sqrt(e) q = Div(d, r) "
            f"n = Mul(q, {gamma}) {f'y = Add(n, {beta})' if beta else 'y = Identity(n)'}"
        )
