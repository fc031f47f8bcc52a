"""Provide target servers on the null device, and requests that they understand."""

import asyncio
import inspect
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gputune.client.target.client import TargetClient
from gputune.core.batches import ProfileKernel
from gputune.core.launches import Launch, Variant, Work
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport
from gputune.server import logs
from gputune.server.__main__ import main
from gputune.server.clients.listener import Listener
from gputune.server.clients.local_socket import LocalListener
from gputune.server.daemon import Daemon
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Status, StatusReport
from gputune.server.worker.link import WorkerReady
from gputune.server.workers.process import WorkerProcess
from tests.client.contexts import small_context
from tests.waiting import PATIENCE_SECONDS, becomes

from .peer import Peer
from .workers.fake_worker import Behaviour, FakeWorker

SOURCE = "__kernel void copy(__global const float *input, __global float *output) {}"


@dataclass
class Server:
    """A server process; `stderr` is read when it has ended."""

    process: subprocess.Popen[str]
    host: str
    port: int
    lines: list[str] = field(default_factory=list)

    def connect(self) -> TargetClient:
        return TargetClient.connect(self.host, self.port)

    def peer(self, **options: Any) -> Peer:
        return Peer((self.host, self.port), **options)

    def children(self) -> list[int]:
        """The ids of its worker processes."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(path) as file:  # noqa: PTH123
            return [int(number) for number in file.read().split()]


def start(*arguments: str, stdin: int = subprocess.DEVNULL, **environment: str) -> Server:
    where = () if "--unix" in arguments else ("--port", "0")
    process = subprocess.Popen(
        [sys.executable, "-m", "gputune.server", *where, "--device", "null", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if match := re.fullmatch(r"gputune target server listening on (unix:.*) \(device: null\)\n", line):
            return Server(process, match[1], 0, lines)
        if match := re.fullmatch(r"gputune target server listening on (.*):(\d+) \(device: null\)\n", line):
            return Server(process, match[1].strip("[]"), int(match[2]), lines)
    assert process.stderr is not None
    raise AssertionError(f"the server did not start: {process.stderr.read()}")


@contextmanager
def launching() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def launch(*arguments: str, **options: Any) -> Server:
        servers.append(start(*arguments, **options))
        return servers[-1]

    yield launch
    for server in servers:
        end(server)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), PATIENCE_SECONDS))
    return True


@pytest.fixture
def launch_server() -> Iterator[Callable[..., Server]]:
    """Starts servers that are gone when the test is over."""
    with launching() as launch:
        yield launch


def end(server: Server) -> None:
    server.process.terminate()
    try:
        server.process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        server.process.kill()


@pytest.fixture(scope="session")
def _server_of_all() -> Iterator[Server]:
    with launching() as launch:
        yield launch()


@pytest.fixture
def shared_server(_server_of_all: Server) -> Iterator[Server]:
    """Give the server that tests share; the next test finds nothing of this one's."""
    yield _server_of_all
    becomes_idle(_server_of_all.peer())


@pytest.fixture
def client(shared_server: Server) -> Iterator[TargetClient]:
    with shared_server.connect() as client:
        yield client


def launch_of(source: str = SOURCE, **fields: Any) -> Launch:
    values: dict[str, Any] = {
        "entry": "copy",
        "options": "",
        "global_size": (16,),
        "local_size": (4,),
        "arguments": ("input", "output"),
        **fields,
    }
    return Launch(source, **values)


@pytest.fixture
def peer(shared_server: Server) -> Iterator[Peer]:
    with shared_server.peer() as peer:
        yield peer


def batch_of(input_handle: int, reference: int, options: tuple[str, ...] = ("",), **fields: Any) -> ProfileKernel:
    """Return a request for handles of an input and a reference, with one variant per build option."""
    variants = tuple(
        Variant({"N": index}, (), launch_of(options=option), {}, number=index) for index, option in enumerate(options)
    )
    values: dict[str, Any] = {
        "task": "copy",
        "buffers": {"input": input_handle},
        "output_bytes": 64,
        "reference": reference,
        "relative": 1e-3,
        "absolute": 0.0,
        "dtype": "float32",
        "variants": variants,
        "baseline": None,
        "best_ns": 0.0,
        "work": Work(1000, 128),
        "samples": 3,
        "sample_ns": 1000,
        "warm_up_ns": 1000,
        "cold": False,
        "together": True,
        "harvest": True,
        **fields,
    }
    return ProfileKernel(**values)


