"""The server process: hostile clients, a worker that dies, and a clean end in every way."""

import asyncio
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gputune.client.target_client import TargetClient, TargetError
from gputune.runtime.devices import NULL_REPORT
from gputune.server.__main__ import main
from gputune.server.daemon import CannotListen, Daemon, Listener
from gputune.server.protocol import codec, framing
from gputune.server.protocol.messages import (
    DownloadBuffer,
    Error,
    Hello,
    Limits,
    UploadBuffer,
    Welcome,
)

Make = Callable[..., Any]


# --- what clients do ------------------------------------------------------------------------------


def frame(message: object, request_id: int = 0) -> bytes:
    return b"".join(framing.encode(codec.pack(message, request_id)))


HELLO = frame(Hello(1, "test"))


def converse(server: Any, data: bytes) -> list[Any]:
    """Everything that the server answers to these bytes before it closes the connection."""
    with socket.create_connection((server.host, server.port), timeout=5) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        reader, answers = framing.FrameReader(Limits()), []
        kinds = codec.registry((Hello, Welcome, Error))
        while count := sock.recv_into(reader.space()):
            if arrived := reader.filled(count):
                answers.append(codec.unpack(arrived.header, arrived.blobs, kinds)[1])
        return answers


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "bad_frame"),
        (frame(UploadBuffer(b""), 1), "limit_exceeded"),
        (frame(DownloadBuffer(1), 1), "unexpected_message"),
        (struct.pack("<4sII", b"gpt1", 2**31, 0), "limit_exceeded"),
        (struct.pack("<4sII", b"gpt1", 3, 0) + b"\x93\x01\x02", "bad_message"),
    ],
)
def test_before_the_hello_nothing_is_revealed(shared_server: Any, data: bytes, name: str) -> None:
    (error,) = converse(shared_server, data)
    assert error.name == name
    assert "null" not in error.message


def test_another_version_gets_the_hello_and_nothing_else(shared_server: Any) -> None:
    (hello,) = converse(shared_server, frame(Hello(2, "test")))
    assert isinstance(hello, Hello)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (HELLO, "unexpected_message"),
        (b"nonsense nonsense", "bad_frame"),
        (struct.pack("<4sIIQ", b"gpt1", 10, 1, 2**50), "limit_exceeded"),
        (frame(DownloadBuffer(1), 0), "unexpected_message"),
        (frame(DownloadBuffer(-1), 7), "bad_message"),
        (frame(DownloadBuffer(1), 7), "unknown_buffer"),
        (frame(Welcome(Limits(), {}, {}), 7), "bad_message"),
    ],
)
def test_after_the_hello_every_fault_has_a_name(shared_server: Any, data: bytes, name: str) -> None:
    hello, welcome, error = converse(shared_server, HELLO + data)
    assert isinstance(hello, Hello) and isinstance(welcome, Welcome)
    assert error.name == name


def test_a_server_says_why_it_cuts_off_a_large_upload(shared_server: Any) -> None:
    with shared_server.connect() as client:
        client._connection.send(DownloadBuffer(1), 1)
        client.limits = Limits(frame_bytes=2**40, buffer_bytes=2**40)
        header = codec.pack(UploadBuffer(b"x"), 2).header
        front = struct.pack("<4sIIQ", b"gpt1", len(header), 1, 2**35) + header
        with pytest.raises(TargetError, match=r"frame bytes.*limit_exceeded"):
            for _ in range(100):
                client._transmit([memoryview(front), memoryview(bytes(1 << 20))])
            client._receive()


