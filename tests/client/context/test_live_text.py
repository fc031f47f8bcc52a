"""Test what conditions on build options leave of a source."""

import re
from collections.abc import Mapping

import pytest

from gputune.client.context.live_text import live_text
from gputune.kernels.template import template

MACROS = {"A": "1", "B": "0", "N": "-3", "TYPE": "half", "SUM": "(1 + 1)"}


def left(source: str, macros: Mapping[str, str] = MACROS) -> str:
    """What is left of lines that are parted by "; "."""
    return "; ".join(live_text(source.replace("; ", "\n"), macros).split("\n"))


@pytest.mark.parametrize(
    ("condition", "yes", "no"),
    [
        ("if A", True, False),
        ("if B", False, True),
        ("if !A", False, True),
        ("if !B && A", True, False),
        ("if A > 1", False, True),
        ("if A >= 1 && N < B", True, False),
        ("if A == 0 || N != -3", False, True),
        ("if A + 2 * A == 3", True, False),
        ("if (A - 1) == B", True, False),
        ("if defined(A) && !defined(B)", False, True),
        ("if defined A", True, False),
        ("ifdef B", True, False),
        ("ifndef B", False, True),
        ("if 0x10 == 16", True, False),
        ("if B && UNKNOWN", False, True),
        ("if A || UNKNOWN", True, False),
        # What is not certain leaves both.
        ("if UNKNOWN", True, True),
        ("if True", True, True),
        ("if defined(UNKNOWN)", True, True),
        ("ifdef UNKNOWN", True, True),
        ("ifndef UNKNOWN", True, True),
        ("if A && UNKNOWN", True, True),
        ("if definedA == 0", True, True),
        ("if !B == B", False, True),
        ("if !(A) == B", True, True),
        ("if A > 1u", True, True),
        ("if A / 2", True, True),
        ("if A < B < 2", True, True),
        ("if A ? B : A", True, True),
        ("if TYPE", True, True),
        ("if SUM == 2", True, True),
        ("if 2147483647 + 1 > 0", True, True),
        ("if __has_builtin(__builtin_prefetch)", True, True),
        ("if", True, True),
        ("if ((", True, True),
    ],
)
def test_a_condition_leaves_one_side_where_it_is_certain(condition: str, yes: bool, no: bool) -> None:
    expected = ["before", *["yes"] * yes, *["no"] * no, "behind"]
    assert left(f"before; #{condition}; yes; #else; no; #endif; behind") == "; ".join(expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#if B; a; #elif A; b; #else; c; #endif", "b"),
        ("#if A; a; #elif A; b; #else; c; #endif", "a"),
        ("#if B; a; #elif B; b; #else; c; #endif", "c"),
        ("#if U; a; #elif A; b; #else; c; #endif", "a; b"),
        ("#if B; a; #elif U; b; #else; c; #endif", "b; c"),
        ("#if A; #if B; a; #endif; b; #endif; c", "b; c"),
        ("#if B; #if A; a; #else; b; #endif; #else; c; #endif", "c"),
        ("#if B; a; #elifdef A; b; #else; c; #endif", "b"),
        ("#if B; a; #elifndef U; b; #else; c; #endif", "b; c"),
        ("  #  if B; a; # endif; b", "b"),
        # Macros of the source.
        ("#define D 2; #if D == 2; a; #else; b; #endif", "#define D 2; a"),
        ("#ifndef A; #define A 7; #endif; #if A == 1; a; #endif", "a"),
        ("#define A 7; #if A == 1; a; #endif", "#define A 7"),
        ("#undef A; #if A == 1; a; #endif", "#undef A; a"),
        ("#define A(x) x; #if A == 1; a; #endif", "#define A(x) x; a"),
        ("#ifdef U; #define A 7; #endif; #if A == 1; a; #else; b; #endif", "#define A 7; a; b"),
        ("#ifdef U; #define V 1; #endif; #ifdef V; a; #else; b; #endif", "#define V 1; a; b"),
        ("#if B; #undef A; #endif; #if A; a; #else; b; #endif", "a"),
        # Broken ones are left to the compiler.
        ("#endif; #else; a", "#endif; #else; a"),
        ("#if B; a", ""),
    ],
)
def test_lines_are_read_as_a_compiler_reads_them(source: str, expected: str) -> None:
    assert left(source) == expected


@pytest.mark.parametrize("name", ["normalise_rows.cl", "softmax_rows.cl", "reduce_rows.cl", "arg_rows.cl"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_rows_cooperate_by_more_than_one_lane(name: str, lanes: int) -> None:
    text = re.sub(r"//.*", "", template(name)).replace("\\\n", " ")
    assert ("barrier(" in live_text(text, {"VW": "4", "LANES": str(lanes)})) == (lanes > 1)
