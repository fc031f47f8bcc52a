"""Subtract the mean of elements and divide by their deviation or norm, over any axes. See normalise_rows.cl."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, FLOATS, check_float
from gputune.kernels.chain import EMPTY, Chain, literal, rounded
from gputune.kernels.family import Array, Instance, Launch, TensorSpec, TiledFamily, Tolerance, Work, operand_specs
from gputune.kernels.hard_values import NORMS
from gputune.kernels.indexing.loops import Loops, loops_of
from gputune.kernels.indexing.rows import Rows
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration
from gputune.kernels.template import build_options, template
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
class NormaliseProblem:
    """output = epilogue((input - m) / d * scale + bias), m and d for all elements of `axes` together.

    With `kind` "deviation" m is their mean and d = sqrt(variance + epsilon); else m is 0, and d is for "rms"
    sqrt(mean of squares + epsilon), for "l1" and "l2" the norm, where zeros stay zeros. Where there is a `scale` or
    a `bias`, it has the sizes of the axes `varies`, in their order.
    """

    kind: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    varies: tuple[int, ...] = ()
    scale: bool = False
    bias: bool = False
    epsilon: float = 0.0
    epilogue: Chain = EMPTY
    dtype: str = FLOAT

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"Normalise knows the kinds {', '.join(KINDS)}, not {self.kind!r}")
        check_float("Normalise", self.dtype)
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


class NormaliseFamily(TiledFamily):
    """One template: vectors along the rows where the innermost axis belongs to them, else across them."""

    op = "Normalise"
    floats = FLOATS
    survives = NORMS

    def inputs(self, problem: NormaliseProblem) -> tuple[TensorSpec, ...]:
        parameters = (TensorSpec(name, problem.parameter_shape, dtype=problem.dtype) for name in problem.parameters)
        operands = operand_specs(problem.epilogue, problem.shape, problem.dtype)
        return (TensorSpec("input", problem.shape, dtype=problem.dtype), *parameters, *operands)

    def output(self, problem: NormaliseProblem) -> TensorSpec:
        return TensorSpec("output", problem.shape, dtype=problem.dtype)

    def tiling(self, problem: NormaliseProblem) -> Rows:
        return Rows(problem.loops, (ELEMENT_TYPES[problem.dtype].sum_bytes,))

    def render(self, problem: NormaliseProblem, configuration: Configuration) -> Instance:
        loops, kind = problem.loops, KINDS[problem.kind]
        global_size, local_size = self.tiling(problem).launch_sizes(configuration)
        macros = {"CENTRED": int(kind.centred), "SCALE": int(problem.scale), "BIAS": int(problem.bias)}
        main = Launch(
            source=_prelude(problem) + problem.epilogue.prelude() + template("normalise_rows.cl", dtype=problem.dtype),
            entry="normalise_rows",
            needs=self.tiling(problem).needs.of(configuration),
            writes=("output",),
            aligned=aligned(configuration["VW"], loops.extent),
            options=build_options({**loops.macros(), **macros, **configuration}),
            global_size=global_size,
            local_size=local_size,
            arguments=(
                "input",
                "output",
                *problem.parameters,
                *problem.epilogue.operand_names,
            ),
        )
        return Instance(main)

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

    def work(self, problem: NormaliseProblem) -> Work:
        return Work(math.prod(problem.shape) * (6 + len(problem.epilogue.steps)), self.moved_bytes(problem))

    def tolerance(self, problem: NormaliseProblem) -> Tolerance:
        return Tolerance.of(problem.dtype, relative=1e-5, absolute=2e-6)


def _prelude(problem: NormaliseProblem) -> str:
    """Return the macros that normalise_rows.cl takes: the loops, the parameters, and the kind."""
    kind = KINDS[problem.kind]
    parameters = "".join(f", __global const TYPE *restrict {name}" for name in problem.parameters)
    return (
        f"{problem.loops.prelude()}{problem.loops.scale_prelude()}"
        f"#define SCALE_PARAMETERS {parameters}\n"
        f"#define EPSILON {literal(problem.epsilon)}\n#define MAP(x) {kind.map}\n#define FACTOR(sum) {kind.factor}\n"
    )


FAMILY = NormaliseFamily()