def test_frames_cut_off_anywhere_leave_the_server_well(shared_server: Any, client: TargetClient) -> None:
    data = HELLO + frame(UploadBuffer(bytes(1000)), 1)
    for length in (0, 1, 4, 11, len(HELLO), len(HELLO) + 30, len(data) - 1):
        with socket.create_connection((shared_server.host, shared_server.port)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
            sock.sendall(data[:length])
    assert bytes(client.download(client.upload(b"well"))) == b"well"


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_buffers_are_freed_when_a_client_breaks_off(launch_server: Make) -> None:
    server = launch_server()
    (worker,) = server.children()
    before = resident_bytes(worker)
    client = server.connect()
    for _ in range(4):
        client.upload(b"\x01" * (32 << 20))
    assert resident_bytes(worker) > before + (100 << 20)
    client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client._socket.close()
    with server.connect() as other:
        deadline = time.monotonic() + 5
        while resident_bytes(worker) > before + (40 << 20):
            other.free()
            assert time.monotonic() < deadline
    assert server.children() == [worker]


def test_several_clients_take_turns(shared_server: Any, make_profile: Make) -> None:
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with shared_server.connect() as client:
                data, reference = client.upload(bytes(64)), client.upload(bytes([number]) * 64)
                for _ in range(5):
                    assert client.profile_kernel(make_profile(data, reference)).best == 0
                    assert bytes(client.download(reference)) == bytes([number]) * 64
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not faults


# --- the worker -----------------------------------------------------------------------------------


def kill_during_request(worker: int, number: int) -> None:
    """Stops the worker now and kills it a little later, so that a request sent in between is in its hands."""
    os.kill(worker, signal.SIGSTOP)
    threading.Timer(0.3, os.kill, (worker, number)).start()


def test_a_worker_that_dies_costs_the_request_and_its_buffers(launch_server: Make, make_profile: Make) -> None:
    server = launch_server()
    (worker,) = server.children()
    with server.connect() as client, server.connect() as bystander:
        data, reference = client.upload(bytes(64)), client.upload(bytes(64))
        client.profile_kernel(make_profile(data, reference))
        kill_during_request(worker, signal.SIGKILL)
        with pytest.raises(TargetError, match="SIGKILL") as caught:
            client.profile_kernel(make_profile(data, reference))
        assert caught.value.name == "worker_died"
        assert caught.value.details == {"signal": "SIGKILL"}
        with pytest.raises(TargetError, match="unknown_buffer"):
            client.download(data)
        (second,) = server.children()
        assert second != worker
        new_data, new_reference = client.upload(bytes(64)), client.upload(bytes(64))
        assert not {data, reference} & {new_data, new_reference}
        # the source went to the worker that died; the client sends it again by itself
        assert client.profile_kernel(make_profile(new_data, new_reference)).best == 0
        assert bytes(bystander.download(bystander.upload(b"well"))) == b"well"


def test_a_worker_that_died_between_requests_costs_nothing_but_buffers(
    launch_server: Make, is_gone: Callable[[int], bool]
) -> None:
    server = launch_server()
    (worker,) = server.children()
    with server.connect() as client:
        os.kill(worker, signal.SIGKILL)
        while worker in server.children():
            time.sleep(0.01)
        time.sleep(0.1)
        assert bytes(client.download(client.upload(b"well"))) == b"well"


@contextmanager
def daemon_here(limits: Limits) -> Iterator[tuple[Daemon, tuple[str, int]]]:
    """A daemon in a thread of this process."""
    listener = Listener("127.0.0.1", 0)
    ready = threading.Event()
    made: list[tuple[Daemon, asyncio.AbstractEventLoop]] = []

    async def serve() -> None:
        daemon = Daemon(listener, NULL_REPORT, limits)
        made.append((daemon, asyncio.get_running_loop()))
        await daemon.serve(lambda welcome: ready.set())

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(20)
    daemon, loop = made[0]
    try:
        yield daemon, listener.socket.getsockname()
    finally:
        loop.call_soon_threadsafe(daemon.stop)
        thread.join(20)
        assert not thread.is_alive()


def test_a_worker_that_hangs_is_ended() -> None:
    with (
        daemon_here(Limits(request_seconds=1)) as (daemon, address),
        TargetClient.connect(*address) as client,
    ):
        assert daemon._worker._process is not None
        os.kill(daemon._worker._process.pid, signal.SIGSTOP)
        with pytest.raises(TargetError, match="no answer within 1 s") as caught:
            client.upload(b"data")
        assert caught.value.name == "worker_timeout"
        assert bytes(client.download(client.upload(b"well"))) == b"well"


def test_requests_are_counted_by_kind(launch_server: Make, make_profile: Make) -> None:
    server = launch_server("--log_level", "info")
    with server.connect() as client:
        data, reference = client.upload(bytes(64)), client.upload(bytes(64))
        client.profile_kernel(make_profile(data, reference))
    time.sleep(0.2)
    server.process.terminate()
    _, errors = server.process.communicate(timeout=10)
    assert "connection 1 closed after 1 profile, 2 upload" in errors


# --- beginning and end ----------------------------------------------------------------------------


def run_server(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gputune.server", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_the_choice_of_the_device_is_printed(shared_server: Any) -> None:
    assert shared_server.lines[0] == "using the null device as asked: outputs are not computed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("busy", [False, True])
def test_a_signal_stops_it_cleanly(
    launch_server: Make, is_gone: Callable[[int], bool], number: int, busy: bool
) -> None:
    server = launch_server()
    (worker,) = server.children()
    with server.connect() as client:
        if busy:
            os.kill(worker, signal.SIGSTOP)
            client._transmit(client._connection.send(UploadBuffer(b"data"), 1))
            time.sleep(0.1)
        server.process.send_signal(number)
        assert server.process.wait(5) == 0
        assert is_gone(worker)
        with pytest.raises(TargetError, match="connection_lost"):
            client._receive()
    assert server.process.communicate() == ("", "")


def test_ctrl_c_in_the_terminal_reaches_the_daemon_only(launch_server: Make, is_gone: Callable[[int], bool]) -> None:
    server = launch_server()
    (worker,) = server.children()
    os.killpg(server.process.pid, signal.SIGINT)
    assert server.process.wait(5) == 0
    assert is_gone(worker)


def test_no_worker_outlives_a_killed_server(launch_server: Make, is_gone: Callable[[int], bool]) -> None:
    server = launch_server()
    (worker,) = server.children()
    server.process.kill()
    assert is_gone(worker)


def test_it_exits_with_its_parent(launch_server: Make, is_gone: Callable[[int], bool]) -> None:
    server = launch_server("--exit_with_parent", stdin=subprocess.PIPE)
    (worker,) = server.children()
    server.process.stdin.close()
    assert server.process.wait(5) == 0
    assert is_gone(worker)
    server.process.stdin = None


def test_exit_with_parent_needs_a_pipe() -> None:
    ended = run_server("--exit_with_parent")
    assert ended.returncode == 2
    assert "needs a pipe" in ended.stderr


def test_a_port_in_use_is_one_clear_line(shared_server: Any) -> None:
    ended = run_server("--port", str(shared_server.port), "--device", "null")
    assert ended.returncode == 1
    assert ended.stderr == (
        f"gputune target-server: error: cannot listen on 127.0.0.1 port {shared_server.port}: Address already in use\n"
    )


@pytest.mark.parametrize("port", ["65536", "-1", "http", ""])
def test_a_bad_port_is_refused(port: str) -> None:
    ended = run_server("--port", port, "--device", "null")
    assert ended.returncode == 2
    assert "is not a port (0 to 65535)" in ended.stderr or "expected one argument" in ended.stderr


def test_of_two_that_have_bound_a_port_only_one_listens() -> None:
    first = Listener("127.0.0.1", 0)
    second = Listener("127.0.0.1", int(first.address.rpartition(":")[2]))
    with first.socket, second.socket:
        first.listen()
        with pytest.raises(CannotListen, match=rf"^cannot listen on {re.escape(first.address)}: Address already"):
            second.listen()


def test_only_a_port_that_cannot_be_had_is_reported_as_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(wanted: str | None) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gputune.server.__main__._choice", refused)
    assert main(["--port", "0"]) == 1
    error = capsys.readouterr().err
    assert "No space left on device" in error and "listen" not in error


def test_a_device_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    ended = run_server("--port", "0", "--device", "no such device", OCL_ICD_VENDORS=str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.startswith("gputune target-server: error: ")
    assert "no such device" in ended.stderr and "Traceback" not in ended.stderr


def test_an_address_open_to_the_network_is_warned_about(launch_server: Make) -> None:
    server = launch_server("--host", "0.0.0.0")
    server.process.terminate()
    _, errors = server.process.communicate(timeout=10)
    assert "warning: 0.0.0.0:" in errors and "no authentication" in errors


def test_it_listens_on_ipv6(launch_server: Make) -> None:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    server = launch_server("--host", "::1")
    with server.connect() as client:
        assert client.address == f"[::1]:{server.port}"
        assert bytes(client.download(client.upload(b"six"))) == b"six"


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
        (frame(Hello(1, "s")) + frame(Error("device_unavailable", "gone")), "device_unavailable"),
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
        assert caught.value.name == "not_a_target_server"


def test_a_client_is_not_waited_for_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.server.daemon.HANDSHAKE_SECONDS", 0.2)
    with daemon_here(Limits()) as (_, address), socket.create_connection(address, timeout=5) as sock:
        assert sock.recv(1) == b""
