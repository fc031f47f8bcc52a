"""Test the target server's side of an agent's device, on an agent that tests play."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.errors import DeviceNotFound, WrongDevice
from gputune.runtime.context.format import context_of
from gputune.runtime.memory.handles import MemHandle
from gputune.server.agent.agent_connection import LOST, AgentConnection, AgentLost
from gputune.server.agent.backend import AgentBackend, _Numbers
from gputune.server.agent.contexts import AgentContext
from gputune.server.agent.messages import Allocate, Begin, Fill, Free, Greeting, LoadContext, Ran, RunContext
from tests.native.fake import DEVICE, ELEMENTS, NBYTES, doubling_context
from tests.native.test_needs import FEATURE, needing
from tests.server.agent.lying import TOKEN, LyingAgent

Start = Callable[[Mapping[type, Any]], LyingAgent]
VALUES = np.arange(ELEMENTS, dtype=np.float32)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUTUNE_AGENT_TOKEN", TOKEN)
    with contextlib.ExitStack() as stack:
        yield lambda lies: stack.enter_context(closing(LyingAgent(Path("socket"), lies)))


def test_a_number_is_taken_again_only_after_its_free_was_sent() -> None:
    """Else a buffer that another thread has made meanwhile would be freed."""
    numbers = _Numbers()
    first = [numbers.take() for _ in range(5)]
    numbers.given_back.extend(first)
    taken: list[int] = []

    def post(free: Free) -> None:
        assert set(free.handles) == set(first)
        taken.extend(numbers.take() for _ in range(3))

    numbers.free_by(post)
    assert not set(taken) & set(first)
    assert {numbers.take() for _ in range(5)} == set(first)
    numbers.free_by(post)  # there is nothing to free
    assert len(taken) == 3


def test_numbers_whose_free_was_not_sent_are_not_taken_again() -> None:
    numbers = _Numbers()
    lost = numbers.take()
    numbers.given_back.append(lost)

    def post(free: Free) -> None:
        raise AgentLost("the connection has ended")

    with pytest.raises(AgentLost):
        numbers.free_by(post)
    assert numbers.take() != lost


def test_what_is_freed_is_freed_before_its_number_is_used(start: Start) -> None:
    agent = start({})
    with closing(AgentBackend(DEVICE, agent.address, 0)) as backend:
        for _ in range(20):
            backend.fill(backend.allocate(16), 1)
        backend.finish()
    alive: set[int] = set()
    for asked in agent.asked:
        if isinstance(asked, Allocate):
            assert asked.handle not in alive
            alive.add(asked.handle)
        elif isinstance(asked, Free):
            alive -= set(asked.handles)
        elif isinstance(asked, Fill):
            assert asked.spans[0].buffer in alive


@pytest.mark.parametrize("answers", [True, False])
def test_a_worker_whose_agent_is_lost_ends_and_blames_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    endings = iter(["", "" if answers else "it was ended by signal 11"])
    agent = start({Begin: lambda asked: Greeting(next(endings))})
    backend = AgentBackend(DEVICE, agent.address, 0)
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    assert not backend._connection.closed
    backend._connection.close()
    assert backend.lost() and ended == ([LOST] if answers else [])


def test_a_worker_whose_agent_cannot_be_reached_ends(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = AgentBackend(DEVICE, start({}).address, 0)
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    backend._connection.close()

    def unreachable(*_: object, **__: object) -> AgentConnection:
        raise DeviceNotFound("it has ended")

    monkeypatch.setattr("gputune.server.agent.agent_connection.AgentConnection", unreachable)
    assert backend.lost() and ended == [LOST]


def test_the_host_uses_memory_of_handles_only_while_it_may(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory of devices that are not coherent is flushed when that begins and ends."""
    result = VALUES * 8
    agent = start({RunContext: Ran((result.tobytes(),), 1, "launches")})
    using: list[MemHandle] = []
    content: dict[MemHandle, list[tuple[bytes, int]]] = {}

    @contextlib.contextmanager
    def host_access(handle: MemHandle) -> Iterator[None]:
        def note() -> None:
            assert handle._array is not None
            runs = sum(isinstance(asked, RunContext) for asked in agent.asked)
            content.setdefault(handle, []).append((handle._array[:NBYTES].tobytes(), runs))

        using.append(handle)
        note()
        yield
        note()
        using.remove(handle)

    view = MemHandle.view

    def seen(handle: MemHandle, *arguments: Any) -> Any:
        assert handle in using
        return view(handle, *arguments)

    with (
        closing(AgentBackend(DEVICE, agent.address, 0)) as backend,
        MemHandle.allocate(NBYTES) as given,
        MemHandle.allocate(NBYTES) as into,
    ):
        whole = memoryview(doubling_context(tmp_path / "a.bin").read_bytes())
        context = AgentContext(backend, context_of(whole, "a context"), None, True)
        given.view(np.float32, [ELEMENTS])[:] = VALUES
        into.view(np.uint8, [NBYTES])[:] = 7
        monkeypatch.setattr(MemHandle, "host_access", host_access)
        monkeypatch.setattr(MemHandle, "view", seen)
        context.run_timed({"x": given}, {"y": into})
        monkeypatch.undo()
        assert content[given] == [(VALUES.tobytes(), 0), (VALUES.tobytes(), 1)]  # until its bytes have been sent
        assert content[into] == [(b"\7" * NBYTES, 1), (result.tobytes(), 1)]
        context.close()


@pytest.mark.parametrize("reason", ["", "not today"])
def test_an_agent_is_told_which_features_its_device_has_proved(start: Start, tmp_path: Path, reason: str) -> None:
    """Its device is asked like any other; without a proof nothing is sent."""
    agent = start({})
    whole = memoryview(needing(tmp_path / "a.bin").read_bytes())
    with closing(AgentBackend(DEVICE, agent.address, 0)) as backend:
        backend.prove = lambda names: {**dict.fromkeys(names, ""), "half": reason}
        with pytest.raises(WrongDevice, match="half, because not today") if reason else contextlib.nullcontext():
            AgentContext(backend, context_of(whole, "a context"), None, True).close()
    loads = [asked.features for asked in agent.asked if isinstance(asked, LoadContext)]
    assert loads == ([] if reason else [("half", FEATURE)])
