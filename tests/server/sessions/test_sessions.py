"""Test what clients own and wait for: buffers, limits, turns, cancelling, silence, and clients that do not read."""

import itertools
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.core.batches import ProfileKernel
from gputune.core.launches import Launch
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.launches import launches_of
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    BufferData,
    Cancel,
    CompileKernel,
    Done,
    DownloadBuffer,
    ExecuteContext,
    ExecuteKernel,
    FreeBuffers,
    FreeContexts,
    FreeStates,
    LoadContext,
    OpenState,
    Ping,
    Pong,
    Progress,
    ReadState,
    ResetState,
    Status,
    StatusReport,
    UploadBuffer,
)
from gputune.server.sessions.memory import Memory
from gputune.server.sessions.session import Session, memory_of
from tests.server.conftest import batch_of, launch_of, serving
from tests.server.peer import Peer, Refused
from tests.server.workers.fake_worker import Gate, works

pytestmark = pytest.mark.slow  # each starts processes

Make = Callable[..., Any]


# --- a session alone --------------------------------------------------------------------------------------


def session_with(**limits: int) -> Session:
    return Session(Limits(**limits), itertools.count(1), Memory(1 << 40, 8))


def refused(call: Callable[[], object]) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        call()
    return caught.value


def test_handles_belong_to_one_session_and_are_not_used_again() -> None:
    handles = itertools.count(1)
    first, second = (Session(Limits(), handles, Memory(1 << 40, 8)) for _ in range(2))
    one = first.upload(UploadBuffer(b"one")).buffer
    two = second.upload(UploadBuffer(b"two")).buffer
    assert bytes(second.buffer(two)) == b"two"
    assert refused(lambda: second.download(one)).name == "unknown_buffer"
    first.free_buffers(FreeBuffers((one,)))
    assert first.upload(UploadBuffer(b"three")).buffer not in (one, two)


def test_nothing_is_freed_when_one_handle_is_unknown() -> None:
    session = session_with()
    handle = session.upload(UploadBuffer(b"data")).buffer
    assert refused(lambda: session.free_buffers(FreeBuffers((handle, 99)))).details == {"buffer": 99}
    assert bytes(session.buffer(handle)) == b"data"
    assert session.free_buffers(FreeBuffers((handle, handle))) == Done()
    assert session.bytes == 0


def test_all_bytes_of_a_session_are_counted_and_bounded() -> None:
    session = session_with(session_bytes=100)
    handle = session.upload(UploadBuffer(bytes(60))).buffer
    error = refused(lambda: session.upload(UploadBuffer(bytes(41))))
    assert (error.name, error.details) == ("limit_exceeded", {"limit": "session_bytes", "allowed": 100, "got": 101})
    session.hold(40)
    assert refused(lambda: session.hold(1)).name == "limit_exceeded"
    session.release(40)
    assert refused(lambda: session.reserve_context(LoadContext(handle, "", False))).details["got"] == 120
    session.free_buffers(FreeBuffers((handle,)))
    assert session.bytes == 0


def test_the_number_of_buffers_is_limited() -> None:
    session = session_with(buffers=2)
    handles = [session.upload(UploadBuffer(b"x")).buffer for _ in range(2)]
    assert refused(lambda: session.upload(UploadBuffer(b"x"))).details["limit"] == "buffers"
    session.free_buffers(FreeBuffers((handles[0],)))
    session.upload(UploadBuffer(b"x"))


def test_states_are_counted_bounded_and_owned() -> None:
    session, other = session_with(states=2, session_bytes=100), session_with()
    first, second = session.reserve_state(), session.reserve_state()
    assert refused(session.reserve_state).details["limit"] == "states"
    assert refused(lambda: session.materials(ResetState(first))).name == "unknown_state"  # not before it is open
    session.state_opened(first, 60)
    assert refused(lambda: session.state_opened(second, 60)).details["limit"] == "session_bytes"
    assert session.materials(ReadState(first, "past", 60)).states == (first,)
    for request in (ReadState(first, "past", 60), ResetState(first), OpenState(1, first)):
        assert refused(lambda: other.materials(request)).name.startswith("unknown")  # noqa: B023
    assert refused(lambda: session.free_states(FreeStates((first, second)))).details == {"state": second}
    assert (session.bytes, set(session.handles[1])) == (60, {first})
    session.state_opened(session.reserve_state(), None)
    session.free_states(FreeStates((first, first)))
    assert (session.bytes, set(session.handles[1])) == (0, set())


