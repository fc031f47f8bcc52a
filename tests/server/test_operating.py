"""Test how the server is run: a graceful stop, its log, its status, and building while another request is measured."""

import asyncio
import io
import json
import logging
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from gputune.core.batches import ProfileKernel
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.server import logs
from gputune.server.clients.listener import Listener
from gputune.server.daemon import Daemon
from gputune.server.options import LogFormat
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    DownloadBuffer,
    Error,
    FreeBuffers,
    LoadContext,
    Ping,
    Pong,
    Status,
    StatusReport,
    UploadBuffer,
)
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.worker.link import PutBeside, program_key
from gputune.server.workers.compiler import Compiler
from gputune.server.workers.process import WorkerEnded
from tests.server.conftest import batch_of, gone, serving
from tests.waiting import PATIENCE_SECONDS

from .peer import Peer, Refused

pytestmark = pytest.mark.slow  # each starts processes

Make = Callable[..., Any]


# --- the end ----------------------------------------------------------------------------------------------


class Busy:
    """A server whose worker is stopped while it has a request in its hands, with another one behind it."""

    def __init__(self, server: Any) -> None:
        self.server = server
        (self.worker,) = server.children()
        self.peer, self.other = server.peer(), server.peer()
        self.data = self.peer.upload(bytes(64))
        theirs = self.other.upload(bytes(64))
        os.kill(self.worker, signal.SIGSTOP)
        self.running = self.peer.send(batch_of(self.data, self.data))
        self.peer.ask(Ping())
        self.waiting = self.other.send(batch_of(theirs, theirs))
        self.other.ask(Ping())

    def let_go(self) -> None:
        os.kill(self.worker, signal.SIGCONT)

    def stopping(self) -> None:
        """Returns when the server has understood that it is to stop."""
        with pytest.raises(Refused, match="being stopped") as caught:
            self.other.reply(self.waiting)
        assert caught.value.name == "stopping"


def test_a_signal_finishes_the_batch_in_flight(launch_server: Make) -> None:
    """A reply that is large, to a client that is slow to read, is sent to its end."""
    busy = Busy(launch_server())
    slow = busy.server.peer(receive_bytes=4096)
    large = slow.send(DownloadBuffer(slow.upload(b"\x07" * (8 << 20))))
    busy.server.process.send_signal(signal.SIGINT)
    busy.stopping()
    with pytest.raises(ConnectionError):
        busy.server.peer()
    for request in (UploadBuffer(b"new"), LoadContext(busy.data, "", False), batch_of(busy.data, busy.data)):
        with pytest.raises(Refused, match="being stopped"):
            busy.peer.ask(request)
    assert busy.peer.ask(Ping()) == Pong()  # a client that waits is not given up
    assert bytes(busy.peer.ask(DownloadBuffer(busy.data)).data) == bytes(64)
    busy.let_go()
    assert busy.peer.reply(busy.running).best == 0
    assert bytes(slow.reply(large).data) == b"\x07" * (8 << 20)
    assert busy.server.process.wait(PATIENCE_SECONDS) == 0
    assert gone(busy.worker)
    assert busy.server.process.communicate() == ("", "")
    with pytest.raises((EOFError, ConnectionError)):
        busy.other.receive()


def test_a_second_signal_ends_it_at_once(launch_server: Make) -> None:
    busy = Busy(launch_server())
    busy.server.process.send_signal(signal.SIGTERM)
    busy.stopping()
    busy.server.process.send_signal(signal.SIGINT)
    assert busy.server.process.wait(PATIENCE_SECONDS) == 0
    assert gone(busy.worker)
    with pytest.raises((EOFError, ConnectionError)):
        busy.peer.reply(busy.running)


def test_the_end_of_the_parent_ends_it_at_once(launch_server: Make) -> None:
    busy = Busy(launch_server("--exit_with_parent", stdin=subprocess.PIPE))
    busy.server.process.stdin.close()
    assert busy.server.process.wait(PATIENCE_SECONDS) == 0
    assert gone(busy.worker)
    busy.server.process.stdin = None


