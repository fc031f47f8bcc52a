"""Test descriptors that are unsafe memory or unrequested: named errors, and a server that lives on."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputune.client.target.remote_executor import RemoteExecutor
from gputune.core.errors import UnusableMemory
from gputune.runtime.memory.handles import MemHandle
from gputune.server.protocol.messages import (
    FreeBuffers,
    MemoryReady,
    Ping,
    Pong,
    RegisterMemory,
    Status,
)
from tests.waiting import PATIENCE_SECONDS, becomes

from .conftest import Server
from .descriptors import closing_fd, descriptors, memfd
from .peer import Peer, Refused

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="local sockets that say who connects")
Launch = Callable[..., Server]


def read_only() -> int:
    fd = memfd()
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    finally:
        os.close(fd)


def half_closed_pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


@pytest.mark.parametrize(
    ("make", "nbytes", "offset", "words"),
    [
        (lambda: memfd(seals=0), 4096, 0, "not sealed against shrinking"),
        (lambda: memfd(100), 101, 0, "the descriptor's memory has 100"),
        (lambda: memfd(4096), 4096, 1, "the descriptor's memory has 4096"),
        (lambda: memfd(4096), 1, 2**48, "the descriptor's memory has 4096"),
        (lambda: memfd(seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE), 4096, 0, "cannot be mapped"),
        (read_only, 4096, 0, "cannot be mapped"),
        (lambda: os.open("/", os.O_RDONLY), 4096, 0, "a folder"),
        (lambda: os.open("/dev/zero", os.O_RDWR), 4096, 0, "a character device"),
        (lambda: os.open(__file__, os.O_RDONLY), 64, 0, "a regular file"),
        (lambda: socket.socket(socket.AF_UNIX).detach(), 4096, 0, "a socket"),
        (half_closed_pipe, 4096, 0, "a pipe"),
        (lambda: os.eventfd(0), 4096, 0, "anon_inode"),
    ],
    ids=[
        "unsealed",
        "small",
        "beyond",
        "far",
        "sealed_write",
        "read_only",
        "folder",
        "zero",
        "file",
        "socket",
        "pipe",
        "event",
    ],
)
def test_what_is_no_safe_memory_is_refused_by_name(
    shared_local: Server, make: Callable[[], int], nbytes: int, offset: int, words: str
) -> None:
    before = descriptors(shared_local.process.pid)
    with shared_local.peer() as peer:
        fd = make()
        try:
            with pytest.raises(Refused, match="unusable_memory") as caught:
                peer.reply(peer.send(RegisterMemory(nbytes, offset), descriptors=[fd]))
        finally:
            os.close(fd)
        assert words in str(caught.value)
        assert peer.ask(Ping()) == Pong()
    assert becomes(lambda: descriptors(shared_local.process.pid) <= before)


def test_memory_cannot_be_shrunk_or_closed_under_the_device(shared_local: Server, context: Path) -> None:
    with shared_local.connect() as client, closing_fd(memfd(32)) as fd:
        executor = RemoteExecutor(client, context, None, strict=True)
        x = MemHandle.from_fd(fd, 0, 32)
        executor.run_timed({"x": x})
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
        executor.run_timed({"x": x})
    with shared_local.connect() as client:
        handle = MemHandle.allocate(32)
        os.close(handle.fileno())  # as a program does that mixes up its descriptors
        with pytest.raises(UnusableMemory, match="Bad file descriptor"):
            client.register_memory(handle)
        client.ping()
        os.dup2(0, handle._fd)  # type: ignore[arg-type]  # for the handle's own end


@pytest.mark.slow
def test_the_same_descriptor_a_thousand_times_meets_the_limits(shared_local: Server) -> None:
    before = descriptors(shared_local.process.pid)
    with shared_local.peer() as peer, closing_fd(memfd()) as fd:
        answers: list[Any] = []
        for _ in range(1000):
            try:
                answers.append(peer.reply(peer.send(RegisterMemory(4096, 0), descriptors=[fd])))
            except Refused as refused:
                answers.append((refused.name, refused.details["limit"]))
        assert len([answer for answer in answers if isinstance(answer, MemoryReady)]) == 64
        assert set(answers[64:]) == {("limit_exceeded", "registered")}
        assert peer.ask(Status()).memory_bytes == 64 * 4096
        with shared_local.peer() as second, shared_local.peer() as third:
            for _ in range(64):
                second.reply(second.send(RegisterMemory(4096, 0), descriptors=[fd]))
            with pytest.raises(Refused, match="total_registered"):
                third.reply(third.send(RegisterMemory(4096, 0), descriptors=[fd]))
            first = answers[0].memory
            peer.ask(FreeBuffers((first,)))
            third.reply(third.send(RegisterMemory(4096, 0), descriptors=[fd]))
            with pytest.raises(Refused, match="unknown_buffer"):
                peer.ask(FreeBuffers((first,)))
    assert becomes(lambda: descriptors(shared_local.process.pid) <= before)
    with shared_local.peer() as peer:
        assert peer.ask(Status()).memory_bytes == 0


def test_memory_of_a_client_that_vanishes_is_given_up(shared_local: Server, context: Path) -> None:
    (worker,) = shared_local.children()
    code = (
        "import os, sys; from pathlib import Path\n"
        "from gputune.client.target.client import TargetClient\n"
        "from gputune.client.target.remote_executor import RemoteExecutor\n"
        "from gputune.runtime.memory.handles import MemHandle\n"
        "executor = RemoteExecutor(TargetClient.connect(sys.argv[1], 0), Path(sys.argv[2]), None, True)\n"
        "executor.run_timed({'x': MemHandle.allocate(32)}, {'y': MemHandle.allocate(32)})\n"
        "print(len(os.listdir(f'/proc/{sys.argv[3]}/fd')), flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    before = descriptors(shared_local.process.pid), descriptors(worker)
    command = [sys.executable, "-c", code, shared_local.host, str(context), str(worker)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert ended.returncode == -signal.SIGKILL
    assert int(ended.stdout) > before[1]
    assert becomes(lambda: descriptors(shared_local.process.pid) <= before[0] and descriptors(worker) <= before[1])
    assert shared_local.children() == [worker]


def test_descriptors_that_nothing_asks_for_end_the_connection(shared_local: Server) -> None:
    before = descriptors(shared_local.process.pid)

    def ends(send: Callable[[Peer, int], object]) -> str:
        with shared_local.peer() as peer, closing_fd(memfd()) as fd:
            send(peer, fd)
            with pytest.raises(Refused, match="bad_descriptor") as caught:
                while True:
                    peer.reply(0)
            assert peer.socket.recv(1) == b""
        return str(caught.value)

    assert "asks for none" in ends(lambda peer, fd: peer.send(Ping(), descriptors=[fd]))
    for count in (2, 3, 200):  # the system has no room for the most of them, and says so

        def several(peer: Peer, fd: int, many: int = count) -> None:
            peer.send(RegisterMemory(4096, 0), descriptors=[fd] * many)

        assert "more than one" in ends(several)

    def in_pieces(peer: Peer, fd: int) -> None:
        """With the first byte of a message that asks for none."""
        (whole,) = peer.connection.send(Ping(), 77)
        socket.send_fds(peer.socket, [whole[:1]], [fd])
        peer.socket.sendall(whole[1:])

    assert "asks for none" in ends(in_pieces)
    with shared_local.peer() as peer:
        with pytest.raises(Refused, match="no descriptor has come"):
            peer.ask(RegisterMemory(4096, 0))
        with closing_fd(memfd()) as fd:  # in pieces is as good as at once
            (whole,) = peer.connection.send(RegisterMemory(4096, 0), 78)
            socket.send_fds(peer.socket, [whole[:1]], [fd])
            for byte in bytes(whole[1:]):
                peer.socket.sendall(bytes([byte]))
            assert isinstance(peer.reply(78), MemoryReady)
    with socket.socket(socket.AF_UNIX) as stranger, closing_fd(memfd()) as fd:  # before any hello
        stranger.connect(shared_local.host.removeprefix("unix:"))
        socket.send_fds(stranger, [b"gpt1"], [fd])
        socket.send_fds(stranger, [bytes(3)], [fd])
        assert b"bad_descriptor" in stranger.recv(4096)
    assert becomes(lambda: descriptors(shared_local.process.pid) <= before)
