"""One side of a connection as a state machine without input and output: bytes in, messages out, and back.

The same table serves both sides: it says who may send what when, and where that leads.

    connection = Connection("client", software_version())
    send_all(connection.send(connection.hello()))
    arrived = connection.filled(socket.recv_into(connection.space()))    # None, or (request id, message)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, Literal

from gputune.server.protocol import codec, framing
from gputune.server.protocol.errors import LocalProtocolError, RemoteProtocolError
from gputune.server.protocol.messages import (
    FROM_CLIENT,
    FROM_SERVER,
    PROTOCOL_VERSION,
    REPLIES,
    Error,
    Hello,
    Limits,
    Welcome,
)

Side = Literal["client", "server"]

# until both sides have said hello, nothing large is read from anybody
HANDSHAKE_LIMITS = Limits(frame_bytes=1 << 16, header_bytes=1 << 16, blobs=0)


class State(Enum):
    """How far a connection has come."""

    START = "waiting for the client's hello"
    GREETED = "waiting for the server's hello"
    AGREED = "waiting for the server's welcome"
    READY = "ready for requests"
    CLOSED = "closed"


# (state, who sends, what) -> next state; what is not here is not allowed
TRANSITIONS: Mapping[tuple[State, Side, type], State] = MappingProxyType(
    {
        (State.START, "client", Hello): State.GREETED,
        (State.GREETED, "server", Hello): State.AGREED,
        (State.AGREED, "server", Welcome): State.READY,
        **{(State.READY, "client", request): State.READY for request in REPLIES},
        **{(State.READY, "server", reply): State.READY for reply in REPLIES.values()},
        (State.READY, "server", Error): State.READY,
        # Besides: an Error with id 0 is allowed to the server in every state and leads to CLOSED.
    }
)


def software_version() -> str:
    """What Hello says about this side, for example "gputune 0.1.0"."""
    try:
        return f"gputune {version('gputune')}"
    except PackageNotFoundError:  # a bundle without package metadata
        return "gputune"


class Connection:
    """The protocol seen from `side`. Every method is free of input and output.

    `limits` are what this side announced or was told; they hold once the connection is READY.
    """

    def __init__(self, side: Side, software: str, protocol: int = PROTOCOL_VERSION) -> None:
        self.side = side
        self.peer: Side = "server" if side == "client" else "client"
        self.state = State.START
        self._hello = Hello(protocol, software)
        self._reader = framing.FrameReader(HANDSHAKE_LIMITS)
        self._arriving = codec.registry(FROM_SERVER if side == "client" else FROM_CLIENT)
        self._open: dict[int, type] = {}  # requests without a reply yet
        self.mismatch = ""  # why the two versions do not go together; a server closes after its hello then

    def hello(self) -> Hello:
        """This side's Hello."""
        return self._hello

    def close(self) -> None:
        """Nothing more will be sent or received."""
        self.state = State.CLOSED

    # --- out --------------------------------------------------------------------------------------

    def send(self, message: Any, request_id: int = 0) -> list[memoryview]:
        """The buffers to send for a message. Raises LocalProtocolError; nothing has changed then."""
        kind = type(message)
        target = self._next(self.side, kind, request_id, LocalProtocolError)
        buffers = framing.encode(codec.pack(message, request_id))
        self._move(target, self.side, message, request_id)
        return buffers

    # --- in ---------------------------------------------------------------------------------------

    @property
    def between_frames(self) -> bool:
        """True when the peer may close the connection without cutting a message off."""
        return self._reader.between_frames

    def space(self) -> memoryview:
        """Where the next bytes from the peer belong (see FrameReader)."""
        return self._reader.space()

    def filled(self, count: int) -> tuple[int, Any] | None:
        """The first `count` bytes of space() have arrived; (request id, message) when they complete one.

        Raises RemoteProtocolError. On a server, a request_id greater than 0 in it means that the frame was
        whole but its content is wrong: answer with Error under that id and go on. Otherwise a server may send
        one last Error with id 0, and nothing more can be read.
        """
        try:
            frame = self._reader.filled(count)
            return None if frame is None else self._receive(frame)
        except RemoteProtocolError as error:
            if self.side == "client" or self.state is not State.READY or error.request_id in self._open:
                error.request_id = 0
            if error.request_id:
                self._open[error.request_id] = type(None)  # only Error answers this
            elif self.side == "client":
                self.state = State.CLOSED
            raise

    def _receive(self, frame: framing.Frame) -> tuple[int, Any]:
        request_id, message = codec.unpack(frame.header, frame.blobs, self._arriving)
        target = self._next(self.peer, type(message), request_id, RemoteProtocolError)
        self._move(target, self.peer, message, request_id)
        if self.mismatch and self.side == "client":
            raise RemoteProtocolError("version_mismatch", self.mismatch)
        return request_id, message

    # --- the machine ------------------------------------------------------------------------------

    def _next(
        self,
        sender: Side,
        kind: type,
        request_id: int,
        fault: type[LocalProtocolError] | type[RemoteProtocolError],
    ) -> State:
        target = TRANSITIONS.get((self.state, sender, kind))
        if self.state is not State.CLOSED and sender == "server" and kind is Error and request_id == 0:
            return State.CLOSED
        if target is None:
            raise fault("unexpected_message", f"{kind.__name__} from the {sender} while {self.state.value}")
        answers = self._open.get(request_id)
        if self.state is not State.READY:
            fits = request_id == 0
        elif sender == "client":
            fits = request_id != 0 and answers is None
        else:
            fits = answers is not None and kind in (Error, REPLIES.get(answers))
        if not fits:
            raise fault("unexpected_message", f"{kind.__name__} from the {sender} does not fit id {request_id}")
        return target

    def _move(self, target: State, sender: Side, message: Any, request_id: int) -> None:
        self.state = target
        if isinstance(message, Hello) and sender == self.peer:
            self._compare(message)
        if isinstance(message, Welcome):
            self._reader.limits = message.limits
        if request_id and sender == "client":
            self._open[request_id] = type(message)
        elif request_id:
            del self._open[request_id]
        if self.mismatch and target is State.AGREED:
            self.state = State.CLOSED

    def _compare(self, theirs: Hello) -> None:
        ours = self._hello
        if theirs.protocol == ours.protocol:
            return
        older = self.side if ours.protocol < theirs.protocol else self.peer
        self.mismatch = (
            f"the {self.side} ({ours.software}) speaks protocol {ours.protocol}, "
            f"the {self.peer} ({theirs.software}) speaks protocol {theirs.protocol}; "
            f"update gputune on the {older}'s machine"
        )
