"""Encode protocol messages as single byte strings, which a farm carries between a client and the host of a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputune.server.protocol import codec, framing
from gputune.server.protocol.errors import ProtocolError, RemoteProtocolError
from gputune.server.protocol.framing import FrameReader
from gputune.server.protocol.limits import UNLIMITED, Limits
from gputune.server.protocol.messages import FROM_SERVER, REPLIES, Error, Hello, RegisterMemory

REQUESTS = codec.registry([Hello, *(kind for kind in REPLIES if kind is not RegisterMemory)])
"""What may come to a device's host. Descriptors cannot, so memory cannot be registered."""
ANSWERS = codec.registry(FROM_SERVER)
OPEN_LIMITS = Limits(frame_bytes=4 << 10, header_bytes=4 << 10, blobs=0)
"""Of a frame with which a session is opened."""


def to_bytes(message: Any, number: int, limits: Limits = UNLIMITED) -> bytes:
    """Return the frame of a message. Raises LocalProtocolError for what the limits do not allow or what does not
    travel."""
    return b"".join(framing.encode(codec.pack(message, number), limits))


def from_bytes(data: object, kinds: Mapping[str, type], limits: Limits = UNLIMITED) -> tuple[int, Any]:
    """Return (number, message) of bytes that hold exactly one frame of these kinds. Raises RemoteProtocolError."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise RemoteProtocolError("bad_frame", f"{type(data).__name__} where the bytes of a frame are expected")
    reader = FrameReader(limits)
    frames = list(reader.feed(data))
    if len(frames) != 1 or not reader.between_frames:
        raise RemoteProtocolError("bad_frame", f"{len(data)} bytes are not exactly one frame")
    return codec.unpack(frames[0].header, frames[0].blobs, kinds, limits)


def error_frame(error: ProtocolError | None, number: int = 0, name: str = "", message: str = "") -> bytes:
    """Return the frame of an Error: of a protocol's error, else of a name and a message."""
    told = Error(name, message) if error is None else Error(error.name, error.message, error.details)
    return to_bytes(told, number)