def test_a_context_counts_from_the_request_and_outlives_its_buffer() -> None:
    session = session_with(contexts=1, session_bytes=100)
    buffer = session.upload(UploadBuffer(b"context")).buffer
    load = LoadContext(buffer, "", False)
    handle, _ = session.reserve_context(load)
    assert refused(lambda: session.reserve_context(load)).details["limit"] == "contexts"
    execute = ExecuteContext(handle, {})
    assert refused(lambda: session.materials(execute)).name == "unknown_context"  # not before it is loaded
    session.context_loaded(handle, True)
    session.free_buffers(FreeBuffers((buffer,)))
    assert session.bytes == len(b"context")
    ((request, data),) = session.materials(execute).contexts.values()
    assert (request, bytes(data)) == (load, b"context")
    session.free_contexts(FreeContexts((handle,)))
    assert session.bytes == 0
    assert refused(lambda: session.materials(execute)).details == {"context": handle}


def test_a_context_that_cannot_be_loaded_counts_no_more() -> None:
    session = session_with(contexts=1)
    buffer = session.upload(UploadBuffer(b"nonsense")).buffer
    handle, _ = session.reserve_context(LoadContext(buffer, "", False))
    session.context_loaded(handle, False)
    assert session.bytes == len(b"nonsense")
    session.reserve_context(LoadContext(buffer, "", False))


def test_the_source_used_longest_ago_is_forgotten() -> None:
    session = session_with(sources=2)

    def run(source: str, send: bool) -> ExecuteKernel:
        launch: Launch = launch_of(source)
        request, sources = session.without_sources(
            ExecuteKernel((launch if send else replace(launch, source=""),), {}, {})
        )
        assert sources == {launch.source_sha256: source}
        return request

    run("first", True)
    run("second", True)
    assert run("first", False).launches[0].source == ""  # now second is the older one
    run("third", True)
    run("first", False)
    assert session.bytes == memory_of("first") + memory_of("third")
    error = refused(lambda: run("second", False))
    assert error.name == "unknown_source"
    assert error.details == {"source_sha256": [launch_of("second").source_sha256]}


def test_a_source_is_what_its_hash_says() -> None:
    session = session_with()
    launch = replace(launch_of("one"), source="another")
    assert refused(lambda: session.without_sources(ExecuteKernel((launch,), {}, {}))).name == "bad_message"
    assert session.bytes == 0


def test_each_source_that_a_request_names_is_there_once() -> None:
    session = session_with()
    request: ProfileKernel = batch_of(1, 2, ("-DA", "-DB"))
    launch: Launch = request.variants[0].main
    for asked in (request, replace(request, baseline=replace(request.variants[0], main=replace(launch, source="")))):
        stripped, sources = session.without_sources(asked)
        assert sources == {launch.source_sha256: launch.source}
        assert not any(one.source for one in launches_of(stripped))


def test_a_short_request_cannot_name_more_source_text_than_the_limit() -> None:
    session = session_with(text_bytes=1000)
    launches = [launch_of(f"{number:400}") for number in range(3)]
    for launch in launches:
        session.without_sources(ExecuteKernel((launch,), {}, {}))
    empty = tuple(replace(launch, source="") for launch in launches)
    session.without_sources(ExecuteKernel(empty[:2] * 500, {}, {}))
    error = refused(lambda: session.without_sources(ExecuteKernel(empty, {}, {})))
    assert (error.name, error.details) == ("limit_exceeded", {"limit": "text_bytes", "allowed": 1000, "got": 1200})


