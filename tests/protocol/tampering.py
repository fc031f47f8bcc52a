"""Make streams of signed frames that were tampered with on the way, the same for the same seed.

recorded = Recorded.made()
kind, stream = tampered(Random(seed), recorded)
headers, end = read(stream)  # of recorded.intact(stream) frames, and what ended it
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from gputune.server.protocol import codec, framing
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.frame_mac import MAC_BYTES, FrameMac
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Error, FreeBuffers, Ping, UploadBuffer

LIMITS = Limits(frame_bytes=1 << 20, header_bytes=1 << 12, blobs=8)
MESSAGES = (
    Ping(),
    UploadBuffer(bytes(range(256))),
    Ping(),
    FreeBuffers((1, 2, 3)),
    UploadBuffer(b""),
    UploadBuffer(bytes(5000)),
    Ping(),
    UploadBuffer(bytes(framing.STAGING_BYTES + 1)),
    Error("internal_error", "x" * 2000, {"log": "y" * 3000}),
    Ping(),
)
CUT = "cut off"
NAMES = ("bad_mac", "bad_frame", "limit_exceeded")


def signed_frames(mac: FrameMac, messages: Sequence[object] = MESSAGES, first_id: int = 1) -> list[bytes]:
    """The messages one after the other, with their MACs."""
    return [
        b"".join(framing.encode(codec.pack(message, first_id + place), mac=mac))
        for place, message in enumerate(messages)
    ]


@dataclass(frozen=True)
class Recorded:
    """What an attacker has seen: the frames of a direction, and others with keys that do not fit it."""

    frames: Sequence[bytes]
    others: Sequence[bytes]

    @classmethod
    def made(cls, key: bytes = b"k" * 32, other: bytes = b"o" * 32) -> "Recorded":
        """A direction with this key; the others are those of the other direction, and frames without a MAC."""
        plain = [b"".join(framing.encode(codec.pack(message, 7))) for message in MESSAGES[:3]]
        return cls(signed_frames(FrameMac(key)), [*signed_frames(FrameMac(other)), *plain])

    def intact(self, stream: bytes) -> int:
        """How many frames of a stream have come as they were sent."""
        whole = 0
        for frame in self.frames:
            if not stream.startswith(frame):
                break
            stream = stream[len(frame) :]
            whole += 1
        return whole


def tampered(random: Random, recorded: Recorded) -> tuple[str, bytes]:
    """(how, stream): the frames in their order up to one, and then not as they were sent."""
    frames = list(recorded.frames)
    while True:
        kind = random.choice(tuple(_KINDS))
        stream = b"".join(_KINDS[kind](random, list(frames), random.randrange(len(frames) - 1), recorded.others))
        if stream != b"".join(frames):
            return kind, stream


def read(stream: bytes, key: bytes = b"k" * 32) -> tuple[list[bytes], str]:
    """(headers of the frames that were taken, name of what ended the stream) of a reader with this key."""
    reader = framing.FrameReader(LIMITS)
    reader.mac = FrameMac(key)
    taken: list[bytes] = []
    try:
        for frame in reader.feed(stream):
            taken.append(bytes(frame.header))
    except RemoteProtocolError as error:
        return taken, error.name
    return taken, "whole" if reader.between_frames else CUT


# --- kinds: each gets the frames, the place of the first that is at fault, and frames of others -----------

_Frames = list[bytes]


def _flipped(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    changed = bytearray(frames[at])
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return [*frames[:at], bytes(changed), *frames[at + 1 :]]


def _overwritten(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    changed, start = bytearray(frames[at]), random.randrange(len(frames[at]))
    noise = random.randbytes(random.choice((1, 4, 16, 40)))[: len(changed) - start]
    changed[start : start + len(noise)] = noise
    return [*frames[:at], bytes(changed), *frames[at + 1 :]]


def _lengths(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    changed, start = bytearray(frames[at]), random.choice((4, 8, 12))
    value = int.from_bytes(changed[start : start + 4], "little") + random.choice((-1, 1, 16, -16, 1000, 1 << 20))
    changed[start : start + 4] = (value % (1 << 32)).to_bytes(4, "little")
    return [*frames[:at], bytes(changed), *frames[at + 1 :]]


def _replayed(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    return [*frames[: at + 1], frames[random.randrange(at + 1)], *frames[at + 1 :]]


def _reordered(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    rest = frames[at:]
    random.shuffle(rest)
    return [*frames[:at], *rest]


def _left_out(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    return [*frames[:at], *frames[at + random.randint(1, len(frames) - at - 1) :]]


def _truncated(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    return [*frames[:at], frames[at][: random.randrange(len(frames[at]))], *frames[at + 1 :]]


def _ended(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    return [*frames[:at], frames[at][: random.randrange(1, len(frames[at]))]]


def _spliced(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    other = random.choice((*frames, *others))
    return [
        *frames[:at],
        frames[at][: random.randrange(len(frames[at]))] + other[random.randrange(len(other)) :],
        *frames[at + 1 :],
    ]


def _other_mac(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    other = random.choice((*frames, *others))
    return [*frames[:at], frames[at][:-MAC_BYTES] + other[-MAC_BYTES:], *frames[at + 1 :]]


def _inserted(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    return [*frames[:at], random.choice(others), *frames[at:]]


def _replaced(random: Random, frames: _Frames, at: int, others: Sequence[bytes]) -> _Frames:
    return [*frames[:at], random.choice(others), *frames[at + 1 :]]


_Make = Callable[[Random, _Frames, int, Sequence[bytes]], _Frames]
_KINDS: dict[str, _Make] = {
    "flipped": _flipped,
    "overwritten": _overwritten,
    "lengths": _lengths,
    "replayed": _replayed,
    "reordered": _reordered,
    "left out": _left_out,
    "truncated": _truncated,
    "ended": _ended,
    "spliced": _spliced,
    "other MAC": _other_mac,
    "inserted": _inserted,
    "replaced": _replaced,
}
KINDS = tuple(_KINDS)
