"""Test which target server is used, and the embedded server's life."""

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gputune.client.addresses import parse_address
from gputune.client.advice import ADVICE
from gputune.client.errors import GputuneError, TargetError
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import VARIABLE, AdbRequest, choose_target
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.target.transport.credentials import Credentials
from gputune.client.target.transport.stream import unreachable
from gputune.client.target.transport.target_connection import probe
from gputune.runtime.devices.discovery import AGENT_TOKEN_VARIABLE
from gputune.server.agent.messages import Begin, Failed, ListDevices
from gputune.server.clients.authentication import Authentication
from gputune.server.protocol import codec, framing
from gputune.server.protocol.messages import Hello
from tests.server.agent import lying
from tests.server.agent.lying import LyingAgent
from tests.server.conftest import gone, serving
from tests.server.workers.fake_worker import works
from tests.unused_ports import unused_port
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.slow  # each starts processes


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:22598", ("127.0.0.1", 22598)),
        ("phone.local:1", ("phone.local", 1)),
        (" host:65535 ", ("host", 65535)),
        ("[::1]:22598", ("::1", 22598)),
        ("[fe80::1%eth0]:5", ("fe80::1%eth0", 5)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, "--target") == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":5",
        "host:0",
        "host:65536",
        "host:x",
        "::1:5",
        "[::1]",
        "a b:5",
        "host:5/x",
        "host:٣",
    ],
)
def test_bad_addresses_are_one_clear_line(text: str) -> None:
    with pytest.raises(TargetError, match=r"--target: .* is not HOST:PORT") as caught:
        parse_address(text, "--target")
    assert caught.value.name == "bad_address"
    assert repr(text) in str(caught.value)


