"""A fused chain of elementwise steps over broadcast inputs; an empty chain copies or expands.

See elementwise_chain.cl.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.kernels.chain import Chain
from gputune.kernels.family import (
    Array,
    DeviceLimits,
    Instance,
    KernelFamily,
    Launch,
    TensorSpec,
    Tolerance,
    Work,
)
from gputune.kernels.space import Configuration, Parameter, TuningSpace
from gputune.kernels.streaming import (
    VECTOR_WIDTHS,
    busy,
    ceil_div,
    check_indices,
    default_group,
    default_width,
    fits,
    group_constraints,
    group_parameters,
    round_up,
)
from gputune.kernels.template import build_options, template

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ElementwiseProblem:
    """output = chain(input, operands), everything broadcast to `shape` by numpy's rules.

    `constant_operands` holds the numbers of the operands that are known at generation time.
    """

    shape: tuple[int, ...]
    operand_shapes: tuple[tuple[int, ...], ...]
    input_shape: tuple[int, ...]
    chain: Chain
    constant_operands: tuple[int, ...] = ()
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype != "float32":
            raise ValueError(f"Elementwise knows dtype float32, not {self.dtype}")
        if min(self.shape, default=1) < 1:
            raise ValueError(f"Elementwise needs positive sizes, not the shape {self.shape}")
        if len(self.operand_shapes) != self.chain.operands:
            given = len(self.operand_shapes)
            raise ValueError(f"the chain reads {self.chain.operands} operands, {given} shapes are given")
        if not set(self.constant_operands) <= set(range(len(self.operand_shapes))):
            raise ValueError(f"constant_operands {self.constant_operands} names an operand that is not there")
        for shape in (self.input_shape, *self.operand_shapes):
            if not _broadcasts(shape, self.shape):
                raise ValueError(f"an input of shape {shape} does not broadcast to {self.shape}")
        check_indices("Elementwise", self.shape)


@dataclass(frozen=True)
class Loops:
    """A broadcast as few loops as it takes: `sizes`, outermost first, and one step per loop for every input.

    The innermost step of an input is 1 (contiguous) or 0 (constant).
    """

    sizes: Shape
    steps: tuple[Shape, ...]

    @property
    def inner(self) -> int:
        return self.sizes[-1]

    @property
    def rows(self) -> int:
        return math.prod(self.sizes[:-1])

    def row_offset(self, which: int) -> str:
        """Where the row of an input begins, as an OpenCL C expression of `row`; empty when at 0."""
        terms = []
        below = 1
        for size, step in list(zip(self.sizes, self.steps[which], strict=True))[-2::-1]:
            if step:
                position = "(row)" if below == 1 else f"(row) / {below}"
                wrapped = position if below * size == self.rows else f"{position} % {size}"
                terms.append(wrapped if step == 1 else f"{wrapped} * {step}")
            below *= size
        return " + ".join(reversed(terms))


def collapse(shape: Shape, shapes: tuple[Shape, ...]) -> Loops:
    """Merge neighbouring axes of `shape` wherever every input of `shapes` walks them in one stride."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in shapes]
    padded = [(1,) * (len(shape) - len(one)) + one for one in shapes]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [0 if one[axis] == 1 else math.prod(one[axis + 1 :]) for one in padded]
        if sizes and all(mine[-1] == step * size for mine, step in zip(steps, here, strict=True)):
            sizes[-1] *= size
            for mine, step in zip(steps, here, strict=True):
                mine[-1] = step
        else:
            sizes.append(size)
            for mine, step in zip(steps, here, strict=True):
                mine.append(step)
    if not sizes:
        return Loops((1,), tuple((1,) for _ in shapes))
    return Loops(tuple(sizes), tuple(map(tuple, steps)))


