"""Test with made-up workers that several compile while nothing is measured, and a measurement has the device alone."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gputune.core.batches import Compiled, Profiled, ProfileKernel
from gputune.core.launches import Variant
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.server.clients.perf_profiles import PerfProfiles
from gputune.server.clients.service import Service
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Cancel, CompileKernel, Error, UploadBuffer
from gputune.server.worker.link import PutBuffer
from gputune.server.workers import pool
from gputune.server.workers.compiled_programs import CompiledPrograms
from gputune.server.workers.pool import WORKERS_AT_MOST, Workers, most_compilers
from gputune.server.workers.process import DeviceUnavailable, OnProgress
from gputune.server.workers.supervisor import Supervisor
from tests.server.conftest import batch_of, launch_of
from tests.server.workers.fake_worker import OK, FakeWorker
from tests.waiting import PATIENCE_SECONDS

Make = Callable[..., Any]
LIMITS = Limits()


class Client:
    """What a client is told, by request."""

    def __init__(self, tenant: str = "here") -> None:
        self.tenant = tenant
        self.told: dict[int, Any] = {}

    def send(self, message: Any, request_id: int) -> None:
        self.told[request_id] = message

    def cost(self, request_id: int) -> int:
        return 0


@asynccontextmanager
async def serving(service: Service, workers: Workers) -> AsyncIterator[None]:
    """Run a service."""
    running = asyncio.ensure_future(service.serve())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await workers.stop()


class Hall:
    """A service with workers that take a moment for everything, and do as `acts` says for a build option.

    running: what they do now; together: what they did whenever something began; order: what was done; further_start:
    whether further processes can be started.
    """

    def __init__(self, at_most: int, acts: dict[str, Callable[[FakeWorker], Any]] | None = None, **how: Any) -> None:
        self.acts = acts or {}
        self.started: list[FakeWorker] = []
        self.running: list[type] = []
        self.together: list[tuple[type, ...]] = []
        self.order: list[str] = []
        self.further_start = True
        first, more = Supervisor(self._start, LIMITS), lambda: Supervisor(self._start_further, LIMITS)
        self.workers = Workers(first, more, at_most, **how)
        self.service = Service(self.workers, LIMITS, None, PerfProfiles(NULL_REPORT.identity))  # type: ignore[arg-type]
        self._numbers = itertools.count(1)

    async def _start(self) -> FakeWorker:
        self.started.append(FakeWorker(self._behave))
        return self.started[-1]

    async def _start_further(self) -> FakeWorker:
        if not self.further_start:
            raise DeviceUnavailable("no memory")
        return await self._start()

    async def _behave(self, worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        self.running.append(type(message))
        self.together.append(tuple(self.running))
        try:
            await asyncio.sleep(0.02)
            if isinstance(message, ProfileKernel):
                self.order.append("measure")
                return Profiled((OK,) * len(message.variants), 0, b"", None, {}, {})
            options = message.variant.main.options
            self.order.append(options)
            if (act := self.acts.pop(options, None)) is not None:
                act(worker)
                await asyncio.sleep(60)
            return Compiled(options.encode(), 1, 1)
        finally:
            self.running.remove(type(message))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Run the service; all workers end with it."""
        async with serving(self.service, self.workers):
            yield
        assert all(worker.ended.done() for worker in self.started)

    def client(self, tenant: str = "here") -> Client:
        client = Client(tenant)
        self.service.join(client)
        return client

    def ask(self, client: Client, request: Any) -> int:
        number = next(self._numbers)
        self.service.request(client, number, request)
        return number


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.fixture
def program() -> Callable[[int], CompileKernel]:
    return lambda number: CompileKernel(Variant({}, (), launch_of(options=f"-D{number}"), {}), {})


async def test_programs_are_compiled_together_and_no_more_than_allowed(program: Make) -> None:
    hall = Hall(at_most=2)

    async with hall.opened():
        client = hall.client()
        numbers = [hall.ask(client, program(number)) for number in range(9)]
        await until(lambda: all(isinstance(client.told.get(number), Compiled) for number in numbers))
        assert [client.told[number].binary for number in numbers] == [f"-D{n}".encode() for n in range(9)]
        assert hall.order[:3] == ["-D0", "-D1", "-D2"]
    assert max(map(len, hall.together)) == len(hall.started) == 3


