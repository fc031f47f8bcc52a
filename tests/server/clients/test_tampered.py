"""Test that a server answers no request of an authenticated session that was tampered with on the way."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings

from gputune.server.protocol.messages import Error, Ping, UploadBuffer
from stress.server.wire import Closed, Wire
from tests.protocol.tampering import NAMES, Recorded, signed_frames, tampered
from tests.server.conftest import Server, launching
from tests.strategies.changes import cases
from tests.waiting import PATIENCE_SECONDS

TOKEN = "correct horse battery staple"
REQUESTS = (Ping(), UploadBuffer(b"content"), Ping(), UploadBuffer(bytes(5000)), UploadBuffer(bytes(100_000)), Ping())
CLOSED = "closed"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with launching() as launch:
        yield launch(GPUTUNE_TOKEN=TOKEN)


@pytest.mark.slow
@settings(max_examples=25)
@given(case=cases)
def test_nothing_that_was_tampered_with_is_answered(guarded: Server, case: int) -> None:
    with Wire(guarded.host, guarded.port, PATIENCE_SECONDS) as wire:
        wire.authenticate(TOKEN)
        assert wire.mac is not None
        recorded = Recorded(signed_frames(wire.mac, REQUESTS), Recorded.made().others)
        _, stream = tampered(Random(case), recorded)
        answered, end = answers(wire, stream)
    assert answered <= set(range(1, recorded.intact(stream) + 1))
    assert end in (*NAMES, CLOSED)


def answers(wire: Wire, stream: bytes) -> tuple[set[int], str]:
    """Return the ids of the requests that are answered after a stream and its end, and the end of the connection."""
    answered = set[int]()
    try:
        with suppress(ConnectionError):
            wire.send(stream)
            wire.finish()
        while True:
            number, message = wire.receive()
            if number == 0:
                return answered, message.name if isinstance(message, Error) else type(message).__name__
            answered.add(number)
    except (Closed, ConnectionError):
        return answered, CLOSED
