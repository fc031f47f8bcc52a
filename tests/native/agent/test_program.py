"""Test the agent's program: where it listens, whom it hears, and what --check and its start say about devices."""

import functools
import os
import random
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from gputune.core.errors import LaunchFailed
from gputune.server.agent.agent_connection import AgentConnection
from gputune.server.agent.messages import AGENT_VERSION, ListDevices
from gputune.server.protocol import codec, framing
from gputune.server.protocol.limits import UNLIMITED
from gputune.server.protocol.messages import Hello, Proof
from tests.native.agent.running import NO_LIBRARY, PATIENCE_SECONDS, TOKEN, Running, frame, hello, running
from tests.native.compiling import agent, environment
from tests.native.fake import fake_library
from tests.waiting import becomes

pytestmark = pytest.mark.usefixtures("c_compiler")


def ended(process: int) -> bool:
    return not runs(process)


def runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return False
    return state != "Z"


def answers(agent: Running, *pieces: bytes, seconds: float = PATIENCE_SECONDS) -> list[bytes]:
    """What an agent says to each of these pieces: the first bytes, none where it closes the connection, or where it is
    silent for so long."""
    said: list[bytes] = []
    with socket.create_connection(agent.where, seconds) as connected:
        for piece in pieces:
            try:
                connected.sendall(piece)
                said.append(connected.recv(1 << 16))
            except (ConnectionError, TimeoutError):
                said.append(b"")
    return said


