"""Write the body of one use of an operator, as text of ONNX."""

from collections.abc import Sequence
from typing import Any

import onnx
import onnx.helper
from onnx import NodeProto, TensorProto, TypeProto

from gputune.client.model.graph import Array

FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


class NotDefined(Exception):
    """A use of an operator that its definition does not know; its text says why."""


class Use:
    """A node, of which the k-th input is called ik where a definition is written."""

    def __init__(
        self, node: NodeProto, opset: int, types: Sequence[TypeProto], known: Sequence[Array | None] = ()
    ) -> None:
        """known: values of the inputs that are constants."""
        self.attributes: dict[str, Any] = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        self.opset = opset
        self.lines: list[str] = []
        self._node, self._types, self._known = node, types, known

    # what the node has

    @property
    def inputs(self) -> int:
        return len(self._node.input)

    def has(self, index: int) -> bool:
        return index < self.inputs and bool(self._node.input[index])

    def wants(self, index: int) -> bool:
        """Return whether the node has an output at a place."""
        return index < len(self._node.output) and bool(self._node.output[index])

    def shape(self, index: int) -> tuple[int, ...]:
        return tuple(dim.dim_value for dim in self._types[index].tensor_type.shape.dim)

    def known(self, index: int) -> Array | None:
        """Return the value of an input that is a constant."""
        return self._known[index] if index < len(self._known) else None

    def name(self, index: int) -> str:
        return f"i{index}" if self.has(index) else ""

    def type(self, index: int) -> int:
        return int(self._types[index].tensor_type.elem_type)

    @property
    def float_type(self) -> int:
        """The type of its first input of floats."""
        every = (int(each.tensor_type.elem_type) for each in self._types)
        return next((each for each in every if each in FLOAT_TYPES), TensorProto.FLOAT)

    def flag(self, name: str) -> bool:
        return bool(self.attributes.get(name, 0))

    def options(self, *names: str) -> str:
        """Write those of the attributes that the node has, for a part of it."""
        given = {name: self.attributes[name] for name in names if name in self.attributes}
        plain = {name: f'"{value.decode()}"' if isinstance(value, bytes) else value for name, value in given.items()}
        return f"<{', '.join(f'{name} = {value}' for name, value in plain.items())}>" if plain else ""

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

    # nodes by names that are made up

    def let(self, expression: str) -> str:
        """Write a node, and return the name of its result."""
        self.lines.append(f"t{len(self.lines)} = {expression}")
        return self.lines[-1].split()[0]

    def number(self, value: float) -> str:
        """Write a number of `float_type`."""
        constant = self.let(f"Constant<value = float {{{float(value)!r}}}>()")
        return constant if self.float_type == TensorProto.FLOAT else self.cast(constant, self.float_type)

    def cast(self, name: str, dtype: int) -> str:
        return self.let(f"Cast<to = {dtype}>({name})")

    def ints(self, *values: int) -> str:
        """Write whole numbers, as int64[n]."""
        return self.let(f"Constant<value_ints = {list(values)}>()")

    def integer(self, value: int) -> str:
        """Write a whole number, as int64[]."""
        return self.let(f"Constant<value_int = {value}>()")

    def reshaped(self, name: str, *shape: int) -> str:
        return self.let(f"Reshape({name}, {self.ints(*shape)})")

    def turned(self, name: str, *order: int) -> str:
        """Write a Transpose; none if axes stay where they are."""
        return name if list(order) == sorted(order) else self.let(f"Transpose<perm = {list(order)}>({name})")

    def cut(self, name: str, axis: int, start: int, end: int, step: int = 1) -> str:
        """Write a Slice along one axis."""
        bounds = ", ".join(self.ints(value) for value in (start, end, axis, step))
        return self.let(f"Slice({name}, {bounds})")
