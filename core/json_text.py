"""Write and read JSON for files, tools and digests.

JSON has no infinities and no NaN, and other readers refuse what Python's json writes for them. `json_text` writes them
as the texts "Infinity", "-Infinity" and "NaN", which no field holds otherwise; `numbers` turns them back.
`canonical_json` is the exception: its bytes decide digests and lie in the rows of caches. `json_value` reads what comes
from a file or another machine, and limits the depth of values for all later steps.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

DEEPEST = 32
"""Levels of a JSON value from outside: a number has one, a list of numbers two."""

TEXTS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def json_text(value: Any, indent: int | None = None) -> str:
    """Return the JSON of plain values, mappings and sequences: in one line without blanks, or indented by so many of
    them. Raises TypeError or ValueError for what JSON cannot hold."""
    separators = (",", ":") if indent is None else None
    return json.dumps(_without_odd_numbers(value), indent=indent, separators=separators, allow_nan=False)


def json_value(text: str | bytes, deepest: int = DEEPEST, **hooks: Any) -> Any:
    """Return the value of a JSON text from outside. hooks: as of json.loads. Raises ValueError for what is not JSON or
    has more levels than `deepest`."""
    try:
        value = json.loads(text, **hooks)
    except RecursionError:
        pass
    else:
        level = [value]
        for _ in range(deepest):
            level = [
                inner
                for item in level
                if isinstance(item, dict | list)
                for inner in (item.values() if isinstance(item, dict) else item)
            ]
        if not level:
            return value
    raise ValueError(f"it has more than {deepest} levels")


def numbers(value: Any) -> Any:
    """Return what json_value made of a text of `json_text`, with its infinities and NaN."""
    if isinstance(value, str):
        return TEXTS.get(value, value)
    if isinstance(value, dict):
        return {name: numbers(item) for name, item in value.items()}
    return [numbers(item) for item in value] if isinstance(value, list) else value


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, tuples as lists.

    Infinities are the bare words that Python's json reads (a clip may be open on one side). NaN, keys that are
    not text and anything that JSON has no word for raise TypeError or ValueError: two of them could never be
    told apart.
    """
    return json.dumps(plain(value, "value"), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def finite_number(value: object) -> float | None:
    """Return a finite number that is not negative; None for anything else, whatever a file or a peer has sent."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if 0 <= found < math.inf else None


def plain(value: Any, where: str) -> Any:
    """Return a copy of a value that `canonical_json` can write, with lists for tuples. Raises TypeError or ValueError
    that says what is wrong at which place, by names that begin with `where`."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError(f"{where} is not a number (NaN), which is equal to nothing")
        return value
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; keys are text")
        return {key: plain(item, f"{where}.{key}") for key, item in value.items()}
    raise TypeError(f"{where} is a {type(value).__name__}, which JSON cannot hold")


def _without_odd_numbers(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _without_odd_numbers(item) for name, item in value.items()}
    return [_without_odd_numbers(item) for item in value] if isinstance(value, list | tuple) else value
