"""Fused chains of elementwise steps: the epilogue of a kernel, or the whole of an Elementwise task.

A chain starts from a value and applies its steps in order. A step is unary, or binary with a scalar, or
binary with the k-th extra tensor (an operand). The same chain gives numpy for the reference and OpenCL C
for the kernel; NaN passes through every step in both, as it does in ONNX runtimes.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Function:
    """What a step computes: with numpy from (value, *scalars or operand), and as OpenCL C statements.

    In the OpenCL text {v} is the value, {x} and {y} the scalars or the operand, {T} the type of all of them.
    Bounds are written as selections and not with fmin and fmax, which would turn NaN into the bound.
    """

    values: int
    compute: Callable[..., Array]
    opencl: str


UNARY = {
    "relu": Function(0, lambda v: np.maximum(v, 0), "{v} = {v} < ({T})(0.0f) ? ({T})(0.0f) : {v};"),
    "leaky_relu": Function(1, lambda v, a: np.where(v < 0, v * a, v), "{v} = {v} < ({T})(0.0f) ? {v} * {x} : {v};"),
    "clip": Function(2, np.clip, "{v} = {v} < {x} ? {x} : {v}; {v} = {v} > {y} ? {y} : {v};"),
    "hard_sigmoid": Function(
        2,
        lambda v, a, b: np.clip(a * v + b, 0, 1),
        "{v} = {v} * {x} + {y}; {v} = {v} < ({T})(0.0f) ? ({T})(0.0f) : {v};"
        " {v} = {v} > ({T})(1.0f) ? ({T})(1.0f) : {v};",
    ),
    "hard_swish": Function(
        0,
        lambda v: v * np.clip(v / 6 + 0.5, 0, 1),
        "{{ {T} gate_ = {v} * ({T})(0.16666667f) + ({T})(0.5f);"
        " gate_ = gate_ < ({T})(0.0f) ? ({T})(0.0f) : gate_;"
        " {v} *= gate_ > ({T})(1.0f) ? ({T})(1.0f) : gate_; }}",
    ),
    "sigmoid": Function(0, lambda v: 0.5 * (np.tanh(0.5 * v) + 1), "{v} = ({T})(1.0f) / (({T})(1.0f) + exp(-{v}));"),
    "tanh": Function(0, np.tanh, "{v} = tanh({v});"),
    "sqrt": Function(0, np.sqrt, "{v} = sqrt({v});"),
    "exp": Function(0, np.exp, "{v} = exp({v});"),
    "log": Function(0, np.log, "{v} = log({v});"),
    "abs": Function(0, np.abs, "{v} = fabs({v});"),
    "neg": Function(0, np.negative, "{v} = -{v};"),
}
"""Functions of the value and scalars: leaky_relu(alpha), clip(min, max), hard_sigmoid(alpha, beta)."""

BINARY = {
    "add": Function(1, np.add, "{v} = {v} + {x};"),
    "sub": Function(1, np.subtract, "{v} = {v} - {x};"),
    "mul": Function(1, np.multiply, "{v} = {v} * {x};"),
    "div": Function(1, np.divide, "{v} = {v} / {x};"),
}
"""Functions of the value and one scalar or one operand."""

SWAPPED = {
    "sub": Function(1, lambda v, x: x - v, "{v} = {x} - {v};"),
    "div": Function(1, lambda v, x: x / v, "{v} = {x} / {v};"),
}
"""The binary functions that differ when the operand is the left side."""


@dataclass(frozen=True)
class Step:
    """One step: `function` of the value so far, with `values` (scalars) or the tensor numbered `operand`.

    With `swapped` the operand is the left side of a sub or div. Values are rounded to float32, so that the
    reference and the kernel see the same number; `swapped` is dropped where it changes nothing.
    """

    function: str
    values: tuple[float, ...] = ()
    operand: int | None = None
    swapped: bool = False

    def __post_init__(self) -> None:
        if self.function in BINARY:
            if (self.operand is None) != (len(self.values) == 1) or len(self.values) > 1:
                raise ValueError(f"{self.function} takes one scalar or one tensor operand")
        elif self.function not in UNARY:
            raise ValueError(f"unknown step {self.function!r}; there are {', '.join([*UNARY, *BINARY])}")
        elif self.operand is not None or len(self.values) != UNARY[self.function].values:
            raise ValueError(f"{self.function} takes {UNARY[self.function].values} values and no operand")
        with np.errstate(over="ignore"):
            values = tuple(float(np.float32(value)) for value in self.values)
        if any(np.isnan(values)):
            raise ValueError(f"{self.function} with NaN as a value has no meaning")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "swapped", self.swapped and self.function in SWAPPED)

    @property
    def meaning(self) -> Function:
        """The function, with the operand on its side."""
        if self.function in BINARY:
            return SWAPPED[self.function] if self.swapped else BINARY[self.function]
        return UNARY[self.function]


MOST_SIGNS = 256
TAME = 1000.0
"""What numbers around one may become in a chain, when its inputs have the right signs."""


@dataclass(frozen=True)
class Chain:
    """Steps applied one after the other; hashable, part of a problem's identity."""

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        numbers = {step.operand for step in self.steps if step.operand is not None}
        if numbers != set(range(len(numbers))):
            raise ValueError(f"a chain's operands are numbered from 0 without gaps, not {sorted(numbers)}")

    @property
    def operands(self) -> int:
        """How many extra tensors the steps read."""
        return len({step.operand for step in self.steps if step.operand is not None})

    @property
    def has_domain(self) -> bool:
        """Whether a step is defined, or tame, for some numbers only: sqrt, log, and a division by a tensor."""
        return any(
            step.function in ("sqrt", "log") or (step.function == "div" and (step.operand is not None or step.swapped))
            for step in self.steps
        )

    def signs(self) -> tuple[int, ...]:
        """1 or -1 for the value and each operand, so that numbers around one of these signs stay in every domain.

        Found by trying; all positive when nothing tried works.
        """
        size = np.random.default_rng(0).uniform(0.5, 1.5, (1 + self.operands, 64))
        size[0] = np.geomspace(1 / 16, 4, 64)  # a sum at a border lacks some of its terms, a bias adds one
        for signs in itertools.islice(itertools.product((1, -1), repeat=1 + self.operands), MOST_SIGNS):
            value, *operands = size * np.array(signs)[:, np.newaxis]
            if np.all(np.abs(self.apply(value, operands)) < TAME):
                return signs
        return (1,) * (1 + self.operands)

    def then(self, step: Step) -> "Chain":
        """This chain and one more step."""
        return Chain((*self.steps, step))

    def apply(self, value: Array, operands: Sequence[Array] = ()) -> Array:
        """The chain in numpy (float64 inside, the value's dtype outside); operands broadcast."""
        result = value.astype(np.float64)
        with np.errstate(all="ignore"):
            for step in self.steps:
                others = step.values if step.operand is None else (operands[step.operand].astype(np.float64),)
                result = step.meaning.compute(result, *others)
            return np.asarray(result, dtype=value.dtype)

    def source(self, value: str, operands: Sequence[str] = (), vector: str = "float") -> str:
        """OpenCL C statements that update the lvalue `value` of type `vector`.

        Operands are expressions of that type, each evaluated where its steps are.
        """
        statements = []
        for step in self.steps:
            others = [f"({vector})({literal(number)})" for number in step.values]
            if step.operand is not None:
                others = [operands[step.operand]]
            names = dict(zip("xy", others, strict=False))
            statements.append(step.meaning.opencl.format(v=value, T=vector, **names))
        return " ".join(statements)

    def prelude(self) -> str:
        """The chain as macros to put before a template whose operands are shaped as its output.

        OPERAND_PARAMETERS continues the kernel's parameter list (", __global const float *restrict
        operand0"). EPILOGUE(value, T, LOAD, offset) updates the lvalue `value` of type T, reading
        LOAD(operandK, offset).
        """
        count = self.operands
        parameters = "".join(f", __global const float *restrict operand{k}" for k in range(count))
        statements = self.source("(value)", [f"LOAD(operand{k}, offset)" for k in range(count)], "T")
        return f"#define OPERAND_PARAMETERS {parameters}\n#define EPILOGUE(value, T, LOAD, offset) {{ {statements} }}\n"


EMPTY = Chain()
"""The chain that changes nothing."""


def literal(number: float) -> str:
    """An OpenCL C expression that keeps every bit of a float32; infinities have a name."""
    if np.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    return f"{number:.9e}f"
