"""Test the supervisor with workers that hang, crash and talk nonsense: made-up workers, and real workers that are
killed.
"""

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputune.core.batches import Profiled, ProfileKernel
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    ContextExecuted,
    ContextLoaded,
    Done,
    Error,
    ExecuteContext,
    LoadContext,
    Progress,
    ResetState,
    StateReady,
)
from gputune.server.sessions.session import Materials
from gputune.server.worker.link import Forget, PutBeside, PutBuffer, PutContext, PutState
from gputune.server.workers.process import DeviceUnavailable, OnProgress
from gputune.server.workers.supervisor import Supervisor
from tests.server.conftest import batch_of

from .fake_worker import OK, Behaviour, FakeWorker, Stage, dies, hangs, hits, works

Make = Callable[..., Any]


@pytest.fixture
def batch() -> ProfileKernel:
    request: ProfileKernel = batch_of(1, 2, ("-D0", "-D1", "-D2"))
    return request


def statuses(reply: Any) -> list[str]:
    assert isinstance(reply, Profiled), reply
    return [trial.status for trial in reply.trials]


# --- made up workers --------------------------------------------------------------------------------------


async def test_a_segfault_costs_one_variant(batch: ProfileKernel) -> None:
    stage = Stage(hits(1, dies(-signal.SIGSEGV)))
    assert statuses(await stage.run(batch)) == ["ok", "crash", "ok"]
    assert len(stage.workers) == 2
    assert stage.supervisor.restarts == 1
    assert "SIGSEGV" in stage.supervisor.last_restart
    (told,) = stage.told
    assert (told.phase, told.variant, told.trial and told.trial.status) == ("recovering", 1, "crash")


async def test_a_hang_costs_one_variant_and_no_more_than_its_limit(batch: ProfileKernel) -> None:
    stage = Stage(hits(2, hangs))
    began = time.monotonic()
    reply = await stage.run(batch)
    assert statuses(reply) == ["ok", "ok", "timeout"]
    message = "launching took longer than 0.2 s (3x the fastest, at least 1.5 s)"
    assert reply.trials[2].message == message
    assert stage.supervisor.last_restart == f"the worker was ended: {message}"
    assert time.monotonic() - began >= 0.2


async def test_no_variant_is_blamed_for_a_line_that_is_lost(batch: ProfileKernel) -> None:
    asked: list[bool] = []

    def reachable() -> bool:
        asked.append(len(asked) > 0)
        return asked[-1]

    stage = Stage(hits(2, hangs), works, reachable=reachable)
    assert statuses(await stage.run(batch)) == ["ok", "ok", "ok"] and asked == [False]
    stage = Stage(hits(2, hangs), works, reachable=reachable)
    assert statuses(await stage.run(batch)) == ["ok", "ok", "timeout"] and asked == [False, True]


async def test_several_culprits_in_one_batch_are_all_found(batch: ProfileKernel) -> None:
    stage = Stage(hits(0, dies(1)), hits(2, hangs), works)
    assert statuses(await stage.run(batch)) == ["crash", "ok", "timeout"]
    assert [len(worker.asked[-1].variants) for worker in stage.workers] == [3, 2, 1]


