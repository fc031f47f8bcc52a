"""Make hostile input for a target server, the same for the same seed.

    for item in hostile_inputs(seed=1, count=1000):
        Victim(item.authenticated).swallow(item)  # victim.py; raises nothing

For a live server, open a socket, shake hands first if item.authenticated, send item.data in pieces of the sizes
item.steps, and close. Any answer of the server is right as long as it continues to serve others.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

import msgpack

from gputune.server.protocol import codec, framing
from gputune.server.protocol.authentication import frame_key
from gputune.server.protocol.frame_mac import FrameMac
from gputune.server.protocol.messages import FROM_CLIENT, PROTOCOL_VERSION, Hello, Ping, Proof

from .examples import EXAMPLES
from .talk import TOKEN, raw

BY_NAME = {type(message).__name__: message for message in EXAMPLES}
GREETINGS = [BY_NAME["Hello"], BY_NAME["Proof"]]
REQUESTS = [message for message in EXAMPLES if type(message) in FROM_CLIENT and message not in GREETINGS]
REPLIES = [message for message in EXAMPLES if type(message) not in FROM_CLIENT]


@dataclass(frozen=True)
class Hostile:
    """What to send, and when: authenticated means after the handshake. from_valid: a valid frame was its start."""

    kind: str
    authenticated: bool
    data: bytes
    steps: tuple[int, ...]  # sizes of the pieces, over and over; () is all at once
    from_valid: bool


def hostile_inputs(seed: int, count: int) -> Iterator[Hostile]:
    """`count` inputs. Each depends on the seed and its number only, so a longer run begins with a shorter one."""
    kinds = tuple(_MAKERS)
    for number in range(count):
        random = Random(f"{seed} {number}")
        kind = random.choices(kinds, [_MAKERS[kind][1] for kind in kinds])[0]
        make, _, from_valid = _MAKERS[kind]
        authenticated = random.random() < 0.65
        data = make(random, authenticated)
        hello = b"" if authenticated or random.random() < 0.5 else _bytes(BY_NAME["Hello"], 0)
        data = hello + data
        # a server answers the hello before it looks at what comes in the next piece
        pieces: list[tuple[int, ...]] = [(), (), (), (1,), (3, 1, 40), (12,), (len(hello) or 1000,)]
        steps = random.choice(pieces) if len(data) < 1000 else ()
        yield Hostile(kind, authenticated, data, steps, from_valid)


# --- makers -----------------------------------------------------------------------------------------


def _truncated(random: Random, authenticated: bool) -> bytes:
    data = _bytes(*_valid(random, authenticated))
    return data[: random.randrange(1, len(data))]


def _mutated(random: Random, authenticated: bool) -> bytes:
    data = bytearray(b"".join(_bytes(*_valid(random, authenticated)) for _ in range(random.choice((1, 1, 1, 3)))))
    for _ in range(random.choice((1, 1, 2, 5, 30))):
        at = random.randrange(len(data))
        match random.randrange(5):
            case 0:
                data[at] = random.randrange(256)
            case 1:
                data[at] ^= 1 << random.randrange(8)
            case 2:
                data[at:at] = random.randbytes(random.randrange(1, 9))
            case 3 if len(data) > 40:
                del data[at : at + random.randrange(1, 9)]
            case _:
                data[at:at] = data[at : at + random.randrange(1, 60)]
    return bytes(data)


def _wrong_types(random: Random, authenticated: bool) -> bytes:
    header, blobs = _taken_apart(*_valid(random, authenticated))
    for _ in range(random.choice((1, 1, 2))):
        holder, key = _place(random, header)
        match random.randrange(4):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[random.choice(("more", "id", "type", "\0", "a" * 300))] = _odd_value(random)
            case _:
                holder[key] = _odd_value(random)
        if not header:
            break
    return _frame(msgpack.packb(header), blobs)


def _nested(random: Random, authenticated: bool) -> bytes:
    depth = random.choice((9, 15, 16, 17, 40, 500, 1500))
    opening, inmost = random.choice(((b"\x91", b"\xc0"), (b"\x81\xa1a", b"\xc0"), (b"\xdd\0\0\0\1", b"\x90")))
    deep = opening * depth + inmost
    if random.random() < 0.3:
        return _frame(deep * random.choice((1, 1, 10)))
    header, blobs = _taken_apart(*_valid(random, authenticated))
    _, key = header.popitem() if random.random() < 0.3 else ("", "details")
    packed = msgpack.packb({**header, str(key)[:20]: 7})
    return _frame(packed[:-1] + deep, blobs)


def _bad_lengths(random: Random, authenticated: bool) -> bytes:
    message, request_id = _valid(random, authenticated)
    header, blobs = _taken_apart(message, request_id)
    packed = bytearray(msgpack.packb(header))
    sizes = [len(blob) for blob in blobs]
    header_bytes, count = len(packed), len(sizes)
    match random.randrange(4):
        case 0:
            header_bytes = max(0, header_bytes + random.choice((-20, -1, 1, 7, 300)))
        case 1:
            count = max(0, count + random.choice((-1, 1, 5)))
        case 2 if sizes:
            sizes[0] = max(0, sizes[0] + random.choice((-1, 1, 100, 5000)))
        case _:  # a text, list, map, byte string or extension that claims to be longer than all there is
            at = random.randrange(1, len(packed))
            packed[at:at] = random.choice((b"\xdb", b"\xdd", b"\xdf", b"\xc6", b"\xc9")) + random.choice(
                (b"\xff\xff\xff\xff", b"\0\x10\0\0", b"\0\0\xff\xff")
            )
            header_bytes = len(packed)
    front = struct.pack(f"<4sII{len(sizes)}Q", b"gpt1", header_bytes, count, *sizes)
    return front + bytes(packed) + b"".join(blobs)


def _oversized(random: Random, authenticated: bool) -> bytes:
    huge = random.choice((2**20 + 1, 2**28, 2**31, 2**32 - 1))
    match random.randrange(5):
        case 0:
            return struct.pack("<4sII", b"gpt1", huge, 0) + random.randbytes(50)
        case 1:
            return struct.pack("<4sII", b"gpt1", 40, huge) + random.randbytes(50)
        case 2:
            packed: bytes = msgpack.packb({"id": 1, "type": "UploadBuffer", "data": msgpack.ExtType(1, bytes(4))})
            size = random.choice((2**31, 2**40, 2**64 - 1))
            return struct.pack("<4sIIQ", b"gpt1", len(packed), 1, size) + packed + random.randbytes(50)
        case 3:
            text = "x" * random.choice((5000, 70_000, 300_000))
            return _frame(msgpack.packb({"id": 0, "type": "Hello", "protocol": 2, "software": text}))
        case _:
            many = [0] * random.choice((5000, 100_000))
            return _frame(msgpack.packb({"id": 1, "type": "FreeBuffers", "buffers": many}))


def _replayed(random: Random, authenticated: bool) -> bytes:
    """Hello and Proof as another client said them on another connection, at other moments and more than once."""
    client, server = (
        Hello(PROTOCOL_VERSION, "gputune", random.randbytes(32).hex(), "token", salt) for salt in ("", "5a17" * 8)
    )
    mac = FrameMac(frame_key(TOKEN, "client", client, server))
    proof, ping = (b"".join(framing.encode(codec.pack(*what), mac=mac)) for what in ((Proof(), 0), (Ping(), 1)))
    recorded = [_bytes(client, 0), proof, _bytes(server, 0), ping]
    return b"".join(random.choice(recorded) for _ in range(random.randrange(1, 5)))


def _forged(random: Random, authenticated: bool) -> bytes:
    """A message whose MAC is under another key than the token's."""
    return b"".join(framing.encode(codec.pack(*_valid(random, authenticated)), mac=FrameMac(random.randbytes(32))))


