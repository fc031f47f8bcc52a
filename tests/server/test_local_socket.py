"""Test a server on a local socket, and memory that clients register over it."""

import errno
import fcntl
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.client.doctor.target import check_target
from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import choose_target
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.target.transport.credentials import Credentials
from gputune.client.target.transport.target_connection import probe
from gputune.core import peers
from gputune.core.errors import MemoryInUse, UnusableMemory
from gputune.runtime.memory.handles import MemHandle
from gputune.server.clients import local_socket
from gputune.server.clients.listener import CannotListen
from gputune.server.clients.local_socket import LocalArrival, LocalListener
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.messages import (
    Error,
    ExecuteContext,
    FreeBuffers,
    LoadContext,
    Ping,
    Pong,
    Progress,
    RegisterMemory,
    Status,
)
from tests.client.commands import Gputune, Ran
from tests.server.conftest import gone, serving
from tests.waiting import PATIENCE_SECONDS, becomes

from .conftest import Server
from .descriptors import closing_fd, descriptors, memfd, own_descriptors
from .peer import Peer, Refused
from .workers.fake_worker import works

pytestmark = [
    pytest.mark.slow,  # each starts processes
    pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="local sockets that say who connects"),
]
TOKEN = "0123456789abcdef"
X = np.arange(8, dtype=np.float32).reshape(2, 4)
Launch = Callable[..., Server]


# --- the socket ---------------------------------------------------------------------------------------


@pytest.mark.own("it has a token, and ends")
def test_a_local_socket_is_for_its_user_who_knows_the_token_and_is_removed(folder: Path, launch_server: Launch) -> None:
    path = folder / "socket"
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    server = launch_server("--unix", str(path), "--token_file", str(folder / "token"))
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with TargetClient.connect(server.host, 0, Credentials(TOKEN)) as client:
        assert client.address == f"unix:{path}"
        assert client.status().clients == 1
        client.pings(3)
        handle = MemHandle.allocate(64)
        assert bytes(client.download(client.upload(b"told"))) == b"told"
        client.unregister_memory(client.register_memory(handle))
    with pytest.raises(TargetError, match=r"\[token_required\]"):
        server.connect()
    with pytest.raises(TargetError, match=r"\[authentication_failed\]"):
        TargetClient.connect(server.host, 0, Credentials(TOKEN[::-1]))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_SECONDS) == 0
    assert not path.exists()


def test_a_stale_socket_is_replaced_and_nothing_else(folder: Path, failing_start: Callable[..., Any]) -> None:
    def refused(path: Path) -> str:
        code, said, _ = failing_start("--device", "null", "--unix", str(path))
        assert code == 4
        return str(said)

    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(folder / "socket"))
        killed.listen()
        assert "a program listens there already" in refused(folder / "socket")
    (folder / "file").write_text("kept")
    assert "is no socket" in refused(folder / "file")
    assert (folder / "file").read_text() == "kept"
    (folder / "link").symlink_to(folder / "nothing")
    assert "is no socket" in refused(folder / "link")
    assert "No such file or directory" in refused(folder / "nothing" / "socket")
    assert "too long" in refused(folder / ("x" * 120))
    assert (folder / "socket").exists()
    listener = LocalListener(folder / "socket")
    other = folder / "another"
    (folder / "socket").rename(other)
    (folder / "socket").write_text("not ours")
    listener.close()
    assert (folder / "socket").read_text() == "not ours"
    other.unlink()