def test_memory_for_a_text_is_what_python_takes_at_most() -> None:
    for text in ("", "a" * 5000, "\u00e4" * 100, "\U0001f600" * 1000):
        assert sys.getsizeof(text) <= memory_of(text) <= 4 * sys.getsizeof(text) + 80


# --- sessions of a server ---------------------------------------------------------------------------------


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_buffers_are_freed_in_both_processes_when_a_client_breaks_off(launch_server: Make) -> None:
    server = launch_server()
    (worker,) = server.children()
    with server.peer() as other:
        before = {pid: resident_bytes(pid) for pid in (worker, server.process.pid)}
        peer = server.peer()
        handles = [peer.upload(b"\x01" * (32 << 20)) for _ in range(3)]
        for handle in handles:
            peer.ask(ExecuteKernel((launch_of(),), {"input": handle}, {"output": 64}))
        assert all(resident_bytes(pid) > before[pid] + (90 << 20) for pid in before)
        status: StatusReport = other.ask(Status())
        assert status.memory_bytes >= 96 << 20
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.socket.close()
        other.ping_until(lambda: all(resident_bytes(pid) < before[pid] + (40 << 20) for pid in before))
        assert other.ask(Status()).memory_bytes == 0
    assert server.children() == [worker]


def test_a_client_cannot_use_what_belongs_to_another(shared_server: Any) -> None:
    with shared_server.peer() as one, shared_server.peer() as two:
        mine, theirs = one.upload(bytes(64)), two.upload(b"data")
        assert mine != theirs, "handles are different on all connections"
        for request in (
            DownloadBuffer(mine),
            DownloadBuffer(1 << 60),
            FreeBuffers((theirs, mine)),
            batch_of(mine, mine),
            LoadContext(mine, "", False),
        ):
            with pytest.raises(Refused, match="unknown_buffer"):
                two.ask(request)
        assert bytes(one.ask(DownloadBuffer(mine)).data) == bytes(64)
        assert bytes(two.ask(DownloadBuffer(theirs)).data) == b"data", "it was not freed"


def test_what_was_freed_is_gone_for_a_request_that_waits(shared_daemon: Any) -> None:
    address = shared_daemon[1]
    with Peer(address) as peer:
        data, other, reference = (peer.upload(bytes(64)) for _ in range(3))
        with stopped():
            running, waiting = peer.send(batch_of(data, reference)), peer.send(batch_of(other, reference))
            assert peer.ask(FreeBuffers((other,))) == Done()
        assert peer.reply(running).best == 0
        with pytest.raises(Refused, match="unknown_buffer"):
            peer.reply(waiting)
        assert peer.ask(batch_of(data, reference)).best == 0


def test_more_connections_than_the_limit_are_told_so() -> None:
    with serving(Limits(connections=2), worker=works) as (_, address):
        one, two = Peer(address), Peer(address)
        with pytest.raises(Refused, match="too_many_connections") as caught:
            Peer(address)
        assert caught.value.details["allowed"] == 2
        one.socket.close()

        def there_is_room() -> bool:
            try:
                Peer(address).socket.close()
            except (Refused, AssertionError, ConnectionError):
                return False
            return True

        two.ping_until(there_is_room)
        two.socket.close()


def test_more_open_requests_than_the_limit_are_refused_one_by_one() -> None:
    gate = Gate()
    with serving(Limits(requests=3), worker=gate.behave) as (_, address), Peer(address) as peer:
        data, reference = peer.upload(bytes(64)), peer.upload(bytes(64))
        with gate.closed():
            frames = [batch_of(data, reference) for _ in range(3)]
            numbers = [peer.send(frame) for frame in frames]
            with pytest.raises(ProtocolError, match="requests"):
                peer.send(Ping())
        for number in numbers:
            assert peer.reply(number).best == 0


def workers_here() -> set[int]:
    """Return the workers of the daemon in this process; while one has the device, others may have been started."""
    listed = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    children = {int(number) for numbers in listed for number in numbers}
    return {child for child in children if b"gputune.server.worker" in Path(f"/proc/{child}/cmdline").read_bytes()}