@contextmanager
def made_up(behave: Behaviour | None) -> Iterator[None]:
    """Start made-up workers, which behave so, instead of processes."""

    async def start(report: DeviceReport, *arguments: object, **environment: str) -> FakeWorker:
        assert behave is not None and report.identity is not None
        worker = FakeWorker(behave)
        worker.ready = WorkerReady(report.identity.to_dict(), "null", {})
        return worker

    with pytest.MonkeyPatch.context() as patch:
        if behave is not None:
            patch.setattr(WorkerProcess, "start", staticmethod(start))
        yield


@contextmanager
def serving(
    limits: Limits | None = None,
    path: Path | None = None,
    host: str = "127.0.0.1",
    worker: Behaviour | None = None,
    report: DeviceReport = NULL_REPORT,
    **options: Any,
) -> Iterator[tuple[Any, tuple[str, int]]]:
    """Give a daemon in a thread of this process, and its address.

    path: of a local socket instead of a port. worker: how made-up workers behave; without it, they are processes.
    report: of the device.
    """
    listener = Listener(host, 0) if path is None else LocalListener(path)
    ready = threading.Event()
    made: list[tuple[Daemon, asyncio.AbstractEventLoop]] = []

    async def serve() -> None:
        daemon = Daemon(listener, report, limits, **options)
        made.append((daemon, asyncio.get_running_loop()))
        await daemon.serve(lambda welcome: ready.set())

    with made_up(worker):
        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        assert ready.wait(PATIENCE_SECONDS)
        daemon, loop = made[0]
        try:
            yield daemon, listener.socket.getsockname()[:2] if path is None else (f"unix:{path}", 0)
        finally:
            loop.call_soon_threadsafe(daemon.stop_now)
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


@pytest.fixture(scope="session")
def _daemon_of_all() -> Iterator[tuple[Daemon, tuple[str, int]]]:
    with serving() as found:
        yield found


@pytest.fixture
def shared_daemon(_daemon_of_all: tuple[Daemon, tuple[str, int]]) -> Iterator[tuple[Daemon, tuple[str, int]]]:
    """Give the daemon in this process that tests share, and its address; the next test finds nothing of this one's."""
    yield _daemon_of_all
    becomes_idle(Peer(_daemon_of_all[1]))


def becomes_idle(peer: Peer) -> None:
    """Wait until a server holds nothing of other clients than this one, and has its worker."""
    with peer:
        peer.ping_until(lambda: is_idle(peer.ask(Status())))


def is_idle(status: StatusReport) -> bool:
    return (status.clients, status.queued, status.running, status.memory_bytes) == (1, 0, "", 0)


def gone(pid: int) -> bool:
    """Whether a process ends."""

    def ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    return becomes(ended)


@pytest.fixture
def failing_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Give a call that starts a server which refuses, and returns its exit code, its line and what it said before."""
    monkeypatch.setattr(logs, "set_up", lambda *_: None)  # it is this process's log, too

    def start(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        said, errors = capsys.readouterr()
        assert errors.startswith("error: ") and errors.count("\n") == 1
        return code, errors, said

    return start


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, as a socket's path must be."""
    with tempfile.TemporaryDirectory(prefix="gputune-") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def _local_server_of_all() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="gputune-") as name, launching() as launch:
        yield launch("--unix", f"{name}/socket")


@pytest.fixture
def shared_local(_local_server_of_all: Server) -> Iterator[Server]:
    """Give the server on a local socket that tests share; the next test finds nothing of this one's."""
    yield _local_server_of_all
    becomes_idle(_local_server_of_all.peer())


@pytest.fixture
def context(folder: Path) -> Path:
    return small_context(folder / "context.bin")
