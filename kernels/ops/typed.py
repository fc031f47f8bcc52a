"""Apply one function to up to three broadcast inputs of any types: what a chain of steps on floats cannot express.

See typed_elements.cl.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gputune.core.dtypes import ANY, ELEMENT_TYPES, FLOAT, FLOATS, HALVES
from gputune.kernels.family import Array, Problem, TensorSpec, Tolerance
from gputune.kernels.hard_values import MOVES, ORDERS, Survival
from gputune.kernels.indexing.broadcasting import LoopFamily, Loops, check_broadcasts, collapse
from gputune.kernels.template import defines
from gputune.kernels.tiling.streaming import check_indices
from gputune.kernels.typed_functions import TYPED

SURVIVAL: Mapping[str, Survival] = {
    **dict.fromkeys(("cast", "bit_cast", "pow"), Survival(frozenset(), "C leaves undefined what does not fit a type")),
    **dict.fromkeys(("equal", "less", "greater", "less_or_equal", "greater_or_equal"), ORDERS),
}


@dataclass(frozen=True)
class TypedProblem(Problem):
    """output = function(inputs), everything broadcast to `shape` by numpy's rules; `dtype` is the result's.

    `function` is one of TYPED, which says what types it knows.
    """

    op = "Typed"
    types = ANY

    function: str
    shape: tuple[int, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    dtype: str

    def check(self) -> None:
        if self.function not in TYPED:
            raise ValueError(f"unknown function {self.function!r}; there are {', '.join(TYPED)}")
        TYPED[self.function].check(self.function, self.input_dtypes, self.dtype)
        if len(self.input_shapes) != len(self.input_dtypes):
            raise ValueError(f"{len(self.input_dtypes)} inputs have {len(self.input_shapes)} shapes")
        if len({*HALVES} & {*self.input_dtypes, self.dtype}) > 1:
            raise ValueError(f"Typed converts one of {', '.join(HALVES)}, not several at once")
        check_broadcasts("Typed", self.shape, self.input_shapes)
        check_indices("Typed", self.shape)

    @property
    def loops(self) -> Loops:
        return collapse(self.shape, self.input_shapes)


class TypedFamily(LoopFamily):
    """One template: vectors along the innermost loop, computed lane by lane."""

    op = TypedProblem.op
    template = "typed_elements.cl"
    accuracy = Tolerance(relative=1e-6, absolute=0.0)

    def inputs(self, problem: TypedProblem) -> tuple[TensorSpec, ...]:
        typed = enumerate(zip(problem.input_shapes, problem.input_dtypes, strict=True))
        return tuple(TensorSpec(f"input{k}", shape, dtype=dtype) for k, (shape, dtype) in typed)

    def of_floats(self, problem: TypedProblem, dtype: str) -> TypedProblem:
        def other(each: str) -> str:
            return dtype if each in FLOATS else each

        return replace(problem, input_dtypes=tuple(map(other, problem.input_dtypes)), dtype=other(problem.dtype))

    def arguments(self, problem: TypedProblem) -> tuple[str, ...]:
        return ("output", *(spec.name for spec in self.inputs(problem)))

    def seen(self, problem: TypedProblem) -> str:
        seen = map(TYPED[problem.function].seen, (*problem.input_dtypes, problem.dtype))
        return next((each.name for each in seen if each.converts), FLOAT)

    def prelude(self, problem: TypedProblem) -> str:
        loops = problem.loops
        function, parameters, reads, names = TYPED[problem.function], "", "", []
        for which, (letter, dtype) in enumerate(zip("abc", problem.input_dtypes, strict=False)):
            seen, offset = function.seen(dtype), loops.row_offset(which)
            kind = seen.arithmetic
            parameters += f", __global const {seen.storage} *restrict input{which}"
            if loops.steps[which][-1]:
                read = "READ_HALVES" if seen.converts else "READ_AS_IS"
                place = f"{offset + ' + ' if offset else ''}(x)"
                reads += f"{kind} {letter}[VW]; {read}({kind}, {letter}, input{which}, {place}); "
                names.append(f"{letter}[lane]")
            else:
                one = f"ELEMENT(input{which}, {offset or 0})" if seen.converts else f"input{which}[{offset or 0}]"
                reads += f"const {kind} {letter} = {one}; "
                names.append(letter)
        expression = function.expression(tuple(names), problem.input_dtypes, problem.dtype)
        result = function.seen(problem.dtype)
        macros = {"RESULT": result.arithmetic, "INPUT_PARAMETERS": parameters, "READ(row, x)": reads}
        halves = "#define HALF_RESULT\n" if result.converts else ""
        if result.converts and result.storage != "half":
            halves += defines({"half": result.storage})  # what the template calls the type of such a result
        exponent: dict[str, int | str] = {}
        if problem.function == "pow":
            known = ELEMENT_TYPES[problem.input_dtypes[1]]
            exponent = {"EXPONENT": known.arithmetic, "EXPONENT_IS_FLOAT": int(known.is_float)}
        return defines({**macros, "COMPUTE(lane)": expression}) + halves + defines(exponent)

    def reference(self, problem: TypedProblem, inputs: Mapping[str, Array]) -> Array:
        operands = [inputs[f"input{k}"] for k in range(len(problem.input_shapes))]
        with np.errstate(all="ignore"):
            function = TYPED[problem.function]
            result = function.compute(*operands, *((problem.dtype,) if function.gives == "any" else ()))
            return np.array(np.broadcast_to(result, problem.shape), problem.dtype)

    def survival(self, problem: TypedProblem) -> Survival:
        return SURVIVAL.get(problem.function, MOVES)

    def steps(self, problem: TypedProblem) -> int:
        return 1


FAMILY = TypedFamily()