@contextmanager
def stopped() -> Iterator[set[int]]:
    """Stop the daemon's workers meanwhile."""
    workers = workers_here()
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        yield workers
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)


def test_the_daemon_answers_while_the_device_is_busy(shared_daemon: Any) -> None:
    address = shared_daemon[1]
    with Peer(address) as peer, Peer(address) as other:
        data, reference = peer.upload(bytes(64)), peer.upload(bytes(64))
        with stopped():
            number = peer.send(batch_of(data, reference))
            assert peer.ask(Ping()) == Pong()
            assert bytes(peer.ask(DownloadBuffer(data)).data) == bytes(64)
            other.upload(b"mine")
            waiting = other.send(CompileKernel(batch_of(1, 1).variants[0], {"input": 64, "output": 64}))
            status: StatusReport = other.ask(Status())
            assert (status.running, status.queued, status.clients) == ("profile copy", 1, 2)
        assert peer.reply(number).best == 0
        assert other.reply(waiting).binary
        assert other.ask(Status()).running == ""


def test_those_who_wait_are_told_their_place() -> None:
    gate = Gate()
    with serving(Limits(heartbeat_seconds=1), worker=gate.behave) as (_, address):
        peers = [Peer(address) for _ in range(3)]
        numbers = []
        with gate.closed():
            for peer in peers:
                data, reference = peer.upload(bytes(64)), peer.upload(bytes(64))
                numbers.append(peer.send(batch_of(data, reference)))
                peer.ask(Ping())
            for places, peer in enumerate(peers[1:], start=1):
                for _ in range(2):  # when it becomes known, and with the next heartbeat
                    _, progress = peer.receive()
                    assert (progress.phase, progress.total) == ("queued", places)
        for peer, number in zip(peers, numbers, strict=True):
            assert peer.reply(number).best == 0
            peer.socket.close()


def test_requests_that_wait_are_counted_by_what_their_headers_become() -> None:
    gate = Gate()
    with serving(Limits(session_bytes=2_000_000), worker=gate.behave) as (_, address), Peer(address) as peer:
        data, reference = peer.upload(bytes(64)), peer.upload(bytes(64))
        launch = replace(launch_of(), options="", arguments=(1,) * 250)
        with gate.closed():
            running = peer.send(batch_of(data, reference))
            peer.ask(Ping())
            many = [peer.send(ExecuteKernel((launch,) * 50, {}, {})) for _ in range(3)]
            with pytest.raises(Refused, match="session_bytes"):
                peer.reply(many[-1])
            assert 1_000_000 < peer.ask(Status()).memory_bytes < 2_000_000
        assert peer.reply(running).best == 0
        for number in many[:-1]:
            assert peer.reply(number)
        assert peer.ask(Status()).memory_bytes < 10_000


def test_a_waiting_request_can_be_cancelled(shared_daemon: Any) -> None:
    address = shared_daemon[1]
    with Peer(address) as peer, Peer(address) as other:
        data, reference = peer.upload(bytes(64)), peer.upload(bytes(64))
        with stopped():
            first, second = (peer.send(batch_of(data, reference)) for _ in range(2))
            assert peer.ask(Cancel(999)) == Done()  # it may have been answered already
            cancel = peer.send(Cancel(second))
            with pytest.raises(Refused, match="cancelled"):
                peer.reply(second)
            assert peer.reply(cancel) == Done()
            assert other.ask(Status()).queued == 0
        assert peer.reply(first).best == 0


def test_a_running_request_can_be_cancelled_and_the_worker_lives_on(shared_daemon: Any) -> None:
    address = shared_daemon[1]
    with Peer(address) as peer:
        data, reference = peer.upload(bytes(64)), peer.upload(bytes(64))
        peer.ask(batch_of(data, reference))
        with stopped() as workers:
            number = peer.send(batch_of(data, reference, ("-DA", "-DB")))
            peer.ask(Ping())
            assert peer.ask(Cancel(number)) == Done()
        with pytest.raises(Refused, match="cancelled"):
            peer.reply(number)
        assert peer.ask(batch_of(data, reference)).best == 0
        assert workers_here() >= workers