def _out_of_turn(random: Random, authenticated: bool) -> bytes:
    """Valid messages that do not belong there: replies from a client, ids twice, requests before the proof."""
    messages = random.choices(REPLIES if random.random() < 0.5 else REQUESTS, k=random.randrange(1, 4))
    return b"".join(_bytes(message, random.choice((0, 1, 1, 2))) for message in messages)


def _flood(random: Random, authenticated: bool) -> bytes:
    """More requests than may be open."""
    message = random.choice(REQUESTS)
    return b"".join(_bytes(message, number) for number in range(1, random.choice((10, 100, 1000))))


def _garbage(random: Random, authenticated: bool) -> bytes:
    noise = random.randbytes(random.choice((1, 11, 12, 13, 100, 5000, 70_000)))
    fronts = (b"", b"gpt1", b"gpt", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"gpt1" + bytes(8))
    return random.choice((random.choice(fronts) + noise, _frame(noise), _frame(noise, [noise[:9]])))


_Maker = Callable[[Random, bool], bytes]
_MAKERS: Mapping[str, tuple[_Maker, int, bool]] = {  # kind -> maker, weight, whether it begins with a valid frame
    "truncated": (_truncated, 2, True),
    "mutated": (_mutated, 6, True),
    "wrong_types": (_wrong_types, 5, True),
    "nested": (_nested, 1, True),
    "bad_lengths": (_bad_lengths, 3, True),
    "oversized": (_oversized, 1, False),
    "replayed": (_replayed, 1, False),
    "forged": (_forged, 2, False),
    "out_of_turn": (_out_of_turn, 1, False),
    "flood": (_flood, 1, False),
    "garbage": (_garbage, 1, False),
}
KINDS = tuple(_MAKERS)

