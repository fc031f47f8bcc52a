"""Reduce any axes of a tensor to sums, means, norms, products or extremes. See reduce_rows.cl."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gputune.core.dtypes import ANY, FLOAT
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.family import Array, Problem, TensorSpec, Tolerance, Work
from gputune.kernels.hard_values import MOVES, NORMS, SUMS, Survival
from gputune.kernels.indexing.loops import Loops, loops_of
from gputune.kernels.indexing.maps import EXACT
from gputune.kernels.indexing.rows import RowFamily, extremes
from gputune.kernels.template import defines
from gputune.kernels.tiling.streaming import check_indices


@dataclass(frozen=True)
class Kind:
    """How a row is reduced: `finish` of what `combine` makes of `map` of each element, as OpenCL C and in numpy.

    `start` changes nothing when combined, and `fill` is what `map` makes `start` of. `shift` is (combine, start,
    finish) of the reduction that `map` and `finish` know as `shift`. With `relative` all that is of elements less the
    first one of their row. Kinds that are `whole` exist for whole numbers.
    """

    compute: Callable[[Array, tuple[int, ...]], Array]
    combine: str = "ADD"
    map: str = "(x)"
    start: str = "0"
    fill: str = "0"
    finish: str = "(x)"
    shift: tuple[str, str, str] | None = None
    relative: bool = False
    whole: bool = False


def _log_sum_exp(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.logaddexp.reduce(np.moveaxis(x, axes, range(len(axes))).reshape(_gathered(x, axes))))


def _gathered(x: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    return (math.prod(x.shape[axis] for axis in axes), *(size for axis, size in enumerate(x.shape) if axis not in axes))


KINDS: Mapping[str, Kind] = {
    "sum": Kind(lambda x, axes: x.sum(axes, x.dtype), whole=True),
    "mean": Kind(lambda x, axes: x.mean(axes), finish="(x) / (one)(COUNT)"),
    "max": Kind(lambda x, axes: np.max(x, axes), "MAX", start="LOWEST", fill="LOWEST", whole=True),
    "min": Kind(lambda x, axes: np.min(x, axes), "MIN", start="HIGHEST", fill="HIGHEST", whole=True),
    "prod": Kind(lambda x, axes: x.prod(axes, x.dtype), "MUL", start="1", fill="1", whole=True),
    "l1": Kind(lambda x, axes: abs(x).sum(axes, x.dtype), map="((x) < (vec)(0) ? -(x) : (x))", whole=True),
    "l2": Kind(lambda x, axes: np.sqrt((x * x).sum(axes)), map="(x) * (x)", finish="sqrt(x)"),
    "sum_square": Kind(lambda x, axes: (x * x).sum(axes, x.dtype), map="(x) * (x)", whole=True),
    "log_sum": Kind(lambda x, axes: np.log(x.sum(axes)), finish="log(x)"),
    "log_sum_exp": Kind(
        _log_sum_exp,
        map="exp((x) - (vec)(shift))",
        fill="-INFINITY",
        finish="log(x) + shift",
        shift=("MAX", "-INFINITY", "fabs(x) < (one)(INFINITY) ? (x) : (one)(0)"),  # an infinite one would give NaN
    ),
    "variance": Kind(
        lambda x, axes: x.var(axes),
        map="((x) - (vec)(shift)) * ((x) - (vec)(shift))",
        fill="shift",
        finish="(x) / (one)(COUNT)",
        shift=("ADD", "0", "(x) / (one)(COUNT)"),
        relative=True,
    ),
}


SURVIVAL: Mapping[str, Survival] = {
    **dict.fromkeys(("max", "min"), MOVES),
    **dict.fromkeys(("sum", "mean", "l1", "log_sum_exp"), SUMS),
    **dict.fromkeys(("log_sum", "prod"), Survival(frozenset(), "all elements of a row are chosen together")),
    **dict.fromkeys(("l2", "sum_square", "variance"), NORMS),
}


@dataclass(frozen=True)
class ReduceProblem(Problem):
    """output = epilogue(`kind` over `axes` of an input of `shape`), without those axes; without any: of each element.

    Maximum and minimum are NaN where an element is. The epilogue, of floats only, has operands shaped as the output.
    """

    op = "Reduce"
    types = ANY

    kind: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: str = FLOAT
    epilogue: Chain = EMPTY

    def check(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"Reduce knows the kinds {', '.join(KINDS)}, not {self.kind!r}")
        if min(self.shape, default=1) < 1:
            raise ValueError(f"Reduce needs positive sizes, not the shape {self.shape}")
        if list(self.axes) != sorted(set(self.axes) & set(range(len(self.shape)))):
            raise ValueError(f"Reduce needs axes of {self.shape}, each once and in order, not {self.axes}")
        extreme = self.kind in ("max", "min")
        if not (self.element.is_float or extreme or (KINDS[self.kind].whole and self.dtype != "bool")):
            raise ValueError(f"Reduce has no {self.kind} of {self.dtype}")
        check_indices("Reduce", self.shape)

    @property
    def output(self) -> tuple[int, ...]:
        return tuple(size for axis, size in enumerate(self.shape) if axis not in self.axes)

    @property
    def loops(self) -> Loops:
        return loops_of(self.shape, self.axes)


class ReduceFamily(RowFamily):
    """One template: vectors along the rows where the innermost axis is reduced, else across them."""

    op = ReduceProblem.op
    template = "reduce_rows.cl"

    def output(self, problem: ReduceProblem) -> TensorSpec:
        return problem.tensor("output", problem.output)

    def prelude(self, problem: ReduceProblem) -> str:
        kind = KINDS[problem.kind]
        lowest, highest = extremes(problem.dtype)
        bounds = {"LOWEST": lowest, "HIGHEST": highest}
        flags = {"SHIFTED": int(kind.shift is not None), "RELATIVE": int(kind.relative)}
        parts = {"COMBINE": kind.combine, "MAP(x)": kind.map, "START": kind.start, "FILL": f"(vec)({kind.fill})"}
        shift = zip(("SHIFT_COMBINE", "SHIFT_START", "SHIFT_FINISH(x)"), kind.shift or (), strict=False)
        lines = defines({**bounds, **flags, **parts, "FINISH(x)": kind.finish, **dict(shift)})
        return problem.loops.prelude() + lines + problem.epilogue.prelude()

    def reference(self, problem: ReduceProblem, inputs: Mapping[str, Array]) -> Array:
        value = inputs["input"]
        if problem.element.is_float:
            value = value.astype(np.float64)
        with np.errstate(all="ignore"):
            result = np.asarray(KINDS[problem.kind].compute(value, problem.axes))
        if problem.epilogue.steps:
            result = problem.epilogue.apply_to(result, inputs)
        return result.astype(problem.dtype)

    def sample_inputs(self, problem: ReduceProblem, generator: np.random.Generator) -> dict[str, Array]:
        """Numbers whose product is around one and whose sum has a logarithm, where the kind wants that."""
        inputs = super().sample_inputs(problem, generator)
        if problem.element.is_float and problem.kind == "prod" and not problem.epilogue.has_domain:
            spread = generator.standard_normal(problem.shape) / math.sqrt(problem.loops.count)
            inputs["input"] = np.exp(spread).astype(problem.dtype)
        elif problem.kind == "log_sum":
            inputs["input"] = generator.uniform(0.5, 1.5, problem.shape).astype(problem.dtype)
        return inputs

    def survival(self, problem: ReduceProblem) -> Survival:
        return SURVIVAL[problem.kind]

    def work(self, problem: ReduceProblem) -> Work:
        steps = len(problem.epilogue.steps)
        return Work(math.prod(problem.shape) + math.prod(problem.output) * steps, self.moved_bytes(problem))

    def tolerance(self, problem: ReduceProblem) -> Tolerance:
        if not problem.element.is_float:
            return EXACT
        root, kind = math.sqrt(problem.loops.count), problem.kind
        relative = 1e-5 + (1e-7 * root if kind == "prod" else 0)
        return Tolerance.of(problem.dtype, relative, 1e-6 * (root if kind == "sum" else 1))


FAMILY = ReduceFamily()
