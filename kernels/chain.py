"""Represent fused chains of elementwise steps: the epilogue of a kernel, or the whole of an Elementwise task.

A chain starts from a value and applies its steps in order. A step is unary, or binary with a scalar, or binary with the
k-th extra tensor (an operand). The same chain gives numpy for the reference and OpenCL C for the kernel.
chain_functions.py defines what a step may compute.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gputune.kernels.chain_functions import BINARY, SWAPPED, UNARY, Array, Function


@dataclass(frozen=True)
class Step:
    """One step: `function` of the value so far, with `values` (scalars) or the tensor numbered `operand`.

    In an epilogue, an operand is shaped as the output, or it has one number for each of so many `channels`, which are
    the output's last axis; one number is for all. With `swapped` the operand is the left side of a function that has
    two. Values are `rounded`, so that the reference and the kernel see the same number; `swapped` is dropped where it
    changes nothing.
    """

    function: str
    values: tuple[float, ...] = ()
    operand: int | None = None
    swapped: bool = False
    channels: int = field(default=0, metadata={"added": True})

    def __post_init__(self) -> None:
        if self.function in BINARY:
            if (self.operand is None) != (len(self.values) == 1) or len(self.values) > 1:
                raise ValueError(f"{self.function} takes one scalar or one tensor operand")
        elif self.function not in UNARY:
            raise ValueError(f"unknown step {self.function!r}; there are {', '.join([*UNARY, *BINARY])}")
        elif self.operand is not None or len(self.values) != UNARY[self.function].values:
            raise ValueError(f"{self.function} takes {UNARY[self.function].values} values and no operand")
        with np.errstate(over="ignore"):
            values = tuple(map(rounded, self.values))
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

    @property
    def has_domain(self) -> bool:
        """Whether it is defined, or tame, for some numbers only; with most scalars on the right nothing is lost."""
        if self.function in BINARY and self.operand is None and not self.swapped:
            return self.function == "pow" and (self.values[0] < 0 or not self.values[0].is_integer())
        return self.meaning.domain


MOST_TRIED = 256
SIGNS: tuple[float, ...] = (1, -1)
SCALES: tuple[float, ...] = (1, -1, 1 / 8, -1 / 8, 4, -4)
"""What numbers around one are multiplied with, to be in the domain of a root, an arc sine, an inverse hyperbolic."""

TAME = 1000.0
"""What numbers around one may become in a chain, when its inputs have the right signs and sizes."""


EXACT = frozenset(("whole", "relu", "clip", "max", "min", "neg", "abs"))
"""Steps that round nothing."""


ROUNDED = frozenset(("add", "sub", "mul"))


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
    def operand_names(self) -> tuple[str, ...]:
        """What families call these tensors: operand0, operand1 and so on."""
        return tuple(f"operand{k}" for k in range(self.operands))

    @property
    def operand_channels(self) -> dict[int, int]:
        """How many channels the operands of channels have, by their numbers."""
        return {step.operand: step.channels for step in self.steps if step.operand is not None and step.channels}

    @property
    def of_whole(self) -> bool:
        """Return whether the chain starts from a sum of products of whole numbers, which must be exact."""
        return bool(self.steps) and self.steps[0].function == "whole"

    @property
    def quantises_exactly(self) -> bool:
        """Return whether an exact value gives the same result on each device, even if a step rounds to whole numbers.

        Between two roundings there is at most one product, and no sum behind it, so a compiler has nothing to contract
        it with."""
        pending = False
        for step in self.steps:
            if step.function in ROUNDED and not pending:
                pending = step.function == "mul"
            elif step.function in ("quotient", "ratio", "saturate"):
                pending = False
            elif step.function not in EXACT:
                return False
        return True

    @property
    def has_domain(self) -> bool:
        """Whether a step is defined, or tame, for some numbers only: sqrt, log, and a division by a tensor."""
        return any(step.has_domain for step in self.steps)

    @property
    def discontinuous(self) -> bool:
        """Whether the slightest error before some step may become a large one: floor, sign, tan."""
        return any(step.meaning.discontinuous for step in self.steps)

    def factors(self) -> tuple[float, ...]:
        """Factors of the value and of each operand, so that numbers around one times these stay in every domain.

        Found by trying, signs first; all 1 when nothing tried works.
        """
        count = 1 + self.operands
        sizes = np.random.default_rng(0).uniform(0.5, 1.5, (count, 64))
        sums = sizes.copy()
        sums[0] = np.geomspace(1 / 16, 4, 64)  # a sum at a border lacks some of its terms, a bias adds one
        for size, choices in itertools.product((sums, sizes), (SIGNS, SCALES)):
            for factors in itertools.islice(itertools.product(choices, repeat=count), MOST_TRIED):
                value, *operands = size * np.array(factors)[:, np.newaxis]
                if np.all(np.abs(self.apply(value, operands)) < TAME):
                    return factors
        return (1,) * count

    def then(self, step: Step) -> "Chain":
        """Return this chain and one more step."""
        return Chain((*self.steps, step))

    def apply(self, value: Array, operands: Sequence[Array] = ()) -> Array:
        """Return the chain in numpy (float64 inside, the value's dtype outside); operands broadcast. Sums and products
        of float32 are rounded to it, as kernels do, so that what is rounded to whole numbers behind them is the same.
        """
        if not self.steps:
            return value
        result = value.astype(np.float64)
        with np.errstate(all="ignore"):
            for step in self.steps:
                others = step.values if step.operand is None else (operands[step.operand].astype(np.float64),)
                result = step.meaning.compute(result, *others)
                if step.function in ROUNDED and value.dtype == np.float32:
                    result = result.astype(np.float32).astype(np.float64)
            return np.asarray(result, dtype=value.dtype)

    def apply_to(self, value: Array, inputs: Mapping[str, Array]) -> Array:
        """`apply` with the operands among a family's inputs."""
        return self.apply(value, [inputs[name] for name in self.operand_names])

    def source(self, value: str, operands: Sequence[str] = (), vector: str = "T") -> str:
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
        """Return the chain as macros to put before a template whose operands are shaped as its output.

        OPERAND_PARAMETERS continues the kernel's parameter list (", __global const TYPE *restrict
        operand0"). EPILOGUE(value, T, LOAD, offset) updates the lvalue `value` of type T, reading
        LOAD(operandK, offset). The template includes elements.cl or vectors.cl, which say what TYPE is.
        """
        parameters = "".join(f", __global const TYPE *restrict {name}" for name in self.operand_names)
        channels = self.operand_channels
        operands = [_operand(name, channels.get(k, 0)) for k, name in enumerate(self.operand_names)]
        statements = self.source("(value)", operands)
        return f"#define OPERAND_PARAMETERS {parameters}\n#define EPILOGUE(value, T, LOAD, offset) {{ {statements} }}\n"


def _operand(name: str, channels: int) -> str:
    """Return what an epilogue reads of an operand, as a prelude has it."""
    if channels == 1:
        return f"(T)(ELEMENT({name}, 0))"
    return f"LOAD({name}, (offset) % {channels})" if channels else f"LOAD({name}, offset)"


EMPTY = Chain()
"""The chain that changes nothing."""


def rounded(number: float) -> float:
    """Return what a number is as a `literal`."""
    return float(np.float32(number))


def literal(number: float) -> str:
    """Return an OpenCL C expression that keeps every bit of a float32; infinities have a name."""
    if np.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    return f"{number:.9e}f"
