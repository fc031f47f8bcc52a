"""Compare what contexts remember over many steps with onnxruntime, whose outputs are given back to it by hand."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from gputune.core.errors import ContextClosed, LimitExceeded
from gputune.runtime.application.context import Context, load
from gputune.runtime.application.states import State
from gputune.runtime.loading.groups import load_group
from tests.opencl.conftest import KernelBench
from tests.opencl.stateful import FIXED_STATE, WORDS, cell, decoder, growing, lstm, write

pytestmark = pytest.mark.long("who runs decoders and recurrent models: no other test runs states on a device")
FEWER, CAPACITY = 24, 40
FAR = 1e-5
RANDOM = np.random.default_rng(5)
TOKENS = RANDOM.integers(0, WORDS, (1, CAPACITY))


class ByHand:
    """Gives a model in onnxruntime its own outputs back. state: what it remembers, by the names of inputs."""

    def __init__(self, model: onnx.ModelProto, pairs: dict[str, str]) -> None:
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        self._pairs = pairs
        shapes = {one.name: one.shape for one in self._session.get_inputs()}
        self.state = {name: np.zeros(shapes[name], np.float32) for name in pairs}

    def __call__(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        names = [one.name for one in self._session.get_outputs()]
        made = dict(zip(names, self._session.run(None, {**inputs, **self.state}), strict=True))
        self.state = {name: made.pop(output) for name, output in self._pairs.items()}
        return made


def far(got: np.ndarray, want: np.ndarray) -> bool:
    return got.shape != want.shape or not np.abs(got - want).max() <= FAR * np.abs(want).max()


@pytest.fixture(scope="module")
def opened(bench: KernelBench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """A decoder for a token and for eight; for a token in fewer rows, too."""
    graphs = [(1, CAPACITY), (1, FEWER), (8, CAPACITY)]
    models = {f"{tokens} of {rows}": (decoder(tokens, rows), growing(tokens, rows)) for tokens, rows in graphs}
    path = write(tmp_path_factory.mktemp("decoder") / "decoder.bin", bench.backend, models)
    with load(path, device=bench.backend.identity.name) as context:
        yield context


@pytest.fixture
def state(opened: Context) -> Iterator[State]:
    with opened.state() as made:
        yield made


def wanted() -> list[np.ndarray]:
    """Return the logits of each token."""
    step = ByHand(decoder(1, CAPACITY), {f"past.{name}": f"present.{name}" for name in ("key", "value")})
    return [step(ids=TOKENS[:, [at]], length=np.array([at], np.int32))["logits"][:, 0] for at in range(CAPACITY)]


WANTED = wanted()


def logits(context: Context, state: State, begin: int, end: int) -> np.ndarray:
    return context.run({"ids": TOKENS[:, begin:end]}, state=state)["logits"]


@pytest.mark.parametrize("make", [cell, pytest.param(lstm, marks=pytest.mark.night)])
def test_a_fixed_state_is_that_of_the_model_given_back_by_hand(
    bench: KernelBench, tmp_path: Path, make: Callable[[], onnx.ModelProto]
) -> None:
    model = make()
    path = write(tmp_path / "recurrent.bin", bench.backend, {"recurrent": (model, FIXED_STATE)})
    step = ByHand(model, {"h": "hn", "c": "cn"})
    with load(path, device=bench.backend.identity.name) as context, context.state() as state:
        inputs = RANDOM.standard_normal((30, *context.inputs[0].shape)).astype(np.float32)
        for x in inputs:
            got, want = context.run(x, state=state), step(x=x)
            assert list(got) == ["y"] and not far(got["y"], want["y"])
        assert not any(far(state.read(name), step.state[name]) for name in ("h", "c"))
        executor = next(iter(context.executors.values()))
        for name in ("h", "c", "hn", "cn"):
            total = executor.counters.total[name]
            assert (total.bytes_copied, total.allocations) == (0, 0)
        state.reset()
        assert not far(
            context.run(inputs[0], state=state)["y"], ByHand(model, {"h": "hn", "c": "cn"})(x=inputs[0])["y"]
        )
        with pytest.raises(ValueError, match="a state with 'h', which does not grow, cannot be rewound"):
            state.rewind(0)


def test_each_step_up_to_the_capacity_is_that_of_the_model(opened: Context, state: State) -> None:
    def given() -> np.ndarray:
        return np.array([one.counters.total["ids"].writes for one in state.executors.values()])

    before = given()
    for at, want in enumerate(WANTED):
        assert not far(logits(opened, state, at, at + 1)[:, 0], want)
    assert (given() - before).tolist() == [CAPACITY - FEWER, FEWER, 0], "each step in the fewest rows that it fits"
    assert (state.length, state.capacity) == (CAPACITY, CAPACITY)
    with pytest.raises(LimitExceeded, match="1 tokens do not fit a state that has 40 of 40 rows: rewind or reset it"):
        logits(opened, state, 0, 1)
    for executor in state.executors.values():
        for pair in ("past.key", "past.value", "present.key", "present.value"):
            total = executor.counters.total[pair]
            assert (total.bytes_copied, total.allocations) == (0, 0)


@pytest.mark.parametrize("cuts", [[21, 22, 23], [8, 40], [3, 6, 38], [40]])
def test_prompts_of_any_length_are_steps(opened: Context, state: State, cuts: list[int]) -> None:
    begin = 0
    for end in cuts:
        got = logits(opened, state, begin, end)
        assert got.shape == (1, end - begin, WORDS)
        assert not any(far(got[:, at - begin], WANTED[at]) for at in range(begin, end))
        begin = end
    assert state.length == begin


def test_conversations_are_rewound_copied_and_begun_anew(opened: Context, state: State) -> None:
    """Rows behind the end have what was there before."""
    logits(opened, state, 0, 30)
    state.rewind(10)
    with state.copy() as copy:
        got = logits(opened, copy, 10, 33)
        assert not any(far(got[:, at - 10], WANTED[at]) for at in range(10, 33))
        assert (state.length, copy.length) == (10, 33)
    assert not far(logits(opened, state, 10, 11)[:, 0], WANTED[10])
    state.reset()
    assert not far(logits(opened, state, 0, 8)[:, 7], WANTED[7])


def test_steps_run_beside_the_caller_in_their_order(opened: Context, state: State) -> None:
    futures = [opened.run_async({"ids": TOKENS[:, [at]]}, state=state) for at in range(12)]
    assert not any(far(future.result()["logits"][:, 0], want) for future, want in zip(futures, WANTED, strict=False))
    assert state.length == 12


def test_a_group_says_what_its_states_hold(bench: KernelBench, opened: Context, state: State) -> None:
    with load_group([opened.path], bench.backend.identity.name) as group:
        with closing(group["decoder/8 of 40"].open_state()) as made:
            assert group.memory.states == made.nbytes == state.nbytes
        assert group.memory.states == 0


def test_a_state_is_asked_for_by_a_graph(opened: Context, state: State) -> None:
    assert list(state.executors) == ["1 of 40", "1 of 24", "8 of 40"]
    with opened.state("1 of 24") as made:
        assert (list(made.executors), made.nbytes) == (list(state.executors), 2 * 2 * 4 * 2 * CAPACITY * 8)
        assert not far(logits(opened, made, 0, 1)[:, 0], WANTED[0])
    with pytest.raises(ContextClosed, match="this state was closed"):
        logits(opened, made, 0, 1)
    with pytest.raises(ValueError, match="there is no graph '2 of 40'"):
        opened.state("2 of 40")


def test_without_a_state_all_is_given_as_arrays(opened: Context, state: State) -> None:
    past = {name: np.zeros((1, 2, CAPACITY, 8), np.float32) for name in ("past.key", "past.value")}
    with pytest.warns(UserWarning, match="was prepared for memory handles and is given as an array"):
        got = opened.run({"ids": TOKENS[:, :1], "length": np.zeros(1, np.int32), **past})
    assert not far(got["logits"][:, 0], WANTED[0])
    assert not far(logits(opened, state, 0, 1)[:, 0], WANTED[0])
    with pytest.raises(ValueError, match=r"graph '1 of 24' has no input 'past\.key'; its inputs are"):
        opened.run({"ids": TOKENS[:, :1], **past}, state=state)


def test_a_state_is_of_its_context(bench: KernelBench, opened: Context, state: State) -> None:
    with load(opened.path, device=bench.backend.identity.name) as other:
        with pytest.raises(ValueError, match="the state is of another context"):
            logits(other, state, 0, 1)
        with pytest.raises(ValueError, match="the state is of another context"):
            other.run_async({"ids": TOKENS[:, :1]}, state=state)
        before = other.device_bytes
        with other.state() as made:
            assert other.device_bytes == before + made.nbytes
        assert other.device_bytes == before
