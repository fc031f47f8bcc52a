"""Test both sides in any order, in any pieces, with any number of open requests, and with a stranger that joins.

A model keeps what must arrive next on each wire and which requests are open; hypothesis looks for a conversation in
which the connections disagree with it.
"""

from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gputune.server.protocol.connection import Connection, State
from gputune.server.protocol.errors import LocalProtocolError, RemoteProtocolError
from gputune.server.protocol.messages import (
    REPLIES,
    BufferReady,
    Cancel,
    Done,
    DownloadBuffer,
    Error,
    Ping,
    Pong,
    Progress,
    Proof,
    UploadBuffer,
)

from .examples import EXAMPLES
from .talk import LIMITS, feed, pair, raw

BY_KIND = {type(message): message for message in EXAMPLES}
REQUESTS = st.sampled_from(
    [*map(BY_KIND.__getitem__, REPLIES), UploadBuffer(bytes(70_000)), UploadBuffer(bytes(30_000))]
)
PROGRESS = Progress("running", 1, 2, "half")
FAILED = Error("cancelled", "as was asked")
REFUSED = object()  # stands for a message that arrives as the error about it
FATAL = (
    b"GET / HTTP/1.1\r\n",
    b"gpt1" + bytes(8),
    b"gpt1" + b"\xff" * 8,
    b"".join(raw(BY_KIND[Proof], 0)),
    b"".join(raw(Ping(), 0)),
    b"".join(raw(FAILED, 0)),
)


class Wire:
    """Bytes under way to one side, and what must arrive there when they do."""

    def __init__(self, to: Connection) -> None:
        self.to = to
        self.bytes = bytearray()
        self.expected: deque[tuple[int, Any]] = deque()

    def put(self, buffers: list[memoryview], request_id: int, message: object) -> None:
        self.bytes += b"".join(buffers)
        self.expected.append((request_id, message))

    def carry(self, count: int, step: int) -> list[tuple[int, Any]]:
        """Delivers so many bytes; what they completed is what was expected, in that order."""
        part, self.bytes = bytes(self.bytes[:count]), self.bytes[count:]
        arrived = []
        for messages in feed(self.to, part, (step,)):
            self.compare(messages)
            arrived += messages
        return arrived

    def compare(self, arrived: Any) -> None:
        for request_id, message in arrived:
            expected_id, expected = self.expected.popleft()
            assert request_id == expected_id
            assert isinstance(message, RemoteProtocolError) if expected is REFUSED else message == expected


class Conversation(RuleBasedStateMachine):
    @initialize(first=st.integers(1, 2**63 - 10_000))
    def meet(self, first: int) -> None:
        self.client, self.server = pair()
        self.to_server, self.to_client = Wire(self.server), Wire(self.client)
        self.next_id = first
        self.asked: dict[int, Any] = {}  # by the client, without a reply that has arrived
        self.open: dict[int, Any] = {}  # at the server

    def a_new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    @rule(request=REQUESTS)
    def ask(self, request: Any) -> None:
        request_id = self.a_new_id()
        if len(self.asked) >= LIMITS.requests:
            with pytest.raises(LocalProtocolError, match="limit_exceeded"):
                self.client.send(request, request_id)
        else:
            self.to_server.put(self.client.send(request, request_id), request_id, request)
            self.asked[request_id] = request

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.ask(Cancel(data.draw(st.sampled_from(sorted(self.asked)))))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def ask_with_an_id_that_is_taken(self, data: st.DataObject) -> None:
        with pytest.raises(LocalProtocolError, match="unexpected_message"):
            self.client.send(Ping(), data.draw(st.sampled_from([0, *sorted(self.asked)])))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), answer=st.sampled_from(["reply", "reply", "error", "progress", "wrong"]))
    def answer(self, data: st.DataObject, answer: str) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.open)))
        right = REPLIES[type(self.open[request_id])]
        if answer == "wrong":
            with pytest.raises(LocalProtocolError, match="does not fit id"):
                self.server.send(BY_KIND[Done if right is not Done else Pong], request_id)
            return
        message = {"progress": PROGRESS, "error": FAILED, "reply": BY_KIND[right]}[answer]
        self.to_client.put(self.server.send(message, request_id), request_id, message)
        if answer != "progress":
            del self.open[request_id]

    @rule(count=st.integers(1, 200_000), step=st.sampled_from([1, 13, 1000, 10**9]))
    def carry_to_server(self, count: int, step: int) -> None:
        for request_id, message in self.to_server.carry(min(count, 2000 * step), step):
            self.open[request_id] = message

    @rule(count=st.integers(1, 200_000), step=st.sampled_from([1, 13, 1000, 10**9]))
    def carry_to_client(self, count: int, step: int) -> None:
        for request_id, message in self.to_client.carry(min(count, 2000 * step), step):
            if message != PROGRESS:
                del self.asked[request_id]

    @rule(message=st.sampled_from([DownloadBuffer(-1), UploadBuffer("text"), BY_KIND[Progress]]))  # type: ignore[arg-type]
    def a_stranger_sends_a_bad_message(self, message: Any) -> None:
        request_id = self.a_new_id()
        self.to_server.put(raw(message, request_id), request_id, REFUSED)
        self.carry_to_server(10**9, 10**9)  # now, because the client does not know that one more is open
        for wrong in (PROGRESS, BY_KIND[BufferReady]):
            with pytest.raises(LocalProtocolError, match="does not fit id"):
                self.server.send(wrong, request_id)
        self.server.send(FAILED, request_id)
        del self.open[request_id]

    @rule(data=st.sampled_from(FATAL))
    def a_stranger_breaks_the_connection(self, data: bytes) -> None:
        self.to_server.bytes += data
        with pytest.raises(RemoteProtocolError) as caught:
            self.to_server.carry(10**9, 10**9)
        self.to_server.compare(caught.value.arrived)
        assert caught.value.request_id == 0
        last = Error(caught.value.name, "bye")
        self.to_client.put(self.server.send(last), 0, last)
        self.to_client.carry(10**9, 17)
        assert self.client.state is self.server.state is State.CLOSED
        assert not self.to_client.expected and not self.to_server.expected
        self.meet(self.next_id)

    @invariant()
    def nothing_is_lost_on_the_way(self) -> None:
        assert self.client.state is self.server.state is State.READY
        for wire in (self.to_server, self.to_client):
            assert bool(wire.bytes) == bool(wire.expected)

    def teardown(self) -> None:
        """What is still under way arrives, and every open request can be answered."""
        self.carry_to_server(10**9, 10**9)
        for request_id, request in self.open.items():
            reply = BY_KIND[REPLIES[type(request)]]
            self.to_client.put(self.server.send(reply, request_id), request_id, reply)
        self.carry_to_client(10**9, 10**9)
        assert not self.asked and self.client.between_frames and self.server.between_frames


TestConversation = Conversation.TestCase
TestConversation.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
