"""Frames without input and output: a reader that says where the next bytes go, and an encoder.

    magic b"gpt1" | u32 header bytes | u32 blob count | u64 bytes of each blob | header | blobs

Numbers are little endian. The reader hands out the memory that the next bytes belong into, so that a
socket writes a blob straight to its final place: `reader.filled(sock.recv_into(reader.space()))`. `feed` does
the same from bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gputune.server.protocol.codec import Parts
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.messages import Limits

MAGIC = b"gpt1"
_PREFIX = struct.Struct("<4sII")


@dataclass(frozen=True)
class Frame:
    """A whole frame as it arrived."""

    header: memoryview
    blobs: tuple[memoryview, ...]


def encode(parts: Parts) -> list[memoryview]:
    """The frame as a list of buffers to be sent one after the other; blobs are not copied."""
    sizes = struct.pack(f"<{len(parts.blobs)}Q", *(blob.nbytes for blob in parts.blobs))
    front = _PREFIX.pack(MAGIC, len(parts.header), len(parts.blobs)) + sizes + parts.header
    return [memoryview(front), *(blob for blob in parts.blobs if blob.nbytes)]


def unsent(buffers: Sequence[memoryview], sent_bytes: int) -> list[memoryview]:
    """What is left of `buffers` after their first `sent_bytes` have gone."""
    for index, buffer in enumerate(buffers):
        if sent_bytes < buffer.nbytes:
            return [buffer[sent_bytes:], *buffers[index + 1 :]]
        sent_bytes -= buffer.nbytes
    return []


class FrameReader:
    """Collects frames from bytes that arrive in any pieces; allocates nothing larger than `limits`."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._steps = self._read()
        self._have = 0
        self._space, _ = next(self._steps)

    @property
    def between_frames(self) -> bool:
        """True when no byte of an unfinished frame has arrived."""
        return self._at_prefix and self._have == 0

    def space(self) -> memoryview:
        """Where the next bytes belong: writable, at least one byte."""
        return self._space[self._have :]

    def filled(self, count: int) -> Frame | None:
        """The first `count` bytes of space() have arrived. A Frame when they complete one.

        Raises RemoteProtocolError (bad_frame, limit_exceeded); the stream cannot be read further then.
        """
        self._have += count
        if self._at_prefix and not bytes(self._space[: self._have]).startswith(MAGIC[: self._have]):
            got = bytes(self._space[: min(self._have, len(MAGIC))])
            raise RemoteProtocolError("bad_frame", f"expected a frame starting with {MAGIC!r}, got {got!r}")
        if self._have < self._space.nbytes:
            return None
        self._space, frame = next(self._steps)
        self._have = 0
        return frame

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """The frames that `data` completes. Raises as `filled` does."""
        rest = memoryview(data).cast("B")
        while rest:
            space = self.space()
            count = min(len(rest), len(space))
            space[:count] = rest[:count]
            rest = rest[count:]
            if frame := self.filled(count):
                yield frame

    def _read(self) -> Generator[tuple[memoryview, Frame | None], None, None]:
        """Yields (memory to fill next, the frame that the memory filled last completed)."""
        frame = None
        while True:
            prefix = _memory(_PREFIX.size)
            self._at_prefix = True
            yield prefix, frame
            self._at_prefix = False
            _, header_bytes, count = _PREFIX.unpack(prefix)
            self._allow("blobs", count)
            self._allow("header_bytes", header_bytes)
            if header_bytes == 0:
                raise RemoteProtocolError("bad_frame", "a frame without a header")
            sizes: tuple[int, ...] = ()
            if count:
                table = _memory(8 * count)
                yield table, None
                sizes = struct.unpack(f"<{count}Q", table)
            self._allow("frame_bytes", _PREFIX.size + 8 * count + header_bytes + sum(sizes))
            header = _memory(header_bytes)
            yield header, None
            blobs = tuple(_memory(size) for size in sizes)
            for blob in blobs:
                if blob.nbytes:
                    yield blob, None
            frame = Frame(header, blobs)

    def _allow(self, limit: str, got: int) -> None:
        allowed = getattr(self.limits, limit)
        if got > allowed:
            raise RemoteProtocolError(
                "limit_exceeded",
                f"a frame has {got} {limit.replace('_', ' ')}, the limit is {allowed}",
                {"limit": limit, "allowed": allowed, "got": got},
            )


def _memory(count: int) -> memoryview:
    # numpy leaves the memory untouched, so an announced blob costs nothing until its bytes arrive
    return np.empty(count, np.uint8).data
