"""Decode records: make a dataclass of an untrusted map of plain values, by its type hints.

Messages, contexts, packages, profile logs and schematics are read by this one reader. It knows these hints:

- bool, int (64 bits), float (finite), str, bytes, None, bytes-like (a memoryview), object and Any (any plain value);
- Literal, T | None, unions of types that a plain value tells apart, dataclasses (a map), and NamedTuples (a list);
- tuple[T, ...], tuple[T, T, T], dict[str, T] and Mapping[str, T], whose keys may have bounds of their own;
- Annotated[T, Within(low, high)]: bounds of a number, or of the length of a text, tuple or map, which is looked at
  before its parts are; Annotated[str, NoZero()]; Annotated[T, Stored(hint, read)]: what `read` makes of a value
  that fits `hint`.

A map may lack only fields that have defaults, and may have no others, unless its dataclass says so by `in_files`.
Decoding goes as deep as the map does: the caller has bounded that.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gputune.core.bounds import HOST_ONLY, IN_FILES, InFiles, NoZero, Stored, Within

T = TypeVar("T")
Decode = Callable[[object], object]

_WITH_LENGTH = {str, list, tuple, dict}
_BYTES = {bytes, bytearray, memoryview}


class DecodeError(ValueError):
    """Report a value that does not fit its type hint; `path` says where, from the outermost field inwards."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def __str__(self) -> str:
        return f"{''.join(self.path).lstrip('.')}: {self.reason}" if self.path else self.reason


def decode(kind: Callable[..., T], plain: object, ignore_unknown: bool = False) -> T:
    """Return a `kind` (a dataclass) of the map `plain`. Raises DecodeError with the path of the first misfit."""
    if ignore_unknown and isinstance(plain, dict):
        known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
        plain = {name: value for name, value in plain.items() if name in known}
    result: T = _decoder(kind)(plain)
    return result


def record_of(kind: Callable[..., T], plain: object, place: str, error: type[Exception]) -> T:
    """Return the same. Raises `error`, which begins with `place` then."""
    try:
        return decode(kind, plain)
    except DecodeError as found:
        raise error(f"{place}: {found}") from None


