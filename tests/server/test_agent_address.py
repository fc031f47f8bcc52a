"""Test where the connection to an agent goes for each form of its address."""

import socket
from typing import Any

import pytest

from gputune.core.errors import DeviceNotFound
from gputune.server.agent.agent_connection import AgentConnection
from gputune.server.protocol.messages import DEFAULT_PORT


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("board.local:1234", ("board.local", 1234)),
        ("192.0.2.10", ("192.0.2.10", DEFAULT_PORT)),
        ("[::1]:1234", ("::1", 1234)),
        ("[fe80::1]", ("fe80::1", DEFAULT_PORT)),
    ],
)
def test_an_address_has_a_host_and_perhaps_a_port(
    monkeypatch: pytest.MonkeyPatch, address: str, where: tuple[str, int]
) -> None:
    asked: list[Any] = []

    def connect(place: tuple[str, int], seconds: float) -> socket.socket:
        asked.append(place)
        raise ConnectionRefusedError("no")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(DeviceNotFound, match="cannot be reached: no"):
        AgentConnection(address, "a token that only tests know")
    assert asked == [where]
