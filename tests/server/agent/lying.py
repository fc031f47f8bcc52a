"""Play an agent that knows the token, and answers as a test says."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gputune.server.agent import messages
from gputune.server.agent.agent_connection import LIMITS
from gputune.server.agent.message_parts import Found, Seen
from gputune.server.agent.messages import (
    AGENT_VERSION,
    REPLIES,
    Begin,
    Built,
    Checked,
    Contents,
    Done,
    Greeting,
    Loaded,
    Opened,
    Steered,
    Timed,
)
from gputune.server.protocol import codec, framing
from gputune.server.protocol.connection import HANDSHAKE_LIMITS
from gputune.server.protocol.handshake import Handshake
from gputune.server.protocol.messages import Hello, Proof

TOKEN = "a token that only tests know"
KINDS = codec.registry([Hello, Proof, *REPLIES])


def _timed(request: messages.TimePass) -> Timed:
    launches = sum(batch.launches * len(batch.bounds) for batch in request.batches)
    return Timed(bytes(8 * len(request.batches)), bytes(32 * launches))


def _checked(request: messages.Check) -> Checked:
    return Checked((Seen(0, 0, 0, 0, 0),) * len(request.zones), (Found(0, 0, 0, b"", b""),) * len(request.expected))


HONEST: Mapping[type, Any] = {
    Begin: Greeting(""),
    messages.ListDevices: messages.Devices(()),
    messages.Open: Opened(1 << 20, ()),
    messages.Build: Built(1),
    messages.Read: lambda asked: Contents(tuple(bytes(span.nbytes) for span in asked.spans)),
    messages.ReadFiles: lambda asked: Contents((b"",) * len(asked.paths)),
    messages.Harvest: Contents((b"binary",)),
    messages.Check: _checked,
    messages.FirstLaunch: Timed(bytes(8), bytes(32)),
    messages.TimePass: _timed,
    messages.LoadContext: Loaded((), 1),
    messages.RunContext: messages.Ran((bytes(16),), 1, "launches"),
    messages.ReadState: lambda asked: Contents((bytes(asked.nbytes),)),
    messages.EndProfile: Contents((b"log",)),
    messages.SetVotes: Steered(()),
}
"""By type of a request, a good reply, or what makes it; of the others it is Done."""


class LyingAgent:
    """An agent at a path of a local socket, from here. lies: replies in the place of good ones, each a message, a
    number and a message, a list of such, or what makes it of a request. asked: the requests that have arrived."""

    def __init__(self, path: Path, lies: Mapping[type, Any]) -> None:
        self.address, self._lies = f"./{path}", lies
        self.asked: list[Any] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.address)
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listening.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):
            self._talk(client)

    def _talk(self, client: socket.socket) -> None:
        handshake = Handshake("server", AGENT_VERSION, "gputune-agent", TOKEN.encode())
        reader, mac = framing.FrameReader(HANDSHAKE_LIMITS), None

        def read() -> Iterator[tuple[int, Any]]:
            while True:
                count = client.recv_into(reader.space())
                if not count:
                    raise EOFError
                for frame in reader.filled(count):
                    yield codec.unpack(frame.header, frame.blobs, KINDS, LIMITS)

        def write(message: Any, number: int = 0) -> None:
            client.sendall(b"".join(map(bytes, framing.encode(codec.pack(message, number), LIMITS, mac))))

        heard = read()
        handshake.said("client", next(heard)[1])
        write(handshake.hello)
        handshake.said("server", handshake.hello)
        mac, reader.mac = handshake.frame_mac("server"), handshake.frame_mac("client")
        for number, request in heard:
            if isinstance(request, Proof):
                reader.limits = LIMITS
                continue
            self.asked.append(request)
            for other, reply in self._replies(request, number):
                write(reply, other)

    def _replies(self, request: Any, number: int) -> Iterator[tuple[int, Any]]:
        kind = type(request)
        reply = self._lies.get(kind, HONEST.get(kind, Done()))
        told: Any = reply(request) if isinstance(reply, Callable) else reply  # type: ignore[arg-type]
        for each in told if isinstance(told, list) else [told]:
            yield each if isinstance(each, tuple) else (number, each)
