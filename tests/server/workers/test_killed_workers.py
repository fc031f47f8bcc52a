"""Test real worker processes that are killed: batches, buffers and sources outlive them."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from gputune.server.protocol.messages import (
    Executed,
    ExecuteKernel,
    Progress,
)
from tests.server.conftest import batch_of
from tests.server.peer import Peer
from tests.waiting import becomes

pytestmark = pytest.mark.slow  # each starts processes

Make = Callable[..., Any]


class Killing:
    """Kills a server's worker while it holds a request; the worker is stopped before, so nothing is timed."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def worker(self) -> int:
        assert becomes(self._server.children)
        (worker,) = self._server.children()
        assert isinstance(worker, int)
        return worker

    def replaced(self, worker: int) -> bool:
        return self.worker() != worker

    def soon(self, number: int) -> None:
        worker = self.worker()
        os.kill(worker, signal.SIGSTOP)

        def end() -> None:
            os.kill(worker, number)
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)  # only SIGKILL ends one that is stopped

        threading.Timer(0.2, end).start()


@pytest.fixture
def killing(shared_server: Any) -> Iterator[tuple[Peer, Killing]]:
    with shared_server.peer() as peer:
        yield peer, Killing(shared_server)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_batch_outlives_its_worker_and_so_do_buffers_and_sources(killing: tuple[Peer, Killing], number: int) -> None:
    peer, kill = killing
    data, reference = peer.upload(bytes(64)), peer.upload(bytes(range(64)))
    first = peer.ask(batch_of(data, reference))
    worker = kill.worker()
    kill.soon(number)
    second = peer.ask(batch_of(data, reference))
    assert second.trials[0].samples_ns == first.trials[0].samples_ns
    assert "recovering" in [progress.phase for progress in peer.progress]
    assert kill.worker() != worker


def test_a_worker_that_dies_while_nothing_is_asked_is_back_before_the_next_request(
    killing: tuple[Peer, Killing],
) -> None:
    peer, kill = killing
    data, reference = peer.upload(bytes(64)), peer.upload(bytes(64))
    peer.ask(batch_of(data, reference))
    time.sleep(1.1)  # it has lived long enough to be worth a replacement
    worker = kill.worker()
    os.kill(worker, signal.SIGKILL)
    peer.ping_until(partial(kill.replaced, worker))
    assert peer.ask(batch_of(data, reference)).best == 0


def test_a_daemon_survives_one_death_after_the_other(killing: tuple[Peer, Killing]) -> None:
    peer, kill = killing
    data, reference = peer.upload(bytes(64)), peer.upload(bytes(64))
    options = tuple(f"-DN={number}" for number in range(16))
    for number in (signal.SIGKILL, signal.SIGSEGV):
        worker = kill.worker()
        death = threading.Timer(0.003, os.kill, (worker, number))
        death.start()
        reply = peer.ask(batch_of(data, reference, options, samples=256))
        assert {trial.status for trial in reply.trials} <= {"ok", "crash"}
        assert [trial.status for trial in reply.trials].count("ok") >= 15
        death.join()
        # a young worker that died after its reply is replaced for the next request only
        assert peer.ask(batch_of(data, reference)).best == 0
        assert kill.replaced(worker)


def test_a_worker_that_is_killed_while_it_starts_is_started_once_more(killing: tuple[Peer, Killing]) -> None:
    peer, kill = killing
    launch = batch_of(1, 1).variants[0].main
    kill.soon(signal.SIGKILL)

    def again(progress: Progress) -> None:
        if progress.phase == "recovering":
            kill.soon(signal.SIGKILL)

    executed = peer.ask(ExecuteKernel((launch,), {}, {"input": 64, "output": 64}), again)
    assert isinstance(executed, Executed)
    assert [progress.phase for progress in peer.progress] == ["recovering"]
