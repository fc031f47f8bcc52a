"""Test the server process: hostile clients, and a clean beginning and end in every way."""

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gputune.client.target.client import TargetClient, TargetError
from gputune.server.__main__ import main
from gputune.server.clients.listener import CannotListen, Listener
from gputune.server.options import parser
from gputune.server.protocol import codec
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    PROTOCOL_VERSION,
    DownloadBuffer,
    Error,
    Hello,
    Ping,
    Pong,
    Proof,
    UploadBuffer,
    Welcome,
)
from tests.server.conftest import batch_of, gone, serving
from tests.waiting import PATIENCE_SECONDS

from .peer import Peer, converse, frame, in_threads
from .workers.fake_worker import works

pytestmark = pytest.mark.slow  # each starts processes

Make = Callable[..., Any]


# --- what clients do ------------------------------------------------------------------------------


HELLO = frame(Hello(PROTOCOL_VERSION, "test", "0" * 64))
PROOF = frame(Proof())


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "bad_frame"),
        (frame(UploadBuffer(b"x"), 1), "limit_exceeded"),
        (frame(DownloadBuffer(1), 1), "unexpected_message"),
        (frame(Ping(), 1), "unexpected_message"),
        (frame(Proof(), 0), "unexpected_message"),
        (struct.pack("<4sII", b"gpt1", 2**31, 0), "limit_exceeded"),
        (struct.pack("<4sII", b"gpt1", 3, 0) + b"\x93\x01\x02", "bad_message"),
    ],
)
def test_before_the_hello_nothing_is_revealed(shared_server: Any, data: bytes, name: str) -> None:
    (error,) = converse(shared_server, data)
    assert error.name == name
    assert "null" not in error.message


def test_another_version_gets_the_hello_and_nothing_else(shared_server: Any) -> None:
    (hello,) = converse(shared_server, frame(Hello(PROTOCOL_VERSION + 1, "test", "0" * 64)))
    assert isinstance(hello, Hello)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (HELLO, "unexpected_message"),
        (b"nonsense nonsense", "bad_frame"),
        (struct.pack("<4sIIQ", b"gpt1", 10, 1, 2**50) + bytes(10), "limit_exceeded"),
        (frame(DownloadBuffer(1), 0), "unexpected_message"),
        (frame(DownloadBuffer(-1), 7), "bad_message"),
        (frame(DownloadBuffer(1), 7), "unknown_buffer"),
        (frame(UploadBuffer(b""), 7), "bad_message"),
        (frame(Welcome(Limits(), {}, {}), 7), "unexpected_message"),
    ],
)
def test_after_the_hello_every_fault_has_a_name(shared_server: Any, data: bytes, name: str) -> None:
    hello, welcome, error = converse(shared_server, HELLO, PROOF, data)
    assert isinstance(hello, Hello) and isinstance(welcome, Welcome)
    assert error.name == name


def test_what_came_before_a_fault_is_answered_in_order(shared_server: Any) -> None:
    requests = frame(Ping(), 1) + frame(DownloadBuffer(-1), 2) + frame(Ping(), 3) + b"x"
    answers = converse(shared_server, HELLO, PROOF, requests)
    assert [type(answer) for answer in answers] == [Hello, Welcome, Pong, Error, Pong, Error]
    assert [answer.name for answer in answers if isinstance(answer, Error)] == ["bad_message", "bad_frame"]


def test_a_server_says_why_it_cuts_off_a_large_upload(peer: Peer) -> None:
    header = codec.pack(UploadBuffer(b"x"), 2).header
    peer.socket.sendall(struct.pack("<4sIIQ", b"gpt1", len(header), 1, 2**35) + header)
    with suppress(ConnectionError):
        for _ in range(100):
            peer.socket.sendall(bytes(1 << 20))
    error = peer.receive()[1]
    assert (error.name, error.details["limit"]) == ("limit_exceeded", "frame_bytes")


