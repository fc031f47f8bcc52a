"""Define the functions that chain steps may have: numpy for the reference, OpenCL C statements for the kernel.

Both give NaN if onnxruntime does: NaN passes through everything but threshold and shrink. If a function has no value
for an infinity (its product with zero), the result is NaN as well.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.core.dtypes import BFLOAT
from gputune.kernels.approximations import cosine, sine, tangent, with_erf

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Function:
    """What a step computes: with numpy from (value, *scalars or operand), and as OpenCL C statements.

    In the OpenCL text {v} is the value, {x} and {y} the scalars or the operand, {T} the type of all of them.
    Bounds are written as selections and not with fmin and fmax, which would turn NaN into the bound. `domain` says that
    it is defined, or tame, for some numbers only; `discontinuous`, that the slightest error before it may become a
    large one.
    """

    values: int
    compute: Callable[..., Array]
    opencl: str
    domain: bool = False
    discontinuous: bool = False


def _called(name: str, compute: Callable[..., Array], domain: bool = False, discontinuous: bool = False) -> Function:
    """Return a function that OpenCL C has."""
    return Function(0, compute, f"{{v}} = {name}({{v}});", domain, discontinuous)


def _erf(v: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(v), np.float64)


def _softplus(v: Array) -> Array:
    return np.logaddexp(v, 0)


def _expm1_below(v: Array) -> Array:
    """exp(v) - 1 where v is negative, else 0."""
    return np.expm1(np.minimum(v, 0))


def _quotient(v: Array, divisor: Array, *_: float) -> Array:
    """Divide as float32 does: the quotient is the nearest one that the type has."""
    return np.asarray(np.float32(v) / np.float32(divisor), np.float64)


def _saturate(v: Array, low: float, high: float) -> Array:
    """Round to the nearest whole number, the even one of two, within bounds; NaN becomes the lower one."""
    known = np.float32(v)
    return np.rint(np.where(known > low, np.minimum(known, high), low)).astype(np.float64)


def _nearest(quotient: str, correction: str, dividend: str = "{v}", divisor: str = "{x}") -> str:
    """Return the division whose error a remainder without an error corrects; infinities and zeros have no remainder."""
    return (
        f"{{{{ const {{T}} near_ = {quotient}, rest_ = fma(-near_, {divisor}, {dividend});"
        f" {{v}} = fabs(rest_) < ({{T}})(INFINITY) ? {correction} : near_; }}}}"
    )


UNARY = {
    "relu": Function(0, lambda v: np.maximum(v, 0), "{v} = {v} < ({T})(0.0f) ? ({T})(0.0f) : {v};"),
    "leaky_relu": Function(1, lambda v, a: np.where(v < 0, v * a, v), "{v} = {v} < ({T})(0.0f) ? {v} * {x} : {v};"),
    "threshold": Function(
        1, lambda v, a: np.where(v > a, v, 0), "{v} = {v} > {x} ? {v} : ({T})(0.0f);", discontinuous=True
    ),
    "shrink": Function(
        2,
        lambda v, edge, bias: np.where(v < -edge, v + bias, np.where(v > edge, v - bias, 0)),
        "{v} = {v} < -{x} ? {v} + {y} : {v} > {x} ? {v} - {y} : ({T})(0.0f);",
        discontinuous=True,
    ),
    "elu": Function(
        1,
        lambda v, a: np.where(v < 0, a * _expm1_below(v), v),
        "{v} = {v} < ({T})(0.0f) ? {x} * expm1({v}) : {v};",
    ),
    "selu": Function(
        2,
        lambda v, a, g: g * np.where(v < 0, a * _expm1_below(v), v),
        "{v} = {y} * ({v} < ({T})(0.0f) ? {x} * expm1({v}) : {v});",
    ),
    "celu": Function(
        1,
        lambda v, a: np.where(v < 0, a * np.expm1(v / a), v),
        "{v} = {v} < ({T})(0.0f) ? {x} * expm1({v} / {x}) : {v};",
    ),
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
    "swish": Function(
        1, lambda v, a: v * 0.5 * (np.tanh(0.5 * a * v) + 1), "{v} = {v} / (({T})(1.0f) + exp(-{x} * {v}));"
    ),
    "gelu": Function(
        0,
        lambda v: 0.5 * v * (1 + _erf(v / math.sqrt(2))),
        with_erf("{v} * ({T})(0.70710678f)", "{v} = ({T})(0.5f) * {v} * (({T})(1.0f) + erf_);"),
    ),
    "gelu_tanh": Function(
        0,
        lambda v: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
        "{v} = {v} / (({T})(1.0f) + exp({v} * (({T})(-1.5957691f) + ({T})(-0.071354816f) * {v} * {v})));",
    ),
    "mish": Function(  # tanh(log(1 + e)) is a quotient; beyond 20 it is one
        0,
        lambda v: v * np.tanh(_softplus(v)),
        "{{ const {T} e_ = exp({v} > ({T})(20.0f) ? ({T})(20.0f) : {v}), above_ = e_ * (e_ + ({T})(2.0f));"
        " {v} = {v} * (above_ / (above_ + ({T})(2.0f))); }}",
    ),
    "softplus": Function(  # e / (u - 1) undoes the rounding of u = 1 + e, as log1p does at a higher cost
        0,
        _softplus,
        "{{ const {T} e_ = exp(-fabs({v})), u_ = ({T})(1.0f) + e_;"
        " {v} = ({v} > ({T})(0.0f) ? {v} : ({T})(0.0f))"
        " + (u_ == ({T})(1.0f) ? e_ : log(u_) * e_ / (u_ - ({T})(1.0f))); }}",
    ),
    "softsign": Function(0, lambda v: v / (1 + np.abs(v)), "{v} = {v} / (({T})(1.0f) + fabs({v}));"),
    "square": Function(0, np.square, "{v} = {v} * {v};"),
    "cube": Function(0, lambda v: v**3, "{v} = {v} * {v} * {v};"),
    "reciprocal": Function(0, np.reciprocal, "{v} = ({T})(1.0f) / {v};", domain=True),
    "sign": Function(
        0,
        np.sign,
        "{v} = {v} > ({T})(0.0f) ? ({T})(1.0f) : {v} < ({T})(0.0f) ? ({T})(-1.0f) : {v};",
        discontinuous=True,
    ),
    "neg": Function(0, np.negative, "{v} = -{v};"),
    "abs": _called("fabs", np.abs),
    "floor": _called("floor", np.floor, discontinuous=True),
    "ceil": _called("ceil", np.ceil, discontinuous=True),
    "round": _called("rint", np.rint, discontinuous=True),
    "half": Function(  # a vector's lanes one by one: what it is called is not known here
        0,
        lambda v: v.astype(np.float32).astype(np.float16).astype(np.float64),
        "{{ {T} rounded_ = {v};"
        " UNROLL for (int lane_ = 0; lane_ < (int)(sizeof({T}) / sizeof(float)); ++lane_) {{ ushort bits_;"
        " vstore_half_rte(((float *)&rounded_)[lane_], 0, (half *)&bits_);"
        " ((float *)&rounded_)[lane_] = vload_half(0, (const half *)&bits_); }} {v} = rounded_; }}",
        discontinuous=True,
    ),
    "bfloat": Function(
        0,
        lambda v: v.astype(np.float32).astype(BFLOAT).astype(np.float64),
        "{{ {T} rounded_ = {v};"
        " UNROLL for (int lane_ = 0; lane_ < (int)(sizeof({T}) / sizeof(float)); ++lane_) {{"
        " const uint bits_ = as_uint(((float *)&rounded_)[lane_]);"
        " if ((bits_ & 0x7fffffff) <= 0x7f800000)"
        " ((float *)&rounded_)[lane_] = as_float((bits_ + 0x7fff + (bits_ >> 16 & 1)) & 0xffff0000); }}"
        " {v} = rounded_; }}",
        discontinuous=True,
    ),
    "whole": Function(0, lambda v: v, ""),
    "quotient": Function(2, _quotient, _nearest("{v} * {y}", "fma(rest_, {y}, near_)")),
    "saturate": Function(2, _saturate, "{v} = rint({v} > {x} ? ({v} < {y} ? {v} : {y}) : {x});", discontinuous=True),
    "one_for_zero": Function(0, lambda v: np.where(v == 0, 1, v), "{v} = {v} == ({T})(0.0f) ? ({T})(1.0f) : {v};"),
    "sqrt": _called("sqrt", np.sqrt, domain=True),
    "exp": _called("exp", np.exp),
    "log": _called("log", np.log, domain=True),
    "erf": Function(0, _erf, with_erf("{v}", "{v} = erf_;")),
    "sin": Function(0, np.sin, sine()),
    "cos": Function(0, np.cos, cosine()),
    "tan": Function(0, np.tan, tangent(), domain=True, discontinuous=True),
    "asin": _called("asin", np.arcsin, domain=True),
    "acos": _called("acos", np.arccos, domain=True),
    "atan": _called("atan", np.arctan),
    "sinh": _called("sinh", np.sinh),
    "cosh": _called("cosh", np.cosh),
    "tanh": _called("tanh", np.tanh),
    "asinh": _called("asinh", np.arcsinh),
    "acosh": _called("acosh", np.arccosh, domain=True),
    "atanh": _called("atanh", np.arctanh, domain=True),
}
"""Functions of the value and scalars: leaky_relu(slope), threshold(edge), shrink(edge, bias), elu(alpha),
selu(alpha, gamma), celu(alpha), clip(min, max), hard_sigmoid(alpha, beta), swish(alpha). half rounds to float16,
bfloat to bfloat16; what is too large becomes infinite.