# --- the log ----------------------------------------------------------------------------------------------


@pytest.mark.own("its log is read")
def test_every_line_of_a_json_log_is_an_object_and_requests_are_counted_by_kind(launch_server: Make) -> None:
    server = launch_server("--log_format", "json", "--log_level", "info")
    with server.peer() as peer:
        data = peer.upload(bytes(64))
        (worker,) = server.children()
        os.kill(worker, signal.SIGSTOP)
        threading.Timer(0.2, os.kill, (worker, signal.SIGKILL)).start()
        assert peer.ask(batch_of(data, data)).best == 0
        peer.ask(FreeBuffers((data,)))
    server.process.terminate()
    _, errors = server.process.communicate(timeout=PATIENCE_SECONDS)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert all(set(line) == {"time", "level", "logger", "message"} for line in lines)
    assert {line["level"] for line in lines} == {"info", "warning"}
    assert ["SIGKILL" in line["message"] for line in lines if line["level"] == "warning"] == [True]
    counted = re.compile(r"connection 1 from 127\.0\.0\.1:\d+ closed after 1 free, 1 profile, 1 upload$")
    assert any(counted.match(line["message"]) for line in lines)


def logged(form: LogFormat) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.FORMATTERS[form])
    log = logging.Logger("test")
    log.addHandler(handler)
    try:
        raise OSError("two\nlines")
    except OSError:
        log.exception("a %s", "defect")
    return stream.getvalue()


def test_a_defect_is_one_line_in_json_with_its_traceback() -> None:
    text = logged("json")
    assert text.count("\n") == 1
    line = json.loads(text)
    assert (line["level"], line["logger"], line["message"]) == ("error", "test", "a defect")
    assert line["traceback"].startswith("Traceback") and "two\nlines" in line["traceback"]
    assert abs(time.time() - datetime.fromisoformat(line["time"]).timestamp()) < 60
    assert logged("text").startswith("ERROR test: a defect\nTraceback")


def test_what_a_worker_prints_is_logged_line_by_line_and_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    lines = logs.LinesToLog(logging.getLogger("gputune.test"))
    lines.data_received(b"half a ")
    assert not caplog.messages
    lines.data_received(b"line\n\nanother \xff\nthe re")
    lines.connection_lost(None)
    assert caplog.messages == ["half a line", "another \ufffd", "the re"]
    caplog.clear()
    lines.data_received(b"y" * 10_000)
    assert [len(message) for message in caplog.messages] == [4096]
    for _ in range(1200):
        lines.data_received(b"again\n")
    lines.data_received(b"no end")
    assert lines._rest == b""
    assert len(caplog.messages) == logs.LINES_AT_MOST - 3
    assert "prints without end" in caplog.messages[-1]


# --- status -----------------------------------------------------------------------------------------------


def test_the_status_says_how_the_server_is(shared_server: Any) -> None:
    with shared_server.peer() as peer:
        before: StatusReport = peer.ask(Status())
        data = peer.upload(bytes(64))
        peer.ask(batch_of(data, data))
        (worker,) = shared_server.children()
        os.kill(worker, signal.SIGSTOP)
        threading.Timer(0.2, os.kill, (worker, signal.SIGKILL)).start()
        peer.ask(batch_of(data, data))
        with shared_server.peer() as other:
            other.upload(bytes(1000))
            status: StatusReport = peer.ask(Status())
            assert (status.clients, status.queued, status.running) == (2, 0, "")
            assert status.memory_bytes >= 1064
        assert status.device["name"] == "null" and status.software.startswith("gputune")
        assert status.worker_restarts == before.worker_restarts + 1
        assert status.last_restart == "the worker ended with SIGKILL"
        assert 0 < before.uptime_seconds < status.uptime_seconds
        peer.ping_until(lambda: peer.ask(Status()).clients == 1)
        requests = Counter(peer.ask(Status()).requests)
        requests.subtract(before.requests)
        assert (requests["upload"], requests["profile"]) == (2, 2)  # those of clients that are gone, too


# --- overlap ----------------------------------------------------------------------------------------------


