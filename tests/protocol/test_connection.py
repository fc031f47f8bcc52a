"""Test the state machine: the handshake, which side may send what when, and which id answers which."""

from typing import Any

import msgpack
import pytest

from gputune.server.protocol import codec, framing
from gputune.server.protocol.authentication import SALT
from gputune.server.protocol.connection import TRANSITIONS, Connection, Side, State
from gputune.server.protocol.errors import LocalProtocolError, RemoteProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    PROTOCOL_VERSION,
    REPLIES,
    BufferReady,
    Cancel,
    Done,
    DownloadBuffer,
    Error,
    FreeBuffers,
    Hello,
    Ping,
    Pong,
    Progress,
    UploadBuffer,
    Welcome,
)

from .talk import LIMITS, TOKEN, deliver, pair, raw

STATES = (State.START, State.GREETED, State.AGREED, State.PROVEN, State.READY)
PROGRESS = Progress("running", 1, 2, "")


def test_both_sides_come_to_the_same_state_and_limits() -> None:
    client, server = pair()
    assert client.state is server.state is State.READY
    assert client.limits == server.limits == LIMITS


@pytest.mark.parametrize(("ours", "theirs", "older"), [(1, 2, "client"), (3, 2, "server")])
def test_other_versions_end_after_both_hellos(ours: int, theirs: int, older: str) -> None:
    client, server = Connection("client", "gputune 7", None, ours), Connection("server", "gputune 8", TOKEN, theirs)
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
        server.send(Welcome(LIMITS, {}, {}))
    with pytest.raises(RemoteProtocolError, match=f"version_mismatch.*update gputune on the {older}'s machine"):
        deliver(answer, client)
    assert client.state is server.state is State.CLOSED


@pytest.mark.parametrize("protocol", [PROTOCOL_VERSION, 99])
def test_a_hello_cannot_write_lines_of_its_own_into_a_log(protocol: int) -> None:
    server = Connection("server", "gputune 2", TOKEN)
    hello = Hello(protocol, "gputune\nWARNING all is lost\x1b[2J", "0" * 64, "token")
    with pytest.raises(RemoteProtocolError, match="does not name its software in one line") as caught:
        deliver(raw(hello, 0), server)
    assert "lost" not in str(caught.value) and server.mismatch == ""


def test_the_first_version_is_told_by_a_hello_that_it_understands() -> None:
    first = codec.Parts(msgpack.packb({"id": 0, "type": "Hello", "protocol": 1, "software": "gputune 0"}), ())
    server = Connection("server", "gputune 8", TOKEN)
    assert deliver(framing.encode(first), server) == [(0, Hello(1, "gputune 0"))]
    assert "update gputune on the client's machine" in server.mismatch
    server.send(server.hello())
    assert server.state is State.CLOSED


def test_a_hello_reveals_versions_and_a_fresh_challenge_only() -> None:
    client, server = pair(State.GREETED, TOKEN)
    ((_, hello),) = deliver(server.send(server.hello()), client)
    assert hello == Hello(PROTOCOL_VERSION, "gputune 2", hello.nonce, "token", SALT)
    assert len({hello.nonce, client.hello().nonce, Connection("server", "gputune 2").hello().nonce}) == 3


@pytest.mark.parametrize("state", STATES)
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
    assert TRANSITIONS[State.READY, "server", Progress] is State.READY


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


def test_replies_come_in_any_order_and_progress_closes_nothing() -> None:
    client, server = pair()
    for request_id, request in ((1, DownloadBuffer(1)), (2, UploadBuffer(b"")), (3, Cancel(1))):
        assert deliver(client.send(request, request_id), server) == [(request_id, request)]
    for request_id, reply in (
        (1, PROGRESS),
        (3, Done()),
        (1, PROGRESS),
        (2, BufferReady(1)),
        (1, Error("cancelled", "")),
    ):
        assert deliver(server.send(reply, request_id), client) == [(request_id, reply)]
    for request_id in (0, 1, 4):
        with pytest.raises(LocalProtocolError, match="Progress from the server does not fit id"):
            server.send(PROGRESS, request_id)
        with pytest.raises(RemoteProtocolError, match="Progress from the server does not fit id"):
            deliver(raw(PROGRESS, request_id), pair()[0])


def test_the_largest_id_can_be_asked_for_and_cancelled() -> None:
    client, server = pair()
    last = 2**63 - 1
    assert deliver(client.send(Ping(), last), server) == [(last, Ping())]
    assert deliver(client.send(Cancel(last), 1), server) == [(1, Cancel(last))]
    with pytest.raises(RemoteProtocolError, match="no valid id"):
        deliver(raw(Ping(), last + 1), server)


def test_as_many_requests_may_be_open_as_the_limit_says() -> None:
    client, server = pair()
    for request_id in range(1, LIMITS.requests + 1):
        assert deliver(client.send(Ping(), request_id), server) == [(request_id, Ping())]
    with pytest.raises(LocalProtocolError, match="limit requests is 4") as local:
        client.send(Ping(), 9)
    ((request_id, error),) = deliver(raw(Ping(), 9), server)
    assert request_id == 9 and isinstance(error, RemoteProtocolError)
    details = {"limit": "requests", "allowed": 4, "got": 5}
    assert error.name == local.value.name == "limit_exceeded" and error.details == local.value.details == details
    with pytest.raises(LocalProtocolError):
        server.send(Pong(), 9)  # it is refused, so only an error answers it
    server.send(Error(error.name, error.message, error.details), 9)
    deliver(server.send(Pong(), 2), client)
    assert deliver(client.send(Ping(), 10), server) == [(10, Ping())]


