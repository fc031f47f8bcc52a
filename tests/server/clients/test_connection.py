"""Test one client's connection: what it writes together, and a defect that ends only it."""

import errno
from typing import Any

import pytest

from gputune.server.clients.client_link import ClientLink
from gputune.server.protocol.messages import Error, Ping, Pong, Status, StatusReport
from tests.server.peer import Peer

Shared = tuple[Any, tuple[str, int]]


def test_pings_that_come_together_are_answered_together(shared_daemon: Shared) -> None:
    daemon, address = shared_daemon
    with Peer(address) as peer:
        (link,) = daemon._links
        writes: list[bytes] = []
        transport = link._transport

        class Counting:
            def write(self, data: Any) -> None:
                writes.append(bytes(data))
                transport.write(data)

            def __getattr__(self, name: str) -> Any:
                return getattr(transport, name)

        link._transport = Counting()
        frames = b"".join(b"".join(peer.connection.send(Ping(), number)) for number in range(1, 65))
        peer.socket.sendall(frames)
        assert [peer.receive() for _ in range(64)] == [(number, Pong()) for number in range(1, 65)]
        assert len(writes) <= 3  # one, unless the network cuts


def test_a_client_that_has_gone_without_a_word_is_no_defect(
    shared_daemon: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    """The socket knows it before the transport does: shutting it down raises then."""

    class Gone:
        def __init__(self, transport: Any) -> None:
            self._transport = transport

        def write_eof(self) -> None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

        def __getattr__(self, name: str) -> Any:
            return getattr(self._transport, name)

    daemon, address = shared_daemon
    with Peer(address) as peer:
        (link,) = daemon._links
        link._transport = Gone(link._transport)
        peer.socket.sendall(b"nonsense" * 8)
        error = peer.receive()[1]
        assert (type(error), error.name) == (Error, "bad_frame")
    assert "defect" not in caplog.text


def test_a_defect_ends_one_connection_and_is_logged(
    shared_daemon: Shared, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = shared_daemon[1]
    with Peer(address) as other:
        with Peer(address) as peer:
            monkeypatch.setattr(ClientLink, "_take", lambda self, request_id, message: 1 / 0)
            peer.send(Status())
            with pytest.raises((EOFError, ConnectionError)):
                peer.receive()
            monkeypatch.undo()
        assert "ZeroDivisionError" in caplog.text
        assert isinstance(other.ask(Status()), StatusReport)