def test_programs_are_built_while_another_request_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[PutBeside] = []

    def noting(*fields: Any) -> PutBeside:
        put.append(PutBeside(*fields))
        return put[-1]

    monkeypatch.setattr("gputune.server.workers.supervisor.PutBeside", noting)
    with serving(overlap=True) as (daemon, address), Peer(address) as peer, Peer(address) as other:
        data, theirs = peer.upload(bytes(64)), other.upload(bytes(64))
        running = peer.send(batch_of(data, data))
        peer.reply(running)
        worker = daemon._workers.first._worker.pid
        os.kill(worker, signal.SIGSTOP)
        try:
            running = peer.send(batch_of(data, data))
            request: ProfileKernel = batch_of(theirs, theirs, ("-DA", "-DB"))
            waiting = other.send(request)
            peer.ping_until(lambda: any(job.programs for job in daemon.service.waiting()))
        finally:
            os.kill(worker, signal.SIGCONT)
        assert peer.reply(running).best == 0
        assert [trial.status for trial in other.reply(waiting).trials] == ["ok", "ok"]
        assert [set(one.programs) for one in put if one.programs] == [
            {program_key(variant.main) for variant in request.variants}
        ]


def test_a_builder_that_fails_costs_nothing() -> None:
    with serving(overlap=True) as (daemon, address), Peer(address) as peer:
        start, starts = daemon._start_worker, []

        async def failing() -> Any:
            starts.append(1)
            worker = await start()
            worker.kill("a test")
            return worker

        daemon.service.queue_changed.__self__._start = failing
        data = peer.upload(bytes(64))
        numbers = [peer.send(batch_of(data, data)) for _ in range(40)]
        assert [peer.reply(number).best for number in numbers] == [0] * 40
        assert 1 <= len(starts) <= 3


class Building:
    """A worker that builds for ever, or until it is told to give up."""

    def __init__(self, crashes: bool = False) -> None:
        self.page = HeartbeatPage.create()
        self.page.detach()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.killed_for = ""
        self.crashes = crashes
        self.asked = asyncio.Event()

    async def ask(self, message: Any, progress: Any) -> Any:
        self.asked.set()
        if self.crashes:
            raise WorkerEnded(-signal.SIGSEGV)
        while not self.page.cancelled:
            await asyncio.sleep(0.01)
        return Error("cancelled", "as wished")

    def kill(self, why: str) -> None:
        self.killed_for = why


async def test_a_compiler_gives_up_what_is_measured_already_and_pauses_after_crashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gputune.server.workers.compiler.PAUSE_SECONDS", (0.01, 0.02))

    workers = [Building(crashes=True) for _ in range(5)]
    good = Building()
    left: list[Any] = [*workers, OSError(24, "Too many open files"), good]

    async def start() -> Any:
        if isinstance(one := left.pop(0), Exception):
            raise one
        return one

    job = SimpleNamespace(request=batch_of(1, 2), programs=None, sources={})
    waiting = [job]
    compiler = Compiler(start, Limits())
    serving = asyncio.ensure_future(compiler.serve(lambda: waiting))  # type: ignore[arg-type,return-value]
    while not good.asked.is_set():
        await asyncio.sleep(0.005)
        if compiler._building is None:
            job.programs = None  # as if it was another one
            compiler.wake()
    waiting.clear()
    compiler.wake()
    while not good.page.cancelled or compiler._building is not None:
        await asyncio.sleep(0.005)
    assert not good.killed_for and not serving.done()
    serving.cancel()
    await asyncio.wait({serving})
    assert good.killed_for


async def test_a_stop_is_obeyed_while_the_device_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = asyncio.Event()

    async def never(self: Daemon) -> Any:
        opening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Daemon, "_start_worker", never)
    daemon = Daemon(Listener("127.0.0.1", 0), NULL_REPORT)
    serving = asyncio.ensure_future(daemon.serve(lambda welcome: None))
    await opening.wait()
    daemon.stop()
    await asyncio.wait_for(serving, PATIENCE_SECONDS)
