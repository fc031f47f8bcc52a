"""Test that a server which tests share is as good as new for the next one, whatever a test has left."""

import os
import signal
from collections.abc import Iterator

import pytest

from gputune.client.target.client import TargetClient
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from tests.shared_server import SharedServer

pytestmark = pytest.mark.slow  # it starts servers


@pytest.fixture(scope="module")
def server() -> Iterator[SharedServer]:
    server = SharedServer("null")
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def left(server: SharedServer) -> Iterator[list[TargetClient]]:
    """Clients of a test before, which end behind the test."""
    clients: list[TargetClient] = []
    yield clients
    with server.connect() as client:
        told = client.status()
    assert (told.clients, told.queued, told.running, told.worker_restarts) == (1, 0, "", 0)
    assert "perf_profiles" not in told.state
    for client in clients:
        client.close()


def test_clients_that_end_are_waited_for(server: SharedServer) -> None:
    pid = server.pid
    for _ in range(3):
        with server.connect() as client:
            client.set_perf_profile(PerfProfile.from_preset("burst"))
            client.upload(b"data")
        assert server.reset()
    assert server.pid == pid


def test_a_client_that_stays_loses_its_server(server: SharedServer, left: list[TargetClient]) -> None:
    left.append(server.connect())
    left[0].set_perf_profile(PerfProfile.from_preset("burst"))
    pid, token = server.pid, server.token
    assert not server.reset(0.1)
    assert server.pid != pid and server.token != token


def test_a_server_that_was_ended_is_started_again(server: SharedServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    assert not server.reset()
    assert server.reset()
