"""Test the agent's program without a device: where it listens, and whom it hears."""

import functools
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputune.core.errors import LaunchFailed
from gputune.server.agent.connection import AgentConnection
from gputune.server.agent.messages import AGENT_VERSION, ListDevices
from gputune.server.protocol import codec, framing
from gputune.server.protocol.handshake import Handshake
from gputune.server.protocol.messages import Hello, Proof
from tests.native.compiling import agent
from tests.waiting import becomes

TOKEN = "a token that only tests know"
PATIENCE_SECONDS = 30


@contextmanager
def running(*options: str) -> Iterator[str]:
    """Run an agent that finds no OpenCL library; yield its address."""
    environment = {**os.environ, "GPUTUNE_TOKEN": TOKEN, "GPUTUNE_OPENCL_LIBRARY": "/no/library"}
    with subprocess.Popen([agent(), *options], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
    assert process.returncode == 0


def ended(process: str) -> bool:
    return not runs(process)


def runs(process: str) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return False
    return state != "Z"


def frame(message: object) -> bytes:
    return b"".join(framing.encode(codec.pack(message, 0)))


def answers(address: str, *pieces: bytes, seconds: float = PATIENCE_SECONDS) -> list[bytes]:
    """What an agent says to each of these pieces: the first bytes, none where it closes the connection, or where it is
    silent for so long."""
    host, port = address.split(":")
    said: list[bytes] = []
    with socket.create_connection((host, int(port)), seconds) as connected:
        for piece in pieces:
            try:
                connected.sendall(piece)
                said.append(connected.recv(1 << 16))
            except (ConnectionError, TimeoutError):
                said.append(b"")
    return said


def hello(protocol: int = AGENT_VERSION) -> Hello:
    return Handshake("client", protocol, "tests", TOKEN.encode()).hello


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, c_compiler: str) -> None:
    """Make an empty folder the current one, because paths of sockets are short."""
    monkeypatch.chdir(tmp_path)


def refused(*options: str) -> str:
    """Return what an agent says that ends at once."""
    environment = {"GPUTUNE_TOKEN": TOKEN}
    ended = subprocess.run([agent(), *options], env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    return ended.stderr


@pytest.mark.usefixtures("here")
def test_a_local_socket_is_its_users_alone() -> None:
    with running("--listen", "./socket") as address:
        assert address == "./socket"
        assert Path(address).stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("here")
def test_a_local_socket_goes_with_its_agent() -> None:
    for _ in range(2):
        with running("--listen", "./socket"):
            assert Path("socket").is_socket()
        assert not Path("socket").exists()


@pytest.mark.usefixtures("here")
def test_an_agent_without_opencl_says_so() -> None:
    with running("--listen", "./socket") as address:
        connection = AgentConnection(address, TOKEN)
        with pytest.raises(LaunchFailed, match="/no/library"):
            connection.ask(ListDevices())
        connection.close()


@pytest.mark.usefixtures("here")
def test_a_second_agent_does_not_take_the_socket_of_the_first() -> None:
    with running("--listen", "./socket") as address:
        assert "in use" in refused("--listen", "./socket")
        AgentConnection(address, TOKEN).close()


@pytest.mark.usefixtures("here")
def test_an_agent_does_not_take_the_place_of_a_file() -> None:
    Path("socket").write_text("a file", encoding="ascii")
    refused("--listen", "./socket")
    assert Path("socket").read_text(encoding="ascii") == "a file"


@pytest.mark.usefixtures("c_compiler")
def test_before_the_proof_an_agent_says_its_hello_and_nothing_else() -> None:
    numbers = random.Random(3)
    good = frame(hello())
    with running("--listen", "0") as address:
        (greeting,) = answers(address, good)
        (told,) = framing.FrameReader(framing.UNLIMITED).feed(greeting)
        _, theirs = codec.unpack(told.header, told.blobs, codec.registry([Hello]))
        assert theirs.software == "gputune-agent" and theirs.authentication == "token"
        for more in (frame(Proof()), frame(ListDevices()), bytes(100)):
            first, second = answers(address, good, more)
            assert len(first) == len(greeting) and second == b""
        assert len(answers(address, frame(hello(AGENT_VERSION + 1)))[0]) == len(greeting)
        assert answers(address, frame(ListDevices())) == answers(address, frame(Proof())) == [b""]
        for _ in range(100):
            changed = bytearray(good)
            for _ in range(numbers.randint(1, 4)):
                changed[numbers.randrange(len(changed))] = numbers.randrange(256)
            (said,) = answers(address, bytes(changed), seconds=0.1)
            assert len(said) in (0, len(greeting))
        connection = AgentConnection(address, TOKEN)
        assert connection.ended == ""
        connection.close()


@pytest.mark.usefixtures("c_compiler")
def test_an_agent_ends_with_its_input_and_its_processes_with_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN, encoding="ascii")
    (tmp_path / "token").chmod(0o600)
    command = [str(agent()), "--listen", "0", "--token_file", str(tmp_path / "token"), "--exit_with_parent"]
    for killed in (False, True):
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            connection = AgentConnection(process.stdout.readline().split()[-1], TOKEN)
            process.stdin.write("a line ends nothing\n")
            process.stdin.flush()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.2)
            (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
            if killed:
                process.kill()
            else:
                process.stdin.close()
            try:
                assert process.wait(PATIENCE_SECONDS) in (0, -signal.SIGKILL)
            finally:
                process.kill()
            assert becomes(functools.partial(ended, child))
            connection.close()
