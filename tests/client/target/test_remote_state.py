"""Test what a client sends for a state on a target, and how it ends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.server.protocol.messages import (
    ContextExecuted,
    ExecuteContext,
    FreeStates,
    OpenState,
    ReadState,
    ResetState,
    StateReady,
)
from tests.client.fake_target import HANG_UP, FakeTarget, plain_answer
from tests.native.fake import ELEMENTS, NBYTES
from tests.native.stateful import CAPACITY, stateful_context

from .asking import connect

X = np.zeros((1, ELEMENTS), np.float32)
DATA = X.tobytes()


@pytest.fixture
def load(target: FakeTarget, tmp_path: Path) -> Callable[[TargetClient], RemoteExecutor]:
    """Return a graph of a target that keeps states, and gives outputs of zeros."""
    target.server["states"] = True
    outputs: dict[str, Any] = {"y": DATA, "twice the length": bytes(4)}

    def answer(connection: int, request: Any) -> Any:
        if isinstance(request, OpenState):
            return StateReady(1000 * connection + len(target.heard), 2 * 2 * NBYTES)
        return ContextExecuted(outputs, 5) if isinstance(request, ExecuteContext) else plain_answer(connection, request)

    target.answer = answer
    path = stateful_context(tmp_path / "a.bin", {"one": 1})
    return lambda client: RemoteExecutor(client, path, None, strict=False)


def asked_of(target: FakeTarget, connection: int) -> list[Any]:
    """Return what was asked of a context and its states."""
    kinds = (ExecuteContext, OpenState, ResetState, ReadState, FreeStates)
    return [request for request in target.requests(connection) if isinstance(request, kinds)]


def test_a_step_sends_what_is_not_the_states_and_where_it_is(target: FakeTarget, load: Any) -> None:
    """A rewind sends nothing, and a copy begins where its state was rewound to."""
    with connect(target) as client:
        executor = load(client)
        state = executor.open_state()
        for _ in range(3):
            executor.step_timed(state, {"x": X})
        state.rewind(1)
        copy = state.copy()
        executor.step_timed(copy, {"x": X})
        assert (copy.length, state.length, state.capacity, state.nbytes) == (2, 1, CAPACITY, 2 * 2 * NBYTES)
        state.reset()
        executor.step_timed(state, {"x": X})
        with pytest.raises(ValueError, match="a state of 1 rows cannot be rewound to 2"):
            state.rewind(2)
        state.close()
        one, other = state.there.handle, copy.there.handle
    steps = [(one, 0), (one, 1), (one, 2), (other, 1), (one, 0)]
    opened = [request for request in asked_of(target, 1) if not isinstance(request, ExecuteContext)]
    executed = [request for request in asked_of(target, 1) if isinstance(request, ExecuteContext)]
    assert executed == [ExecuteContext(1001, {"x": DATA}, state=handle, length=length) for handle, length in steps]
    assert opened == [OpenState(1001), OpenState(1001, one), ResetState(one), FreeStates((one,))]


def test_a_state_is_lost_with_its_connection_which_is_said_in_a_line(target: FakeTarget, load: Any) -> None:
    with connect(target) as client:
        executor = load(client)
        state, answer = executor.open_state(), target.answer
        target.answer = lambda connection, request: HANG_UP if connection == 1 else answer(connection, request)
        for act in (lambda: executor.step_timed(state, {"x": X}), state.reset, state.copy, lambda: read(state)):
            with pytest.raises(TargetError, match="the state is lost with its connection") as lost:
                act()
            assert lost.value.name == "unknown_state" and "\n" not in str(lost.value)
        state.close()
        another = executor.open_state()
        executor.step_timed(another, {"x": X})
    assert [type(request) for request in asked_of(target, 2)] == [OpenState, ExecuteContext]


def read(state: Any) -> Any:
    return state.read("a", "float32", (CAPACITY, ELEMENTS // CAPACITY))


@pytest.mark.parametrize("told", [None, False, 0, ""])
def test_an_older_target_is_not_asked_for_a_state(target: FakeTarget, load: Any, told: object) -> None:
    del target.server["states"]
    if told is not None:
        target.server["states"] = told
    with connect(target) as client:
        executor = load(client)
        with pytest.raises(TargetError, match="keeps no states, because it is older") as refused:
            executor.open_state()
        assert refused.value.name == "no_states" and "\n" not in str(refused.value)
    assert asked_of(target, 1) == []