def test_a_server_goes_on_after_a_bad_message_with_an_id() -> None:
    client, server = pair()
    data = [*raw(Ping(), 8), *raw(DownloadBuffer(-1), 9), *client.send(Ping(), 10)]
    (ping, (request_id, error), after) = deliver(data, server)
    assert (ping, request_id, after) == ((8, Ping()), 9, (10, Ping()))
    assert isinstance(error, RemoteProtocolError) and error.name == "bad_message" and error.request_id == 9
    assert "buffer: value -1" in error.message
    for reply in (BufferReady(1), PROGRESS):
        with pytest.raises(LocalProtocolError):
            server.send(reply, 9)
    server.send(Error("bad_message", error.message), 9)
    assert deliver(client.send(DownloadBuffer(1), 1), server) == [(1, DownloadBuffer(1))]


def test_a_bad_message_with_the_id_of_an_open_request_ends_the_connection() -> None:
    client, server = pair()
    deliver(client.send(Ping(), 9), server)
    with pytest.raises(RemoteProtocolError, match="bad_message") as caught:
        deliver(raw(DownloadBuffer(-1), 9), server)
    assert caught.value.request_id == 0


def test_messages_before_a_fault_are_not_lost_and_nothing_is_read_after_it() -> None:
    client, server = pair()
    data = [*client.send(Ping(), 1), *client.send(UploadBuffer(b"x"), 2), memoryview(b"nonsense"), *raw(Ping(), 3)]
    with pytest.raises(RemoteProtocolError, match="bad_frame") as caught:
        deliver(data, server)
    assert caught.value.arrived == [(1, Ping()), (2, UploadBuffer(b"x"))]
    with pytest.raises(RemoteProtocolError, match="bad_frame") as again:
        deliver(raw(Ping(), 3), server)
    assert again.value.arrived == ()
    deliver(server.send(Error("bad_frame", "bye")), client)
    assert client.state is server.state is State.CLOSED


def test_an_error_without_an_id_ends_the_connection() -> None:
    client, server = pair()
    assert deliver(server.send(Error("bad_frame", "bye")), client) == [(0, Error("bad_frame", "bye"))]
    assert client.state is server.state is State.CLOSED
    with pytest.raises(LocalProtocolError, match="closed"):
        server.send(Error("bad_frame", "again"))
    with pytest.raises(LocalProtocolError, match="closed"):
        client.send(UploadBuffer(b""), 3)


@pytest.mark.parametrize("state", STATES[:-1])
def test_nothing_large_is_read_before_the_welcome(state: State) -> None:
    for message in (UploadBuffer(bytes(5000)), Hello(PROTOCOL_VERSION, "x" * 5000)):
        with pytest.raises(RemoteProtocolError, match="limit_exceeded") as caught:
            deliver(raw(message, 0), pair(state)[1])
        assert caught.value.details["allowed"] in (0, 4096)  # blobs, bytes


@pytest.mark.parametrize("state", STATES[:-1])
def test_nothing_but_hello_and_proof_is_decoded_before_the_welcome(state: State) -> None:
    broken = msgpack.packb({"id": 1, "type": "DownloadBuffer", "buffer": "not even a number"})
    with pytest.raises(RemoteProtocolError, match="'DownloadBuffer' is not a message that may arrive here") as caught:
        deliver(framing.encode(codec.Parts(broken, ())), pair(state)[1])
    assert caught.value.request_id == 0


def test_a_welcome_may_be_larger_than_what_comes_before_it() -> None:
    client, server = pair(State.PROVEN)
    device: dict[str, object] = {"extensions": ["cl_khr_fp16"] * 2000}
    assert len(deliver(server.send(Welcome(LIMITS, device, {})), client)) == 1
    with pytest.raises(RemoteProtocolError, match="limit_exceeded"):
        deliver(raw(Hello(PROTOCOL_VERSION, "x" * 300_000), 0), pair(State.PROVEN)[0])


def test_the_limits_of_the_welcome_hold_afterwards() -> None:
    client, server = pair()
    deliver(client.send(UploadBuffer(bytes(100_000)), 1), server)
    with pytest.raises(LocalProtocolError, match="limit frame_bytes is 200000"):
        client.send(UploadBuffer(bytes(200_000)), 2)
    with pytest.raises(RemoteProtocolError, match="limit frame_bytes is 200000") as caught:
        deliver(raw(UploadBuffer(bytes(200_000)), 2), server)
    assert caught.value.details["limit"] == "frame_bytes"
    server.send(Error("limit_exceeded", "too large"))


@pytest.mark.parametrize("limit", ["items", "text_bytes", "nesting", "header_bytes"])
def test_limits_of_a_header_are_named(limit: str) -> None:
    limits = Limits(items=40, text_bytes=100, nesting=3, header_bytes=2000)
    message = {
        "items": FreeBuffers((1,) * 41),
        "text_bytes": Error("n", "x" * 101),
        "nesting": Error("n", "", {"a": [[1]]}),
        "header_bytes": Error("n", "", {"a": ["x" * 90] * 30}),
    }[limit]
    client, server = pair(limits=limits)
    deliver(client.send(Ping(), 1), server)
    receiver = server if isinstance(message, FreeBuffers) else client
    with pytest.raises(RemoteProtocolError, match="limit_exceeded") as caught:
        deliver(raw(message, 1), receiver)
    assert caught.value.details["limit"] == limit
    assert caught.value.details["allowed"] == getattr(limits, limit)
    assert caught.value.details["got"] > getattr(limits, limit)