async def test_what_measures_is_alone_and_has_its_turn(program: Make) -> None:
    hall = Hall(at_most=3)

    async with hall.opened():
        hall.service._fair_queue._tolerance = 0.0
        builds, measures = hall.client(), hall.client()
        handles = []
        for _ in range(2):
            hall.ask(measures, UploadBuffer(bytes(64)))
            handles.append(list(measures.told.values())[-1].buffer)
        numbers = [hall.ask(builds, program(number)) for number in range(20)]
        await until(lambda: len(hall.order) > 4)
        measured = hall.ask(measures, batch_of(*handles))
        await until(lambda: isinstance(measures.told.get(measured), Profiled))
        assert len(hall.order) < 20, "it waited for all that came before"
        await until(lambda: all(isinstance(builds.told.get(number), Compiled) for number in numbers))
    assert all(len(each) == 1 for each in hall.together if ProfileKernel in each)
    assert max(map(len, hall.together)) == 4


@pytest.mark.parametrize("code", [-signal.SIGSEGV, -signal.SIGABRT])
async def test_a_crash_costs_its_program_and_no_other(program: Make, code: int) -> None:
    hall = Hall(at_most=2, acts={"-D4": lambda worker: worker.die(code)})

    async with hall.opened():
        client = hall.client()
        numbers = [hall.ask(client, program(number)) for number in range(9)]
        await until(lambda: all(isinstance(client.told.get(number), Compiled | Error) for number in numbers))
        errors = [client.told[number] for number in numbers if isinstance(client.told[number], Error)]
        assert [error.name for error in errors] == ["worker_died"] and errors[0] is client.told[numbers[4]]
        assert hall.workers.restarts == 1 and "SIG" in hall.workers.last_restart


async def test_a_process_that_crashed_is_not_replaced_while_something_may_be_measured(program: Make) -> None:
    hall = Hall(at_most=1, acts={"-D1": lambda worker: worker.die(-signal.SIGSEGV)})

    async with hall.opened():
        client = hall.client()
        numbers = [hall.ask(client, program(number)) for number in range(2)]
        await until(lambda: all(isinstance(client.told.get(number), Compiled | Error) for number in numbers))
        assert isinstance(client.told[numbers[1]], Error)
        assert [worker for worker in hall.started if not worker.ended.done()] == hall.started[:1]


async def test_a_hang_is_ended_by_its_limit_while_others_go_on(program: Make) -> None:
    def hangs(worker: FakeWorker) -> None:
        worker.page.begin("building", None, 0.2)

    hall = Hall(at_most=1, acts={"-D0": hangs})

    async with hall.opened():
        client = hall.client()
        numbers = [hall.ask(client, program(number)) for number in range(6)]
        await until(lambda: all(isinstance(client.told.get(number), Compiled) for number in numbers[1:]))
        assert numbers[0] not in client.told or not isinstance(client.told[numbers[0]], Error)
        await until(lambda: isinstance(client.told.get(numbers[0]), Error))
        assert client.told[numbers[0]].name == "worker_timeout"


async def test_without_room_for_more_the_first_worker_does_it_all(program: Make) -> None:
    hall = Hall(at_most=2)
    hall.further_start = False

    async with hall.opened():
        client = hall.client()
        numbers = [hall.ask(client, program(number)) for number in range(6)]
        await until(lambda: all(isinstance(client.told.get(number), Compiled) for number in numbers))
    assert len(hall.started) == 1


