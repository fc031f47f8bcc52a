"""Run the agent's program for tests, on no device or on that of fake_opencl.c."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gputune.server.agent.agent_connection import AgentConnection
from gputune.server.agent.messages import AGENT_VERSION
from gputune.server.protocol import codec, framing
from gputune.server.protocol.handshake import Handshake
from gputune.server.protocol.messages import Hello
from tests.native.compiling import agent, environment
from tests.waiting import becomes

TOKEN = "a token that only tests know"
PATIENCE_SECONDS = 30
NO_LIBRARY = {"GPUTUNE_OPENCL_LIBRARY": "/no/library"}
CRASH = "it was ended by signal 11"


@dataclass
class Running:
    """An agent. process: the one that listens; address: where it does."""

    process: subprocess.Popen[str]
    address: str

    @property
    def where(self) -> tuple[str, int]:
        host, port = self.address.split(":")
        return host, int(port)

    def children(self) -> set[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return set(map(int, path.read_text(encoding="ascii").split()))

    def connection(self) -> tuple[AgentConnection, int]:
        """Return a connection, and the id of its process, once the one that tries the devices has ended."""
        before = self.children()
        made = AgentConnection(self.address, TOKEN)
        (own,) = self.children() - before
        return made, own

    def line(self) -> str:
        """Return the next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")


@contextmanager
def running(*options: str, variables: Mapping[str, str] = NO_LIBRARY) -> Iterator[Running]:
    """Run an agent with this token, which ends in order. variables: beside those of this process."""
    told = {**environment(), "GPUTUNE_TOKEN": TOKEN, **variables}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([agent(), *options], env=told, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        try:
            started = Running(process, process.stdout.readline().split()[-1])
            assert becomes(lambda: not started.children())  # it has tried the devices
            yield started
        finally:
            process.terminate()
    assert process.returncode == 0


def frame(message: object) -> bytes:
    """Return a message before the proof as it travels."""
    return b"".join(framing.encode(codec.pack(message, 0)))


def hello(protocol: int = AGENT_VERSION) -> Hello:
    return Handshake("client", protocol, "tests", TOKEN.encode()).hello


def stranger(agent: Running, *pieces: bytes, host: str = "127.0.0.1") -> socket.socket:
    """Return a connection that has said these pieces, and heard the agent's hello before all but the first of them."""
    made = socket.create_connection(agent.where, PATIENCE_SECONDS, (host, 0))
    for place, piece in enumerate(pieces):
        if place:
            made.recv(1 << 16)
        made.sendall(piece)
    return made


def is_ended(connection: socket.socket, seconds: float = PATIENCE_SECONDS) -> bool:
    """Return whether the agent ends a connection within so many seconds."""
    connection.settimeout(seconds)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def crash(process: int) -> None:
    """End a process as a kernel that reads where no memory is ends it."""
    os.kill(process, signal.SIGSEGV)
