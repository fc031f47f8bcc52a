"""Test admission: a connection without the token keeps no other out, with TLS or without."""

import errno
import itertools
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from gputune.runtime.devices import state as device_state
from gputune.server.clients.authentication import Authentication
from gputune.server.clients.listener import Arrival, Listener
from gputune.server.device_state import RecentState
from gputune.server.protocol.framing import MAGIC
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Ping, Pong, Status
from tests.server.conftest import serving
from tests.server.peer import Peer
from tests.server.workers.fake_worker import works
from tests.waiting import PATIENCE_SECONDS

Make = Callable[..., Any]
TOKEN = b"correct horse battery staple"


def closed(sock: socket.socket) -> bool:
    """Whether the other side closes the connection."""
    sock.settimeout(PATIENCE_SECONDS)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def test_who_does_not_prove_itself_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.server.clients.admission.SILENT_AT_MOST", 4)
    monkeypatch.setattr("gputune.server.clients.admission.UNPROVEN_AT_MOST", 4)
    with (
        serving(Limits(connections=2), worker=works, authentication=Authentication(TOKEN)) as (daemon, address),
        Peer(address, TOKEN) as early,
        ExitStack() as stack,
    ):
        strangers = [stack.enter_context(socket.create_connection(address)) for _ in range(20)]
        with Peer(address, TOKEN) as late:
            assert late.ask(Status()).clients == early.ask(Status()).clients == 2
        assert all(closed(sock) for sock in strangers[:16])
        assert daemon._admission.standing <= 4
        speaking = [stack.enter_context(socket.create_connection(address)) for _ in range(20)]
        for sock in speaking:
            sock.sendall(MAGIC)
        with Peer(address, TOKEN) as late:
            assert late.ask(Status()).clients == 2
        assert sum(map(closed, speaking[:12])) == 12
        assert daemon._admission.standing <= 8


def test_a_flood_of_connections_keeps_no_session_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.server.clients.admission.SILENT_AT_MOST", 8)
    made: list[Arrival] = []
    others: deque[socket.socket] = deque(maxlen=100)  # open until a few were made behind them

    def accept(self: Listener, at_most: int) -> list[Arrival]:  # there are always more
        pairs = [socket.socketpair() for _ in range(at_most)]
        made.extend(Arrival(ours, "192.0.2.1") for ours, _ in pairs)
        others.extend(theirs for _, theirs in pairs)
        return made[-at_most:]

    with (
        serving(worker=works, authentication=Authentication(TOKEN)) as (daemon, address),
        Peer(address, TOKEN) as served,
    ):
        monkeypatch.setattr(Listener, "accept", accept)
        with socket.create_connection(address):  # is never accepted
            began = len(made)
            for _ in range(20):
                assert served.ask(Ping()) == Pong()
            served.ping_until(lambda: len(made) > began + 200)
            assert daemon._admission.standing <= 8


def test_the_time_to_prove_itself_is_over_once_a_client_has() -> None:
    with serving(worker=works, authentication=Authentication(TOKEN)) as (daemon, address):
        for _ in range(2):
            with Peer(address, TOKEN) as peer:
                daemon._admission.check(math.inf)
                assert peer.ask(Ping()) == Pong()
                assert daemon._admission.standing == 0


def test_a_connection_that_cannot_be_accepted_is_tried_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.server.clients.admission.PAUSE_SECONDS", 0.05)
    tried: list[float] = []

    def accept(self: Listener, at_most: int) -> list[Arrival]:
        tried.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    with (
        serving(worker=works, authentication=Authentication(TOKEN)) as (_, address),
        Peer(address, TOKEN) as served,
    ):
        with monkeypatch.context() as failing:
            failing.setattr(Listener, "accept", accept)
            with socket.create_connection(address):
                served.ping_until(lambda: len(tried) >= 4)
        assert all(later - earlier > 0.04 for earlier, later in itertools.pairwise(tried))
        with Peer(address, TOKEN) as late:
            assert late.ask(Ping()) == Pong()


async def test_a_slow_driver_holds_nobody_who_asks_how_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    answers = threading.Event()

    def slow() -> dict[str, float]:
        reads.append(len(reads))
        assert len(reads) == 1 or answers.wait(PATIENCE_SECONDS)
        return {"load_1_minute": float(len(reads))}

    monkeypatch.setattr(device_state, "read", slow)
    monkeypatch.setattr("gputune.server.device_state.load.read", dict)
    monkeypatch.setattr("gputune.server.device_state.WAIT_SECONDS", 0.01)

    state = RecentState()
    while not await state.read():
        pass
    assert await state.read() == {"load_1_minute": 1.0}
    assert len(reads) == 1
    monkeypatch.setattr("gputune.server.device_state.FRESH_SECONDS", 0.0)
    assert await state.read() == {"load_1_minute": 1.0}  # the new one is not there yet
    monkeypatch.setattr("gputune.server.device_state.WAIT_SECONDS", PATIENCE_SECONDS)
    answers.set()
    assert await state.read() != {"load_1_minute": 1.0}
