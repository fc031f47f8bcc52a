"""Ways in which a valid frame can be spoiled: of its bytes, its lengths, or the values in its header."""

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from gputune.server.protocol import codec, framing

Mutate = Callable[[random.Random, bytes], bytes]

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**24, 2**31, 2**48, 2**63, 2**64 - 1, -(2**63), 0.5, 1e300, float("nan"), float("inf")),
    *("", "x", "\0", "x" * 300, "\u2028" * 70_000, b"bytes", [], {}, [[]], {"": None}, {"id": 1}),
    *(msgpack.ExtType(1, b"\0\0\0\0"), msgpack.ExtType(1, b"\xff\xff\xff\xff"), msgpack.ExtType(5, b"x")),
)
_PREFIX = struct.Struct("<4sII")


def encoded(header: bytes, blobs: Sequence[memoryview] = ()) -> bytes:
    """A frame of these parts, valid or not."""
    return b"".join(framing.encode(codec.Parts(header, tuple(blobs))))


def truncated(chance: random.Random, valid: bytes) -> bytes:
    """Cut off anywhere."""
    return valid[: chance.randrange(len(valid))]


def flipped(chance: random.Random, valid: bytes) -> bytes:
    """A few bytes are others."""
    data = bytearray(valid)
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def spliced(chance: random.Random, valid: bytes) -> bytes:
    """A piece is missing, doubled or moved."""
    first, last = sorted((chance.randrange(len(valid)), chance.randrange(len(valid))))
    return valid[:first] + valid[last:] + chance.choice((b"", valid[first:last], valid))


def bad_lengths(chance: random.Random, valid: bytes) -> bytes:
    """The prefix says something else than what follows."""
    values = (0, 1, 7, 255, 4096, 1 << 16, 1 << 20, 1 << 23, 1 << 31, (1 << 32) - 1)
    header_bytes, count = struct.unpack_from("<II", valid, 4)
    if chance.random() < 0.5:
        header_bytes = chance.choice(values)
    else:
        count = chance.choice(values)
    sizes = b"".join(struct.pack("<Q", chance.choice((*values, 1 << 40, (1 << 64) - 1))) for _ in range(min(count, 9)))
    return valid[:4] + struct.pack("<II", header_bytes, count) + sizes + valid[12:]


def wrong_types(chance: random.Random, valid: bytes) -> bytes:
    """A value somewhere in the header is an odd one, is missing, or is one too many."""
    header, blobs = _parts(valid)
    plain = msgpack.unpackb(header, strict_map_key=False)
    _change(chance, plain)
    return encoded(msgpack.packb(plain), blobs)


def deep(chance: random.Random, valid: bytes) -> bytes:
    """Lists or maps within each other, by the thousand, where a value was."""
    header, blobs = _parts(valid)
    levels = chance.choice((9, 17, 100, 1000, 3900))
    opening = chance.choice((b"\x91", b"\x81\xa1x"))
    place = chance.randrange(1, len(header) + 1)
    return encoded(header[:place] + opening * levels + b"\xc0" + header[place:], blobs)


def large_counts(chance: random.Random, valid: bytes) -> bytes:
    """MsgPack that announces far more than there is."""
    header, blobs = _parts(valid)
    opening = chance.choice((b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"))
    opening += struct.pack(">I", chance.choice((1 << 16, 1 << 20, 1 << 24, (1 << 32) - 1)))
    place = chance.randrange(1, len(header) + 1)
    return encoded(header[:place] + opening + header[place:], blobs)


MUTATIONS: tuple[Mutate, ...] = (truncated, flipped, spliced, bad_lengths, wrong_types, deep, large_counts)


def _parts(valid: bytes) -> tuple[bytes, tuple[memoryview, ...]]:
    (frame,) = framing.FrameReader(framing.UNLIMITED).feed(valid)
    return bytes(frame.header), tuple(frame.blobs)


def _change(chance: random.Random, plain: Any) -> None:
    """Goes some steps inwards, and spoils something there."""
    keys = list(plain) if isinstance(plain, dict) else list(range(len(plain)))
    inner = [key for key in keys if isinstance(plain[key], (dict, list)) and plain[key]]
    if inner and chance.random() < 0.6:
        _change(chance, plain[chance.choice(inner)])
    elif isinstance(plain, dict) and chance.random() < 0.2:
        plain[chance.choice(("new", "", "id", 7, "x" * 500))] = chance.choice(ODD_VALUES)
    elif chance.random() < 0.15:
        del plain[chance.choice(keys)]
    else:
        plain[chance.choice(keys)] = chance.choice(ODD_VALUES)
