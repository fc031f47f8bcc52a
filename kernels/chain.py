"""Fused chains of elementwise steps: the epilogue of a kernel, or the whole of an Elementwise task.

A chain starts from a value and applies its steps in order. A step is unary, or binary with a scalar, or binary with
the k-th extra tensor (an operand). The same chain gives numpy for the reference and OpenCL C for the kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

UNARY_VALUES = {"relu": 0, "clip": 2, "hard_sigmoid": 2, "hard_swish": 0, "sigmoid": 0, "tanh": 0, "sqrt": 0, "exp": 0}
"""Unary functions and how many values each takes: clip(min, max), hard_sigmoid(alpha, beta)."""

BINARY = ("add", "sub", "mul", "div")


@dataclass(frozen=True)
class Step:
    """One step: `function` of the value so far, with `values` (scalars) or the tensor operand number `operand`.

    With `swapped` the operand is the left side of a sub or div.
    """

    function: str
    values: tuple[float, ...] = ()
    operand: int | None = None
    swapped: bool = False

    def __post_init__(self) -> None:
        if self.function in BINARY:
            if (self.operand is None) == (len(self.values) != 1):
                raise ValueError(f"{self.function} takes one scalar or one tensor operand")
        elif self.function not in UNARY_VALUES:
            raise ValueError(f"unknown step {self.function!r}")
        elif self.operand is not None or len(self.values) != UNARY_VALUES[self.function]:
            raise ValueError(f"{self.function} takes {UNARY_VALUES[self.function]} values and no operand")


@dataclass(frozen=True)
class Chain:
    """Steps applied one after the other; hashable, part of a problem's identity."""

    steps: tuple[Step, ...] = ()

    @property
    def operands(self) -> int:
        """How many extra tensors the steps read."""
        return len({step.operand for step in self.steps if step.operand is not None})

    def then(self, step: Step) -> "Chain":
        return Chain((*self.steps, step))

    def apply(self, value: Array, operands: Sequence[Array] = ()) -> Array:
        """The chain in numpy (float64 inside), operands broadcast by numpy's rules."""
        result = value.astype(np.float64)
        for step in self.steps:
            other: Any = None
            if step.function in BINARY:
                other = step.values[0] if step.operand is None else operands[step.operand].astype(np.float64)
            result = _NUMPY[step.function](result, other, step)
        return np.asarray(result, dtype=value.dtype)

    def source(self, value: str, operands: Sequence[str] = (), vector: str = "float") -> str:
        """OpenCL C statements that update the lvalue `value` of type `vector`; operands are expressions of that type."""
        lines = []
        for step in self.steps:
            other = ""
            if step.function in BINARY:
                other = f"({vector})({_literal(step.values[0])})" if step.operand is None else operands[step.operand]
            lines.append(f"{value} = {_opencl(step, value, other, vector)};")
        return " ".join(lines)


def _sigmoid(value: Array) -> Array:
    return np.asarray(0.5 * (np.tanh(0.5 * value) + 1))


_NUMPY: dict[str, Any] = {
    "relu": lambda v, _, s: np.maximum(v, 0),
    "clip": lambda v, _, s: np.clip(v, *s.values),
    "hard_sigmoid": lambda v, _, s: np.clip(s.values[0] * v + s.values[1], 0, 1),
    "hard_swish": lambda v, _, s: v * np.clip(v / 6 + 0.5, 0, 1),
    "sigmoid": lambda v, _, s: _sigmoid(v),
    "tanh": lambda v, _, s: np.tanh(v),
    "sqrt": lambda v, _, s: np.sqrt(v),
    "exp": lambda v, _, s: np.exp(v),
    "add": lambda v, o, s: v + o,
    "sub": lambda v, o, s: o - v if s.swapped else v - o,
    "mul": lambda v, o, s: v * o,
    "div": lambda v, o, s: o / v if s.swapped else v / o,
}


def _literal(number: float) -> str:
    """A float literal of OpenCL C that keeps every bit of the float32."""
    single = float(np.float32(number))
    if single == float("inf"):
        return "INFINITY"
    if single == float("-inf"):
        return "-INFINITY"
    return f"{single:.9e}f"


def _opencl(step: Step, value: str, other: str, vector: str) -> str:
    numbers = [f"({vector})({_literal(number)})" for number in step.values]
    one, zero = f"({vector})(1.0f)", f"({vector})(0.0f)"
    match step.function:
        case "relu":
            return f"fmax({value}, {zero})"
        case "clip":
            return f"fmin(fmax({value}, {numbers[0]}), {numbers[1]})"
        case "hard_sigmoid":
            return f"fmin(fmax(fma({value}, {numbers[0]}, {numbers[1]}), {zero}), {one})"
        case "hard_swish":
            sixth = f"({vector})({_literal(1 / 6)})"
            return f"{value} * fmin(fmax(fma({value}, {sixth}, ({vector})(0.5f)), {zero}), {one})"
        case "sigmoid":
            return f"{one} / ({one} + exp(-{value}))"
        case "tanh" | "sqrt" | "exp":
            return f"{step.function}({value})"
        case "add":
            return f"{value} + {other}"
        case "mul":
            return f"{value} * {other}"
        case "sub":
            return f"{other} - {value}" if step.swapped else f"{value} - {other}"
        case "div":
            return f"{other} / {value}" if step.swapped else f"{value} / {other}"
    raise AssertionError(step.function)
