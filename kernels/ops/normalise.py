"""Subtract the mean of elements and divide by their deviation or norm, over any axes. See normalise_rows.cl."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.chain import EMPTY, Chain, literal, rounded
from gputune.kernels.family import Array, Problem, TensorSpec, Tolerance
from gputune.kernels.hard_values import NORMS
from gputune.kernels.indexing.loops import Loops, loops_of
from gputune.kernels.indexing.rows import RowFamily
from gputune.kernels.tiling.streaming import check_indices


@dataclass(frozen=True)
class Kind:
    """How large a row's elements are: `divisor` in numpy, of those elements, axes and epsilon; and in OpenCL C the
    `factor` to multiply with, of the sum of `map`. With `centred` all that is of elements less their mean."""

    divisor: Callable[[Array, tuple[int, ...], float], Array]
    map: str
    factor: str
    centred: bool = False


def _root(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    return np.asarray(np.sqrt((x * x).mean(axes, keepdims=True) + epsilon))


SQUARE = "((x) - (vec)(mean)) * ((x) - (vec)(mean))"
DEVIATION = "(one)(1.0f) / sqrt((sum) / (one)(COUNT) + (one)(EPSILON))"
KINDS: Mapping[str, Kind] = {
    "deviation": Kind(_root, SQUARE, DEVIATION, centred=True),
    "rms": Kind(_root, SQUARE, DEVIATION),
    "l1": Kind(
        lambda x, axes, epsilon: abs(x).sum(axes, keepdims=True),
        "fabs(x)",
        "(sum) == (one)(0) ? (one)(0) : (one)(1.0f) / (sum)",
    ),
    "l2": Kind(
        lambda x, axes, epsilon: np.sqrt((x * x).sum(axes, keepdims=True)),
        SQUARE,
        "(sum) == (one)(0) ? (one)(0) : (one)(1.0f) / sqrt(sum)",
    ),
}


@dataclass(frozen=True)
class NormaliseProblem(Problem):
    """output = epilogue((input - m) / d * scale + bias), m and d for all elements of `axes` together.

    With `kind` "deviation" m is their mean and d = sqrt(variance + epsilon); else m is 0, and d is for "rms"
    sqrt(mean of squares + epsilon), for "l1" and "l2" the norm, where zeros stay zeros. Where there is a `scale` or
    a `bias`, it has the sizes of the axes `varies`, in their order.
    """

    op = "Normalise"

    kind: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    varies: tuple[int, ...] = ()
    scale: bool = False
    bias: bool = False
    epsilon: float = 0.0
    epilogue: Chain = EMPTY
    dtype: str = FLOAT

    def check(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"Normalise knows the kinds {', '.join(KINDS)}, not {self.kind!r}")
        if min(self.shape, default=1) < 1:
            raise ValueError(f"Normalise needs positive sizes, not the shape {self.shape}")
        for axes in (self.axes, self.varies):
            if list(axes) != sorted(set(axes) & set(range(len(self.shape)))):
                raise ValueError(f"Normalise needs axes of {self.shape}, each once and in order, not {axes}")
        if not 0 <= self.epsilon < math.inf:
            raise ValueError(f"Normalise needs an epsilon that is not negative, not {self.epsilon}")
        object.__setattr__(self, "epsilon", rounded(self.epsilon))
        check_indices("Normalise", self.shape)

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in self.varies)

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(name for name in ("scale", "bias") if getattr(self, name))

    @property
    def loops(self) -> Loops:
        return loops_of(self.shape, self.axes, self.varies)


class NormaliseFamily(RowFamily):
    """One template: vectors along the rows where the innermost axis belongs to them, else across them."""

    op = NormaliseProblem.op
    template = "normalise_rows.cl"
    accuracy = Tolerance(relative=1e-5, absolute=2e-6)
    survives = NORMS

    def inputs(self, problem: NormaliseProblem) -> tuple[TensorSpec, ...]:
        value, *operands = super().inputs(problem)
        parameters = (problem.tensor(name, problem.parameter_shape) for name in problem.parameters)
        return (value, *parameters, *operands)

    def arguments(self, problem: NormaliseProblem) -> tuple[str, ...]:
        return ("input", "output", *problem.parameters, *problem.epilogue.operand_names)

    def sizes(self, problem: NormaliseProblem) -> Mapping[str, int]:
        kind = {"CENTRED": KINDS[problem.kind].centred, "SCALE": problem.scale, "BIAS": problem.bias}
        return problem.loops.macros() | kind

    def prelude(self, problem: NormaliseProblem) -> str:
        kind, loops = KINDS[problem.kind], problem.loops
        parameters = "".join(f", __global const TYPE *restrict {name}" for name in problem.parameters)
        return (
            f"{loops.prelude()}{loops.scale_prelude()}#define SCALE_PARAMETERS {parameters}\n"
            f"#define EPSILON {literal(problem.epsilon)}\n#define MAP(x) {kind.map}\n"
            f"#define FACTOR(sum) {kind.factor}\n{problem.epilogue.prelude()}"
        )

    def reference(self, problem: NormaliseProblem, inputs: Mapping[str, Array]) -> Array:
        value, kind = inputs["input"].astype(np.float64), KINDS[problem.kind]
        if kind.centred:
            value = value - value.mean(problem.axes, keepdims=True)
        divisor = kind.divisor(value, problem.axes, problem.epsilon)
        value = np.divide(value, divisor, out=np.zeros_like(value), where=divisor != 0)
        shape = [size if axis in problem.varies else 1 for axis, size in enumerate(problem.shape)]
        if problem.scale:
            value = value * inputs["scale"].reshape(shape)
        if problem.bias:
            value = value + inputs["bias"].reshape(shape)
        return problem.epilogue.apply_to(value, inputs).astype(problem.dtype)

    def steps(self, problem: NormaliseProblem) -> int:
        return 6


FAMILY = NormaliseFamily()
