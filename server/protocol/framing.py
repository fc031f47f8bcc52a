"""Frame messages without input and output: a reader that says where the next bytes go, and an encoder.

    magic b"gpt1" | u32 header bytes | u32 blob count | u64 bytes of each blob | header | blobs
    magic b"gptm" | the same                                                                    | MAC

Numbers are little endian. On a connection whose frames carry a MAC (frame_mac.py), no others are read. Until the MAC is
verified, nothing is taken from a frame but the sizes that say where it ends.

Small data arrives through a staging buffer, many frames at a time. Data larger than that buffer is received where it
stays: `reader.filled(sock.recv_into(reader.space()))`. `feed` does the same from bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gputune.server.protocol.codec import Parts
from gputune.server.protocol.errors import LocalProtocolError, ProtocolErrorT, RemoteProtocolError, limit_exceeded
from gputune.server.protocol.frame_mac import MAC_BYTES, FrameMac, Hashing
from gputune.server.protocol.limits import UNLIMITED, Limits

MAGIC = b"gpt1"
MAC_MAGIC = b"gptm"
STAGING_BYTES = 64 << 10
_JOINED_BYTES = 4 << 10  # blobs that are copied behind their header, because one buffer is cheaper to send
_PREFIX = struct.Struct("<4sII")
_PREFIX_BYTES = _PREFIX.size
_NO_BLOBS: Sequence[memoryview] = ()


class Frame(NamedTuple):
    """Hold a whole frame as it arrived."""

    header: bytes | memoryview
    blobs: Sequence[memoryview]


def encode(parts: Parts, limits: Limits = UNLIMITED, mac: FrameMac | None = None) -> list[memoryview]:
    """Return the frame as a list of buffers to be sent one after the other; blobs of some size are not copied. mac: of
    the direction, where frames carry one. Raises as `begin` does.
    """
    buffers, end = begin(parts, limits, mac)
    return buffers if end is None else [*buffers, memoryview(end())]


def begin(
    parts: Parts, limits: Limits = UNLIMITED, mac: FrameMac | None = None
) -> tuple[list[memoryview], Callable[[], bytes] | None]:
    """Return the buffers of a frame, and what gives the MAC that is sent behind them; None where they hold it.

    Raises LocalProtocolError (limit_exceeded) when it is more than the limits allow.
    """
    header, blobs = parts
    header_bytes, count = len(header), len(blobs)
    sizes = [blob.nbytes for blob in blobs] if blobs else ()
    frame_bytes = _PREFIX_BYTES + 8 * count + header_bytes + sum(sizes)
    if header_bytes > limits.header_bytes or count > limits.blobs or frame_bytes > limits.frame_bytes:
        _allow(LocalProtocolError, limits, blobs=count, header_bytes=header_bytes, frame_bytes=frame_bytes)
    whole = front(parts, mac is not None)
    if not blobs:
        return [memoryview(whole if mac is None else whole + mac.sign(whole))], None
    end = None if mac is None else mac.sign_later(whole, blobs)
    if sum(sizes) <= _JOINED_BYTES:
        return [memoryview(b"".join((whole, *blobs, b"" if end is None else end())))], None
    return [memoryview(whole), *(blob for blob in blobs if blob.nbytes)], end


def front(parts: Parts, with_mac: bool) -> bytes:
    """Return what comes before the blobs of a frame."""
    header, blobs = parts
    start = _PREFIX.pack(MAC_MAGIC if with_mac else MAGIC, len(header), len(blobs))
    return (
        start + struct.pack(f"<{len(blobs)}Q", *(blob.nbytes for blob in blobs)) + header if blobs else start + header
    )


def unsent(buffers: Sequence[memoryview], sent_bytes: int) -> list[memoryview]:
    """Return what is left of `buffers` after their first `sent_bytes` have gone."""
    for index, buffer in enumerate(buffers):
        if sent_bytes < buffer.nbytes:
            return [buffer[sent_bytes:], *buffers[index + 1 :]]
        sent_bytes -= buffer.nbytes
    return []


class FrameReader:
    """Collect frames from bytes that arrive in any pieces; allocate nothing larger than `limits`.

    limits, mac: may be replaced between frames; mac is that of the direction, None where frames carry none.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.mac: FrameMac | None = None
        self._staging = memoryview(bytearray(STAGING_BYTES))
        self._start = self._end = 0  # what of the staging buffer has arrived and is not used yet
        self._direct: memoryview | None = None  # what is received where it stays, its first _have bytes so far
        self._have = 0
        self._front: memoryview | None = None  # sizes and header, where they are too large for the staging buffer
        self._count = 0  # of the sizes in it
        self._header: bytes | memoryview | None = None  # of a frame whose blobs are arriving
        self._blobs: Sequence[memoryview] = _NO_BLOBS
        self._complete = 0  # blobs
        self._signed = b""  # all before the blobs of a frame that is not verified yet
        self._hashing: Hashing | None = None  # of its blobs
        self.announced_bytes = 0
        """Return what the frame that is arriving takes beside the staging buffer, with the bytes that have not come
        yet."""

    @property
    def between_frames(self) -> bool:
        """Return whether no byte of an unfinished frame has arrived."""
        return self._header is None and self._front is None and self._start == self._end

    def space(self) -> memoryview:
        """Return where the next bytes belong: writable, at least one byte once all frames were taken from `filled`."""
        if self._direct is not None:
            return self._direct[self._have :]
        return self._staging[self._end :] if self._end else self._staging

    def filled(self, count: int) -> Iterable[Frame]:
        """Take the first `count` bytes of space(), which have arrived, and return the frames that they complete.

        Iterating raises RemoteProtocolError (bad_frame, bad_mac, limit_exceeded); the stream cannot be read further
        then.
        """
        if self._direct is not None:
            self._have += count
            if self._have < self._direct.nbytes:  # most pieces of what is large: nothing else is done for them
                if self._hashing is not None:
                    self._hashing.reach(self._direct, self._have)
                return ()
        else:
            self._end += count
        return self._frames()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Yield the frames that `data` completes. Raises as `filled` does."""
        rest = memoryview(data).cast("B")
        while rest:
            space = self.space()
            count = min(len(rest), len(space))
            space[:count] = rest[:count]
            rest = rest[count:]
            yield from self.filled(count)

    def _frames(self) -> Iterator[Frame]:
        while self._header is not None or self._begin():
            if self._blobs and not self._fill_blobs():
                break
            if self.mac is not None and not self._verify(self.mac):
                break
            frame = Frame(self._header, self._blobs)  # type: ignore[arg-type]  # _begin has set it
            self._header, self._blobs = None, _NO_BLOBS
            self.announced_bytes = 0
            yield frame
        if self._start:  # move what is left to where there is most room behind it
            left = self._end - self._start
            if left:
                self._staging[:left] = self._staging[self._start : self._end]
            self._start, self._end = 0, left

    def _begin(self) -> bool:
        """Read what comes before the blobs of the next frame; False when that has not all arrived."""
        if self._front is not None:
            return self._finish_front(self._front)
        start, arrived = self._start, self._end - self._start
        if arrived < _PREFIX_BYTES:
            if arrived:
                self._check_magic()
            return False
        magic, header_bytes, count = _PREFIX.unpack_from(self._staging, start)
        if magic != (MAGIC if self.mac is None else MAC_MAGIC):
            self._check_magic()
        front_bytes = _PREFIX_BYTES + 8 * count + header_bytes
        limits = self.limits
        if header_bytes > limits.header_bytes or count > limits.blobs or front_bytes > limits.frame_bytes:
            _allow(RemoteProtocolError, limits, blobs=count, header_bytes=header_bytes, frame_bytes=front_bytes)
        if not header_bytes:
            raise RemoteProtocolError("bad_frame", "a frame without a header")
        if front_bytes > STAGING_BYTES:
            self._front, self._count = _memory(front_bytes - _PREFIX_BYTES), count
            self.announced_bytes = front_bytes
            self._start += _PREFIX_BYTES
            return self._finish_front(self._front)
        if arrived < front_bytes:
            return False
        self._start = end = start + front_bytes
        self._header = bytes(self._staging[end - header_bytes : end])
        if self.mac is not None:
            self._signed = bytes(self._staging[start:end])
        if count:
            self._announce(struct.unpack_from(f"<{count}Q", self._staging, start + _PREFIX_BYTES), front_bytes)
        return True

    def _finish_front(self, front: memoryview) -> bool:
        if not self._fill(front):
            return False
        self._front = None
        self._header = front[8 * self._count :]
        if self.mac is not None:
            self._signed = _PREFIX.pack(MAC_MAGIC, len(self._header), self._count) + bytes(front)
        self._announce(struct.unpack_from(f"<{self._count}Q", front), _PREFIX_BYTES + front.nbytes)
        return True

    def _announce(self, sizes: tuple[int, ...], front_bytes: int) -> None:
        _allow(RemoteProtocolError, self.limits, frame_bytes=front_bytes + sum(sizes))
        self._blobs = [_memory(size) for size in sizes]
        self.announced_bytes += sum(sizes)
        self._complete = 0
        self._hashing = None if self.mac is None else Hashing()

    def _fill_blobs(self) -> bool:
        while self._complete < len(self._blobs):
            blob = self._blobs[self._complete]
            if not self._fill(blob):
                return False
            if self._hashing is not None:
                self._hashing.reach(blob, blob.nbytes)
            self._complete += 1
        return True

    def _verify(self, mac: FrameMac) -> bool:
        """Read and check the MAC of the frame; False when that has not all arrived."""
        start, end = self._start, self._start + MAC_BYTES
        if self._end < end:
            return False
        digests = () if self._hashing is None else self._hashing.digests()
        self._hashing, self._start = None, end
        mac.verify(bytes(self._staging[start:end]), self._signed, digests)
        return True

    def _fill(self, memory: memoryview) -> bool:
        """Move what has arrived of `memory` out of the staging buffer; True when it is full."""
        count = min(memory.nbytes - self._have, self._end - self._start)
        if count:
            memory[self._have : self._have + count] = self._staging[self._start : self._start + count]
            self._start += count
            self._have += count
        full = self._have == memory.nbytes
        self._direct = None if full or memory.nbytes <= STAGING_BYTES else memory
        if full:
            self._have = 0
        return full

    def _check_magic(self) -> None:
        got = bytes(self._staging[self._start : min(self._end, self._start + len(MAGIC))])
        magic = MAGIC if self.mac is None else MAC_MAGIC
        if not magic.startswith(got):
            raise RemoteProtocolError("bad_frame", f"expected a frame starting with {magic!r}, got {got!r}")


def _allow(fault: type[ProtocolErrorT], limits: Limits, **amounts: int) -> None:
    for limit, got in amounts.items():
        allowed: int = getattr(limits, limit)
        if got > allowed:
            raise limit_exceeded(fault, f"a frame has {limit.replace('_', ' ')}:", limit, allowed, got)


def _memory(count: int) -> memoryview:
    # numpy leaves the memory untouched, so an announced blob costs nothing until its bytes arrive
    try:
        return np.empty(count, np.uint8).data
    except MemoryError:
        raise RemoteProtocolError("limit_exceeded", f"there is no memory for {count} bytes of a frame") from None
