"""Test that a second time is like the first: clients that return, success after failure, things ended or opened twice.

Each test makes an object with a state, of server/, runtime/memory or runtime/backends, do the same twice.
"""

import asyncio
import itertools
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputune.core.batches import Compiled
from gputune.core.errors import BuildFailed, DeviceError, MemoryInUse
from gputune.core.launches import Variant
from gputune.runtime.backends import ProgramCache, open_backend
from gputune.runtime.backends.null import open_device
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.devices.scratch import remove_scratch, scratch_folder
from gputune.runtime.memory.handles import PAGE, MemHandle
from gputune.runtime.memory.passing import Descriptor, DescriptorSocket, WithDescriptor
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server import device_state
from gputune.server.clients.listener import Listener
from gputune.server.clients.local_socket import LocalListener
from gputune.server.clients.perf_profiles import PerfProfiles
from gputune.server.clients.service import Service
from gputune.server.device_state import RecentState
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    BufferReady,
    CompileKernel,
    DownloadBuffer,
    FreeBuffers,
    FreeContexts,
    LoadContext,
    RegisterMemory,
    SetPerfProfile,
    UploadBuffer,
)
from gputune.server.sessions.memory import Memory
from gputune.server.sessions.session import Session
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.worker.link import ProgramsBuilt
from gputune.server.workers import compiler
from gputune.server.workers.pool import Workers
from gputune.server.workers.process import OnProgress, WorkerProcess
from gputune.server.workers.supervisor import Supervisor
from tests.server.conftest import batch_of, launch_of
from tests.server.workers.fake_worker import FakeWorker, works
from tests.server.workers.test_pool import Client, until

from .descriptors import closing_fd, memfd, own_descriptors

LIMITS = Limits()
assert NULL_REPORT.identity is not None
DEVICE = NULL_REPORT.identity


# --- clients ------------------------------------------------------------------------------------------


async def test_a_client_that_comes_back_finds_nothing_of_before() -> None:
    workers: list[FakeWorker] = []

    async def start() -> FakeWorker:
        workers.append(FakeWorker(works))
        return workers[-1]

    service = Service(Workers(Supervisor(start, LIMITS)), LIMITS, None, PerfProfiles(DEVICE))  # type: ignore[arg-type]
    serving, client = asyncio.ensure_future(service.serve()), Client()
    handles: set[int] = set()
    for _ in range(3):
        client.told.clear()
        service.join(client)
        service.request(client, 1, UploadBuffer(b"data"))
        ready = client.told[1]
        assert isinstance(ready, BufferReady)
        for old in handles:
            service.request(client, 2, DownloadBuffer(old))
            assert client.told[2].name == "unknown_buffer"
        handles.add(ready.buffer)
        for number in (3, 4, 3):  # a number that was answered may be used again
            client.told.pop(number, None)
            service.request(client, number, CompileKernel(Variant({}, (), launch_of(), {}), {}))
            await until(lambda: number in client.told)  # noqa: B023
            assert isinstance(client.told[number], Compiled)
        service.request(client, 5, SetPerfProfile(PerfProfile.from_preset("burst").to_dict()))
        await until(lambda: 5 in client.told)
        assert service.perf_profiles.state()["perf_profiles"] == {"burst": 1}
        service.hold_back(client, True)
        service.leave(client)
        assert (service.memory.bytes, service.clients, service.waiting()) == (0, 0, [])
        assert "perf_profiles" not in service.perf_profiles.state()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert len(workers) == 1


