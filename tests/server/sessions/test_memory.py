"""Test the memory of all sessions together: what counts, which request is refused, and that all of it is freed."""

import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.framing import MAGIC
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import DownloadBuffer, LoadContext, Status
from gputune.server.sessions.memory import Memory, UnderWay, sensible_bytes
from tests.server.conftest import batch_of, serving
from tests.server.peer import Peer, Refused
from tests.server.workers.fake_worker import works

Make = Callable[..., Any]
MIB = 1 << 20


def test_what_is_under_way_counts_until_it_is_not() -> None:
    memory = Memory(100, 8)
    one, other = UnderWay(memory), UnderWay(memory)
    for _ in range(2):  # what did not go in counts for nothing
        one.become(60)
        with pytest.raises(ProtocolError) as caught:
            other.become(41)
        assert caught.value.details == {"limit": "total_bytes", "allowed": 100, "got": 101}
        assert memory.bytes == 60
        one.become(10)
        other.become(90)
        one.become(0)
        other.become(0)
        assert memory.bytes == 0


def test_the_default_is_a_share_of_the_memory_that_the_control_group_allows(tmp_path: Path) -> None:
    machine = sensible_bytes(tmp_path / "none")
    (tmp_path / "max").write_text("max\n")
    assert sensible_bytes(tmp_path / "max") == machine > 0
    (tmp_path / "some").write_text("1048576\n")
    assert sensible_bytes(tmp_path / "some") == MIB // 2


def test_sessions_share_the_memory_of_the_server() -> None:
    with serving(Limits(total_bytes=8 * MIB), worker=works) as (_, address), Peer(address) as other:
        assert other.welcome.limits.total_bytes == other.welcome.limits.session_bytes == 8 * MIB
        with Peer(address) as first:
            first.upload(bytes(6 * MIB))
            assert 6 * MIB <= other.ask(Status()).memory_bytes <= 8 * MIB
            with pytest.raises(Refused, match="total_bytes is 8388608") as caught:
                other.upload(bytes(3 * MIB))
            assert caught.value.name == "limit_exceeded"
        with Peer(address) as third:
            third.ping_until(lambda: third.ask(Status()).memory_bytes == 0)
            third.upload(bytes(6 * MIB))


def test_a_frame_counts_when_it_is_announced() -> None:
    with serving(Limits(total_bytes=8 * MIB), worker=works) as (_, address), Peer(address) as other:
        upload = MAGIC + struct.pack("<IIQ", 10, 1, 5 * MIB) + bytes(10)
        with Peer(address) as announcing:
            announcing.socket.sendall(upload)
            other.ping_until(lambda: other.ask(Status()).memory_bytes >= 5 * MIB)
            with Peer(address) as late:
                late.socket.sendall(upload)
                with pytest.raises(Refused, match="total_bytes"):
                    late.reply(1)
        other.ping_until(lambda: other.ask(Status()).memory_bytes == 0)


def test_replies_that_are_not_read_count() -> None:
    with (
        serving(Limits(total_bytes=64 * MIB), worker=works) as (_, address),
        Peer(address) as other,
        ExitStack() as stack,
    ):
        lazy = stack.enter_context(Peer(address, receive_bytes=4096))
        lazy.send(DownloadBuffer(lazy.upload(bytes(16 * MIB))))
        other.ping_until(lambda: other.ask(Status()).memory_bytes > 20 * MIB)
        lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stack.close()
        other.ping_until(lambda: other.ask(Status()).memory_bytes == 0)


def test_a_client_that_leaves_with_requests_leaves_nothing() -> None:
    with serving(Limits(total_bytes=64 * MIB), worker=works) as (_, address), Peer(address) as other:
        for _ in range(3):
            with Peer(address) as leaving:
                data = leaving.upload(bytes(64))
                for _ in range(6):
                    leaving.send(batch_of(data, data))
                    leaving.send(LoadContext(data, "", False))
        other.ping_until(lambda: other.ask(Status()).memory_bytes == 0 == other.ask(Status()).queued)


def test_a_context_that_is_refused_leaves_nothing() -> None:
    with serving(Limits(contexts=1), worker=works) as (_, address), Peer(address) as other:
        with Peer(address) as peer, pytest.raises(Refused, match="no buffer 77"):
            peer.ask(LoadContext(77, "", False))
        other.ping_until(lambda: other.ask(Status()).memory_bytes == 0)


def test_a_refused_upload_is_an_error_of_the_target_with_its_name() -> None:
    with serving(Limits(total_bytes=8 * MIB), worker=works) as (_, address), Peer(address) as first:
        first.upload(bytes(6 * MIB))
        with TargetClient.connect(*address) as client, pytest.raises(TargetError, match="total_bytes") as caught:
            client.upload(bytes(3 * MIB))
        assert caught.value.name == "limit_exceeded"
