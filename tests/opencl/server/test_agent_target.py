"""Test that an agent is a target, as `--target agent:HOST:PORT` names it."""

from gputune.client.target.connecting import choose_target
from gputune.runtime.devices.discovery import AGENT_PREFIX, AGENT_TOKEN_VARIABLE, DeviceReport
from tests.opencl.server.test_agent import TOKEN, Agent, agent

__all__ = ["agent"]


def test_an_agent_is_a_target(agent: Agent, report: DeviceReport) -> None:
    address = f"{AGENT_PREFIX}{agent.address}#0"
    assert report.identity is not None
    with choose_target(address, {AGENT_TOKEN_VARIABLE: TOKEN}) as target, target.connect() as client:
        assert client.device["name"] == report.identity.name
