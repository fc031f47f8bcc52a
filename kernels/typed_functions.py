"""Define functions of one to three elements of any types: casts, comparisons, logic, and integer arithmetic.

Each is numpy for the reference and an OpenCL C expression for the kernel. Integers wrap around as they do in numpy.
What C leaves undefined (a division by zero, a shift by too much) has a value here, the same in both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.core.dtypes import ELEMENT_TYPES, ElementType, check_dtype, is_float
from gputune.kernels.template import moved

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TypedFunction:
    """What a lane computes, and on which types.

    `takes` says which types its operands have (all the same one): "any", "bool", "float", "whole". `gives` says the
    result's: "bool", "same" as the operands', or "any" other, which `compute` is told last. In the OpenCL text {a}, {b}
    and {c} are the inputs, {T} is the type of the result, {W} an unsigned type at least as wide that wraps around, and
    {negative} expands to whether {b} is -1, which an unsigned one never is. With `moves` the result has the bits of an
    operand.
    """

    inputs: int
    takes: str
    gives: str
    compute: Callable[..., Array]
    opencl: str
    moves: bool = False

    def check(self, name: str, dtypes: tuple[str, ...], dtype: str) -> None:
        """ValueError when it does not compute a `dtype` out of inputs of `dtypes`."""
        check_dtype("Typed", *dtypes, dtype)
        if len(dtypes) != self.inputs:
            raise ValueError(f"{name} takes {self.inputs} inputs, not {len(dtypes)}")
        operands = dtypes
        if name == "where":
            condition, *rest = dtypes
            operands = tuple(rest)
            if condition != "bool":
                raise ValueError(f"where chooses by a bool, not by {condition}")
        elif name == "pow":
            operands = dtypes[:1]
        if len(set(operands)) > 1:
            raise ValueError(f"{name} takes operands of one type, not of {', '.join(operands)}")
        if not _is(operands[0], self.takes):
            raise ValueError(f"{name} takes numbers that are {self.takes}, not {operands[0]}")
        wanted = {"bool": "bool", "same": operands[0], "any": dtype}[self.gives]
        if name == "bit_cast" and (ELEMENT_TYPES[dtype].nbytes != ELEMENT_TYPES[operands[0]].nbytes or dtype == "bool"):
            raise ValueError(f"bit_cast of {operands[0]} gives numbers as wide, not {dtype}")
        if dtype != wanted:
            raise ValueError(f"{name} of {operands[0]} gives {wanted}, not {dtype}")

    def expression(self, names: tuple[str, ...], dtypes: tuple[str, ...], dtype: str) -> str:
        """Return the OpenCL C expression over the inputs called `names`."""
        wide = "ulong" if dtype.endswith("64") else "uint"
        operands = dict(zip("abc", names, strict=False))
        negative = f"({operands.get('b')} == -1)" if not dtypes[-1].startswith("u") else "0"
        text = cast_text(dtypes[0], dtype) if self.opencl == CAST else self.opencl
        return text.format(**operands, T=self.seen(dtype).arithmetic, W=wide, negative=negative)

    def seen(self, dtype: str) -> ElementType:
        """Return the type as which a kernel sees elements of a type."""
        return ELEMENT_TYPES[moved(dtype) if self.moves else dtype]


def _is(dtype: str, kind: str) -> bool:
    return kind in ("any", "bool" if dtype == "bool" else "float" if is_float(dtype) else "whole")


CAST = "cast"
"""In the place of an expression: the one of `cast_text`."""


def cast_text(source: str, target: str) -> str:
    """Return a cast as onnxruntime has it: fractions are cut off, and what does not fit wraps around."""
    if target == "bool":
        return "{a} != 0"
    if not ELEMENT_TYPES[source].is_float or ELEMENT_TYPES[target].is_float:
        return "({T}){a}"
    if target == "uint64":  # one half does not fit a long, and C leaves negative ones undefined
        return "{a} < 9223372036854775808.0f ? ({T})(long){a} : ({T}){a}"
    return "({T})(long){a}"


def converted(values: Array, dtype: str) -> Array:
    """Return what `cast_text` computes, in numpy."""
    if not is_float(values.dtype.name) or not _is(dtype, "whole"):
        return values.astype(dtype)
    wrapped = values.astype(np.int64).astype(dtype)  # what a small type does not hold
    return np.where(values < 2.0**63, wrapped, values.astype(dtype))


def _whole_power(base: Array, exponent: Array) -> Array:
    """Powers that wrap around; with negative exponents only those of 1 and -1 are not zero."""
    wrapped = np.power(base.astype(np.uint64), np.maximum(exponent, 0).astype(np.uint64))
    below = np.where(base == 1, 1, np.where(base.astype(np.int64) == -1, np.where(exponent % 2 == 0, 1, -1), 0))
    return np.where(exponent < 0, below.astype(base.dtype), wrapped.astype(base.dtype))


def _power(base: Array, exponent: Array) -> Array:
    if not is_float(exponent.dtype.name):
        return _whole_power(base, exponent.astype(np.int64))
    whole = np.floor(exponent) == exponent
    broken = np.power(base.astype(np.float64), exponent)
    return np.where(
        whole, _whole_power(base, np.where(whole, exponent, 0).astype(np.int64)), broken.astype(np.int64)
    ).astype(base.dtype)


def _divide(a: Array, b: Array) -> Array:
    """Return a divided by b, rounded toward zero; 0 where b is 0."""
    floored = a // np.where(b == 0, 1, b)
    return np.where(b == 0, 0, floored + ((a - floored * b != 0) & ((a < 0) != (b < 0)))).astype(a.dtype)


def _divisor(b: Array) -> Array:
    """Return a divisor that divides: by 1 nothing remains."""
    return np.where(b == 0, 1, b).astype(b.dtype)


def _shift(shift: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """Shifts by as many bits as there are, or more, or by a negative number, leave copies of the sign at most."""
    fits = (b >= 0) & (b < a.dtype.itemsize * 8)
    left = np.where(a < 0, -1, 0) if shift is np.right_shift else 0
    return np.where(fits, shift(a, np.where(fits, b, 0).astype(a.dtype)), left).astype(a.dtype)


def _comparison(compute: Callable[..., Array], sign: str) -> TypedFunction:
    return TypedFunction(2, "any", "bool", compute, f"{{a}} {sign} {{b}}")


def _logic(compute: Callable[..., Array], sign: str) -> TypedFunction:
    return TypedFunction(2, "bool", "bool", compute, f"({{a}} != 0) {sign} ({{b}} != 0)")


def _wrapping(compute: Callable[..., Array], sign: str) -> TypedFunction:
    return TypedFunction(2, "whole", "same", compute, f"({{T}})(({{W}}){{a}} {sign} ({{W}}){{b}})")


def _whole(inputs: int, compute: Callable[..., Array], opencl: str) -> TypedFunction:
    return TypedFunction(inputs, "whole", "same", compute, opencl)


_QUOTIENT = "{b} == 0 ? 0 : {negative} ? ({T})(({W})0 - ({W}){a}) : ({T})({a} / {b})"
_REMAINDER = "{b} == 0 || {negative} ? 0 : ({T})({a} % {b})"

TYPED: Mapping[str, TypedFunction] = {
    "copy": TypedFunction(1, "any", "same", lambda a: a, "{a}", moves=True),
    "cast": TypedFunction(1, "any", "any", converted, CAST),
    "bit_cast": TypedFunction(1, "any", "any", lambda a, dtype: a.view(dtype), "as_{T}({a})", moves=True),
    "where": TypedFunction(3, "any", "same", np.where, "{a} ? {b} : {c}", moves=True),
    "equal": _comparison(np.equal, "=="),
    "less": _comparison(np.less, "<"),
    "greater": _comparison(np.greater, ">"),
    "less_or_equal": _comparison(np.less_equal, "<="),
    "greater_or_equal": _comparison(np.greater_equal, ">="),
    "and": _logic(np.logical_and, "&"),
    "or": _logic(np.logical_or, "|"),
    "xor": _logic(np.logical_xor, "^"),
    "not": TypedFunction(1, "bool", "bool", np.logical_not, "{a} == 0"),
    "is_nan": TypedFunction(1, "float", "bool", np.isnan, "isnan({a}) != 0"),
    "is_inf": TypedFunction(1, "float", "bool", np.isinf, "isinf({a}) != 0"),
    "is_positive_inf": TypedFunction(1, "float", "bool", np.isposinf, "{a} == INFINITY"),
    "is_negative_inf": TypedFunction(1, "float", "bool", np.isneginf, "{a} == -INFINITY"),
    "add": _wrapping(np.add, "+"),
    "sub": _wrapping(np.subtract, "-"),
    "mul": _wrapping(np.multiply, "*"),
    "div": _whole(2, _divide, _QUOTIENT),
    "mod": _whole(2, lambda a, b: a % _divisor(b), f"floor_mod({_REMAINDER}, {{b}})"),
    "fmod": _whole(2, lambda a, b: np.fmod(a, _divisor(b)), _REMAINDER),
    "pow": _whole(2, _power, "power({a}, {b})"),
    "max": _whole(2, np.maximum, "{a} > {b} ? {a} : {b}"),
    "min": _whole(2, np.minimum, "{a} < {b} ? {a} : {b}"),
    "neg": _whole(1, np.negative, "({T})(({W})0 - ({W}){a})"),
    "abs": _whole(1, np.abs, "{a} < 0 ? ({T})(({W})0 - ({W}){a}) : {a}"),
    "sign": _whole(1, np.sign, "({T})(({a} > 0) - ({a} < 0))"),
    "relu": _whole(1, lambda a: np.maximum(a, 0), "{a} > 0 ? {a} : 0"),
    "bitwise_and": _whole(2, np.bitwise_and, "{a} & {b}"),
    "bitwise_or": _whole(2, np.bitwise_or, "{a} | {b}"),
    "bitwise_xor": _whole(2, np.bitwise_xor, "{a} ^ {b}"),
    "bitwise_not": _whole(1, np.bitwise_not, "({T})~{a}"),
    # A negative number of bits is a large one, since sizeof is unsigned.
    "shift_left": _whole(
        2, lambda a, b: _shift(np.left_shift, a, b), "{b} < 8 * sizeof({T}) ? ({T})(({W}){a} << {b}) : 0"
    ),
    "shift_right": _whole(
        2,
        lambda a, b: _shift(np.right_shift, a, b),
        "{b} < 8 * sizeof({T}) ? ({T})({a} >> {b}) : {a} < 0 ? ({T})-1 : 0",
    ),
}