class ElementwiseFamily(KernelFamily):
    """One template: vectors along the innermost loop, every other loop folded into rows."""

    op = "Elementwise"
    templates = ("elementwise_chain.cl",)

    def inputs(self, problem: ElementwiseProblem) -> tuple[TensorSpec, ...]:
        operands = enumerate(problem.operand_shapes)
        return (
            TensorSpec("input", problem.input_shape),
            *(TensorSpec(f"operand{k}", shape, k in problem.constant_operands) for k, shape in operands),
        )

    def output(self, problem: ElementwiseProblem) -> TensorSpec:
        return TensorSpec("output", problem.shape)

    def space(self, problem: ElementwiseProblem, limits: DeviceLimits) -> TuningSpace:
        loops = _loops(problem)
        return TuningSpace(
            (
                Parameter("VW", VECTOR_WIDTHS, "elements of a vector"),
                Parameter("WPTX", (1, 2, 4, 8), "vectors of a work-item along a row"),
                Parameter("WPTY", (1, 2, 4, 8), "rows of a work-item"),
                *group_parameters(),
            ),
            (
                fits(loops.inner, "a row"),
                busy(("VW", "WPTX"), loops.inner, "the elements of a row"),
                busy(("WPTY",), loops.rows, "the number of rows"),
                busy(("VW", "WPTX", "DIMX"), loops.inner, "the elements of a row"),
                busy(("WPTY", "DIMY"), loops.rows, "the number of rows"),
                *group_constraints(limits),
            ),
        )

    def default(self, problem: ElementwiseProblem, limits: DeviceLimits) -> dict[str, int]:
        loops = _loops(problem)
        width = default_width(limits, loops.inner)
        across, down = default_group(limits, ceil_div(loops.inner, width), loops.rows)
        return {"VW": width, "WPTX": 1, "WPTY": 1, "DIMX": across, "DIMY": down}

    def starters(self, problem: ElementwiseProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        default = self.default(problem, limits)
        space = self.space(problem, limits)
        wanted = [
            default | {"WPTY": 4},
            default | {"WPTX": 4},
            default | {"WPTX": 2, "WPTY": 2},
            default | {"VW": 16, "WPTX": 8, "DIMX": 1},
            default | {"VW": 4, "DIMX": 64, "DIMY": 1},
            default | {"VW": 1, "DIMX": 128, "DIMY": 1},
        ]
        return [one for one in wanted if one != default and not space.violations(one)]

    def render(self, problem: ElementwiseProblem, configuration: Configuration) -> Instance:
        loops = _loops(problem)
        across, down = configuration["DIMX"], configuration["DIMY"]
        vectors = ceil_div(loops.inner, configuration["VW"] * configuration["WPTX"])
        main = Launch(
            source=_prelude(problem.chain, loops) + template("elementwise_chain.cl"),
            entry="elementwise_chain",
            options=build_options({"INNER": loops.inner, "ROWS": loops.rows} | dict(configuration)),
            global_size=(
                round_up(vectors, across),
                round_up(ceil_div(loops.rows, configuration["WPTY"]), down),
            ),
            local_size=(across, down),
            arguments=("input", "output", *(f"operand{k}" for k in range(problem.chain.operands))),
        )
        return Instance(main)

    def reference(self, problem: ElementwiseProblem, inputs: Mapping[str, Array]) -> Array:
        value = np.broadcast_to(inputs["input"], problem.shape)
        operands = [inputs[f"operand{k}"] for k in range(problem.chain.operands)]
        return problem.chain.apply(value, operands)

    def work(self, problem: ElementwiseProblem) -> Work:
        moved = sum(spec.nbytes for spec in (*self.inputs(problem), self.output(problem)))
        return Work(math.prod(problem.shape) * len(problem.chain.steps), moved)

    def tolerance(self, problem: ElementwiseProblem) -> Tolerance:
        return Tolerance(relative=1e-5, absolute=1e-6)


def _broadcasts(shape: Shape, to: Shape) -> bool:
    """Whether numpy's rules broadcast `shape` to exactly `to`."""
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(mine in (1, size) for mine, size in pairs)


def _loops(problem: ElementwiseProblem) -> Loops:
    """The loops of a problem; input 0 is the value, input k + 1 is operand k."""
    return collapse(problem.shape, (problem.input_shape, *problem.operand_shapes))


def _prelude(chain: Chain, loops: Loops) -> str:
    """The macros that elementwise_chain.cl takes: what an element is, and what is done to it."""

    def read(name: str, which: int) -> str:
        offset = loops.row_offset(which)
        if loops.steps[which][-1]:
            return f"LOAD({name}, {offset} + (x))" if offset else f"LOAD({name}, x)"
        return f"SPLAT({name}, {offset or 0})"

    names = [f"operand{k}" for k in range(chain.operands)]
    parameters = "".join(f", __global const float *restrict {name}" for name in names)
    statements = chain.source("(value)", [read(name, k + 1) for k, name in enumerate(names)], "vec")
    return (
        f"#define OPERAND_PARAMETERS {parameters}\n"
        f"#define VALUE(row, x) {read('input', 0)}\n"
        f"#define CHAIN(value, row, x) {{ {statements} }}\n"
    )


FAMILY = ElementwiseFamily()