def refused(*options: str) -> str:
    """Return what an agent says that does not listen."""
    told = {**NO_LIBRARY, "GPUTUNE_TOKEN": TOKEN}
    done = subprocess.run([agent(), *options], env=told, capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr


# --- local sockets ------------------------------------------------------------------------------------------------


@pytest.fixture
def _in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # paths of sockets are short


@pytest.mark.usefixtures("_in_its_folder")
def test_only_its_user_reaches_a_local_socket() -> None:
    with running("--listen", "./socket") as started:
        assert started.address == "./socket" and Path("socket").stat().st_mode & 0o777 == 0o600
        connection = AgentConnection(started.address, TOKEN)
        with pytest.raises(LaunchFailed, match="/no/library"):
            connection.ask(ListDevices())
        connection.close()


@pytest.mark.usefixtures("_in_its_folder")
def test_a_local_socket_is_one_agents() -> None:
    for _ in range(2):  # the second one finds no socket left
        with running("--listen", "./socket"):
            assert "in use" in refused("--listen", "./socket")
        assert not Path("socket").exists()


@pytest.mark.usefixtures("_in_its_folder")
def test_a_file_in_the_place_of_a_local_socket_stays() -> None:
    Path("socket").write_text("a file", encoding="ascii")
    refused("--listen", "./socket")
    assert Path("socket").read_text(encoding="ascii") == "a file"


# --- before the proof ---------------------------------------------------------------------------------------------


def test_before_the_proof_an_agent_says_its_hello_and_nothing_else() -> None:
    numbers = random.Random(3)
    good = frame(hello())
    with running("--listen", "0") as started:
        (greeting,) = answers(started, good)
        (told,) = framing.FrameReader(UNLIMITED).feed(greeting)
        _, theirs = codec.unpack(told.header, told.blobs, codec.registry([Hello]))
        assert theirs.software == "gputune-agent" and theirs.authentication == "token"
        for more in (frame(Proof()), frame(ListDevices()), bytes(100)):
            first, second = answers(started, good, more)
            assert len(first) == len(greeting) and second == b""
        assert len(answers(started, frame(hello(AGENT_VERSION + 1)))[0]) == len(greeting)
        assert answers(started, frame(ListDevices())) == answers(started, frame(Proof())) == [b""]
        for _ in range(100):
            changed = bytearray(good)
            for _ in range(numbers.randint(1, 4)):
                changed[numbers.randrange(len(changed))] = numbers.randrange(256)
            (said,) = answers(started, bytes(changed), seconds=0.1)
            assert len(said) in (0, len(greeting))
        connection = AgentConnection(started.address, TOKEN)
        assert connection.ended == ""
        connection.close()


# --- its end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", [False, True])
def test_an_agent_ends_with_its_input_and_its_processes_with_it(tmp_path: Path, killed: bool) -> None:
    (tmp_path / "token").write_text(TOKEN, encoding="ascii")
    (tmp_path / "token").chmod(0o600)
    command = [str(agent()), "--listen", "0", "--token_file", str(tmp_path / "token"), "--exit_with_parent"]
    told, pipe = {**environment(), **NO_LIBRARY}, subprocess.PIPE
    with subprocess.Popen(command, env=told, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        started = Running(process, process.stdout.readline().split()[-1])
        assert becomes(lambda: not started.children())
        connection, child = started.connection()
        process.stdin.write("a line ends nothing\n")
        process.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
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


# --- devices ------------------------------------------------------------------------------------------------------

NO_LD = "there is no `ld` on the PATH"
FAILS = "#0 Fake GPU (Fake, driver 1.0): it cannot compile and run a kernel: "


def call_of(function: str, tmp_path: Path) -> int:
    """Return the number of a call in that a check makes."""
    orders = tmp_path / "orders"
    for number in range(1, 1000):
        orders.write_text(f"{number}", encoding="ascii")
        check(FAKE_ORDERS=str(orders))
        failed = orders.with_name("orders.failed")
        if failed.exists() and failed.read_text(encoding="ascii") == function:
            return number
    raise LookupError(function)


def check(**variables: str) -> tuple[int, str]:
    """Return the exit code of --check on the made-up device, and all that it says."""
    told = {"PATH": os.environ["PATH"], "GPUTUNE_OPENCL_LIBRARY": str(fake_library()), **variables}
    done = subprocess.run([agent(), "--check"], env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def test_check_says_which_devices_work() -> None:
    code, said = check()
    assert (code, said.split(" in ")[0]) == (
        0,
        "#0 Fake GPU (Fake, driver 1.0): works, it compiled and ran a kernel",
    )


def test_check_says_that_there_is_no_library() -> None:
    assert check(**NO_LIBRARY) == (1, "/no/library is no library with OpenCL 1.2\n")


def test_check_says_what_a_driver_cannot_do(tmp_path: Path) -> None:
    number = call_of("clBuildProgram", tmp_path)
    orders = tmp_path / "orders"
    cases: Mapping[str, str] = {
        f"{number}": f"{FAILS}building a program failed: CL_OUT_OF_RESOURCES: no linker\n",
        f"{-number}": "#0: the driver ended the process by signal 6\n",
    }
    for order, wanted in cases.items():
        orders.write_text(order, encoding="ascii")
        told = {"FAKE_ORDERS": str(orders), "FAKE_LOG": "no\nlinker"}
        assert check(**told) == (1, wanted)
        code, said = check(**told, PATH=str(tmp_path))
        assert code == 1 and said.startswith(wanted) and NO_LD in said


@pytest.mark.parametrize(("works", "wanted"), [(True, ""), (False, "/no/library is no library with OpenCL 1.2")])
def test_an_agent_says_at_its_start_what_does_not_work(tmp_path: Path, works: bool, wanted: str) -> None:
    library = {"GPUTUNE_OPENCL_LIBRARY": str(fake_library())} if works else NO_LIBRARY
    told = {**environment(), "GPUTUNE_TOKEN": TOKEN, **library}
    with (tmp_path / "errors").open("w+", encoding="ascii") as errors:
        command = [str(agent()), "--listen", "0"]
        with subprocess.Popen(command, env=told, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            started = Running(process, process.stdout.readline().split()[-1])  # it does not wait for that
            assert becomes(lambda: not started.children())
            process.terminate()
        errors.seek(0)
        assert errors.read() == (f"gputune-agent: warning: {wanted}\n" if wanted else "")
