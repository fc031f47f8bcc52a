"""Apply conditional compilation: return the lines of a kernel's source that its build options leave.

A template holds text for several ways to run a kernel, between conditions on macros. Each launch is built with one set
of macros. The lines that are left show whether its work-items wait for each other.

This is no C preprocessor: macros are not expanded, and an uncertain condition keeps both its branches. The result holds
all that a compiler sees, and perhaps more.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)[ \t]*(.*)", re.ASCII)
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)
_MACRO = re.compile(r"([A-Za-z_]\w*)(?![\w(])[ \t]*(.*)", re.ASCII)
_DEFINED = re.compile(r"\bdefined\b[ \t]*(?:\([ \t]*(\w+)[ \t]*\)|(\w+))", re.ASCII)
_NOT = re.compile(r"!(?!=)[ \t]*(\w+)", re.ASCII)
_IS_DEFINED = "gputune_is_defined_"
_UNARY: Mapping[type[ast.AST], Callable[[int], int]] = {ast.Not: lambda value: int(not value), ast.USub: operator.neg}
_BINARY: Mapping[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def live_text(source: str, options: Mapping[str, str]) -> str:
    """The lines of a source without comments and continued lines, less those that are certainly left out where
    `options` are its macros, and less conditions themselves."""
    return "\n".join(_live_lines(source, options))


@dataclass
class _Condition:
    """One that the lines are in. own: whether that of its present side is true; earlier: whether one before it was.
    None where that is not certain."""

    own: bool | None
    earlier: bool | None = False

    @property
    def holds(self) -> bool | None:
        """Whether the present side is built."""
        return _both(self.own, None if self.earlier is None else not self.earlier)

    def turn(self, own: bool | None) -> None:
        """To the next side."""
        self.own, self.earlier = own, _either(self.earlier, self.own)


def _live_lines(source: str, options: Mapping[str, str]) -> Iterator[str]:
    macros = dict(options)
    """Those that are certain; what is not in here may be defined or not."""
    conditions: list[_Condition] = []
    for line in source.split("\n"):
        found = _DIRECTIVE.fullmatch(line)
        word, rest = found.groups() if found else ("", "")
        if word in ("if", "ifdef", "ifndef"):
            conditions.append(_Condition(_value(word, rest, macros)))
        elif word in ("elif", "else", "elifdef", "elifndef") and conditions:
            conditions[-1].turn(True if word == "else" else _value(word.removeprefix("el"), rest, macros))
        elif word == "endif" and conditions:
            conditions.pop()
        elif all(condition.holds is not False for condition in conditions):
            if word in ("define", "undef"):
                _define(rest, word == "define" and all(condition.holds for condition in conditions), macros)
            yield line


def _define(rest: str, certain: bool, macros: dict[str, str]) -> None:
    """certain: the macro is what it says; otherwise nothing is known of it any more."""
    name, found = re.match(r"\w*", rest, re.ASCII), _MACRO.fullmatch(rest)
    if name is not None:
        macros.pop(name[0], None)
    if found is not None and certain:
        macros[found[1]] = found[2].strip()


def _value(word: str, rest: str, macros: Mapping[str, str]) -> bool | None:
    """Whether a condition holds; None where that is not certain."""
    if word != "if":
        is_defined = True if rest.strip() in macros else None
        return is_defined if word == "ifdef" or is_defined is None else not is_defined
    text = _DEFINED.sub(lambda name: f" {_IS_DEFINED}{name[1] or name[2]} ", rest)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = _NOT.sub(r"(not \1)", text).strip()  # binds closer in C: another ! is no Python, and so not certain
    try:
        found = _evaluated(ast.parse(text, mode="eval").body, macros)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return None if found is None else bool(found)


def _evaluated(node: ast.expr, macros: Mapping[str, str]) -> int | None:
    """An expression of integers that C has, too; None where it is not certain or something else."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return _in_range(number)
        case ast.Name(id=name) if name.startswith(_IS_DEFINED):
            return 1 if name.removeprefix(_IS_DEFINED) in macros else None
        case ast.Name(id=name):
            text = macros.get(name, "")
            return _in_range(int(text)) if _INTEGER.fullmatch(text) else None
        case ast.UnaryOp(op=op, operand=operand):
            value, apply_one = _evaluated(operand, macros), _UNARY.get(type(op))
            return None if value is None or apply_one is None else apply_one(value)
        case ast.BoolOp(op=op, values=values):
            parts = [_evaluated(each, macros) for each in values]
            join = _both if isinstance(op, ast.And) else _either
            result = functools.reduce(join, [None if part is None else bool(part) for part in parts])
            return None if result is None else int(result)
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            a, b, apply = _evaluated(left, macros), _evaluated(right, macros), _BINARY.get(type(op))
            return None if a is None or b is None or apply is None else _in_range(int(apply(a, b)))
    return None


def _in_range(value: int) -> int | None:
    return value if abs(value) < 1 << 31 else None


def _both(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _either(a: bool | None, b: bool | None) -> bool | None:
    if a or b:
        return True
    return None if a is None or b is None else False