def test_of_two_servers_that_replace_a_stale_socket_at_once_one_listens(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real_unlink, real_flock = folder / "socket", Path.unlink, fcntl.flock
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))  # and does not listen
    begun: list[LocalListener | Exception] = []
    waits = threading.Event()

    def begin() -> None:
        try:
            begun.append(LocalListener(path))
        except CannotListen as error:
            begun.append(error)

    other = threading.Thread(target=begin)

    def unlink(self: Path, missing_ok: bool = False) -> None:
        """Let the other server begin between the look at the socket and its removal."""
        if threading.current_thread() is not other:
            other.start()
            assert becomes(lambda: waits.is_set() or not other.is_alive())
        real_unlink(self, missing_ok)

    def flock(descriptor: int, operation: int) -> None:
        try:
            real_flock(descriptor, operation)
        except BlockingIOError:
            waits.set()
            raise

    monkeypatch.setattr(Path, "unlink", unlink)
    monkeypatch.setattr(fcntl, "flock", flock)
    begin()
    other.join(PATIENCE_SECONDS)
    monkeypatch.undo()
    (listening,) = (one for one in begun if isinstance(one, LocalListener))
    (refused,) = (one for one in begun if not isinstance(one, LocalListener))
    assert "a program listens there already" in str(refused)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        assert len(listening.accept(1)) == 1
    listening.close()
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_locked_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as without_locks:
        without_locks.setattr(fcntl, "flock", flock)
        with pytest.raises(CannotListen, match=rf"the folder {folder} cannot be locked \(No locks available\); give"):
            LocalListener(folder / "socket")
    monkeypatch.setattr(local_socket, "LOCK_SECONDS", 0.05)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(CannotListen, match=rf"another process has kept the folder {folder} locked"):
        LocalListener(folder / "socket")
    os.close(descriptor)
    LocalListener(folder / "socket").close()


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--port", "0"], 2, "for TCP; drop one"),
        (["--host", "127.0.0.1"], 2, "for TCP; drop one"),
        (["--tls_cert", "x"], 2, "cannot be used as certificate"),
        (["--device", "no such device"], 8, "no such device"),
    ],
)
def test_an_ended_start_leaves_no_socket(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    failing_start: Callable[..., Any],
    more: list[str],
    code: int,
    words: str,
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(folder))
    failed, said, _ = failing_start("--unix", str(folder / "socket"), *more)
    assert failed == code and words in said
    assert not (folder / "socket").exists()


# --- inferences on registered memory ------------------------------------------------------------------


def test_inferences_on_memory_carry_no_tensors(shared_local: Server, context: Path) -> None:
    with shared_local.connect() as client:
        executor = RemoteExecutor(client, context, None, strict=True)
        x, y = MemHandle.allocate(32), MemHandle.allocate(4096)
        x.view(np.float32, (2, 4))[...] = X
        for _ in range(3):
            y.view(np.uint8, (4096,))[:] = 255
            outputs, _ = executor.run_timed({"x": x}, {"y": y})
            assert outputs["y"].shape == (8,)
            assert np.shares_memory(outputs["y"], y.array)
            assert not outputs["y"].any() and y.view(np.uint8, (4096,))[32:].all()
        outputs, _ = executor.run_timed({"x": x})
        assert outputs["y"].shape == (8,)
        outputs, _ = executor.run_timed({"x": X}, {"y": y})
        assert np.shares_memory(outputs["y"], y.array)
        assert (client.requests["register_memory"], executor.copied_bytes) == (2, 0)
        with pytest.raises(MemoryInUse, match="registered at target unix:"):
            x.close()
        executor.release(x)
        x.close()
        executor.close()
        y.close()
        assert client.status().memory_bytes == 0


