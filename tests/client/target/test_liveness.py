"""Test heartbeats, and how long the client waits for a silent server."""

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from gputune.client.errors import TargetError
from gputune.server.protocol.messages import Limits, Ping, Status, UploadBuffer
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
