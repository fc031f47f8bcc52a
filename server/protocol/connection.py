"""Represent one side of a connection as a state machine without input and output: bytes in, messages out, and back.

The same table serves both sides: it says who may send what when, and which state follows.

    connection = Connection("client", software_version(), token)
    send_all(connection.send(connection.hello()))
    for request_id, message in connection.filled(socket.recv_into(connection.space())):
        ...  # a client answers the server's Hello with Proof(), and is READY after the Welcome
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

from gputune.server.protocol import codec, framing
from gputune.server.protocol.authentication import Role
from gputune.server.protocol.errors import LocalProtocolError, ProtocolErrorT, RemoteProtocolError, limit_exceeded
from gputune.server.protocol.frame_mac import FrameMac
from gputune.server.protocol.handshake import Handshake
from gputune.server.protocol.limits import UNLIMITED, Limits
from gputune.server.protocol.messages import PROTOCOL_VERSION, REPLIES, Error, Hello, Progress, Proof, Welcome

Side = Role

# what is read from a peer that has not proved the token yet; only a welcome is larger
HANDSHAKE_LIMITS = Limits(frame_bytes=4 << 10, header_bytes=4 << 10, blobs=0)
HEADER_COST = 32  # bytes of memory for each byte of a header: an entry of a map takes most
_SMALL_BYTES = 64
WELCOME_LIMITS = Limits(frame_bytes=256 << 10, header_bytes=256 << 10, blobs=16)


class State(Enum):
    """Say how far a connection has come."""

    START = "waiting for the client's hello"
    GREETED = "waiting for the server's hello"
    AGREED = "waiting for the client's proof"
    PROVEN = "waiting for the server's welcome"
    READY = "ready for requests"
    CLOSED = "closed"

    __hash__ = object.__hash__  # Enum's own takes longer than the rest of a look-up


# (state, who sends, what) -> next state; what is not here is not allowed
TRANSITIONS: Mapping[tuple[State, Side, type], State] = MappingProxyType(
    {
        (State.START, "client", Hello): State.GREETED,
        (State.GREETED, "server", Hello): State.AGREED,
        (State.AGREED, "client", Proof): State.PROVEN,
        (State.PROVEN, "server", Welcome): State.READY,
        **{(State.READY, "client", request): State.READY for request in REPLIES},
        **{(State.READY, "server", reply): State.READY for reply in REPLIES.values()},
        (State.READY, "server", Progress): State.READY,
        (State.READY, "server", Error): State.READY,
        # Besides: an Error with id 0 is allowed to the server in every state and leads to CLOSED.
    }
)


def _may_arrive(state: State, sender: Side) -> Mapping[str, type]:
    kinds = [kind for (at, who, kind) in TRANSITIONS if at is state and who == sender]
    return codec.registry(kinds if sender == "client" or state is State.CLOSED else [*kinds, Error])


_SIDES: tuple[Side, Side] = ("client", "server")
# nothing else is decoded, so nothing but Hello and Proof can be reached without the token
_ARRIVING = {(state, side): _may_arrive(state, side) for state in State for side in _SIDES}


class _Refused:
    """Stand among the open requests for one that did not fit the protocol: only Error answers it."""


class Connection:
    """Follow the protocol as seen from `side`. Every method is free of input and output.

    token: what the other side must know too; None when there is none. With a token every frame after the hellos carries
    a MAC, but for the error by which a server refuses a client: a stranger gets nothing that depends on the token. Of
    a frame whose MAC is wrong nothing is taken, and it ends the connection with authentication_failed when it is the
    first one of the other side, else with bad_mac.
    """

    def __init__(self, side: Side, software: str, token: bytes | None = None, protocol: int = PROTOCOL_VERSION) -> None:
        self.side = side
        self.peer: Side = "server" if side == "client" else "client"
        self.state = State.START
        self._handshake = Handshake(side, protocol, software, token)
        self._reader = framing.FrameReader(HANDSHAKE_LIMITS)
        self._sending: FrameMac | None = None  # for the frames of this side
        self._arriving = _ARRIVING[State.START, self.peer]
        self._open: dict[int, type] = {}  # requests without a reply yet
        self._costs: dict[int, int] = {}  # of open requests that are not small
        self._fault: RemoteProtocolError | None = None  # why nothing more is read

    def hello(self) -> Hello:
        """Send this side's Hello."""
        return self._handshake.hello

    @property
    def mismatch(self) -> str:
        """Return why the two versions do not go together, else empty; a server says hello and closes then."""
        return self._handshake.mismatch

    @property
    def limits(self) -> Limits:
        """Return the limits that hold now: strict ones of the handshake, then those of the welcome."""
        return self._reader.limits

    def cost(self, request_id: int) -> int:
        """Return about how many bytes of memory an open request of the peer takes: its blobs, and what was made of its
        header."""
        return self._costs.get(request_id, HEADER_COST * _SMALL_BYTES)

    def close(self) -> None:
        """End it: nothing more will be sent or received."""
        self._enter(State.CLOSED)

    # --- out --------------------------------------------------------------------------------------

    def send(self, message: Any, request_id: int = 0) -> list[memoryview]:
        """Return the buffers to send for a message. Raises LocalProtocolError; nothing has changed then."""
        buffers, end = self.begin(message, request_id)
        return buffers if end is None else [*buffers, memoryview(end())]

    def begin(self, message: Any, request_id: int = 0) -> tuple[list[memoryview], Callable[[], bytes] | None]:
        """Return the buffers to send for a message, and what gives the MAC to send behind them, which is made by
        threads meanwhile; None where they hold it. Raises as `send` does."""
        target = self._next(self.side, type(message), request_id, LocalProtocolError)
        limits = self._reader.limits if self.state is State.READY else UNLIMITED
        if target is State.PROVEN:
            self._send_macs()
            self._expect_macs()
        begun = framing.begin(codec.pack(message, request_id), limits, self._sending)
        self._move(target, self.side, message, request_id)
        return begun

    # --- a message without blobs that is sent over and over, under one id ---------------------------

    def front(self, message: Any, request_id: int) -> bytes:
        """Return its frame, all but the MAC."""
        return framing.front(codec.pack(message, request_id), self._sending is not None)

    def sign(self, front: bytes) -> bytes:
        """Return the bytes to send for it this time."""
        return front if self._sending is None else front + self._sending.sign(front)

    def expected(self, front: bytes) -> bytes:
        """Return the bytes that the peer sends for it if that is its next message."""
        return front if self._reader.mac is None else front + self._reader.mac.expected(front)

    def passed(self) -> None:
        """Note that the expected bytes have come, and are not given to `filled`."""
        if self._reader.mac is not None:
            self._reader.mac.skip()

    def sent(self, message: Any, request_id: int) -> None:
        """Note that a message was sent whose answer is given to `filled`. Raises LocalProtocolError."""
        self._move(self._next(self.side, type(message), request_id, LocalProtocolError), self.side, message, request_id)

    # --- in ---------------------------------------------------------------------------------------

    @property
    def between_frames(self) -> bool:
        """Return whether the peer may close the connection without cutting a message off."""
        return self._reader.between_frames

    @property
    def announced_bytes(self) -> int:
        """Return what the frame that is arriving takes (see FrameReader)."""
        return self._reader.announced_bytes

    def space(self) -> memoryview:
        """Return where the next bytes from the peer belong (see FrameReader)."""
        return self._reader.space()

    def filled(self, count: int) -> list[tuple[int, Any]]:
        """Take the first `count` bytes of space(), which have arrived, and return (request id, message) of all that
        they complete.

        On a server, a RemoteProtocolError can stand in the place of a message: the frame was whole but its
        content is wrong. Answer with Error under that id and go on.

        Raises RemoteProtocolError when the connection cannot go on; error.arrived holds the messages before. A
        server answers those, sends one last Error with id 0 (unless the connection is CLOSED) and closes.
        """
        if self._fault is not None:
            self._fault.arrived = ()
            raise self._fault
        arrived: list[tuple[int, Any]] = []
        try:
            for frame in self._reader.filled(count):
                arrived.append(self._receive(frame))
                if self._fault is not None:
                    raise self._fault
        except RemoteProtocolError as error:
            self._fault = self._handshake.stranger() if self._proves_nothing(error) else error
            self._fault.request_id = 0
            self._fault.arrived = arrived
            if self.side == "client":
                self.close()
            raise self._fault from None
        return arrived

    def _receive(self, frame: framing.Frame) -> tuple[int, Any]:
        try:
            request_id, message = codec.unpack(frame.header, frame.blobs, self._arriving, self._reader.limits)
            target = self._next(self.peer, type(message), request_id, RemoteProtocolError)
        except RemoteProtocolError as error:
            request_id = error.request_id
            if self.side == "client" or self.state is not State.READY or not request_id or request_id in self._open:
                raise
            self._open[request_id] = _Refused
            return request_id, error
        self._move(target, self.peer, message, request_id)
        if len(frame.header) > _SMALL_BYTES and self.side == "server":
            self._costs[request_id] = HEADER_COST * len(frame.header) + sum(blob.nbytes for blob in frame.blobs)
        return request_id, message

    # --- the machine ------------------------------------------------------------------------------

    def _next(self, sender: Side, kind: type, request_id: int, fault: type[ProtocolErrorT]) -> State:
        target = TRANSITIONS.get((self.state, sender, kind))
        if request_id == 0 and kind is Error and sender == "server" and self.state is not State.CLOSED:
            return State.CLOSED
        if target is None:
            raise fault("unexpected_message", f"{kind.__name__} from the {sender} while {self.state.value}")
        answers = self._open.get(request_id)
        if self.state is not State.READY:
            fits = request_id == 0
        elif sender == "client":
            fits = request_id != 0 and answers is None
        else:
            fits = answers is not None and kind in (REPLIES.get(answers), Error, Progress)
            fits = fits and not (kind is Progress and answers is _Refused)
        if not fits:
            raise fault("unexpected_message", f"{kind.__name__} from the {sender} does not fit id {request_id}")
        if sender == "client" and len(self._open) >= self._reader.limits.requests and request_id:
            what, allowed = "open requests:", self._reader.limits.requests
            raise limit_exceeded(fault, what, "requests", allowed, len(self._open) + 1, request_id=request_id)
        return target

    def _move(self, target: State, sender: Side, message: Any, request_id: int) -> None:
        """Take the step that _next allowed."""
        if request_id:
            if sender == "client":
                self._open[request_id] = type(message)
            elif type(message) is not Progress:
                del self._open[request_id]
                if self._costs:
                    self._costs.pop(request_id, None)
        if target is not self.state:
            self._shake_hands(sender, message)
            self._enter(State.CLOSED if self.mismatch and target is State.AGREED else target)

    def _enter(self, state: State) -> None:
        self.state = state
        self._arriving = _ARRIVING[state, self.peer]

    def _shake_hands(self, sender: Side, message: Any) -> None:
        if isinstance(message, Hello):
            self._fault = self._handshake.said(sender, message) or self._fault
            if sender == self.side == "server" and self._fault is None and not self.mismatch:
                self._expect_macs()
        if isinstance(message, Welcome):
            self._reader.limits = message.limits
        elif isinstance(message, Proof) and self.side == "client":
            self._reader.limits = WELCOME_LIMITS
        elif isinstance(message, Proof):
            self._send_macs()

    def _send_macs(self) -> None:
        """Add a MAC to every further frame of this side, where there is a token."""
        self._sending = self._handshake.frame_mac(self.side)

    def _expect_macs(self) -> None:
        """Expect a MAC in every further frame of the other side, where there is a token."""
        self._reader.mac = self._handshake.frame_mac(self.peer)

    def _proves_nothing(self, error: RemoteProtocolError) -> bool:
        """Return whether the first frame that needs a MAC has a wrong one, or, as the refusal of a server, none."""
        if self._reader.mac is None or self.state is State.READY:
            return False
        return error.name == "bad_mac" or (self.side == "client" and error.name == "bad_frame")