async def test_what_the_system_kills_is_compiled_by_another(program: Make) -> None:
    hall = Hall(at_most=1)
    behave = hall._behave

    async def killed(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        if isinstance(message, CompileKernel) and worker is not hall.started[0]:
            worker.die(-signal.SIGKILL)
        return await behave(worker, message, progress)

    hall._behave = killed  # type: ignore[method-assign]

    async with hall.opened():
        client = hall.client()
        numbers = [hall.ask(client, program(number)) for number in range(6)]
        await until(lambda: all(isinstance(client.told.get(number), Compiled) for number in numbers))


async def test_cancelled_ones_end_and_those_of_a_client_that_leaves_are_dropped(program: Make) -> None:
    hall = Hall(at_most=1, acts={"-D0": lambda worker: None})

    async with hall.opened():
        client, other = hall.client(), hall.client()
        first, *rest = [hall.ask(client, program(number)) for number in range(40)]
        await until(lambda: "-D0" in hall.order)
        for number in (first, rest[-1]):
            hall.ask(client, Cancel(number))
        await until(lambda: isinstance(client.told.get(rest[-1]), Error))
        assert client.told[rest[-1]].name == "cancelled"
        hall.service.leave(client)
        mine = hall.ask(other, program(99))
        await until(lambda: isinstance(other.told.get(mine), Compiled))
        assert len(hall.order) < 40


async def test_further_workers_are_ended_when_they_have_nothing_to_do(
    program: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.05)
    hall = Hall(at_most=2)

    async with hall.opened():
        client, numbers = hall.client(), list[int]()
        for _ in range(2):
            numbers.extend(hall.ask(client, program(number)) for number in range(6))
            await until(lambda: all(isinstance(client.told.get(number), Compiled) for number in numbers))
            await until(lambda: [worker.ended.done() for worker in hall.started].count(False) == 1)
            assert not hall.started[0].ended.done()
    assert len(hall.started) == 5


class FullOnce(CompiledPrograms):
    """Counts how often it was emptied while no worker was alive."""

    def __init__(self, after: int) -> None:
        super().__init__(NULL_REPORT)
        self.workers: list[FakeWorker] = []
        self.after = after
        self.emptied = 0

    def full(self) -> bool:
        self.after -= 1
        return self.after == 0

    def empty(self) -> None:
        assert self.workers and all(worker.ended.done() for worker in self.workers)
        self.emptied += 1


async def test_a_full_folder_is_emptied_when_no_worker_uses_it(program: Make) -> None:
    compiled = FullOnce(after=7)
    hall = Hall(at_most=2, compiled=compiled)
    compiled.workers = hall.started

    async with hall.opened():
        client = hall.client()
        hall.ask(client, UploadBuffer(bytes(64)))
        (ready,) = client.told.values()
        batch = batch_of(ready.buffer, ready.buffer)
        numbers = [hall.ask(client, each) for each in (batch, *map(program, range(12)))]
        await until(lambda: all(isinstance(client.told.get(n), Compiled | Profiled) for n in numbers))
        assert compiled.emptied == 1, "also while there is always something to compile"
        last = hall.ask(client, batch)
        await until(lambda: isinstance(client.told.get(last), Profiled))
    assert compiled.emptied == 1
    assert hall.workers.restarts == 0
    firsts = [worker for worker in hall.started if any(isinstance(each, PutBuffer) for each in worker.asked)]
    assert len(firsts) == 2, "its buffers came back"


async def test_no_worker_compiles_into_a_folder_that_is_lost(program: Make) -> None:
    class Lost(CompiledPrograms):
        """Lost until it is emptied, while no worker is alive."""

        gone = False

        @property
        def lost(self) -> bool:
            return self.gone

        def empty(self) -> None:
            assert all(worker.ended.done() for worker in hall.started)
            self.gone = False

    compiled = Lost(NULL_REPORT)
    hall = Hall(at_most=1, compiled=compiled)

    async with hall.opened():
        client = hall.client()
        for turn in range(3):
            number = hall.ask(client, program(turn))
            await until(lambda: isinstance(client.told.get(number), Compiled))  # noqa: B023
            assert (compiled.lost, len(hall.started)) == (False, turn + 1)
            compiled.gone = True


async def test_clients_share_the_time_that_several_workers_give_them(program: Make) -> None:
    hall = Hall(at_most=3)
    spent: dict[Client, float] = {}
    turns = hall.service._fair_queue
    charge = turns.spent

    def noted(client: Any, seconds: float) -> None:
        spent[client] = spent.get(client, 0.0) + seconds
        charge(client, seconds)

    turns.spent = noted  # type: ignore[method-assign,assignment]

    async with hall.opened():
        loop = asyncio.get_running_loop()
        one, other = hall.client(), hall.client()
        began = loop.time()
        asked = [(client, hall.ask(client, program(number))) for number in range(12) for client in (one, other)]
        await until(lambda: all(isinstance(client.told.get(number), Compiled) for client, number in asked))
        assert sum(spent.values()) <= loop.time() - began
        assert 0.5 < spent[one] / spent[other] < 2


@pytest.mark.parametrize(("usable", "most"), [(0.5, 1), (1.5, 1), (2, 2), (1000, WORKERS_AT_MOST)])
def test_there_are_no_more_compilers_than_processors(monkeypatch: pytest.MonkeyPatch, usable: float, most: int) -> None:
    monkeypatch.setattr(pool, "usable_processors", lambda: usable)
    assert 1 <= most_compilers() <= most
