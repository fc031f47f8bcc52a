"""Test a second process that compiles half of a batch: it helps, never blocks measuring, and may fail."""

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Trial
from gputune.server.protocol.limits import Limits
from gputune.server.sessions.jobs import Assignment
from gputune.server.sessions.session import Materials
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.worker.link import CompileAhead, CompiledAhead, PutBeside, WorkerReady
from gputune.server.workers import compiler
from gputune.server.workers.compiler import VARIANTS_AT_LEAST, Compiler, with_what_it_took
from gputune.server.workers.process import DeviceUnavailable, OnProgress
from gputune.server.workers.supervisor import Supervisor
from tests.server.conftest import batch_of
from tests.server.workers.fake_worker import FakeWorker, works

WORK = CompileAhead((), {}, {})
TOOK = CompiledAhead((5, 6), (7, 8))
LIMITS = Limits()


@pytest.fixture
def request_of_five() -> ProfileKernel:
    return batch_of(1, 2, tuple(f"-D{n}" for n in range(5)))


@pytest.fixture
def page() -> HeartbeatPage:
    made = HeartbeatPage.create()
    made.detach()
    made.accompany(True)
    return made


def alone(page: HeartbeatPage) -> bool:
    """Whether the page says that nobody else compiles."""
    waiting = threading.Thread(target=page.wait_until_alone, daemon=True)
    waiting.start()
    waiting.join(0.05)
    return not waiting.is_alive()


async def answers(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
    return TOOK


async def hangs(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
    await asyncio.sleep(60)


async def gives_up(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
    while not worker.page.cancelled:
        await asyncio.sleep(0.001)
    return CompiledAhead((5, 0), (7, 0))


class Second:
    """A second compiler whose processes behave so; None: there is none to be had."""

    def __init__(self, behave: Any) -> None:
        self.workers: list[FakeWorker] = []
        self.behave = behave
        self.compiler = Compiler(self._start, LIMITS)

    async def _start(self) -> FakeWorker:
        if self.behave is None:
            raise DeviceUnavailable("the cable is out")
        self.workers.append(FakeWorker(self.behave))
        return self.workers[-1]

    def compile(self, page: HeartbeatPage, over: bool = False) -> CompiledAhead | None:
        async def run() -> CompiledAhead | None:
            done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            if over:
                done.set_result(None)
            return await asyncio.wait_for(self.compiler.compile_half(WORK, page, done), 20)

        return asyncio.run(run())


def test_it_takes_the_second_half_of_batches_that_are_worth_it(request_of_five: ProfileKernel) -> None:
    first_of, variants = Second(answers).compiler.first_of, request_of_five.variants
    assert first_of(request_of_five) == 3
    assert first_of(replace(request_of_five, together=False)) is None
    assert first_of(replace(request_of_five, variants=variants[:4])) == 2
    assert first_of(replace(request_of_five, variants=variants[: VARIANTS_AT_LEAST - 1])) is None


def test_the_worker_is_alone_when_everything_is_compiled(page: HeartbeatPage) -> None:
    assert not alone(page)
    assert Second(answers).compile(page) == TOOK
    assert alone(page)


def test_who_is_waited_for_gives_up_and_says_what_it_took(page: HeartbeatPage) -> None:
    threading.Thread(target=page.wait_until_alone, daemon=True).start()
    assert Second(gives_up).compile(page) == CompiledAhead((5, 0), (7, 0))
    assert alone(page)


@pytest.mark.parametrize("over", [False, True])
def test_who_does_not_give_up_is_ended(page: HeartbeatPage, monkeypatch: pytest.MonkeyPatch, over: bool) -> None:
    monkeypatch.setattr(compiler, "GRACE_SECONDS", 0.05)
    second = Second(hangs)
    if not over:
        threading.Thread(target=page.wait_until_alone, daemon=True).start()
    assert second.compile(page, over) is None
    assert second.workers[0].ended.done() and alone(page)


def test_after_a_failure_it_leaves_out_batches_for_a_while(
    page: HeartbeatPage, request_of_five: ProfileKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = Second(None)
    for pause, first in ((3600.0, None), (0.0, 3)):
        monkeypatch.setattr(compiler, "PAUSE_SECONDS", (pause, pause))
        assert second.compile(page) is None and alone(page)
        assert second.compiler.first_of(request_of_five) == first
    second.behave = answers
    assert second.compile(page) == TOOK
    asyncio.run(second.compiler.stop())
    assert second.workers[0].ended.done()


def test_a_process_that_dies_is_replaced_for_a_later_batch(page: HeartbeatPage) -> None:
    async def dies(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        worker.die(-11)

    second = Second(dies)
    assert second.compile(page) is None and alone(page)
    second.behave = answers
    assert second.compile(page) == TOOK
    assert len(second.workers) == 2


def test_times_are_those_of_who_has_compiled() -> None:
    def trial(compile_ns: int, first_launch_ns: int) -> Trial:
        return Trial("ok", "", (), (), compile_ns, first_launch_ns, {})

    reply = Profiled((trial(1, 1), trial(2, 9), trial(0, 1), trial(3, 3)), 0, b"", None, {}, {})
    told = with_what_it_took(reply, 1, TOOK).trials
    assert told == (trial(1, 1), trial(5, 9), trial(0, 1), trial(3, 3))


def test_a_page_that_never_says_so_holds_nobody_for_ever(page: HeartbeatPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.server.worker.heartbeat_page._COMPANY_SECONDS", 0.05)
    began = time.monotonic()
    page.wait_until_alone()
    assert time.monotonic() - began < 10 and not page.waiting
    monkeypatch.undo()
    page.cancel(True)
    page.wait_until_alone()  # who is cancelled does not wait either


async def test_the_supervisor_has_half_of_a_batch_compiled_and_waits_for_both(request_of_five: ProfileKernel) -> None:
    measured = asyncio.Event()

    async def waits(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        await asyncio.to_thread(worker.page.wait_until_alone)
        measured.set()
        return await works(worker, message, progress)

    async def compiles(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        assert not measured.is_set()
        return CompiledAhead((7, 8), (9, 10))

    second = Second(compiles)
    worker = FakeWorker(waits)
    worker.ready = WorkerReady({}, "fake", {}, finds_compiled=True)

    async def start() -> FakeWorker:
        return worker

    supervisor = Supervisor(start, LIMITS, compiler=second.compiler)
    materials = Materials(buffers={1: b"input", 2: b"reference"}, sources={"hash": "text"})
    work = Assignment(request_of_five, lambda: materials, lambda told: None, asyncio.get_running_loop().create_future())
    reply = await asyncio.wait_for(supervisor.run(work), 20)
    assert isinstance(reply, Profiled) and len(reply.trials) == 5
    (asked,) = second.workers[0].asked
    assert [each.configuration["N"] for each in asked.variants] == [3, 4]
    assert asked.buffers == {"input": 5, "output": 64} and asked.sources == {"hash": "text"}
    assert PutBeside({"hash": "text"}, {}, 3) in worker.asked
    await supervisor.stop()
    assert second.workers[0].ended.done()