Of quantised numbers: whole says that the value is a sum of products of whole numbers and below 2 ** 24, so that float32
has it whatever the order; it computes nothing. quotient(divisor, reciprocal) is the division of float32, which devices
do not have to have: with the nearest float to the reciprocal and the remainder it needs none (Markstein). saturate(low,
high) rounds to whole numbers within bounds."""


def _remainder(v: str, x: str) -> str:
    """Return the remainder of v by x with the sign of x, from the one with the sign of v."""
    moved = "(rest_ < ({T})(0.0f)) != (" + x + " < ({T})(0.0f)) && rest_ != ({T})(0.0f)"
    return "{{ {T} rest_ = fmod(" + v + ", " + x + "); {v} = " + moved + " ? rest_ + " + x + " : rest_; }}"


BINARY = {
    "add": Function(1, np.add, "{v} = {v} + {x};"),
    "sub": Function(1, np.subtract, "{v} = {v} - {x};"),
    "mul": Function(1, np.multiply, "{v} = {v} * {x};"),
    "div": Function(1, np.divide, "{v} = {v} / {x};", domain=True),
    "ratio": Function(1, _quotient, _nearest("{v} / {x}", "near_ + rest_ / {x}"), domain=True),
    "pow": Function(1, np.power, "{v} = pow({v}, {x});", domain=True),
    "max": Function(1, np.maximum, "{v} = {v} > {x} || {v} != {v} ? {v} : {x};"),
    "min": Function(1, np.minimum, "{v} = {v} < {x} || {v} != {v} ? {v} : {x};"),
    "prelu": Function(1, lambda v, x: np.where(v < 0, v * x, v), "{v} = {v} < ({T})(0.0f) ? {v} * {x} : {v};"),
    "mod": Function(1, np.mod, _remainder("{v}", "{x}"), domain=True, discontinuous=True),
    "fmod": Function(1, np.fmod, "{v} = fmod({v}, {x});", domain=True, discontinuous=True),
}
"""Functions of the value and one scalar or one operand. ratio is a division that is rounded as quotient's."""

SWAPPED = {
    "sub": Function(1, lambda v, x: x - v, "{v} = {x} - {v};"),
    "div": Function(1, lambda v, x: x / v, "{v} = {x} / {v};", domain=True),
    "ratio": Function(
        1, lambda v, x: _quotient(x, v), _nearest("{x} / {v}", "near_ + rest_ / {v}", "{x}", "{v}"), domain=True
    ),
    "pow": Function(1, lambda v, x: np.power(x, v), "{v} = pow({x}, {v});", domain=True),
    "prelu": Function(1, lambda v, x: np.where(x < 0, v * x, x), "{v} = {x} < ({T})(0.0f) ? {v} * {x} : {x};"),
    "mod": Function(1, lambda v, x: np.mod(x, v), _remainder("{x}", "{v}"), domain=True, discontinuous=True),
    "fmod": Function(1, lambda v, x: np.fmod(x, v), "{v} = fmod({x}, {v});", domain=True, discontinuous=True),
}
"""The binary functions that differ when the operand is the left side."""
