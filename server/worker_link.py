"""How daemon and worker process talk: the protocol's frames and messages over one file descriptor.

The id of a frame names the client connection that a request belongs to. The daemon sends one request at a
time and waits for its reply, so replies need no ids of their own. Two messages exist on this link only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from gputune.server.protocol import codec, framing
from gputune.server.protocol.messages import FROM_SERVER, REPLIES, Limits

_BUFFERS_AT_ONCE = 512  # below every system's limit for one writev


@dataclass(frozen=True)
class WorkerReady:
    """The worker has opened its device (an Error comes instead when it could not)."""

    device: dict[str, object]
    backend: str
    settings: dict[str, str]


@dataclass(frozen=True)
class CloseConnection:
    """The client connection named by the frame's id is gone: forget what it owned. Answered by Done."""


# the worker is our own process, so the link has no limits of its own
LINK_LIMITS = Limits(frame_bytes=2**48, header_bytes=2**31 - 1, blobs=2**31 - 1)
TO_WORKER = codec.registry((*REPLIES, CloseConnection))
FROM_WORKER = codec.registry((WorkerReady, *FROM_SERVER))


class WorkerLink:
    """The worker's end: blocking, over an inherited file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._reader = framing.FrameReader(LINK_LIMITS)

    def receive(self) -> tuple[int, Any] | None:
        """(connection, request); None when the daemon is gone."""
        while count := os.readv(self._descriptor, [self._reader.space()]):
            if frame := self._reader.filled(count):
                return codec.unpack(frame.header, frame.blobs, TO_WORKER)
        return None

    def send(self, connection: int, message: object) -> None:
        """Sends a reply. Raises OSError when the daemon is gone."""
        buffers = framing.encode(codec.pack(message, connection))
        while buffers:
            buffers = framing.unsent(buffers, os.writev(self._descriptor, buffers[:_BUFFERS_AT_ONCE]))