@pytest.mark.own("its one worker is stopped for ever")
def test_a_client_that_is_gone_does_not_keep_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    before = workers_here()
    monkeypatch.setattr("gputune.server.workers.watchdog.CANCEL_SECONDS", 0.2)
    with serving() as (_, address), Peer(address) as other:
        mine, reference = other.upload(bytes(64)), other.upload(bytes(64))
        gone = Peer(address)
        data = gone.upload(bytes(64))
        (worker,) = workers_here() - before
        os.kill(worker, signal.SIGSTOP)  # and it will not even react
        for _ in range(5):
            gone.send(batch_of(data, data))
        gone.ask(Ping())
        gone.socket.close()
        assert other.ask(batch_of(mine, reference)).best == 0
        status: StatusReport = other.ask(Status())
        assert (status.clients, status.queued, status.worker_restarts) == (1, 0, 1)


def test_a_silent_client_is_taken_for_gone_and_one_that_pings_is_not() -> None:
    gate = Gate()
    with serving(Limits(silence_seconds=3), worker=gate.behave) as (_, address), Peer(address) as alive:
        silent = Peer(address)
        silent.upload(bytes(1 << 20))
        data = alive.upload(bytes(64))
        with gate.closed():
            number = alive.send(batch_of(data, data))
            lost = threading.Event()

            def wait() -> None:
                with pytest.raises((EOFError, ConnectionError)):
                    silent.receive()
                lost.set()

            thread = threading.Thread(target=wait)
            thread.start()
            alive.ping_until(lambda: lost.wait(0.1))
            thread.join()
            assert alive.ask(Status()).memory_bytes < 100_000
        assert alive.reply(number).best == 0


def test_a_client_that_does_not_read_is_not_served_further(shared_daemon: Any) -> None:
    daemon, address = shared_daemon
    with Peer(address, receive_bytes=4096) as lazy, Peer(address) as other:
        large = lazy.upload(bytes(4 << 20))
        execute = ExecuteKernel((launch_of(),), {"input": large}, {"output": 4 << 20})
        requests = [execute] * 8 + [DownloadBuffer(large)] * 40  # the first ones wait, and the others block
        frames = [lazy.connection.send(request, number) for number, request in enumerate(requests, start=100)]
        lazy.socket.sendall(b"".join(itertools.chain(*frames)))
        (link,) = (link for link in daemon._links if link.requests["upload"])
        other.ping_until(lambda: link._transport.get_write_buffer_size() > 0)
        data = other.upload(bytes(64))
        for _ in range(5):
            assert other.ask(batch_of(data, data)).best == 0
        assert link._transport.get_write_buffer_size() < 13 << 20  # a reply or two, not forty
        answered: set[int] = set()
        while len(answered) < len(requests):
            number, message = lazy.receive()
            if isinstance(message, Progress):
                continue
            content = message.data if isinstance(message, BufferData) else message.outputs["output"]
            assert memoryview(content).nbytes == 4 << 20
            answered.add(number)


def test_from_a_client_that_does_not_read_nothing_is_read(shared_daemon: Any) -> None:
    address = shared_daemon[1]
    with Peer(address, receive_bytes=4096) as lazy, Peer(address) as other:
        lazy.send(DownloadBuffer(lazy.upload(bytes(16 << 20))))
        lazy.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            for _ in range(8):
                lazy.send(UploadBuffer(bytes(8 << 20)))
        # the buffer, what of it is unread, and one upload that may have begun to arrive with the request before it
        assert 16 << 20 <= other.ask(Status()).memory_bytes <= (16 + 16 + 9) << 20


def test_a_request_that_was_served_counts_no_more(peer: Peer) -> None:
    data = peer.upload(bytes(64))
    peer.ask(batch_of(data, data))
    before = peer.ask(Status()).memory_bytes
    for _ in range(3):
        peer.ask(batch_of(data, data))
    peer.ask(CompileKernel(batch_of(1, 1).variants[0], {"input": 64, "output": 64}))
    assert peer.ask(Status()).memory_bytes == before