# --- material for them ------------------------------------------------------------------------------


def _valid(random: Random, authenticated: bool) -> tuple[Any, int]:
    """A message and its id that could stand at this moment."""
    if authenticated:
        return random.choice(REQUESTS), random.choice((1, 2, 3, 100, 2**32, 2**63 - 1))
    return random.choice(GREETINGS), 0


def _bytes(message: object, request_id: int) -> bytes:
    return b"".join(raw(message, request_id))


def _frame(header: bytes, blobs: list[bytes] | None = None) -> bytes:
    sizes = [len(blob) for blob in blobs or []]
    front = struct.pack(f"<4sII{len(sizes)}Q", b"gpt1", len(header), len(sizes), *sizes)
    return front + header + b"".join(blobs or [])


def _taken_apart(message: object, request_id: int) -> tuple[dict[str, Any], list[bytes]]:
    parts = codec.pack(message, request_id)
    return msgpack.unpackb(parts.header), [bytes(blob) for blob in parts.blobs]


def _place(random: Random, header: dict[str, Any]) -> tuple[Any, Any]:
    """Some map or list in the header and one of its keys or indices."""
    holder: Any = header
    while True:
        key = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if not isinstance(holder[key], (dict, list)) or not holder[key] or random.random() < 0.3:
            return holder, key
        holder = holder[key]


def _odd_value(random: Random) -> Any:
    return deepcopy(random.choice(ODD_VALUES))  # what it is put into may be changed again


ODD_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31, 2**63, 2**64 - 1, -(2**63), 0.5, float("nan"), float("inf"), 1e308),
    *("", "Ping", "\0", "x" * 300, "x" * 70_000, "\U0001f600", b"", b"bytes", [], [[]], {}, {"a": {"b": []}}),
    *([1] * 300, ["x"] * 5000, msgpack.ExtType(1, bytes(4)), msgpack.ExtType(1, b"\xff" * 4)),
    *(msgpack.ExtType(1, b""), msgpack.ExtType(77, b"1234"), msgpack.Timestamp(1, 2)),
)
