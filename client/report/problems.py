"""Restore problems from the performance cache, and describe them in words."""

import dataclasses
import re
import types
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from gputune.kernels.catalogue import families
from gputune.kernels.family import DeviceLimits, Work, problem_to_dict

MOST = 10**24
"""Operations or bytes beyond this are no task's."""


_ROOMY = DeviceLimits(1 << 16, (1 << 16, 1 << 16, 1 << 16), 1 << 30, 1 << 40, 1, "gpu", 4)
"""A device that leaves out no parameter."""


def problem_of(op: str, plain: Mapping[str, Any]) -> Any:
    """Return the problem that problem_to_dict made this of; None where today's families know no such op or problem."""
    family = families().get(op)
    if family is None:
        return None
    try:
        return _whole(get_type_hints(family.reference)["problem"], plain)
    except (TypeError, ValueError, KeyError, ArithmeticError):
        return None


def work_of(op: str, problem: Any) -> Work | None:
    """Return the least that a problem must do; None where the problem is not known or its sizes cannot be true."""
    if problem is None:
        return None
    try:
        work = families()[op].work(problem)
    except (TypeError, ValueError, ArithmeticError):
        return None
    return work if 0 <= work.flops <= MOST and 0 < work.bytes <= MOST else None


def meanings(op: str, plain: Mapping[str, Any]) -> dict[str, str]:
    """Return what each parameter of the problem's space chooses; empty where today's families know no such problem."""
    problem = problem_of(op, plain)
    try:
        parameters = () if problem is None else families()[op].space(problem, _ROOMY).parameters
    except (TypeError, ValueError, ArithmeticError):
        return {}
    return {parameter.name: parameter.meaning for parameter in parameters}


_CASE = re.compile(r"(\d+): (.+?)(?=, \d+: |$)")
"""What one value of a parameter means, where the meaning has its values one by one."""


def value_in_words(meaning: str, value: int) -> str:
    """Return what a parameter has come to by this value: the value's own meaning where the values have each theirs, the
    parameter's otherwise."""
    cases: dict[int, str] = {int(one): said for one, said in _CASE.findall(meaning)} if _CASE.match(meaning) else {}
    if not cases or value in cases:
        return cases.get(value, meaning)
    return f"no longer: {', '.join(cases.values())}"


def title(op: str, plain: Mapping[str, Any]) -> str:
    """Return a task as people read it: its op and what is computed."""
    return f"{op} {words(op, plain)}".rstrip()


def words(op: str, plain: Mapping[str, Any]) -> str:
    """Return what is computed, in a line for people: shapes in and out, what tells it from its neighbours, its
    epilogue."""
    problem = problem_of(op, plain)
    if problem is None:
        return " ".join(f"{name}={value}" for name, value in sorted(plain.items()) if value not in ("", [], {}))
    family, plain = families()[op], problem_to_dict(problem)  # in the order of its fields
    given = [spec.shape for spec in family.inputs(problem) if not spec.constant]
    parts = [f"{_shape(given[0]) if given else 'constants'} → {_shape(family.output(problem).shape)}"]
    parts += [text for name, value in plain.items() if (text := _word(name, value))]
    chain = plain.get("epilogue") or plain.get("chain") or {}
    steps = [_step(step) for step in chain.get("steps", ())]
    return ", ".join(parts + ([f"then {' + '.join(steps)}"] if steps and "epilogue" in plain else steps))


def _word(name: str, value: Any) -> str:
    """Return a field of a problem where it says something: usual values and what the shapes tell already do not."""
    if name == "kernel":
        return f"window {_shape(value)}"
    if name == "strides" and set(value) != {1}:
        return f"stride {_shape(value)}"
    if name == "dilations" and set(value) != {1}:
        return f"dilation {_shape(value)}"
    if name == "pads" and any(value):
        return f"padding {value[0] if len(set(value)) == 1 else _shape(value)}"
    if name == "groups" and value != 1:
        return f"{value} groups"
    if name == "parts" and value:
        return f"parts of {' + '.join(map(str, value))}"
    if name == "places" and value:
        return "both factors computed"
    if name in ("kind", "cell") or (name == "direction" and value != "forward"):
        return str(value)
    if name == "steps" and isinstance(value, int):
        return f"{value} steps"
    if name in ("bias", "count_include_pad") and value:
        return name.replace("_", " ")
    if name == "target":
        return f"to {value}"
    return ""


def _step(step: Mapping[str, Any]) -> str:
    values = ", ".join(f"{value:g}" for value in step["values"])
    operand = "" if step["operand"] is None else " tensor"
    return f"{step['function']}{f'({values})' if values else ''}{operand}".replace("_", " ")


def _shape(sizes: Any) -> str:
    return "×".join(map(str, sizes)) or "scalar"


def _whole(kind: Any, value: Any) -> Any:
    """Return a value of a type from plain JSON values, checked all the way down. Raises TypeError, ValueError,
    KeyError."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{name: _whole(hints[name], item) for name, item in dict(value).items()})
    if get_origin(kind) is tuple:
        inside = get_args(kind)
        if not isinstance(value, list):
            raise TypeError(f"{value!r} is no list")
        each = [inside[0]] * len(value) if inside[-1] is Ellipsis else inside
        return tuple(_whole(one, item) for one, item in zip(each, value, strict=True))
    if isinstance(kind, types.UnionType):
        return None if value is None else _whole(get_args(kind)[0], value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind}")
    return value
