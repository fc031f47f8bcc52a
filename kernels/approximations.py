"""Compute functions inside kernels, as OpenCL C statements of a chain (chain_functions.py has their format).

This error function is much faster than OpenCL's, which is exact.

Sine, cosine and tangent are right in every lane of a vector, for every finite angle:

    turns   the multiple of pi nearest to |v|; for the cosine an odd one of pi / 2, for the tangent any of pi / 2
    rest    |v| - turns * pi, with pi in parts that turns can be multiplied with exactly (Cody and Waite)
    v       a polynomial of rest, with the sign that turns and v give it

From FAR on these products are no longer exact. Such a lane is rare and computed alone, by OpenCL's own function. Called
for a vector, PoCL 3.1's function is wrong in all other lanes if one is 2^23 or more, or infinite.
"""

import math
from fractions import Fraction

# Of a quotient of polynomials in x * x, the highest power first; x times it is within 4.2e-7 of erf(x) up to 3.85.
ERF_ABOVE = (
    -2.72614226e-10,
    2.77068142e-8,
    -2.10102402e-6,
    -5.69250639e-5,
    -7.34990631e-4,
    -2.95459981e-3,
    -1.6096033e-2,
)
ERF_BELOW = (-1.45660718e-5, -2.13374055e-4, -1.68282697e-3, -7.37332917e-3, -1.4264739e-2)

# Of polynomials in x * x, the highest power first; x + x * x * x * polynomial is within 6.2e-9 of the sine up to
# pi / 2, and within 1.8e-8 of the tangent up to pi / 4, as a share of it (least squares, weighted anew by the errors).
SINE = (2.60548131e-6, -1.98094742e-4, 8.33306462e-3, -0.166666597)
TANGENT = (9.40584019e-3, 3.085959e-3, 2.44509391e-2, 5.34055606e-2, 0.133388668, 0.333331555)

PI = Fraction("3.14159265358979323846264338327950288419716939937510")
PARTS = 5
PART_BITS = 9
FAR = 32768.0
"""Fewer than 2**15 multiples of pi / 2, so that a product with PART_BITS bits fits the 24 of a float."""


def with_erf(argument: str, use: str) -> str:
    """Statements that use erf_, the error function of the argument."""
    return (
        "{{ const {T} of_ = " + argument + ", square_ = of_ * of_;"
        " {T} erf_ = of_ * " + _polynomial(ERF_ABOVE) + " / " + _polynomial(ERF_BELOW) + ";"
        " erf_ = of_ > ({T})(3.85f) ? ({T})(1.0f) : of_ < ({T})(-3.85f) ? ({T})(-1.0f) : erf_; " + use + " }}"
    )


def sine() -> str:
    """Statements that replace {v} by its sine."""
    turns = "turns_ = rint(size_ * " + _number(1 / PI) + ")"
    return _circular("sin", turns, PI, SINE, _signed(_even("turns_") + " ? near_ : -near_"))


def cosine() -> str:
    """Statements that replace {v} by its cosine."""
    half = "half_ = rint(size_ * " + _number(1 / PI) + " - " + _number(0.5) + ")"
    turns = half + ", turns_ = half_ * " + _number(2) + " + " + _number(1)
    return _circular("cos", turns, PI / 2, SINE, _even("half_") + " ? -near_ : near_")


def tangent() -> str:
    """Statements that replace {v} by its tangent."""
    turns = "turns_ = rint(size_ * " + _number(2 / PI) + ")"
    return _circular("tan", turns, PI / 2, TANGENT, _signed(_even("turns_") + " ? near_ : " + _number(-1) + " / near_"))


def _circular(name: str, turns: str, turn: Fraction, coefficients: tuple[float, ...], result: str) -> str:
    """Statements for the OpenCL function `name`. `turns` defines turns_, and `result` is made of near_, the sine or
    tangent of size_ - turns_ * turn. The lanes that are far are then replaced; what is infinite has no angle."""
    reduced = "".join(" rest_ = rest_ - turns_ * " + _number(part) + ";" for part in _parts(turn))
    lane = "((float *)&angles_)[lane_]"
    return (
        "{{ const {T} angle_ = {v}, size_ = fabs(angle_), " + turns + ";"
        " {T} rest_ = size_;" + reduced + " const {T} square_ = rest_ * rest_,"
        " near_ = rest_ + rest_ * square_ * " + _polynomial(coefficients) + ";"
        " {v} = " + result + ";"
        " if (" + _any("size_ >= " + _number(FAR)) + ") {{"
        " {T} angles_ = angle_, results_ = {v};"
        " for (int lane_ = 0; lane_ < (int)(sizeof({T}) / sizeof(float)); ++lane_)"
        f" if (fabs({lane}) >= {FAR}f)"
        f" ((float *)&results_)[lane_] = {name}({lane} - {lane} * 0.0f);"
        " {v} = results_; }} }}"
    )


def _any(condition: str) -> str:
    """Return an expression that says whether a condition holds in any lane. True is -1 in a vector and 1 in a scalar,
    and `any` looks at the sign."""
    return f"any(({condition}) | -({condition}))"


def _even(whole: str) -> str:
    """Return an expression that says whether a number without a fraction is even, lane by lane."""
    half = whole + " * " + _number(0.5)
    return f"rint({half}) == {half}"


def _signed(value: str) -> str:
    """Return a value of an odd function of size_, as that of angle_; -0 included."""
    return "copysign(" + _number(1) + ", angle_) * (" + value + ")"


def _polynomial(coefficients: tuple[float, ...]) -> str:
    """Return its value at square_."""
    text = _number(coefficients[0])
    for number in coefficients[1:]:
        text = f"({text} * square_ + {_number(number)})"
    return text


def _number(value: float | Fraction) -> str:
    """Return a float32 with all its digits."""
    return f"({{T}})({float(value):.9e}f)"


def _parts(number: Fraction) -> list[Fraction]:
    """Numbers with that sum: of PART_BITS bits each, and the last one of as many as a float has."""
    parts = []
    for _ in range(PARTS - 1):
        unit = Fraction(2) ** (math.floor(math.log2(number)) + 1 - PART_BITS)
        parts.append(number // unit * unit)
        number -= parts[-1]
    return [*parts, number]
