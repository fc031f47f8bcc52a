"""Provide one agent, and one target server with its device, to all tests of a process of pytest."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.agents.process import AgentProcess
from gputune.client.target.connecting import Target, choose_target
from gputune.runtime.devices.discovery import AGENT_TOKEN_VARIABLE, DeviceReport
from gputune.server.agent.backend import AgentBackend
from gputune.server.agent.opening import find_device, open_device
from tests.native.compiling import compiler
from tests.waiting import PATIENCE_SECONDS

TOKEN = "a token that only tests know"


class Agent(AgentProcess):
    """An agent. Each connection has a process of its own there, so that no test finds what another one has left."""

    def children(self) -> set[str]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return set(path.read_text(encoding="ascii").split())

    def resident_bytes(self) -> int:
        # A child that has just ended is listed until the agent collects it, and has no memory and no line for it.
        lines = [Path(f"/proc/{child}/status").read_text(encoding="ascii") for child in self.children()]
        return sum(int(text.partition("VmRSS:")[2].split()[0]) << 10 for text in lines if "VmRSS:" in text)

    def wait_until_gone(self, child: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while child in self.children():
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.fixture(scope="session")
def shared_agent(report: DeviceReport) -> Iterator[Agent]:
    """An agent that sees the driver of the tests' device only."""
    if compiler() is None:
        pytest.skip("there is no C compiler")
    with closing(Agent(report, TOKEN)) as started:
        yield started
    assert started.process.returncode == 0


@pytest.fixture
def agent(shared_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """The agent, whose token this process has."""
    monkeypatch.setenv(AGENT_TOKEN_VARIABLE, TOKEN)
    return shared_agent


@pytest.fixture(scope="session")
def target(shared_agent: Agent) -> Iterator[Target]:
    """A target server with the agent's device. Connections to it leave nothing."""
    with choose_target(f"{shared_agent.device}#0", {AGENT_TOKEN_VARIABLE: TOKEN}) as chosen:
        yield chosen


@pytest.fixture
def opened(agent: Agent) -> Iterator[AgentBackend]:
    backend = open_device(find_device(agent.device).report)
    assert isinstance(backend, AgentBackend)
    yield backend
    backend.close()
