"""Test that what a test leaves at a shared server is gone before the next one."""

from collections.abc import Callable

import pytest

from gputune.server.protocol.messages import Status

from .conftest import Server, becomes_idle, is_idle
from .peer import Peer

pytestmark = pytest.mark.slow  # it needs servers


@pytest.fixture(params=["shared_server", "shared_daemon", "shared_local"])
def connect(request: pytest.FixtureRequest) -> Callable[[], Peer]:
    shared = request.getfixturevalue(request.param)
    return shared.peer if isinstance(shared, Server) else lambda: Peer(shared[1])


def test_a_server_is_idle_once_all_that_others_had_is_gone(connect: Callable[[], Peer]) -> None:
    with connect() as peer:
        leaving = connect()
        leaving.upload(bytes(1000))
        status = peer.ask(Status())
        assert (status.clients, status.memory_bytes >= 1000, is_idle(status)) == (2, True, False)
        leaving.socket.close()
        becomes_idle(peer)
    with connect() as next_one:
        next_one.ping_until(lambda: is_idle(next_one.ask(Status())))