async def test_a_deadline_counts_from_the_step_and_not_from_the_request(batch: ProfileKernel) -> None:
    async def behave(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        for _ in range(6):
            worker.page.begin("measuring", 0, 0.6)
            await asyncio.sleep(0.2)
        return await works(worker, message, progress)

    stage = Stage(behave)
    assert statuses(await stage.run(batch)) == ["ok", "ok", "ok"]
    assert len(stage.workers) == 1


async def test_what_was_concluded_before_a_death_is_kept(batch: ProfileKernel) -> None:
    async def behave(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        progress(Progress("building", 1, 3, "", 0, replace(OK, status="compile")))
        worker.page.begin("measuring", 1, 30)
        worker.die(-signal.SIGSEGV)
        await asyncio.sleep(60)

    stage = Stage(behave, works)
    assert statuses(await stage.run(batch)) == ["compile", "crash", "ok"]


async def test_what_a_kill_from_outside_hits_is_tried_twice_more(batch: ProfileKernel) -> None:
    kill = hits(1, dies(-signal.SIGKILL))
    stage = Stage(kill, kill, works)
    assert statuses(await stage.run(batch)) == ["ok", "ok", "ok"]
    stage = Stage(kill)
    assert statuses(await stage.run(batch)) == ["ok", "crash", "ok"]
    assert len(stage.workers) == 4


async def test_a_death_before_any_step_ends_in_worker_died_the_second_time(batch: ProfileKernel) -> None:
    async def behave(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        worker.die(-signal.SIGABRT)
        await asyncio.sleep(60)

    stage = Stage(behave)
    reply = await stage.run(batch)
    assert (reply.name, reply.details) == ("worker_died", {"ended_with": "SIGABRT"})
    assert len([worker for worker in stage.workers if worker.ended.done()]) == 2
    stage = Stage(behave, works)
    assert statuses(await stage.run(batch)) == ["ok", "ok", "ok"]


async def test_other_requests_are_tried_again_after_a_kill_only() -> None:
    def dying(number: int) -> Behaviour:
        async def behave(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
            worker.die(-number)
            await asyncio.sleep(60)

        return behave

    request = ExecuteContext(1, {})
    assert isinstance(await Stage(dying(signal.SIGKILL), works).run(request), ContextExecuted)
    twice = await Stage(dying(signal.SIGKILL)).run(request)
    assert (twice.name, twice.details) == ("worker_died", {"ended_with": "SIGKILL"})
    stage = Stage(dying(signal.SIGSEGV), works)
    assert (await stage.run(request)).name == "worker_died"
    assert isinstance(await stage.run(request), ContextExecuted)  # the next one finds a worker


async def test_a_worker_that_says_nothing_is_ended_after_request_seconds() -> None:
    async def silent(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        await asyncio.sleep(60)

    stage = Stage(silent, limits=Limits(request_seconds=1))
    reply = await stage.run(ExecuteContext(1, {}))
    assert (reply.name, reply.details) == ("worker_timeout", {"limit": "request_seconds", "allowed": 1})


@pytest.mark.slow
async def test_a_request_has_a_limit_for_all_its_time(batch: ProfileKernel) -> None:
    async def busy(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        while True:
            worker.page.begin("measuring", 0, 30)
            await asyncio.sleep(0.05)

    for request in (batch, ExecuteContext(1, {})):
        stage = Stage(busy, limits=Limits(total_seconds=1))
        reply = await stage.run(request)
        assert (reply.name, reply.details) == ("worker_timeout", {"limit": "total_seconds", "allowed": 1})
        assert not stage.told  # nothing is tried again


@pytest.mark.slow
async def test_a_kernel_that_writes_on_the_page_gives_itself_no_more_time(batch: ProfileKernel) -> None:
    async def forges(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        worker.page.begin("launching", 1, 10**9)
        await asyncio.sleep(60)

    limits = Limits(compile_seconds=1, launch_seconds=1, request_seconds=1)
    reply = await Stage(forges, works, limits=limits).run(batch)
    assert statuses(reply) == ["ok", "timeout", "ok"]
    assert reply.trials[1].message == "launching took longer than 1 s (limit launch_seconds)"


async def test_a_step_that_began_at_the_last_moment_is_seen(
    batch: ProfileKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop was busy when the deadline passed, and the worker has gone on meanwhile."""

    async def behave(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        worker.page.begin("measuring", 0, 0.2)
        reading, last = worker.page.read, worker.page.read()

        def late() -> Any:
            if time.monotonic_ns() < last.deadline_ns or worker.page.read is reading:
                return last
            worker.page.read = reading  # type: ignore[method-assign]
            worker.page.begin("measuring", 1, 30)
            return last

        worker.page.read = late  # type: ignore[method-assign]
        await asyncio.sleep(0.5)
        return await works(worker, message, progress)

    stage = Stage(behave)
    assert statuses(await stage.run(batch)) == ["ok", "ok", "ok"]
    assert len(stage.workers) == 1


async def test_recovering_is_the_time_without_a_worker(batch: ProfileKernel) -> None:
    hang_ns: list[int] = []

    def hangs_measured(worker: FakeWorker, number: int) -> None:
        began, kill = time.perf_counter_ns(), worker.kill

        def timed(why: str) -> None:
            hang_ns.append(time.perf_counter_ns() - began)
            kill(why)

        worker.kill = timed  # type: ignore[method-assign]
        hangs(worker, number)

    stage = Stage(hits(2, hangs_measured))
    start = stage._start
    starting_ns: list[int] = []

    async def slowly() -> FakeWorker:
        for _ in range(9):
            await asyncio.sleep(0)  # what waits for the lost worker hears of it first, and counts from there
        began = time.perf_counter_ns()
        await asyncio.sleep(0.1 if stage.workers else 0)
        starting_ns.append(time.perf_counter_ns() - began)
        return await start()

    stage.supervisor = Supervisor(slowly, Limits())
    await stage.supervisor.start()
    began = time.perf_counter_ns()
    reply = await stage.run(batch)
    spent_ns = time.perf_counter_ns() - began
    assert starting_ns[1] <= reply.spent_ns["recover"] <= spent_ns - hang_ns[0]


@pytest.mark.parametrize("damaged", [True, False])
async def test_copies_that_may_be_damaged_are_put_there_again(batch: ProfileKernel, damaged: bool) -> None:
    async def damages(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        return replace(await works(worker, message, progress), state={"damaged": {"times": 1.0}} if damaged else {})

    stage, materials = Stage(damages), Materials({1: b"one"})
    for _ in range(2):
        assert statuses(await stage.run(batch, materials)) == ["ok", "ok", "ok"]
    again = [Forget((1,), ()), PutBuffer(1, b"one")] if damaged else []
    assert stage.workers[0].asked == [PutBuffer(1, b"one"), batch, *again, batch]


@pytest.mark.parametrize("by", ["a crash", "a batch that damages"])
async def test_a_state_is_lost_with_what_its_worker_knows(batch: ProfileKernel, by: str) -> None:
    async def damages(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        reply = await works(worker, message, progress)
        return replace(reply, state={"damaged": {"times": 1.0}}) if isinstance(reply, Profiled) else reply

    stage, materials = Stage(damages), Materials(states=(5,))
    assert await stage.run(PutState(5, 1, 0)) == StateReady(5, 64)
    assert await stage.run(PutState(6, 1, 5), materials) == StateReady(6, 64)
    assert await stage.run(ResetState(5), materials) == Done()
    if by == "a crash":
        stage.workers[0].die(-signal.SIGSEGV)
    else:
        await stage.run(batch)
    lost = await stage.run(ResetState(5), materials)
    assert (lost.name, lost.details) == ("unknown_state", {"state": 5})
    assert lost.message == "state 5 is lost with the worker that had it on the device: open another one"
    assert await stage.run(PutState(5, 1, 0)) == StateReady(5, 64)


async def test_what_is_not_needed_makes_room(batch: ProfileKernel) -> None:
    class Small(FakeWorker):
        room = 1

        async def ask(self, message: Any, progress: OnProgress) -> Any:
            if isinstance(message, Forget):
                self.room += len(message.buffers)
            if isinstance(message, PutBuffer):
                if not self.room:
                    return Error("launch_failed", "no memory", {"status": "device_limits"})
                self.room -= 1
            return await super().ask(message, progress)

    stage = Stage(works)
    stage.supervisor = Supervisor(lambda: asyncio.sleep(0, Small(works)), Limits())
    for handle in (1, 2, 1):
        assert statuses(await stage.run(batch, Materials({handle: b"data"}))) == ["ok", "ok", "ok"]
    reply = await stage.run(batch, Materials({3: b"three", 4: b"four"}))
    assert reply.message == "no memory"


@pytest.mark.parametrize("gives_up", [True, False])
@pytest.mark.parametrize("in_a_batch", [True, False])
async def test_a_cancelled_request_is_given_up(
    batch: ProfileKernel, in_a_batch: bool, gives_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputune.server.workers.watchdog.CANCEL_SECONDS", 0.3)

    async def behave(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        worker.page.begin("measuring", 0, 30)
        asyncio.get_running_loop().call_soon(stages[0].cancelled.set_result, None)
        while not (gives_up and worker.page.cancelled):
            await asyncio.sleep(0.01)
        return Error("cancelled", "as wished")

    stages: list[Stage] = []
    stages.append(stage := Stage(behave))
    assert (await stage.run(batch if in_a_batch else ExecuteContext(1, {}))).name == "cancelled"
    assert stage.workers[0].ended.done() != gives_up
    await asyncio.sleep(0)
    assert ("was not given up" in stage.supervisor.last_restart) != gives_up
    assert not stage.told


async def test_a_wish_to_cancel_is_not_left_for_the_next_request(batch: ProfileKernel) -> None:
    async def behave(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        return Error("cancelled", "") if worker.page.cancelled else await works(worker, message, progress)

    stage = Stage(behave)
    await stage.supervisor.start()
    stage.workers[0].page.cancel(True)
    assert statuses(await stage.run(batch)) == ["ok", "ok", "ok"]


async def test_a_replacement_is_started_at_once_and_not_with_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.server.workers.supervisor.LIVED_SECONDS", 0.0)

    stage = Stage(works)
    await stage.supervisor.start()
    stage.workers[0].die(-signal.SIGKILL)
    while len(stage.workers) < 2:
        await asyncio.sleep(0.01)


async def test_a_worker_that_always_dies_at_once_is_not_started_for_ever() -> None:
    stage = Stage(works)
    await stage.supervisor.start()
    stage.workers[0].die(1)
    await asyncio.sleep(0.1)
    assert len(stage.workers) == 1
    assert isinstance(await stage.run(ExecuteContext(1, {})), ContextExecuted)


async def test_a_worker_that_cannot_be_started_again_is_said_and_tried_again(batch: ProfileKernel) -> None:
    stage = Stage(hits(0, dies(1)), None)
    reply = await stage.run(batch)
    assert (reply.name, reply.message) == (
        "device_unavailable",
        "the worker cannot be started again: the cable is out",
    )
    stage._behaviours = (works,)
    assert statuses(await stage.run(batch)) == ["ok", "ok", "ok"]


async def test_a_start_that_is_killed_from_outside_is_tried_again_but_not_for_ever(batch: ProfileKernel) -> None:
    stage = Stage(works)
    starts = 0

    async def start() -> FakeWorker:
        nonlocal starts
        starts += 1
        if starts <= kills:
            raise DeviceUnavailable("it was killed", killed=True)
        return FakeWorker(works)

    stage.supervisor = Supervisor(start, Limits())
    kills = 2
    assert statuses(await stage.run(batch)) == ["ok", "ok", "ok"]
    stage.supervisor, kills = Supervisor(start, Limits()), 10**6
    assert (await stage.run(batch)).name == "device_unavailable"
    assert starts < 10


async def test_a_worker_gets_only_what_it_has_not_yet(batch: ProfileKernel) -> None:
    load = LoadContext(1, "", False)
    materials = Materials({1: b"one", 2: b"two"}, {3: (load, b"three")})

    stage = Stage(hits(1, dies(1)), works)
    await stage.run(batch, materials, programs={"key": b"program"})
    puts = [PutBuffer(1, b"one"), PutBuffer(2, b"two"), PutContext(3, load, b"three")]
    first, second = stage.workers
    assert first.asked == [*puts, PutBeside({}, {"key": b"program"}), batch]
    assert second.asked[:3] == puts
    second.asked.clear()
    await stage.run(batch, materials)
    assert second.asked == [batch]
    stage.supervisor.forget([1, 7], [3])
    stage.supervisor.forget([1], [])
    await stage.supervisor.tidy()
    await stage.supervisor.tidy()
    assert second.asked[1:] == [Forget((1,), (3,))]
    await stage.run(batch, materials)
    assert second.asked[2:] == [puts[0], puts[2], batch]


async def test_a_buffer_that_could_not_be_put_there_is_tried_again(batch: ProfileKernel) -> None:
    stage = Stage(works)
    for _ in range(2):
        assert (await stage.run(batch, Materials({1: b"one", 2: b"too large"}))).name == "launch_failed"
    assert [message.buffer for message in stage.workers[0].asked] == [1, 2, 2]


async def test_a_context_that_was_loaded_is_known(batch: ProfileKernel) -> None:
    load = PutContext(3, LoadContext(1, "", False), b"three")

    stage = Stage(works)
    assert isinstance(await stage.run(load), ContextLoaded)
    await stage.run(ExecuteContext(3, {}), Materials({}, {3: (load.request, b"three")}))
    assert stage.workers[0].asked == [load, ExecuteContext(3, {})]


@pytest.mark.parametrize("nonsense", [Done(), Profiled((), None, b"", None, {}, {}), Progress("running", 0, 0, "")])
async def test_a_worker_that_talks_nonsense_is_ended(batch: ProfileKernel, nonsense: Any) -> None:
    async def behave(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        return nonsense

    stage = Stage(behave)
    assert (await stage.run(batch)).name == "internal_error"
    assert stage.workers[0].ended.done()
