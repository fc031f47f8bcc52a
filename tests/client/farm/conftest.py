"""Provide a farm on one server of the null device: several hosts, each with its own sessions there."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from gputune.client.farm import pool
from gputune.client.farm.hosts.device_host import DeviceHost
from gputune.client.farm.local_engine import LocalEngine
from gputune.client.target.connecting import Target
from gputune.client.target.transport.credentials import Credentials
from tests.shared_server import SharedServer

MakeHost = Callable[[str], DeviceHost]


@pytest.fixture
def make_host(null_server: SharedServer) -> Iterator[MakeHost]:
    with ExitStack() as stack:

        def make(name: str) -> DeviceHost:
            target = Target(null_server.host, null_server.port, (), Credentials(token=null_server.token))
            return stack.enter_context(DeviceHost(name, target))

        yield make


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with LocalEngine() as engine:
        yield engine


@pytest.fixture
def one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job on each device."""
    monkeypatch.setattr(pool, "SESSIONS", 1)


@pytest.fixture
def spread_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave moves of sessions to the test: on a busy machine the job's own thread may come between."""
    monkeypatch.setattr(pool, "TICK_SECONDS", 3600.0)
