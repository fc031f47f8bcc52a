"""Encode Protocol Buffers' wire format, as far as traces need it: varints, fixed 64-bit values, delimited fields."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache

import numpy as np

from gputune.runtime.profiling.records import Times

VARINT, FIXED64, LENGTH = 0, 1, 2
WIDE = 9
"""Bytes of a padded varint: 63 bits. Decoders take zeros at its end; equal lengths let many be made at once."""


def varint(value: int) -> bytes:
    """Return a number from 0; a negative one as the 64-bit number with the same bits."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


@cache
def tag(number: int, kind: int) -> bytes:
    """Return what stands before a field's value."""
    return varint(number << 3 | kind)


def number(field: int, value: int) -> bytes:
    """Return a field with a whole number."""
    return tag(field, VARINT) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    """Return a field with a number from 0 in eight bytes."""
    return tag(field, FIXED64) + value.to_bytes(8, "little")


def double(field: int, value: float) -> bytes:
    return tag(field, FIXED64) + struct.pack("<d", value)


def message(field: int, *content: bytes) -> bytes:
    """Return a field with another message."""
    inner = b"".join(content)
    return tag(field, LENGTH) + varint(len(inner)) + inner


def text(field: int, value: str) -> bytes:
    """Return a field with text; what is no valid UTF-8 becomes question marks."""
    return message(field, value.encode("utf-8", "replace"))


def wide_numbers(field: int, values: Times | Sequence[int]) -> list[bytes]:
    """Return a field with each of these whole numbers, from 0 to 2^62, all of wide_bytes(field)."""
    head = np.frombuffer(tag(field, VARINT), np.uint8)
    shifts = np.arange(0, 7 * WIDE, 7, dtype=np.int64)
    rows = np.empty((len(values), len(head) + WIDE), np.uint8)
    rows[:, : len(head)] = head
    rows[:, len(head) :] = np.asarray(values, np.int64)[:, None] >> shifts & 0x7F
    rows[:, len(head) : -1] |= 0x80
    found: list[bytes] = rows.view(f"V{rows.shape[1]}")[:, 0].tolist() if len(rows) else []
    return found


@cache
def wide_bytes(field: int) -> int:
    """Return the bytes of a field with a padded varint."""
    return len(tag(field, VARINT)) + WIDE
