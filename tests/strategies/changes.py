"""Change bytes and plain values at random, for inputs that are nearly right.

A case is a number, which hypothesis draws, so that it is the same again wherever it fails:

    @given(cases)
    def test_a_changed_file_is_refused_in_one_line_or_read(case: int) -> None:
        content = mutated_bytes(original(), Random(case))
"""

import copy
import random
from typing import Any

from hypothesis import strategies as st

cases = st.integers(0, 2**64 - 1)
"""What decides all of a case."""

LONGEST_LINE = 3000

DEEP_LEVELS = 100  # a few of them in each other, and copying one takes several frames a level
NUMBERS = (0, 1, -1, 2, 7, 64, 4096, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 1.5, -0.0, 1e308)
ODD_NUMBERS = (float("nan"), float("inf"), float("-inf"), 2**63, 2**64 - 1)
ODD_VALUES: tuple[Any, ...] = (
    "",
    None,
    True,
    False,
    "x",
    "x" * 5000,
    "é\n\x1b[31m\u202e",
    [],
    {},
    [[]],
    {"a": 1},
    [1, 2, 3, 4],
)


class Broken(AssertionError):
    """Say that a case ended in a way that was promised not to be."""


def check_line(error: Exception) -> str:
    """Return the name of an error that may end a case. Raises Broken if its text is not one line that can be shown."""
    text = str(error)
    if not text or len(text) > LONGEST_LINE:
        raise Broken(f"{type(error).__name__} has a text of {len(text)} characters") from error
    if not text.isprintable():
        raise Broken(f"{type(error).__name__} has a text that is not one printable line: {text[:200]!r}") from error
    return type(error).__name__


def mutated_bytes(content: bytes, chance: random.Random) -> bytes:
    """Return content after one to four flips, cuts, insertions, splices or runs of one byte."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        place, length = chance.randrange(len(data) + 1), chance.choice((1, 4, 64, 4096))
        kind = chance.randrange(6)
        if kind == 0 and data:
            data[place % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[place:]
        elif kind == 2:
            del data[place : place + length]
        elif kind == 3:
            data[place:place] = chance.randbytes(length)
        elif kind == 4 and data:
            start = chance.randrange(len(data))
            data[place : place + length] = data[start : start + length]
        else:
            data[place : place + length] = bytes([chance.choice((0, 0xFF, 0x7F))]) * length
    return bytes(data)


def mutated_value(value: Any, chance: random.Random, more: tuple[Any, ...] = ()) -> Any:
    """Return a copy of nested maps and lists after one to three changes: a part is exchanged for an odd value (`more`
    are some beside the usual ones) or for another part, removed or doubled."""
    result = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        holders = [(holder, key) for holder, key in _places(result)]
        if not holders:
            break
        holder, key = chance.choice(holders)
        kind = chance.randrange(10)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif kind == 2:
            other, place = chance.choice(holders)
            holder[key] = copy.deepcopy(other[place])
        else:
            holder[key] = _odd(chance, more)
    return result


def mutated_leaves(value: Any, chance: random.Random, more: tuple[Any, ...] = ()) -> Any:
    """Return a copy of nested maps and lists in which one to three texts or numbers are others of the same type, so
    that readers take most of them."""
    result = copy.deepcopy(value)
    leaves = [(holder, key) for holder, key in _places(result) if not isinstance(holder[key], dict | list)]
    for _ in range(chance.choice((1, 1, 2, 3)) if leaves else 0):
        holder, key = chance.choice(leaves)
        kind = type(holder[key])
        holder[key] = chance.choice([one for one in (*NUMBERS, *ODD_VALUES, *more) if type(one) is kind] or [None])
    return result


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every part of nested maps and lists: its holder, and its key there."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        found += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys]
    return found


def _odd(chance: random.Random, more: tuple[Any, ...]) -> Any:
    if chance.random() < 0.02:
        deep: Any = []
        for _ in range(DEEP_LEVELS):
            deep = [deep]
        return deep
    return copy.deepcopy(chance.choice((*NUMBERS, *ODD_NUMBERS, *ODD_VALUES, *more)))