@contextmanager
def something_else(answer: bytes) -> Iterator[int]:
    """A program on a port that answers every connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    with sock, suppress(OSError):
                        sock.sendall(answer)
                        sock.recv(1000)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_SECONDS)


@pytest.fixture(autouse=True)
def null_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_DEVICE", "null")


@pytest.fixture(scope="session")
def _embedded_server_of_all() -> Iterator[EmbeddedServer]:
    server = EmbeddedServer.start("null")
    yield server
    server.stop()


@pytest.fixture
def embedded(_embedded_server_of_all: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> EmbeddedServer:
    """Give the embedded server that is lent to all that would start one, and that nothing stops."""
    monkeypatch.setattr(EmbeddedServer, "start", lambda *arguments: _embedded_server_of_all)
    monkeypatch.setattr(EmbeddedServer, "stop", lambda self: None)
    return _embedded_server_of_all


def test_the_option_comes_before_the_variable() -> None:
    target = choose_target("a:1", {VARIABLE: "b:2"})
    assert (target.host, target.port, target.server) == ("a", 1, None)
    assert target.explanation == ("target server a:1 (from --target)",)


def test_the_variable_comes_before_the_default_port(shared_server: Any) -> None:
    target = choose_target(None, {VARIABLE: "b:2"}, default_port=shared_server.port)
    assert (target.host, target.port, target.server) == ("b", 2, None)
    assert target.explanation == ("target server b:2 (from TARGET_SERVER_SOCKET)",)


def test_an_error_names_where_the_address_comes_from() -> None:
    with pytest.raises(TargetError, match=r"^TARGET_SERVER_SOCKET: 'b'"):
        choose_target(None, {VARIABLE: "b"})


def test_a_server_on_the_default_port_comes_before_an_embedded_one(shared_server: Any) -> None:
    with choose_target(None, {VARIABLE: ""}, default_port=shared_server.port) as target:
        assert (target.port, target.server) == (shared_server.port, None)
        assert f"127.0.0.1:{shared_server.port} (gputune" in target.explanation[0]
        with target.connect() as client:
            assert client.device["name"] == "null"


@pytest.mark.own("it is started and stopped")
def test_an_embedded_server_comes_last() -> None:
    port = unused_port()
    with choose_target(None, {}, default_port=port) as target:
        assert isinstance(target.server, EmbeddedServer)
        server = target.server._process.pid
        assert os.getpgid(server) != os.getpgid(0), "Ctrl-C leaves it to this process"
        assert target.explanation == (
            f"no target server on 127.0.0.1:{port}",
            f"embedded target server 127.0.0.1:{target.port}",
            "using the null device as asked: outputs are not computed",
        )
        with target.connect() as client:
            assert bytes(client.download(client.upload(b"data"))) == b"data"
    assert target.server._process.returncode == 0
    assert gone(server)
    target.close()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "answers, but not as a gputune target server"),
        (b"", "closed the connection"),
        (b"".join(framing.encode(codec.pack(Hello(99, "gputune 99"), 0))), "speaks protocol 99"),
    ],
)
def test_something_else_on_the_default_port_is_passed_over_and_said(
    embedded: EmbeddedServer, answer: bytes, says: str
) -> None:
    with something_else(answer) as port, choose_target(None, {}, default_port=port) as target:
        assert target.server is embedded
        assert target.explanation[0].startswith("passed over: ")
        assert says in target.explanation[0] and f"127.0.0.1:{port}" in target.explanation[0]


def test_a_device_means_a_server_of_our_own(shared_server: Any, embedded: EmbeddedServer) -> None:
    with choose_target(None, {}, "null", default_port=shared_server.port) as target:
        assert target.server is embedded
        assert "--device" in target.explanation[0]
    for option, environment, origin in (("a:1", {}, "--target"), (None, {VARIABLE: "a:1"}, VARIABLE)):
        with pytest.raises(TargetError, match=f"drop --device or {origin}") as caught:
            choose_target(option, environment, "null")
        assert caught.value.name == "contradiction"


def test_the_device_variable_means_a_server_of_our_own_too(shared_server: Any, embedded: EmbeddedServer) -> None:
    with choose_target(None, {"GPUTUNE_DEVICE": "null"}, default_port=shared_server.port) as target:
        assert target.server is embedded
        assert "because GPUTUNE_DEVICE asks for a device" in target.explanation[0]
    for option, environment in (("a:1", {}), (None, {VARIABLE: "a:1"})):
        given = choose_target(option, {**environment, "GPUTUNE_DEVICE": "null"})
        assert (given.host, given.server) == ("a", None)
        assert given.explanation[1:] == ("GPUTUNE_DEVICE does not apply: this server has chosen its device",)


TOKEN = "correct horse battery staple"


def test_a_server_with_a_token_on_the_default_port_is_used_by_who_knows_it(embedded: EmbeddedServer) -> None:
    with serving(worker=works, authentication=Authentication(TOKEN.encode())) as (_, (_, port)):
        with (
            choose_target(None, {}, default_port=port, credentials=Credentials(TOKEN)) as target,
            target.connect() as client,
        ):
            assert (target.port, target.server) == (port, None)
            client.ping()
        with choose_target(None, {}, default_port=port) as target:
            assert target.server is embedded
            assert target.explanation[0].startswith("passed over: ")
            assert "--token_file or GPUTUNE_TOKEN" in target.explanation[0]


def test_credentials_are_for_servers_that_run_already(embedded: EmbeddedServer) -> None:
    with choose_target(None, {"GPUTUNE_TOKEN": TOKEN}, "null") as target, target.connect() as client:
        assert target.explanation[-1] == "GPUTUNE_TOKEN does not apply: the embedded server has a token of its own"
        client.ping()
    with pytest.raises(TargetError, match="--token_file: only for a server that runs already") as caught:
        choose_target(None, {}, "null", credentials=Credentials(TOKEN, options=("--token_file",)))
    assert caught.value.name == "contradiction"


def test_an_embedded_server_lets_in_nobody_else(embedded: EmbeddedServer) -> None:
    with pytest.raises(TargetError, match="token_required"):
        TargetClient.connect(embedded.host, embedded.port)
    with pytest.raises(TargetError, match="authentication_failed"):
        TargetClient.connect(embedded.host, embedded.port, Credentials(TOKEN))
    assert embedded.token not in Path(f"/proc/{embedded._process.pid}/cmdline").read_text()


@pytest.mark.parametrize("option", ["--target", "--device"])
def test_a_phone_contradicts_what_names_something_else(option: str) -> None:
    given = {"option": "a:1" if option == "--target" else None, "device": "null" if option == "--device" else None}
    with pytest.raises(TargetError, match=f"drop --adb or {option}") as caught:
        choose_target(environment={}, adb=AdbRequest(), **given)  # type: ignore[arg-type]
    assert caught.value.name == "contradiction"


def test_a_phone_has_a_server_of_its_own(embedded: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    stopped: list[EmbeddedServer] = []
    monkeypatch.setattr(EmbeddedServer, "stop", lambda self: stopped.append(self))

    def start(*arguments: Any) -> EmbeddedServer:
        asked.append(arguments)
        return embedded

    monkeypatch.setattr("gputune.client.target.adb.target.AdbTarget.start", start)
    adb = AdbRequest("serial", "python3")
    with choose_target(None, {VARIABLE: "a:1"}, log_level="info", adb=adb) as target:
        with target.connect() as client:
            client.ping()
        assert target.explanation == (*embedded.explanation, f"{VARIABLE} does not apply: --adb is given")
    assert asked == [("serial", "python3", None, ("--log_level", "info"), None, None)]
    assert stopped == [embedded], "closing the target stops it"


@pytest.mark.own("it is killed")
def test_an_embedded_server_is_started_again_and_its_last_words_are_said() -> None:
    """It logs as much as asked."""
    lines: list[str] = []
    with (
        choose_target(None, {}, "null", log_level="info", notice=lines.append) as target,
        target.connect() as client,
    ):
        assert isinstance(target.server, EmbeddedServer)
        first = target.server._process
        handle = client.upload(b"data")
        first.kill()
        assert bytes(client.download(handle)) == b"data"
        assert target.server._process is not first
        with target.connect() as other:
            other.ping()
    assert re.search(r"the embedded server ended with SIGKILL: .*connection 1 from", lines[0])
    assert len(lines) == 2 and "is back after" in lines[1]


@pytest.mark.own("it is stopped for ever")
def test_an_embedded_server_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.client.target.connecting.CONNECT_SECONDS", 1.0)
    with choose_target(None, {}, "null") as target, target.connect() as client:
        assert isinstance(target.server, EmbeddedServer)
        first = target.server._process
        first.send_signal(signal.SIGSTOP)
        client._session.link.connection.hang_up()
        client.ping()
        assert first.returncode == -signal.SIGKILL


def test_a_probe_reads_the_hello_only(shared_server: Any) -> None:
    assert probe(shared_server.host, shared_server.port, 5).startswith("gputune")


def test_an_unreachable_target_says_what_to_do() -> None:
    port = unused_port()
    with pytest.raises(TargetError) as caught:
        TargetClient.connect("127.0.0.1", port)
    assert isinstance(caught.value, GputuneError) and caught.value.exit_code == 4
    assert str(caught.value) == (
        f"no target server reached at 127.0.0.1:{port} over TCP: Connection refused; start one there with "
        f"`gputune target-server --port {port}`, for a phone on USB run `adb forward tcp:{port} tcp:{port}` "
        "[unreachable]"
    )
    with pytest.raises(TargetError, match=r"no\.such\.host\.invalid:5 .*; check the name .*\[unreachable\]"):
        TargetClient.connect("no.such.host.invalid", 5)


def test_what_to_do_about_a_server_of_another_machine_that_does_not_answer() -> None:
    """It has to listen for others, or be reached through its own machine."""
    said = str(unreachable("192.0.2.7:22598", 22598, TimeoutError("timed out")))
    assert "--host 192.0.2.7 --port 22598 --token_file" in said and "ssh -L 22598:127.0.0.1:22598 192.0.2.7" in said
    assert "adb forward" not in said


def test_an_embedded_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    with pytest.raises(TargetError, match=r"^no .*no such device") as caught:
        EmbeddedServer.start("no such device")
    assert (caught.value.name, caught.value.exit_code) == ("no_device", 8)


NO_OPENCL = Failed("runtime", "no libOpenCL.so was found")


@pytest.mark.parametrize(
    ("lies", "name", "code", "advice"),
    [
        ({ListDevices: NO_OPENCL}, "no_agent_device", 8, "gputune-agent --check"),
        ({Begin: Failed("device_limits", "the agent serves 8 connections already")}, "no_agent", 4, "with this token"),
        (None, "no_agent", 4, "with this token"),
    ],
)
def test_an_agent_that_is_there_and_has_no_device_is_no_agent_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lies: Any, name: str, code: int, advice: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(AGENT_TOKEN_VARIABLE, lying.TOKEN)
    with ExitStack() as stack:
        if lies is not None:
            stack.enter_context(closing(LyingAgent(Path("socket"), lies)))
        with pytest.raises(TargetError) as caught:
            EmbeddedServer.start("agent:./socket")
    assert (caught.value.name, caught.value.exit_code) == (name, code) and advice in ADVICE[name]
    assert ("has no device that works: no libOpenCL.so" in caught.value.reason) == (name == "no_agent_device")


@pytest.mark.parametrize("broken", ["tempfile.TemporaryFile", "subprocess.Popen"])
def test_an_embedded_server_that_the_system_does_not_start_says_why(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"gputune.client.target.embedded_server.{broken}", full)
    with pytest.raises(TargetError, match=r"did not start: .*No space left") as caught:
        EmbeddedServer.start("null")
    assert caught.value.name == "server_not_started"


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.night)])
def test_an_embedded_server_ends_with_its_client(number: int) -> None:
    code = """
        import signal, time
        from gputune.client.target.embedded_server import EmbeddedServer
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
        server = EmbeddedServer.start()
        print(server._process.pid, flush=True)
        time.sleep(60)
    """
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with client:
        assert client.stdout is not None
        server = int(client.stdout.readline())
        worker = int(Path(f"/proc/{server}/task/{server}/children").read_text())
        os.killpg(client.pid, number)
    assert gone(server) and gone(worker)