def test_a_session_that_was_full_is_not_once_something_is_freed() -> None:
    memory = Memory(1000, 1)
    session = Session(Limits(buffers=1, contexts=1, session_bytes=1000), itertools.count(1), memory)
    with closing_fd(memfd()) as fd:
        for _ in range(2):
            buffer = session.upload(UploadBuffer(bytes(400))).buffer
            with pytest.raises(ProtocolError, match="buffers"):
                session.upload(UploadBuffer(b"1"))
            context, _data = session.reserve_context(LoadContext(buffer, "", True))
            session.context_loaded(context, False)  # it could not be loaded, and can be tried again
            context, _data = session.reserve_context(LoadContext(buffer, "", True))
            session.context_loaded(context, True)
            before = own_descriptors()
            for nbytes, name in ((4096, "limit_exceeded"), (4097, "unusable_memory")):
                with pytest.raises(ProtocolError) as caught:
                    session.register(WithDescriptor(RegisterMemory(nbytes, 0), Descriptor(os.dup(fd))))
                assert caught.value.name == name
            del caught
            assert own_descriptors() <= before
            memory_handle = session.register(WithDescriptor(RegisterMemory(100, 0), Descriptor(os.dup(fd)))).memory
            session.free_buffers(FreeBuffers((buffer, memory_handle)))
            session.free_contexts(FreeContexts((context,)))
            for free in (FreeBuffers((buffer,)), FreeBuffers((memory_handle,))):
                with pytest.raises(ProtocolError, match="unknown_buffer"):
                    session.free_buffers(free)
            assert session.bytes == memory.bytes == 0
        session.upload(UploadBuffer(bytes(400)))
        session.end()
        session.end()
        assert session.bytes == memory.bytes == 0


async def test_a_profile_is_exchanged_and_set_again() -> None:
    profiles = PerfProfiles(DEVICE)
    for name in ("burst", "power_saver", "burst"):
        await profiles.set("client", SetPerfProfile(PerfProfile.from_preset(name).to_dict()))
        assert profiles.state()["perf_profiles"] == {name: 1}
        for _ in range(2):
            async with profiles.voted("client"):
                pass
    for _ in range(2):
        profiles.leave("client")
        await until(lambda: profiles.state() == {})
        profiles.close()


@pytest.mark.parametrize("kind", ["tcp", "local"])
def test_the_same_address_is_listened_on_again(kind: str, folder: Path) -> None:
    port = 0
    for _ in range(2):
        listener = Listener("127.0.0.1", port) if kind == "tcp" else LocalListener(folder / "socket")
        listener.listen()
        where = listener.socket.getsockname()
        with socket.socket(listener.socket.family) as client:
            client.connect(where)
            (arrival,) = listener.accept(1)
            arrival.close()
            arrival.close()
        port = 0 if kind == "local" else where[1]
        listener.close()
        listener.close()
    assert not (folder / "socket").exists()


async def test_a_state_that_could_not_be_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [OSError("gone"), {"load": 1.0}, OSError("gone"), {"load": 2.0}]

    def read() -> dict[str, float]:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer  # type: ignore[no-any-return]

    monkeypatch.setattr("gputune.server.device_state.state.read", read)
    monkeypatch.setattr("gputune.server.device_state.load.read", dict)
    monkeypatch.setattr(device_state, "FRESH_SECONDS", 0.0)

    state = RecentState()
    for load in (1.0, 2.0):
        with pytest.raises(OSError, match="gone"):
            await state.read()
        assert await state.read() == {"load": load}


# --- workers ------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_worker_is_ended_twice_and_another_is_started() -> None:
    for kill in (False, True):
        worker = await WorkerProcess.start(NULL_REPORT, LIMITS)
        if kill:
            worker.kill("a test")
            worker.kill("a second reason")
            assert worker.killed_for == "a test"
        await worker.stop()
        await worker.stop()
        worker.kill("it is dead")
        assert worker.ended.done() and worker.killed_for == ("a test" if kill else "")


def test_a_page_serves_one_request_after_the_other() -> None:
    daemon = HeartbeatPage.create()
    worker = HeartbeatPage(daemon.descriptor)
    for _ in range(2):
        worker.begin("measuring", 7, 30)
        assert (daemon.read().variant, worker.cancelled, worker.to_yield) == (7, False, False)
        daemon.cancel(True)
        daemon.ask_to_yield(True)
        assert worker.cancelled and worker.to_yield
        worker.pause()  # it is cancelled, so that it does not wait
        daemon.accompany(True)
        worker.wait_until_alone()
        assert not daemon.waiting and not daemon.read().paused
        daemon.accompany(False)
        daemon.cancel(False)
        daemon.ask_to_yield(False)
        worker.rest()
        assert daemon.read().step is None
    daemon.detach()


# --- memory -------------------------------------------------------------------------------------------


def test_descriptors_come_with_one_message_after_the_other() -> None:
    ours, theirs = socket.socketpair()
    with theirs, closing_fd(memfd()) as fd, DescriptorSocket.of(ours) as receiving:
        for count in (1, 0, 1):
            socket.send_fds(theirs, [b"x"], [fd] * count)
            assert receiving.recv_into(bytearray(1)) == 1
            arrived, receiving.arrived = receiving.arrived, []
            assert (len(arrived), receiving.truncated) == (count, False)
            for descriptor in arrived:
                descriptor.close()
                descriptor.close()


