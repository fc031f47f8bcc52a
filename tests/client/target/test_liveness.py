"""Test heartbeats, and how long the client waits for a silent server."""

import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.client.errors import TargetError
from gputune.client.target.transport import target_connection
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Ping, Status, UploadBuffer
from tests.client.fake_target import (
    FAST,
    SILENCE,
    FakeTarget,
    dies_at,
    plain_answer,
)
from tests.client.target.asking import connect
from tests.waiting import PATIENCE_SECONDS


def nowhere() -> Any:
    raise TargetError("unreachable", "no way back")


class TestHeartbeats:
    def test_an_idle_client_pings(self, target: FakeTarget) -> None:
        target.limits = FAST
        with connect(target) as client:
            target.wait_for(lambda: sum(isinstance(message, Ping) for _, message in target.heard) >= 2)
            client.ping()
        assert {number for number, _ in target.heard} == {1}

    @pytest.mark.slow
    def test_a_waiting_client_pings_and_keeps_its_place(self, target: FakeTarget) -> None:
        """The reply comes after more than silence_seconds, in which pings were answered."""
        target.limits = FAST
        held: list[Any] = []

        def answer(connection: int, request: Any) -> Any:
            if isinstance(request, Status):
                return SILENCE
            held.append(request)
            return plain_answer(connection, request)

        def hang_up_later() -> None:
            target.wait_for(lambda: len(held) >= 3)
            target.answer = dies_at((1, Ping))

        target.answer = answer
        with connect(target) as client, pytest.raises(TargetError) as caught:
            threading.Thread(target=hang_up_later).start()
            client._session._reconnecting = replace(client._session._reconnecting, seconds=0.0, dial=nowhere)
            client.status()
        assert caught.value.name == "connection_lost"
        assert "closed the connection" in caught.value.reason, "it was the hanging up that ended it, not the silence"

    @pytest.mark.slow
    def test_a_server_that_falls_silent_is_lost(self, target: FakeTarget) -> None:
        target.limits = FAST
        target.answer = lambda connection, request: SILENCE if connection == 1 else plain_answer(connection, request)
        lines: list[str] = []
        began = time.monotonic()
        with connect(target, lines.append) as client:
            client.ping()
        assert "took too long to answer" in lines[0]
        assert time.monotonic() - began >= FAST.silence_seconds

    @pytest.mark.slow
    @pytest.mark.parametrize("behind", [b"", b"data"])
    def test_a_ping_that_is_lost_on_the_way_is_not_waited_for(self, target: FakeTarget, behind: bytes) -> None:
        """The server answers the pings that ask whether it lives, so silence would never end the wait."""
        target.limits = FAST
        lost: list[Any] = []

        def answer(connection: int, request: Any) -> Any:
            if isinstance(request, Ping) and not lost:
                lost.append(request)
                return SILENCE
            return plain_answer(connection, request)

        target.answer = answer
        lines: list[str] = []
        with connect(target, lines.append) as client:
            if behind:
                connection: Any = client._session.link.connection
                connection._last_id += 1
                connection._transmit(*connection._begin(UploadBuffer(behind), connection._last_id))
                connection._take(connection._read())  # so the ping takes the way of other requests
            client.ping()
        assert lines[0].startswith(f"target {target.address} answered a later ping before this one: something was lost")
        assert {number for number, message in target.heard if isinstance(message, Ping)} == {1, 2}

    def test_an_idle_client_notices_the_loss_and_connects_with_its_next_request(self, target: FakeTarget) -> None:
        target.limits = FAST
        target.answer = dies_at((1, Ping))
        with connect(target) as client:
            target.wait_for(lambda: target.ended == 1)
            buffer = client.upload(b"data")
            assert buffer == 1
        assert [type(request) for request in target.requests(2)] == [UploadBuffer]

    def test_closing_does_not_wait_for_a_silent_server(self, target: FakeTarget) -> None:
        target.limits = Limits(heartbeat_seconds=1, silence_seconds=1000)
        target.answer = lambda connection, request: SILENCE
        client = connect(target)
        target.wait_for(lambda: any(isinstance(message, Ping) for _, message in target.heard))
        began = time.monotonic()
        client.close()
        assert time.monotonic() - began < PATIENCE_SECONDS < target.limits.silence_seconds
        with pytest.raises(TargetError, match="is closed"):
            client.ping()


class Listening:
    """What accepts a connection, and says something after a while."""

    def __init__(self, listener: socket.socket, words: bytes = b"", seconds: float = 0.0) -> None:
        self._listener, self._words, self._seconds = listener, words, seconds
        listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        time.sleep(self._seconds)
        with suppress(OSError):  # of a client that has gone
            connection.sendall(self._words)
            while connection.recv(1 << 10):
                pass


class TestBusyServers:
    @pytest.mark.parametrize("local", [False, True])
    def test_what_says_nothing_took_too_long(
        self, local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """There is no word of TLS, of which nothing is known."""
        monkeypatch.setattr(target_connection, "LOCAL_SECONDS", 0.2)
        with socket.socket(socket.AF_UNIX if local else socket.AF_INET) as listener:
            listener.bind(str(tmp_path / "socket") if local else ("127.0.0.1", 0))
            Listening(listener)
            host, port = (f"unix:{tmp_path / 'socket'}", 0) if local else listener.getsockname()
            with pytest.raises(TargetError) as caught:
                target_connection.probe(host, port, 0.2)
        assert caught.value.name == "connection_lost" and "tls" not in caught.value.reason
        assert " took too long to answer: it said nothing for 0.2 s; it may be busy" in caught.value.reason

    def test_over_a_local_socket_there_is_more_time(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "socket"))
            Listening(listener, b"SSH-2.0-OpenSSH\r\n", seconds=0.3)
            with pytest.raises(TargetError, match="answers, but not as a gputune target server"):
                target_connection.probe(f"unix:{tmp_path / 'socket'}", 0, 0.1)