def test_the_example_of_the_documentation_runs(shared_local: Server, context: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "memory.md"
    section = page.read_text(encoding="utf-8").split("\n## Between processes and to a local server\n")[1]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    code = code.replace("/run/user/1000/gputune.socket", shared_local.host.removeprefix("unix:"))
    exec(code.replace("model.bin", str(context)), names)
    assert names["outputs"]["y"].shape == (8,)
    assert names["executor"].copied_bytes == 0


def test_net_run_shares_its_memory_with_a_local_target(
    shared_local: Server, shared_server: Server, folder: Path, context: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "x.raw").write_bytes(X.tobytes())
    (folder / "list.txt").write_text(f"x:={folder / 'x.raw'}\n" * 3)

    def net_run(target: str) -> Ran:
        options = ["--retrieve_context", context, "--input_list", folder / "list.txt", "--output_dir", folder / "out"]
        more = ["--shared_buffer", "--target", target, "--summary_json", folder / "run.json"]
        return Gputune(capfd)("net-run", *options, *more)

    done = net_run(shared_local.host)
    assert done.code == 0, done.err
    assert (folder / "out" / "Result_2" / "y.raw").read_bytes() == bytes(32)
    summary = json.loads((folder / "run.json").read_text())
    assert (summary["copied_bytes"], summary["target"], len(summary["round_trip_ns"])) == (0, shared_local.host, 3)
    done = net_run(f"{shared_server.host}:{shared_server.port}")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--shared_buffer: a target over TCP does not share this machine's memory" in done.err


def test_memory_is_registered_again_after_a_lost_connection(folder: Path, launch_server: Launch, context: Path) -> None:
    path = folder / "socket"
    server = launch_server("--unix", str(path))
    with server.connect() as client:
        executor = RemoteExecutor(client, context, None, strict=True)
        x, y = MemHandle.allocate(32), MemHandle.allocate(32)
        executor.run_timed({"x": x}, {"y": y})
        server.process.kill()
        server.process.wait(PATIENCE_SECONDS)
        launch_server("--unix", str(path))
        executor.run_timed({"x": x}, {"y": y})
        assert client.requests["register_memory"] == 4


def test_a_worker_that_is_started_again_gets_the_memory_again(shared_local: Server, context: Path) -> None:
    with shared_local.connect() as client:
        executor = RemoteExecutor(client, context, None, strict=True)
        x, y = MemHandle.allocate(32), MemHandle.allocate(32)
        for _ in range(3):
            y.array[:] = 255  # type: ignore[index]
            executor.run_timed({"x": x}, {"y": y})
            assert not y.array.any()  # type: ignore[union-attr]
            (worker,) = shared_local.children()
            os.kill(worker, signal.SIGKILL)
            assert gone(worker)
        assert client.requests["register_memory"] == 2


def test_what_does_not_fit_is_told_by_name(shared_local: Server, context: Path) -> None:
    with shared_local.connect() as client:
        executor = RemoteExecutor(client, context, None, strict=True)
        x, y, small = MemHandle.allocate(32), MemHandle.allocate(32), MemHandle.allocate(31)
        for inputs, outputs, words in (
            ({"x": small}, {}, "'x' needs memory of 32 bytes"),
            ({"x": x}, {"y": small}, "'y' needs memory of 32 bytes"),
            ({"x": x}, {"z": y}, "has no output 'z'"),
            ({"x": x, "z": y}, {}, "has no input 'z'"),
            ({}, {"y": y}, "needs the input 'x'"),
            ({"x": x}, {"y": x}, "would share memory"),
        ):
            with pytest.raises(TargetError, match=words) as caught:
                executor.run_timed(inputs, outputs)
            assert caught.value.name == "bad_message"
        with pytest.raises(UnusableMemory, match="has no descriptor"):
            executor.run_timed({"x": MemHandle.from_array(X.copy())})
        executor.run_timed({"x": x}, {"y": y})


def test_memory_that_is_given_up_is_not_found_any_more(shared_local: Server, context: Path) -> None:
    with shared_local.peer() as peer, closing_fd(memfd()) as fd:
        restarts = peer.ask(Status()).worker_restarts
        buffer = peer.upload(context.read_bytes())
        loaded = peer.ask(LoadContext(buffer, "", True)).context
        for _ in range(20):  # given up while inferences on it wait, or are under way
            memory = peer.reply(peer.send(RegisterMemory(32, 0), descriptors=[fd])).memory
            for _ in range(5):
                peer.send(ExecuteContext(loaded, {}, {"x": memory}))
            peer.send(FreeBuffers((memory,)))
            names = set()
            for _ in range(6):
                _, message = peer.receive()
                while isinstance(message, Progress):
                    _, message = peer.receive()
                names.add(message.name if isinstance(message, Error) else type(message).__name__)
            assert names <= {"Done", "ContextExecuted", "unknown_memory", "unusable_memory"}
            with pytest.raises(Refused, match="unknown_memory"):
                peer.ask(ExecuteContext(loaded, {}, {"x": memory}))
    with shared_local.peer() as peer:  # handles are of their connection
        with pytest.raises(Refused, match="unknown_buffer"):
            peer.ask(FreeBuffers((memory,)))
        assert peer.ask(Status()).worker_restarts == restarts


def test_many_handles_come_and_go(shared_local: Server, context: Path) -> None:
    with shared_local.connect() as client:
        executor = RemoteExecutor(client, context, None, strict=True)
        executor.run_timed({"x": X})
        (worker,) = shared_local.children()  # which may have been started anew: an earlier test killed one
        before = descriptors(shared_local.process.pid), descriptors(worker)
        for _ in range(100):
            executor.run_timed({"x": MemHandle.allocate(32)}, {"y": MemHandle.allocate(32)})
        during = descriptors(shared_local.process.pid), descriptors(worker)
        assert during[0] - before[0] <= 16
        executor.close()
        assert becomes(lambda: descriptors(shared_local.process.pid) <= before[0] and descriptors(worker) <= before[1])


def test_over_tcp_memory_is_refused_by_name(client: TargetClient, peer: Peer) -> None:
    with pytest.raises(TargetError, match=r"use --target unix:PATH \[not_on_this_connection\]"):
        client.register_memory(MemHandle.allocate(32))
    with pytest.raises(Refused, match="not_on_this_connection"):
        peer.ask(RegisterMemory(32, 0))
    assert peer.ask(Ping()) == Pong()


# --- whose it is --------------------------------------------------------------------------------------


OTHER_USER = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
"""What cannot be run otherwise is simulated by the tests of a user whose number is another one."""

WAYS: dict[str, Callable[[str], Any]] = {
    "a session": lambda address: TargetClient.connect(address, 0),
    "--target": lambda address: choose_target(address, {}).connect(),
    "TARGET_SERVER_SOCKET": lambda address: choose_target(None, {"TARGET_SERVER_SOCKET": address}).connect(),
    "a probe": lambda address: probe(address, 0, PATIENCE_SECONDS),
}
LISTENING = f"""
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
os.setuid({OTHER_USER})
listening.listen()
print("listens", flush=True)
while True:
    print(len(listening.accept()[0].recv(1 << 16)), flush=True)
"""
CONNECTING = f"""
import os, sys
from gputune.client.doctor.target import check_target
from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
TargetClient.connect(sys.argv[1], 0).close()  # so that all modules are loaded, which others may not read
os.setuid({OTHER_USER})
try:
    TargetClient.connect(sys.argv[1], 0).close()
except TargetError as error:
    sys.exit(str(error))
"""


def of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process one of another user than all that it is connected with."""
    monkeypatch.setattr(peers, "ROOT", -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)


def test_each_side_goes_on_with_its_own_user_and_root_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert [user for user in (0, 1, 999, 1000, 1001, OTHER_USER) if not peers.Peer(1, user).stranger] == [0, 1000]


def test_only_the_servers_own_user_and_root_are_served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(path=folder / "socket", worker=works) as (_, address):
        with Peer(address) as peer:
            assert peer.ask(Ping()) == Pong()
        of_another_user(monkeypatch)
        with pytest.raises(Refused, match="serves that user and root only") as caught:
            Peer(address)
        assert caught.value.name == "wrong_user"


@pytest.mark.parametrize("way", WAYS)
def test_only_servers_of_the_own_user_and_root_hear_a_word(
    folder: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        listening.listen()
        of_another_user(monkeypatch)
        with pytest.raises(TargetError, match=rf"process {os.getpid()} of user {os.getuid()} listens there") as caught:
            WAYS[way](f"unix:{folder / 'socket'}")
        assert (caught.value.name, caught.value.exit_code) == ("wrong_user", 4)
        with listening.accept()[0] as heard:
            assert heard.recv(1) == b""


@AS_ROOT
def test_a_client_refuses_a_server_of_another_user(folder: Path) -> None:
    address = f"unix:{folder / 'socket'}"
    command = [sys.executable, "-c", LISTENING, str(folder / "socket")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "listens\n"
        for connect in WAYS.values():
            with pytest.raises(TargetError, match=f"of user {OTHER_USER} listens there") as caught:
                connect(address)
            assert caught.value.name == "wrong_user"
            assert process.stdout.readline() == "0\n", "nothing is said to it"
        *_, problem = check_target(address, "a test", lambda: WAYS["a session"](address))
        assert problem.status == "problem" and "[wrong_user]" in problem.line and "XDG_RUNTIME_DIR" in problem.advice
        assert process.stdout.readline() == "0\n"
        process.kill()


@AS_ROOT
def test_a_server_refuses_a_client_of_another_user(shared_local: Server) -> None:
    path = Path(shared_local.host.removeprefix("unix:"))
    path.parent.chmod(0o711)
    path.chmod(0o666)
    command = [sys.executable, "-c", CONNECTING, shared_local.host]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert f"this server is of user 0, and serves that user and root only, not user {OTHER_USER}" in ended.stderr
    assert ended.stderr.endswith("[wrong_user]\n")
    with shared_local.connect() as client:
        client.ping()


def test_turns_on_local_sockets_are_shared_between_users() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        arrival = LocalArrival(ours)
        assert arrival.tenant(None) == arrival.address == f"user {os.getuid()}"
        assert arrival.name == f"process {os.getpid()} of user {os.getuid()}"
        arrival.close()


@pytest.mark.parametrize(
    ("sent", "left", "words"), [(1, 0, "cannot open another file descriptor"), (3, 9, "more than one descriptor")]
)
def test_descriptors_that_are_cut_off_end_the_connection_with_the_reason(sent: int, left: int, words: str) -> None:
    """The system cuts them off where the server has no descriptor left, and where there is no place for so many."""
    before = own_descriptors()
    ours, theirs = socket.socketpair()
    with theirs, closing_fd(memfd()) as fd:
        arrival = LocalArrival(ours)
        socket.send_fds(theirs, [b"x"], [fd] * sent)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[0] if left else 0, limits[1]))
        try:
            assert arrival._descriptors.recv_into(bytearray(1)) == 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert arrival._descriptors.truncated
        with pytest.raises(RemoteProtocolError, match=words) as caught:
            arrival.paired([(1, RegisterMemory(32, 0))], between_frames=True)
        assert caught.value.name == "bad_descriptor"
        arrival.close()
    assert own_descriptors() <= before
