"""Test that C inflates what zlib has deflated, and refuses what zlib refuses."""

import ctypes
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from gputune.runtime.context.deflate import inflated
from tests.native.compiling import OPTIMISED, SOURCES, compiled, sanitizers
from tests.strategies.changes import mutated_bytes

GUARD = b"\xa5" * 64
"""Behind the memory that is written."""
CHANCE = random.Random(73)
CONTENTS = {
    "text": b"".join(path.read_bytes() for path in SOURCES[:4]),
    "zeros": bytes(70_000),
    "noise": CHANCE.randbytes(70_000),
    "few symbols": bytes(CHANCE.choice(b"abc") for _ in range(5000)),
    "far repeats": (noise := CHANCE.randbytes(32_768)) + noise[:300],
    "skewed": b"".join(bytes([number]) * (1 << min(number, 15)) for number in range(24)),
    "a byte": b"x",
    "nothing": b"",
}
STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED)
CASES = 4000
Inflate = Callable[[bytes, int], bytes | None]


class Slice(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("nbytes", ctypes.c_size_t))


@pytest.fixture(scope="module")
def inflate(c_compiler: str) -> Iterator[Inflate]:
    """What C makes of bytes; None where it refuses them."""
    source = [path for path in SOURCES if path.name == "inflate.c"]
    flags = (*OPTIMISED, "-fvisibility=default", "-shared", *sanitizers())
    function = ctypes.CDLL(str(compiled("inflate.so", source, flags))).inflate_whole
    function.argtypes, function.restype = (Slice, ctypes.c_char_p, ctypes.c_size_t), ctypes.c_bool

    def run(stored: bytes, nbytes: int) -> bytes | None:
        made = ctypes.create_string_buffer(bytes(nbytes) + GUARD, nbytes + len(GUARD))
        good = function(Slice(stored, len(stored)), ctypes.cast(made, ctypes.c_char_p), nbytes)
        assert made.raw[nbytes:] == GUARD
        return made.raw[:nbytes] if good else None

    yield run


def deflated(content: bytes, level: int, strategy: int) -> bytes:
    machine = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
    middle = len(content) // 2  # more than one block
    return (
        machine.compress(content[:middle])
        + machine.flush(zlib.Z_FULL_FLUSH)
        + machine.compress(content[middle:])
        + (machine.flush())
    )


def by_zlib(stored: bytes, nbytes: int) -> bytes | None:
    try:
        return bytes(inflated(memoryview(stored), nbytes))
    except ValueError:
        return None


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("level", [0, 1, 9])
@pytest.mark.parametrize("what", CONTENTS)
def test_what_was_deflated_is_inflated(inflate: Inflate, what: str, level: int, strategy: int) -> None:
    content = CONTENTS[what]
    stored = deflated(content, level, strategy)
    assert inflate(stored, len(content)) == content
    for nbytes in {len(content) - 1, len(content) + 1} - {-1}:
        assert inflate(stored, nbytes) is None
    for wrong in (stored[:-1], stored + b"\0", b""):
        assert inflate(wrong, len(content)) is None


def bits(*parts: str) -> bytes:
    """Bytes of these bits, the first of them lowest."""
    text = "".join(parts).replace(" ", "")
    return bytes(int(text[at : at + 8][::-1], 2) for at in range(0, len(text), 8))


def code_lengths(**lengths: int) -> str:
    """The lengths of the codes in which lengths are written, by the symbols s0 to s18, as they begin a last block of
    257 literals and a distance."""
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
    written = "".join(f"{lengths.get(f's{symbol}', 0):03b}"[::-1] for symbol in order)
    return "1 01 00000 00000 1111" + written


CODE = code_lengths(s18=1, s0=2, s1=2)
ZERO, SINGLE, MANY = "10", "11", "0 1111111"
"""By that code: a length of 0, one of 1, and 138 of 0."""
LITERALS_0_TO_255 = f"{MANY} 0 1101011"  # 138 + 118 zeros


@pytest.mark.parametrize(
    ("what", "stored", "nbytes", "good"),
    [
        ("an empty fixed block", bits("1 10 0000000"), 0, True),
        ("a block of the third kind", bits("1 11 00000"), 0, False),
        ("an empty stored block", bits("1 00 00000", "0" * 16, "1" * 16), 0, True),
        ("a stored block whose lengths differ", bits("1 00 00000", "0" * 16, "1" * 15, "0"), 0, False),
        ("a stored block that is cut", bits("1 00 00000", "1", "0" * 15, "0", "1" * 15), 1, False),
        ("a fixed length without a meaning", bits("1 10 00110000 11000110 00000 0000000"), 1, False),
        ("a repeat of what is not there", bits("1 10 0000001 00000 0000000"), 3, False),
        ("a fixed distance without a meaning", bits("1 10 00110000 0000001 11110 0000000"), 4, False),
        ("a repeat", bits("1 10 00110000 0000001 00000 0000000"), 4, True),
        ("too many lengths", bits("1 01 11111 00000 0000", "0" * 99), 0, False),
        ("too many distances", bits("1 01 00000 11111 0000", "0" * 99), 0, False),
        ("no code for lengths", bits(code_lengths(), "0" * 99), 0, False),
        ("an incomplete code for lengths", bits(code_lengths(s18=1), "0" * 99), 0, False),
        ("too many codes for lengths", bits(code_lengths(s18=1, s0=1, s1=1), "0" * 99), 0, False),
        ("an end alone, and no distance", bits(CODE, LITERALS_0_TO_255, SINGLE, ZERO, "0"), 0, True),
        ("an end alone, and a distance alone", bits(CODE, LITERALS_0_TO_255, SINGLE, SINGLE, "0"), 0, True),
        ("the other half of an end alone", bits(CODE, LITERALS_0_TO_255, SINGLE, ZERO, "1"), 0, False),
        ("an end alone, of two bits", bits(code_lengths(s18=1, s0=2, s2=2), LITERALS_0_TO_255, "11 10 00"), 0, False),
        ("a literal and no end", bits(CODE, SINGLE, MANY, "0 1101010", ZERO, ZERO, "0"), 1, False),
        ("no end", bits(CODE, LITERALS_0_TO_255, ZERO, ZERO, "0"), 0, False),
        ("more lengths than there are", bits(CODE, LITERALS_0_TO_255, MANY, "0"), 0, False),
        ("a length again at the beginning", bits(code_lengths(s16=1, s0=2, s1=2), "0 00", "0" * 99), 0, False),
    ],
)
def test_what_is_no_deflate_is_refused_as_zlib_does(
    inflate: Inflate, what: str, stored: bytes, nbytes: int, good: bool
) -> None:
    assert (by_zlib(stored, nbytes) is not None) == good
    assert inflate(stored, nbytes) == by_zlib(stored, nbytes)


def test_changed_bytes_end_as_with_zlib(inflate: Inflate) -> None:
    chance, ended = random.Random(0), Counter[bool]()
    pieces = [content[:size] for content in CONTENTS.values() for size in (40, 400, 2000)]
    for case in range(CASES):
        content = chance.choice(pieces)
        stored = mutated_bytes(deflated(content, chance.randrange(10), chance.choice(STRATEGIES)), chance)
        nbytes = len(content) + chance.choice((0, 0, 0, 1, -1)) if content else 0
        found = inflate(stored, nbytes)
        assert found == by_zlib(stored, nbytes), f"case {case}"
        ended[found is None] += 1
    assert min(ended.values()) > CASES // 50
