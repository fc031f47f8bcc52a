"""Test that a long batch lets others have the device between two variants, with made-up workers and no clock."""

import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gputune.core.batches import Profiled, ProfileKernel
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.server.clients import service as service_module
from gputune.server.clients.perf_profiles import PerfProfiles
from gputune.server.clients.service import Service
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Cancel, Done, Error, Progress, ResetState
from gputune.server.worker import heartbeat_page
from gputune.server.worker.heartbeat_page import Doing, HeartbeatPage
from gputune.server.worker.watcher import YIELDED, LinkWatcher
from gputune.server.workers import watchdog
from gputune.server.workers.pool import Workers
from gputune.server.workers.process import OnProgress
from gputune.server.workers.supervisor import Supervisor
from gputune.server.workers.watchdog import _deadline, watched
from tests.server.conftest import batch_of
from tests.server.workers.fake_worker import OK, FakeWorker
from tests.server.workers.test_pool import Client, serving, until

Make = Callable[..., Any]
LIMITS = Limits()


class Device:
    """A service whose workers take a step of a batch for each one that the test lets them take.

    began: the variants that were begun, by the batch's task and their number; workers: those that were started.
    """

    def __init__(self, most: int = 3) -> None:
        self.steps = asyncio.Semaphore(0)
        self.began: list[str] = []
        self.workers: list[FakeWorker] = []
        self.active = 0
        first = Supervisor(self._start, LIMITS)
        self.all = Workers(first, another=lambda: Supervisor(self._start, LIMITS))
        self.all._others_at_most = most - 1
        self.service = Service(self.all, LIMITS, None, PerfProfiles(NULL_REPORT.identity))  # type: ignore[arg-type]
        self.service._fair_queue._tolerance = 5.0  # what the test itself takes makes no difference
        self._numbers = itertools.count(1)

    async def _start(self) -> FakeWorker:
        self.workers.append(FakeWorker(self._behave))
        return self.workers[-1]

    async def _behave(self, worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        if isinstance(message, ResetState):
            return Done()
        assert isinstance(message, ProfileKernel)
        for number in range(len(message.variants)):
            self.began.append(f"{message.task}{number}")
            self.active += 1
            assert self.active == 1, "a batch has the device alone"
            await self.steps.acquire()
            self.active -= 1
            if worker.page.to_yield and number + 1 < len(message.variants):
                progress(Progress("queued", number, len(message.variants), YIELDED))
                await until(lambda: not worker.page.to_yield or worker.page.cancelled)
            if worker.page.cancelled:
                return Error("cancelled", "as was wished")
        return Profiled((OK,) * len(message.variants), 0, b"", None, {}, {})

    def client(self, tenant: str) -> Client:
        client = Client(tenant)
        self.service.join(client)
        return client

    def ask(self, client: Client, request: Any) -> int:
        number = next(self._numbers)
        self.service.request(client, number, request)
        return number

    async def begun(self, count: int) -> None:
        """Waits until so many variants were begun."""
        await until(lambda: len(self.began) >= count)

    async def begins(self, *variants: str) -> None:
        """Waits until these were begun, in this order and no others."""
        await self.begun(len(variants))
        assert self.began == list(variants)

    def shares(self) -> None:
        """The batch that has the device has had it for a while."""
        for job in self.service._running:
            self.service._fair_queue.spent(job.client, 10.0)
        self.service.share(math.inf)

    def step(self) -> None:
        self.steps.release()


@asynccontextmanager
async def opened(most: int = 3) -> AsyncIterator[Device]:
    device = Device(most)
    async with serving(device.service, device.all):
        yield device


@pytest.fixture
def batch() -> Callable[[str, int], ProfileKernel]:
    """A request of a task with so many variants."""
    empty = {"buffers": {}, "together": False}

    def make(task: str, variants: int) -> ProfileKernel:
        options = tuple(f"-D{task}{number}" for number in range(variants))
        return batch_of(1, 1, options, task=task, **empty)

    return make


@pytest.fixture(autouse=True)
def no_materials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputune.server.sessions.session.Session.buffer", lambda self, handle: memoryview(bytes(64)))


async def test_a_waiting_peer_gets_the_device_between_two_variants(batch: Make) -> None:
    async with opened() as device:
        one, other = device.client("a"), device.client("b")
        long = device.ask(one, batch("a", 3))
        await device.begins("a0")
        short = device.ask(other, batch("b", 1))
        device.shares()
        device.step()
        await device.begins("a0", "b0")
        assert device.service.running == "profile b"
        device.step()
        await device.begins("a0", "b0", "a1")
        assert isinstance(other.told[short], Profiled)
        device.step()
        await device.begins("a0", "b0", "a1", "a2")
        device.step()
        await until(lambda: isinstance(one.told.get(long), Profiled))
        assert len(one.told[long].trials) == 3
        assert len(device.workers) == 2


async def test_what_is_about_a_state_waits_for_a_batch_that_keeps_its_worker(batch: Make) -> None:
    """And nothing else waits for it."""
    async with opened() as device:
        one, other = device.client("a"), device.client("b")
        device.ask(one, batch("a", 3))
        await device.begins("a0")
        device.service._sessions[other]._states[9] = 64
        device.all.first._known.states.add(9)
        reset = device.ask(other, ResetState(9))
        device.shares()
        device.step()
        await device.begins("a0", "a1")
        device.ask(device.client("c"), batch("c", 1))
        device.shares()
        device.step()
        await device.begins("a0", "a1", "c0")
        assert reset not in other.told
        device.step()
        await device.begins("a0", "a1", "c0", "a2")
        device.step()
        await until(lambda: other.told.get(reset) == Done())


async def test_two_parties_share_the_device_although_one_has_ten_clients(batch: Make) -> None:
    async with opened() as device:
        many = [device.client("a") for _ in range(10)]
        other = device.client("b")
        for number, client in enumerate(many):
            device.ask(client, batch(f"a{number}.", 1))
        for number in range(10):
            device.ask(other, batch(f"b{number}.", 1))
        for number in range(20):
            await device.begun(number + 1)
            device.shares()
            device.step()
        assert [name[0] for name in device.began] == ["a", "b"] * 10


async def test_a_batch_goes_on_where_no_other_has_used_less(batch: Make) -> None:
    async with opened() as device:
        one = device.client("a")
        device.ask(one, batch("a", 2))
        device.ask(one, batch("z", 1))
        await device.begins("a0")
        device.shares()
        device.step()
        await device.begins("a0", "a1")


async def test_no_more_batches_wait_than_there_are_workers_for_and_none_for_ever(batch: Make) -> None:
    async with opened(most=2) as device:
        asked = []
        for task in "abcd":
            client = device.client(task)
            asked.append((client, device.ask(client, batch(task, 3))))
        for number in range(12):
            await device.begun(number + 1)
            device.shares()
            device.step()
        await until(lambda: all(isinstance(client.told.get(number), Profiled) for client, number in asked))
        assert len(device.workers) <= 2
        assert sorted(device.began) == sorted(f"{task}{number}" for task in "abcd" for number in range(3))


@pytest.mark.parametrize("how", ["cancels", "leaves", "stops"])
async def test_a_batch_that_waits_can_be_given_up(batch: Make, how: str) -> None:
    async with opened() as device:
        one, other = device.client("a"), device.client("b")
        long = device.ask(one, batch("a", 3))
        await device.begins("a0")
        device.ask(other, batch("b", 1))
        device.shares()
        device.step()
        await device.begins("a0", "b0")
        if how == "leaves":
            device.service.leave(one)
        elif how == "cancels":
            device.ask(one, Cancel(long))
        else:
            device.service.stop()
        await until(lambda: len(device.service._serving) == 1)
        if how != "leaves":
            assert one.told[long].name == {"cancels": "cancelled", "stops": "stopping"}[how]
        device.step()
        await until(lambda: not device.service._serving)
        assert device.began == ["a0", "b0"]
        for client in (other,) if how == "leaves" else (one, other):
            device.service.leave(client)
        assert device.service.memory.bytes == 0


async def test_a_worker_that_dies_while_its_batch_waits_begins_again_in_its_turn(batch: Make) -> None:
    async with opened() as device:
        one, other = device.client("a"), device.client("b")
        long = device.ask(one, batch("a", 2))
        await device.begins("a0")
        device.ask(other, batch("b", 2))
        device.shares()
        device.step()
        await device.begins("a0", "b0")
        device.workers[0].die(-9)
        await until(lambda: len(device.workers) == 3)
        device.step()
        await device.begins("a0", "b0", "b1")
        device.step()
        await device.begins("a0", "b0", "b1", "a0")
        device.step()
        await device.begins("a0", "b0", "b1", "a0", "a1")
        device.step()
        await until(lambda: isinstance(one.told.get(long), Profiled))


async def test_a_batch_that_ends_while_it_waits_leaves_its_worker_free(batch: Make) -> None:
    async with opened(most=2) as device:
        one, other = device.client("a"), device.client("b")
        room = []
        for _ in range(2):
            room.append(device.all.room)
            device.began.clear()
            long = device.ask(one, batch("a", 3))
            await device.begins("a0")
            short = device.ask(other, batch("b", 1))
            device.shares()
            device.step()
            await device.begins("a0", "b0")
            room.append(device.all.room)
            device.ask(one, Cancel(long))
            await until(lambda: isinstance(one.told.get(long), Error))  # noqa: B023
            device.step()
            await until(lambda: isinstance(other.told.get(short), Profiled))  # noqa: B023
        assert room == [True, False, True, False]
        device.began.clear()
        device.ask(one, batch("c", 1))
        await device.begins("c0")
        assert device.all.take(batch("d", 1)) is None, "it waits until the device is free"
        device.step()


async def test_a_batch_has_the_device_for_a_while_before_it_gives_way(batch: Make) -> None:
    async with opened() as device:
        one, other = device.client("a"), device.client("b")
        device.ask(one, batch("a", 2))
        await device.begins("a0")
        device.ask(other, batch("b", 1))
        (job,) = device.service._running
        device.service._fair_queue.spent(one, 10.0)
        device.service.share(job.since + service_module.SLICE_SECONDS / 2)
        assert not device.workers[0].page.to_yield


# --- the page ---------------------------------------------------------------------------------------------


def test_only_a_pause_that_was_wished_stops_the_clock() -> None:
    page = HeartbeatPage.create()
    worker = HeartbeatPage(page.descriptor)
    told: list[Progress] = []

    def send(message: Progress) -> None:  # the daemon hears of it, and has the batch go on
        told.append(message)
        worker._page[heartbeat_page._PAUSED] = 1
        assert page.read().paused
        page.ask_to_yield(False)
        assert not page.read().paused

    watcher = LinkWatcher(worker, LIMITS, send, variants=range(2))
    watcher.yield_device()
    assert not told
    page.ask_to_yield(True)
    watcher.yield_device()
    assert [message.phase for message in told] == ["queued"]
    assert page.read().step == "preparing"
    page.accompany(True)
    page.ask_to_yield(True)
    watcher.yield_device()
    assert len(told) == 1  # somebody compiles for it, beside what others would measure
    page.detach()


async def test_the_time_that_others_have_the_device_is_not_the_batchs(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(LIMITS, request_seconds=LIMITS.total_seconds)
    now, looks = 0.0, 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return now

    async def looked() -> None:
        """Wait until the watchdog has looked twice more."""
        seen = looks
        await until(lambda: looks >= seen + 4)

    async def yields(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        nonlocal now
        for _ in range(2):
            now += limits.total_seconds / 3
            worker.page.ask_to_yield(True)
            worker.page._page[heartbeat_page._PAUSED] = 1
            await looked()
            now += 2 * limits.total_seconds
            await looked()
            worker.page._page[heartbeat_page._PAUSED] = 0
            worker.page.ask_to_yield(False)
            await looked()
        return OK

    worker = FakeWorker(yields)
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(watchdog, "GLANCE_SECONDS", 0.001)
    assert await watched(worker, None, limits, limits.total_seconds) is OK
    assert not worker.killed_for


def test_a_batch_that_waits_misses_no_deadline() -> None:
    assert _deadline(Doing(None, None, 0, 0, paused=True), 0.0, LIMITS) == math.inf
    assert _deadline(Doing(None, None, 0, 0), 0.0, LIMITS) == LIMITS.request_seconds
