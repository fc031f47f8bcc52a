"""Compute message authentication codes of frames: a frame that is changed, repeated, omitted or inserted is refused.

    MAC = keyed BLAKE2b (RFC 7693), 16 bytes, of: u64 number of the frame | front | SHA-256 of each MiB of each blob

The number counts the frames of one direction from 0 and is not sent; each direction has its own key. The front is all
that comes before the blobs, and the sizes in it say where each blob and each digest ends.

A ping is a few dozen bytes four times: BLAKE2b takes one pass over them, HMAC two. Blobs are hundreds of MB: SHA-256
has instructions of its own on most processors, and hashlib lets other threads run meanwhile.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

from gputune.server.protocol.errors import RemoteProtocolError

MAC_BYTES = 16
PIECE_BYTES = 1 << 20
_THREADS = 2
_AHEAD = 3


class FrameMac:
    """Compute the MACs of the frames of one direction, in their order."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=MAC_BYTES)
        self._number = 0

    def expected(self, front: bytes, digests: Iterable[bytes] = ()) -> bytes:
        """Return the MAC of the next frame, which stays the next one."""
        return self._mac(self._number, front, digests)

    def skip(self) -> int:
        """Return the number of the next frame; the one after it is the next one now."""
        self._number += 1
        return self._number - 1

    def sign(self, front: bytes, digests: Iterable[bytes] = ()) -> bytes:
        """Return the MAC of the next frame, which is sent with it."""
        return self._mac(self.skip(), front, digests)

    def sign_later(self, front: bytes, blobs: Sequence[memoryview]) -> Callable[[], bytes]:
        """Return what gives the MAC of the next frame, which is sent with it; threads hash its blobs meanwhile."""
        number, hashing = self.skip(), Hashing(most_ahead=None)
        for blob in blobs:
            hashing.reach(blob, blob.nbytes)
        return lambda: self._mac(number, front, hashing.digests())

    def verify(self, mac: bytes, front: bytes, digests: Iterable[bytes] = ()) -> None:
        """Raise RemoteProtocolError (bad_mac) unless `mac` belongs to the next frame, which has arrived."""
        if not hmac.compare_digest(self.sign(front, digests), mac):
            raise RemoteProtocolError("bad_mac", "a frame was changed, repeated, left out or put in on the way")

    def _mac(self, number: int, front: bytes, digests: Iterable[bytes]) -> bytes:
        state = self._keyed.copy()
        state.update(number.to_bytes(8, "little") + front)
        for digest in digests:
            state.update(digest)
        return state.digest()


class Hashing:
    """Compute SHA-256 of each MiB of some blobs, by threads while more of them is on its way.

    most_ahead: pieces that may wait for a thread, None for any number; `reach` hashes what comes then, so that the last
    ones are soon done when all has arrived.
    """

    def __init__(self, most_ahead: int | None = _AHEAD) -> None:
        self._most_ahead = most_ahead
        self._digests: list[bytes | Future[bytes]] = []
        self._waiting: deque[Future[bytes]] = deque()
        self._hashed = 0  # bytes of the blob that arrives

    def reach(self, blob: memoryview, have: int) -> None:
        """Note that the first `have` bytes of a blob are there; one blob after the other, up to its end."""
        whole = have == blob.nbytes
        while self._hashed + PIECE_BYTES <= have or (whole and self._hashed < have):
            piece = blob[self._hashed : self._hashed + PIECE_BYTES]
            self._hashed += piece.nbytes
            self._digests.append(self._digest(piece))
        if whole:
            self._hashed = 0

    def digests(self) -> list[bytes]:
        """Return one digest for each piece, once the last one is done."""
        return [one if isinstance(one, bytes) else one.result() for one in self._digests]

    def _digest(self, piece: memoryview) -> bytes | Future[bytes]:
        waiting = self._waiting
        while waiting and waiting[0].done():
            waiting.popleft()
        if piece.nbytes < PIECE_BYTES or (self._most_ahead is not None and len(waiting) >= self._most_ahead):
            return _sha256(piece)
        future = _threads().submit(_sha256, piece)
        waiting.append(future)
        return future


def _sha256(piece: memoryview) -> bytes:
    return hashlib.sha256(piece).digest()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="gputune hashing")