def test_frames_cut_off_anywhere_leave_the_server_well(shared_server: Any, peer: Peer) -> None:
    data = HELLO + PROOF
    for length in (0, 1, 4, 11, len(HELLO), len(HELLO) + 30, len(data) - 1):
        with socket.create_connection((shared_server.host, shared_server.port)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
            sock.sendall(data[:length])
    assert bytes(peer.ask(DownloadBuffer(peer.upload(b"well"))).data) == b"well"


def test_several_clients_at_once_get_what_is_theirs(shared_server: Any) -> None:
    def work(number: int) -> None:
        with shared_server.peer() as peer:
            data, reference = peer.upload(bytes(64)), peer.upload(bytes([number]) * 64)
            for _ in range(5):
                assert peer.ask(batch_of(data, reference)).best == 0
                assert bytes(peer.ask(DownloadBuffer(reference)).data) == bytes([number]) * 64

    in_threads(work, 8)


# --- beginning and end ----------------------------------------------------------------------------


def test_the_choice_of_the_device_is_printed(shared_server: Any) -> None:
    assert shared_server.lines[0] == "using the null device as asked: outputs are not computed"


def test_ctrl_c_in_the_terminal_reaches_the_daemon_only(launch_server: Make) -> None:
    server = launch_server()
    (worker,) = server.children()
    os.killpg(server.process.pid, signal.SIGINT)
    assert server.process.wait(PATIENCE_SECONDS) == 0
    assert gone(worker)


def test_no_worker_outlives_a_killed_server(launch_server: Make) -> None:
    server = launch_server()
    (worker,) = server.children()
    server.process.kill()
    assert gone(worker)


def test_exit_with_parent_needs_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Path(os.devnull).open() as nothing, pytest.raises(SystemExit) as ended:
        monkeypatch.setattr(sys, "stdin", nothing)
        main(["--exit_with_parent"])
    assert ended.value.code == 2
    assert "needs a pipe" in capsys.readouterr().err


def test_a_port_in_use_is_one_clear_line(shared_server: Any, failing_start: Make) -> None:
    code, line, _ = failing_start("--port", str(shared_server.port), "--device", "null")
    assert code == 4
    assert line == (
        f"error: cannot listen on 127.0.0.1 port {shared_server.port}: Address already in use; --port chooses another, "
        "and `gputune target-status` says whether a target server has this one\n"
    )


@pytest.mark.parametrize("port", ["65536", "-1", "http", ""])
def test_a_bad_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["--port", port])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "is not a port (0 to 65535)" in said or "expected one argument" in said


def test_of_two_that_have_bound_a_port_only_one_listens() -> None:
    first = Listener("127.0.0.1", 0)
    second = Listener("127.0.0.1", int(first.address.rpartition(":")[2]))
    with first.socket, second.socket:
        first.listen()
        with pytest.raises(CannotListen, match=rf"^cannot listen on {re.escape(first.address)}: Address already"):
            second.listen()


def test_small_messages_are_sent_at_once(shared_daemon: Any) -> None:
    daemon, address = shared_daemon
    with Peer(address):
        (link,) = daemon._links
        sock = link._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_only_a_port_that_cannot_be_had_is_reported_as_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(wanted: str | None) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gputune.server.__main__.find_device", refused)
    assert main(["--port", "0"]) == 1
    error = capsys.readouterr().err
    assert "No space left on device" in error and "listen" not in error


def test_a_device_that_is_not_there_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_start: Make
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    code, line, _ = failing_start("--port", "0", "--device", "no such device")
    assert code == 8
    assert line.startswith("error: no ") and "no such device" in line


def test_it_listens_on_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with serving(host="::1", worker=works) as (_, address), Peer(address) as peer:
        assert bytes(peer.ask(DownloadBuffer(peer.upload(b"six"))).data) == b"six"


def test_the_daemon_never_imports_pyopencl() -> None:
    code = "import sys, gputune.server.__main__; sys.exit('pyopencl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_connection_is_only_what_the_protocol_says() -> None:
    """The client's side of the handshake, against a server that is another program or another version."""
    for answer, name in (
        (frame(Hello(99, "gputune 99")), "version_mismatch"),
        (b"SSH-2.0-OpenSSH\r\n", "not_a_target_server"),
        (b"", "not_a_target_server"),
        (frame(Error("internal_error", "busy")), "internal_error"),
        (
            frame(Hello(PROTOCOL_VERSION, "s", "0" * 64)) + frame(Error("device_unavailable", "gone")),
            "device_unavailable",
        ),
    ):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve(listener: socket.socket = listener, answer: bytes = answer) -> None:
                sock, _ = listener.accept()
                with sock, suppress(ConnectionError):
                    sock.recv(1000)
                    sock.sendall(answer)
                    sock.shutdown(socket.SHUT_WR)
                    sock.recv(1000)

            thread = threading.Thread(target=serve)
            thread.start()
            with pytest.raises(TargetError) as caught:
                TargetClient.connect(*listener.getsockname())
            assert caught.value.name == name
            assert str(listener.getsockname()[1]) in str(caught.value)
            thread.join()


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(TargetError, match="took too long") as caught:
            TargetClient.connect("127.0.0.1", listener.getsockname()[1], timeout=0.2)
        assert caught.value.name == "connection_lost"


def test_a_client_is_not_waited_for_either() -> None:
    with (
        serving(Limits(authenticate_seconds=1), worker=works) as (_, address),
        socket.create_connection(address, timeout=10) as silent,
        socket.create_connection(address, timeout=10) as slow,
    ):
        slow.sendall(HELLO[:20])
        for sock in (silent, slow):
            with suppress(ConnectionError):
                assert sock.recv(1) == b""
