"""The state machine: the handshake, who may send what when, and which id answers which."""

from typing import Any

import pytest

from gputune.server.protocol import codec, framing
from gputune.server.protocol.connection import TRANSITIONS, Connection, Side, State
from gputune.server.protocol.errors import ERROR_NAMES, LocalProtocolError, RemoteProtocolError
from gputune.server.protocol.messages import (
    PROTOCOL_VERSION,
    REPLIES,
    BufferReady,
    Done,
    DownloadBuffer,
    Error,
    FreeBuffers,
    Hello,
    Limits,
    UploadBuffer,
    Welcome,
)

LIMITS = Limits(frame_bytes=200_000)
WELCOME = Welcome(LIMITS, {}, {})


def deliver(buffers: list[memoryview], to: Connection) -> list[tuple[int, Any]]:
    """Carries buffers to the other side, one byte at a time."""
    arrived = []
    for byte in b"".join(buffers):
        to.space()[0] = byte
        if message := to.filled(1):
            arrived.append(message)
    return arrived


def raw(message: object, request_id: int) -> list[memoryview]:
    return framing.encode(codec.pack(message, request_id))


def pair(state: State = State.READY) -> tuple[Connection, Connection]:
    """A client and a server that have come to `state`."""
    client, server = Connection("client", "gputune 1"), Connection("server", "gputune 2")
    if state in (State.GREETED, State.AGREED, State.READY):
        assert deliver(client.send(client.hello()), server) == [(0, Hello(PROTOCOL_VERSION, "gputune 1"))]
    if state in (State.AGREED, State.READY):
        assert deliver(server.send(server.hello()), client) == [(0, Hello(PROTOCOL_VERSION, "gputune 2"))]
    if state is State.READY:
        assert deliver(server.send(WELCOME), client) == [(0, WELCOME)]
    assert client.state is server.state is state
    return client, server


def test_a_conversation() -> None:
    client, server = pair()
    assert deliver(client.send(UploadBuffer(b"data"), 1), server) == [(1, UploadBuffer(b"data"))]
    assert deliver(client.send(FreeBuffers((4,)), 2), server) == [(2, FreeBuffers((4,)))]
    assert deliver(server.send(BufferReady(4), 1), client) == [(1, BufferReady(4))]
    assert deliver(server.send(Error("unknown_buffer", "no"), 2), client) == [(2, Error("unknown_buffer", "no"))]
    assert client.state is server.state is State.READY


@pytest.mark.parametrize(("ours", "theirs", "older"), [(1, 2, "client"), (3, 2, "server")])
def test_other_versions_end_after_both_hellos(ours: int, theirs: int, older: str) -> None:
    client, server = Connection("client", "gputune 7", ours), Connection("server", "gputune 8", theirs)
    deliver(client.send(client.hello()), server)
    answer = server.send(server.hello())
    for text in (
        "gputune 7",
        "gputune 8",
        f"protocol {ours}",
        f"protocol {theirs}",
        f"the {older}'s machine",
    ):
        assert text in server.mismatch
    with pytest.raises(LocalProtocolError, match="closed"):
        server.send(WELCOME)
    with pytest.raises(RemoteProtocolError, match=f"version_mismatch.*update gputune on the {older}'s machine"):
        deliver(answer, client)
    assert client.state is server.state is State.CLOSED


def test_the_hello_reveals_versions_only() -> None:
    client, server = pair(State.GREETED)
    ((_, hello),) = deliver(server.send(server.hello()), client)
    assert hello == Hello(PROTOCOL_VERSION, "gputune 2")


@pytest.mark.parametrize("state", [State.START, State.GREETED, State.AGREED, State.READY])
@pytest.mark.parametrize("side", ["client", "server"])
def test_what_the_table_does_not_allow_is_refused(state: State, side: Side, examples: list[Any]) -> None:
    for message in examples:
        if (state, side, type(message)) in TRANSITIONS or (side == "server" and isinstance(message, Error)):
            continue
        sender, receiver = pair(state) if side == "client" else reversed(pair(state))
        with pytest.raises(LocalProtocolError, match="unexpected_message"):
            sender.send(message, 1)
        assert sender.state is state
        with pytest.raises(RemoteProtocolError) as caught:
            deliver(raw(message, 0), receiver)
        assert caught.value.name in ("unexpected_message", "bad_message", "limit_exceeded")