def test_memory_is_closed_twice_and_had_again() -> None:
    for _ in range(2):
        handle = MemHandle.allocate(PAGE)
        backend = open_device(NULL_REPORT)
        for _again in range(2):
            imported = backend.import_memory(handle)
            with pytest.raises(MemoryInUse):
                handle.close()
            del imported
        handle.close()
        handle.close()


# --- backends -----------------------------------------------------------------------------------------


def test_a_program_that_could_not_be_built_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = open_backend(NULL_REPORT)
    programs, launch = ProgramCache(backend), launch_of()
    working, built = backend._build, []

    def build(source: str, options: str) -> Any:
        built.append(options)
        if len(built) % 2:
            raise BuildFailed("not this time")
        return working(source, options)

    monkeypatch.setattr(backend, "_build", build)
    with pytest.raises(BuildFailed):
        programs.program_for(launch)
    assert not programs.has_program(launch)
    program, _ = programs.program_for(launch)
    assert programs.program_for(launch) == (program, 0) and len(built) == 2


def test_launches_go_together_again_once_each_was_built_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = open_backend(NULL_REPORT)
    programs = ProgramCache(backend)
    launches = [launch_of(options=f"-DN={number}") for number in range(2)]
    real = backend.build

    def build(source: str, options: str) -> Any:
        raise DeviceError("too large together")

    with monkeypatch.context() as failing:
        failing.setattr(backend, "build", build)
        assert programs.build_together(launches) == 0
    assert backend.build == real
    assert programs.build_together(launches) == 1, "it is tried again until all of them were built alone"
    assert all(programs.shares_program(launch) for launch in launches)
    with monkeypatch.context() as failing:
        failing.setattr(backend, "build", build)
        assert programs.build_together(launches) == 0
    for launch in launches:
        assert not programs.program_for(launch)[0].prefix
    assert programs.build_together(launches) == 0, "they are known to work alone, and not together"


def test_a_backend_does_the_same_twice() -> None:
    launch = launch_of()
    times = []
    for _ in range(2):
        backend = open_backend(NULL_REPORT)
        program = backend.build(launch.source, launch.options)
        for _again in range(2):
            buffers = [backend.upload(bytes(64)), backend.allocate(64)]
            bound = backend.bind(program, launch.entry, launch.global_size, launch.local_size, buffers)
            backend.first_launch(bound, lambda: None)
            times.append(backend.time(bound, 3))
            backend.write(buffers[1], b"\1" * 64)
            assert bytes(backend.read(buffers[1])) == b"\1" * 64
    assert len(set(map(str, times))) == 1


def test_a_folder_in_memory_is_removed_twice_and_made_again(folder: Path) -> None:
    if scratch_folder(folder) is None:
        pytest.skip("this file system has no room, or does not run code")
    for _ in range(2):
        made = scratch_folder(folder)
        assert made is not None and made.is_dir()
        remove_scratch(made)
        remove_scratch(made)
        assert not made.exists()


def test_a_builder_pauses_as_after_its_first_failure_once_it_has_built(monkeypatch: pytest.MonkeyPatch) -> None:
    factors: list[float] = []

    class Noted(float):
        def __mul__(self, factor: float) -> float:
            factors.append(factor)
            return 0.0

    monkeypatch.setattr(compiler, "PAUSE_SECONDS", (Noted(1.0), 60.0))
    working = iter([False, False, True, False, True, False])

    async def builds(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        if not next(working):
            worker.die(-signal.SIGSEGV)
        return ProgramsBuilt({})

    async def start() -> FakeWorker:
        return FakeWorker(builds)

    async def run() -> None:
        jobs: list[Any] = [SimpleNamespace(programs=None, request=batch_of(1, 2), sources={}) for _ in range(6)]
        building = compiler.Compiler(start, LIMITS)
        serving = asyncio.ensure_future(building.serve(lambda: [job for job in jobs if job.programs is None]))
        await until(lambda: len(factors) == 4 and jobs[5].programs is not None)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(run())
    assert factors == [1, 2, 1, 1]