@cache
def _decoder(hint: Any) -> Callable[[object], Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    if origin is Literal:
        return _choice(arguments)
    if origin in (Union, types.UnionType):
        return _BLOB if set(arguments) == _BYTES else _union(arguments)
    if origin is tuple and arguments[1:] == (...,):
        return _sequence(_decoder(arguments[0]))
    if origin is tuple:
        return _row(tuple, [("", _decoder(each)) for each in arguments])
    if origin in (dict, Mapping):
        return _mapping(_decoder(arguments[0]), _decoder(arguments[1]))
    if isinstance(hint, type) and is_dataclass(hint):
        return _record(hint)
    if isinstance(hint, type) and issubclass(hint, tuple):
        hints = get_type_hints(hint, include_extras=True)
        return _row(hint._make, [(f".{name}", _decoder(each)) for name, each in hints.items()])  # type: ignore[attr-defined]
    return _SIMPLE[hint]


def _annotated(hint: Any, marks: tuple[Any, ...]) -> Decode:
    if hint is int and isinstance(marks[0], Within) and len(marks) == 1:
        return _bounded_integer(marks[0])
    stored = next((mark for mark in marks if isinstance(mark, Stored)), None)
    decoder = _decoder(hint) if stored is None else _stored(stored)
    for mark in marks:
        if isinstance(mark, Within):
            decoder = _bounded(decoder, mark, hint is float)
        elif isinstance(mark, NoZero):
            decoder = _without_zero(decoder)
    return decoder


def _describe(value: object) -> str:
    if isinstance(value, str):
        return repr(value[:40]) + ("..." if len(value) > 40 else "")
    text = repr(value) if isinstance(value, (int, float, bool, type(None))) else type(value).__name__
    return text if len(text) <= 40 else text[:40] + "..."


def _integer(value: object) -> object:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise DecodeError(f"expected a 64-bit integer, got {_describe(value)}")
    return value


def _number(value: object) -> object:
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:  # type: ignore[arg-type]
        raise DecodeError(f"expected a finite number, got {_describe(value)}")
    return float(value)  # type: ignore[arg-type]


def _exactly(kind: type, words: str) -> Decode:
    def check(value: object) -> object:
        if type(value) is not kind:
            raise DecodeError(f"expected {words}, got {_describe(value)}")
        return value

    return check


def _nothing(value: object) -> object:
    if value is not None:
        raise DecodeError(f"expected nothing, got {_describe(value)}")
    return None


def _plain(value: object) -> object:
    level: list[object] = [value]
    while level:
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                if not all(type(key) is str for key in item):
                    raise DecodeError("expected texts as keys")
                inner += item.values()
            elif isinstance(item, list):
                inner += item
            elif not isinstance(item, (str, int, float, bool, type(None))):
                raise DecodeError(f"expected a plain value, got {_describe(item)}")
        level = inner
    return value


_BLOB = _exactly(memoryview, "a blob")
_SIMPLE: dict[Any, Decode] = {
    int: _integer,
    float: _number,
    bool: _exactly(bool, "true or false"),
    str: _exactly(str, "a text"),
    bytes: _exactly(bytes, "bytes"),
    object: _plain,
    Any: _plain,
    type(None): _nothing,
}


def _bounded_integer(within: Within) -> Decode:
    low, high = within.low, within.high

    def check(value: object) -> object:
        if type(value) is not int or not low <= value <= high:
            raise _outside("value", _integer(value), within)
        return value

    return check


def _bounded(inner: Decode, within: Within, is_number: bool) -> Decode:
    low, high = within.low, within.high

    def check_number(value: object) -> object:
        result: Any = inner(value)
        if not low <= result <= high:
            raise _outside("value", result, within)
        return result

    def check_length(value: Any) -> object:
        if type(value) in _WITH_LENGTH and not low <= len(value) <= high:
            inner(value[:0] if type(value) is str else type(value)())  # is it of the right kind at all?
            raise _outside("length", len(value), within)
        return inner(value)

    return check_number if is_number else check_length


def _without_zero(inner: Decode) -> Decode:
    def check(value: object) -> object:
        text: Any = inner(value)
        if "\0" in text:
            raise DecodeError(f"expected a text without a character 0, got {_describe(value)}")
        return text

    return check


def _stored(stored: Stored) -> Decode:
    inner = _decoder(stored.hint)

    def check(value: object) -> object:
        try:
            return stored.read(inner(value))
        except DecodeError:
            raise
        except ValueError as error:
            raise DecodeError(str(error)) from None

    return check


def _outside(what: str, got: object, within: Within) -> DecodeError:
    low, high = (f"{bound:g}" if isinstance(bound, float) else str(bound) for bound in (within.low, within.high))
    return DecodeError(f"{what} {_describe(got)} is outside {low}..{high}")


def _choice(allowed: tuple[object, ...]) -> Decode:
    def check(value: object) -> object:
        if type(value) is not str or value not in allowed:
            raise DecodeError(f"expected one of {', '.join(map(str, allowed))}; got {_describe(value)}")
        return value

    return check


def _union(hints: tuple[Any, ...]) -> Decode:
    inner = {_type_of(hint): _decoder(hint) for hint in hints}
    if float in inner:
        inner.setdefault(int, inner[float])
    otherwise = next((one for kind, one in inner.items() if kind is None), None)  # a dataclass, say
    expected = " or ".join(sorted("nothing" if kind is type(None) else kind.__name__ for kind in inner if kind))

    def check(value: object) -> object:
        one = inner.get(type(value), otherwise)  # the value's type decides, since trying each in turn takes long
        if one is None:
            raise DecodeError(f"expected {expected}, got {_describe(value)}")
        return one(value)

    return check


def _type_of(hint: Any) -> type | None:
    """Return the type of what arrives for a hint, None for what arrives as a map."""
    if get_origin(hint) is Annotated:
        stored = [mark.hint for mark in get_args(hint)[1:] if isinstance(mark, Stored)]
        return _type_of(stored[0] if stored else get_args(hint)[0])
    return hint if hint in _SIMPLE else None


# the paths below are put together only when something is wrong: most values are right


def _sequence(inner: Decode) -> Decode:
    def check(value: object) -> object:
        if not isinstance(value, list | tuple):
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


def _row(make: Callable[[list[Any]], Any], parts: list[tuple[str, Decode]]) -> Decode:
    """Return a decoder of a list. parts: for each item its path and its decoder."""

    def check(value: object) -> object:
        if not isinstance(value, list | tuple) or len(value) != len(parts):
            raise DecodeError(f"expected a list of {len(parts)} items, got {_describe(value)}")
        found: list[object] = []
        for place, ((path, decoder), item) in enumerate(zip(parts, value, strict=True)):
            try:
                found.append(decoder(item))
            except DecodeError as error:
                error.path.insert(0, path or f"[{place}]")
                raise
        return make(found)

    return check


def _mapping(of_key: Decode, inner: Decode) -> Decode:
    def check(value: object) -> object:
        if not isinstance(value, dict):
            raise DecodeError(f"expected a map with texts as keys, got {_describe(value)}")
        result: dict[object, object] = {}
        key: object = None
        try:
            for key, item in value.items():
                result[of_key(key)] = inner(item)
        except DecodeError as error:
            error.path.insert(0, f"[{_describe(key)}]")
            raise
        return result

    return check


def _record(kind: type) -> Decode:
    hints = get_type_hints(kind, include_extras=True)
    items = [item for item in fields(kind) if not HOST_ONLY.items() <= item.metadata.items()]
    decoders = {item.name: _decoder(hints[item.name]) for item in items}
    required = {item.name for item in items if item.default is MISSING and item.default_factory is MISSING}
    stored: InFiles | None = getattr(kind, IN_FILES, None)
    ignores = stored is not None and not stored.closed
    if stored is not None:
        required = decoders.keys() - stored.later
    only = None if decoders else kind()  # without fields, all of them are equal

    def check(value: object) -> object:
        if not isinstance(value, dict):
            raise DecodeError(f"expected a {kind.__name__}, got {_describe(value)}")
        if value.keys() != decoders.keys():
            if missing := sorted(required - value.keys()):
                raise DecodeError(f"{kind.__name__} lacks {', '.join(missing)}")
            unknown = value.keys() - decoders.keys()
            if ignores and all(type(name) is str for name in unknown):
                value = {name: item for name, item in value.items() if name in decoders}
            elif unknown:
                names = sorted(map(_describe, unknown))
                raise DecodeError(f"{kind.__name__} has no {', '.join(names[:5])}")
        if only is not None:
            return only
        known = {}
        name = ""
        try:
            for name, item in value.items():
                known[name] = decoders[name](item)
        except DecodeError as error:
            error.path.insert(0, f".{name}")
            raise
        return kind(**known)

    return check