def test_every_request_and_its_reply_are_in_the_table() -> None:
    for request, reply in REPLIES.items():
        assert TRANSITIONS[State.READY, "client", request] is State.READY
        assert TRANSITIONS[State.READY, "server", reply] is State.READY


@pytest.mark.parametrize("request_id", [0, 1])
def test_a_request_needs_an_id_of_its_own(request_id: int) -> None:
    client, server = pair()
    deliver(client.send(DownloadBuffer(1), 1), server)
    with pytest.raises(LocalProtocolError, match="does not fit id"):
        client.send(DownloadBuffer(1), request_id)
    with pytest.raises(RemoteProtocolError, match="does not fit id") as caught:
        deliver(raw(DownloadBuffer(1), request_id), server)
    assert caught.value.request_id == 0


@pytest.mark.parametrize(("reply", "request_id"), [(Done(), 1), (BufferReady(1), 2), (BufferReady(1), 0)])
def test_a_reply_fits_its_request(reply: object, request_id: int) -> None:
    client, server = pair()
    deliver(client.send(UploadBuffer(b""), 1), server)
    with pytest.raises(LocalProtocolError, match="does not fit id"):
        server.send(reply, request_id)
    with pytest.raises(RemoteProtocolError, match="does not fit id"):
        deliver(raw(reply, request_id), client)


def test_a_reply_comes_once() -> None:
    client, server = pair()
    deliver(client.send(UploadBuffer(b""), 1), server)
    deliver(server.send(BufferReady(1), 1), client)
    with pytest.raises(LocalProtocolError):
        server.send(BufferReady(1), 1)
    with pytest.raises(RemoteProtocolError):
        deliver(raw(BufferReady(1), 1), client)


def test_a_server_goes_on_after_a_bad_message_with_an_id() -> None:
    client, server = pair()
    broken = framing.encode(codec.Parts(codec.pack(DownloadBuffer(-1), 9).header, ()))
    with pytest.raises(RemoteProtocolError, match="buffer: value -1") as caught:
        deliver(broken, server)
    assert caught.value.request_id == 9
    with pytest.raises(LocalProtocolError):
        server.send(BufferReady(1), 9)
    server.send(Error("bad_message", caught.value.message), 9)
    assert deliver(client.send(DownloadBuffer(1), 1), server) == [(1, DownloadBuffer(1))]


def test_an_error_without_an_id_ends_the_connection() -> None:
    client, server = pair()
    assert deliver(server.send(Error("bad_frame", "bye")), client) == [(0, Error("bad_frame", "bye"))]
    assert client.state is server.state is State.CLOSED
    with pytest.raises(LocalProtocolError, match="closed"):
        server.send(Error("bad_frame", "again"))
    with pytest.raises(LocalProtocolError, match="closed"):
        client.send(UploadBuffer(b""), 3)


def test_nothing_large_is_read_before_the_hellos() -> None:
    server = Connection("server", "s")
    with pytest.raises(RemoteProtocolError, match="limit_exceeded"):
        deliver(raw(UploadBuffer(bytes(10)), 1), server)
    server = Connection("server", "s")
    with pytest.raises(RemoteProtocolError, match="limit_exceeded"):
        deliver(raw(Hello(1, "x" * 100_000), 0), server)


def test_the_limits_of_the_welcome_hold_afterwards() -> None:
    client, server = pair()
    deliver(client.send(UploadBuffer(bytes(100_000)), 1), server)
    with pytest.raises(RemoteProtocolError, match="the limit is 200000") as caught:
        deliver(raw(UploadBuffer(bytes(200_000)), 2), server)
    assert caught.value.details["limit"] == "frame_bytes"
    server.send(Error("limit_exceeded", "too large"))


def test_errors_have_known_names() -> None:
    caught = []
    for data in (b"nonsense", b"".join(raw(Hello(1, "again"), 0)), b"".join(raw(DownloadBuffer(0), 1))):
        _, server = pair()
        with pytest.raises(RemoteProtocolError) as error:
            deliver([memoryview(data)], server)
        caught.append(error.value.name)
    assert caught == ["bad_frame", "unexpected_message", "bad_message"]
    assert set(caught) <= ERROR_NAMES.keys()
