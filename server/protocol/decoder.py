"""A small typed decoder: makes a dataclass of an untrusted map of plain values, by its type hints.

Hints it knows: bool, int (64 bit), float (finite), str, bytes-like (arrives as a memoryview), None, object (any
plain value), Literal, unions of these, tuple[T, ...], dict[str, T], dataclasses, and Annotated[hint,
Within(low, high)], which bounds a number's value or a text's, tuple's or map's length. It goes as deep as the map
does: whoever calls it has bounded that.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Decode = Callable[[object], object]

_BYTES = {bytes, bytearray, memoryview}


@dataclass(frozen=True)
class Within:
    """Bounds, both included: of a number's value, else of a length."""

    low: float
    high: float


class DecodeError(ValueError):
    """A value does not fit its type hint; `path` says where, from the outermost field inwards."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def __str__(self) -> str:
        return f"{''.join(self.path).lstrip('.')}: {self.reason}" if self.path else self.reason


def decode(kind: Callable[..., T], plain: object, ignore_unknown: bool = False) -> T:
    """A `kind` (a dataclass) of the map `plain`. Raises DecodeError with the path of the first misfit."""
    if ignore_unknown and isinstance(plain, dict):
        known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
        plain = {name: value for name, value in plain.items() if name in known}
    result: T = _decoder(kind)(plain)
    return result


@cache
def _decoder(hint: Any) -> Callable[[object], Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(_decoder(arguments[0]), arguments[1])
    if origin is Literal:
        return _choice(arguments)
    if origin in (Union, types.UnionType):
        return _blob if set(arguments) == _BYTES else _union(arguments)
    if origin is tuple and arguments[1:] == (...,):
        return _sequence(_decoder(arguments[0]))
    if origin is dict and arguments[0] is str:
        return _mapping(_decoder(arguments[1]))
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return _record(hint)
    return _SIMPLE[hint]


def _describe(value: object) -> str:
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__
    return text if len(text) <= 40 else text[:40] + "..."


def _integer(value: object) -> object:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise DecodeError(f"expected a 64-bit integer, got {_describe(value)}")
    return value


def _number(value: object) -> object:
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise DecodeError(f"expected a finite number, got {_describe(value)}")
    return float(value)  # type: ignore[arg-type]


def _boolean(value: object) -> object:
    if type(value) is not bool:
        raise DecodeError(f"expected true or false, got {_describe(value)}")
    return value


def _text(value: object) -> object:
    if type(value) is not str:
        raise DecodeError(f"expected a text, got {_describe(value)}")
    return value


def _nothing(value: object) -> object:
    if value is not None:
        raise DecodeError(f"expected nothing, got {_describe(value)}")
    return None


def _blob(value: object) -> object:
    if type(value) is not memoryview:
        raise DecodeError(f"expected a blob, got {_describe(value)}")
    return value


def _plain(value: object) -> object:
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                raise DecodeError("expected texts as keys")
            _plain(item)
    elif isinstance(value, list):
        for item in value:
            _plain(item)
    elif not isinstance(value, (str, int, float, bool, type(None))):
        raise DecodeError(f"expected a plain value, got {_describe(value)}")
    return value


_SIMPLE: dict[Any, Decode] = {
    int: _integer,
    float: _number,
    bool: _boolean,
    str: _text,
    object: _plain,
    type(None): _nothing,
}


def _bounded(inner: Decode, within: Within) -> Decode:
    low, high = within.low, within.high

    def check(value: object) -> object:
        result: Any = inner(value)
        measure = result if isinstance(result, (int, float)) else len(result)
        if not low <= measure <= high:
            what = "value" if measure is result else "length"
            raise DecodeError(f"{what} {_describe(measure)} is outside {low:g}..{high:g}")
        return result

    return check


def _choice(allowed: tuple[object, ...]) -> Decode:
    def check(value: object) -> object:
        if type(value) is not str or value not in allowed:
            raise DecodeError(f"expected one of {', '.join(map(str, allowed))}; got {_describe(value)}")
        return value

    return check


def _union(hints: tuple[Any, ...]) -> Decode:
    inner = tuple(_decoder(hint) for hint in hints if hint is not type(None))
    optional = len(inner) < len(hints)

    def check(value: object) -> object:
        if optional and value is None:
            return None
        if len(inner) == 1:
            return inner[0](value)
        reasons = []
        for one in inner:
            try:
                return one(value)
            except DecodeError as error:
                reasons.append(error.reason)
        raise DecodeError(" or ".join(reasons))

    return check


# the paths below are put together only when something is wrong: most values are right


def _sequence(inner: Decode) -> Decode:
    def check(value: object) -> object:
        if not isinstance(value, list):
            raise DecodeError(f"expected a list, got {_describe(value)}")
        result: list[object] = []
        try:
            for item in value:
                result.append(inner(item))
        except DecodeError as error:
            error.path.insert(0, f"[{len(result)}]")
            raise
        return tuple(result)

    return check


def _mapping(inner: Decode) -> Decode:
    def check(value: object) -> object:
        if not isinstance(value, dict) or not all(type(key) is str for key in value):
            raise DecodeError(f"expected a map with texts as keys, got {_describe(value)}")
        result: dict[str, object] = {}
        for key, item in value.items():
            try:
                result[key] = inner(item)
            except DecodeError as error:
                error.path.insert(0, f"[{key[:40]!r}]")
                raise
        return result

    return check


def _record(kind: type) -> Decode:
    hints = get_type_hints(kind, include_extras=True)
    decoders = {item.name: _decoder(hints[item.name]) for item in fields(kind)}
    required = {item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING}
    only = None if decoders else kind()  # without fields, all of them are equal

    def check(value: object) -> object:
        if not isinstance(value, dict):
            raise DecodeError(f"expected a {kind.__name__}, got {_describe(value)}")
        if value.keys() != decoders.keys():
            if missing := sorted(required - value.keys()):
                raise DecodeError(f"{kind.__name__} lacks {', '.join(missing)}")
            if unknown := sorted(str(name)[:40] for name in value.keys() - decoders.keys()):
                raise DecodeError(f"{kind.__name__} has no {', '.join(unknown[:5])}")
        if only is not None:
            return only
        known = {}
        for name, item in value.items():
            try:
                known[name] = decoders[name](item)
            except DecodeError as error:
                error.path.insert(0, f".{name}")
                raise
        return kind(**known)

    return check
