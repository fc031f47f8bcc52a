"""Test what graphs of the C runtime remember: by which inferences it moves on, what it costs, and what is refused."""

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st

from gputune.core.errors import ContextClosed, LimitExceeded
from gputune.runtime.native.binding import Device, File, Graph, Native
from gputune.runtime.native.counting import tensor_counters
from gputune.runtime.native.memory import Array
from gputune.runtime.native.states import State, state_bytes, use_state
from tests.native.failures import FAILURES
from tests.native.fake import ELEMENTS, Fake, doubling_context
from tests.native.stateful import CAPACITY, LATER, stateful_context

pytestmark = pytest.mark.usefixtures("all_is_released")
STEPS = 10_000


@pytest.fixture
def file(native: Native, tmp_path: Path) -> Iterator[File]:
    """One graph with a fixed state, and some that add rows to one that grows."""
    graphs = {"fixed": 0, "one": 1, "two": 2, "four": 4}
    with native.open(stateful_context(tmp_path / "a.bin", graphs)) as opened:
        yield opened


@pytest.fixture
def load(device: Device, file: File) -> Iterator[Callable[..., Graph]]:
    with contextlib.ExitStack() as graphs:
        yield lambda name, **how: graphs.enter_context(device.load(file, name, **how))


@pytest.fixture
def state(device: Device, load: Callable[..., Graph]) -> Iterator[State]:
    with State.of(load("one"), device) as opened:
        yield opened


def step(graph: Graph, number: float | Array) -> dict[str, Array]:
    """Run a graph with its state on an x that is all of one number, or on a whole one."""
    shape = graph.info.inputs[0].shape
    grows = any(tensor.name == "length" for tensor in graph.info.inputs)
    outputs: dict[str, Array] = {"y": np.empty(shape, np.float32)}
    outputs |= {"twice the length": np.empty((), np.int32)} if grows else {}
    graph.run({"x": np.full(shape, number, np.float32)}, outputs)
    return outputs


def given(graph: Graph, number: float) -> float:
    """Return y of such a step, which is all of one number."""
    (found,) = set(step(graph, number)["y"].flat)
    return float(found)


@pytest.mark.parametrize("how", range(5))
def test_what_an_inference_makes_is_what_the_next_one_reads(fake: Fake, native: Native, file: File, how: int) -> None:
    """In each form of launches; no byte of it is copied, and nothing is allocated."""
    fake.records(how, delay_ns=20_000)
    with (
        native.device(opencl=str(fake.path)) as device,
        device.load(file, "fixed") as graph,
        State.of(graph, device) as state,
    ):
        use_state(graph, state)
        found = [given(graph, number) for number in range(40)]
        assert found == [0, 0, *(LATER * number for number in range(38))]
        total = graph.counters()[0]
        assert total["bytes_copied"] == 40 * 2 * 4 * ELEMENTS, "x and y"
        assert total["allocations"] == 0
        for place in (1, 2):
            for output in (False, True):
                _, counted, _ = tensor_counters(native.call, graph.pointer, output, place)
                assert (counted["bytes_copied"], counted["allocations"]) == (0, 0)
        assert bool(total["recorded"]) == bool(how)


def test_graphs_for_more_or_fewer_tokens_use_one_state(load: Callable[..., Graph], state: State) -> None:
    assert (state.length, state.capacity, state.nbytes) == (0, CAPACITY, 2 * 2 * 4 * ELEMENTS)
    lengths = []
    for number, name in enumerate(("two", "four", "one", "one")):
        graph = load(name)
        use_state(graph, state)
        made = step(graph, number + 1)
        assert set(made["y"].flat) == {0 if number < 2 else LATER * (number - 1)}
        lengths.append(int(made["twice the length"]))
    assert lengths == [0, 4, 12, 14]
    assert state.length == CAPACITY
    with pytest.raises(LimitExceeded, match="graph 'one' adds 1 rows to a state that has 8 of 8: rewind or reset it"):
        given(graph, 5)
    state.rewind(7)
    assert (given(graph, 5), state.length) == (LATER * 3, 8), "what was refused has changed nothing"


def test_a_state_is_copied_reset_and_read(device: Device, load: Callable[..., Graph], state: State) -> None:
    graph = load("one")
    use_state(graph, state)
    assert [given(graph, number) for number in (1, 2, 3)] == [0, 0, LATER]
    with state.copy() as copy:
        assert (copy.length, state.length, copy.nbytes) == (3, 3, state.nbytes)
        assert state_bytes(device) == 2 * state.nbytes
        assert given(graph, 4) == 2 * LATER
        use_state(graph, copy)
        assert [given(graph, number) for number in (5, 6)] == [2 * LATER, 3 * LATER]
        assert [set(copy.read(name, "float32", (CAPACITY, 8)).flat) for name in "ab"] == [{12}, {20}]
    assert state_bytes(device) == state.nbytes
    use_state(graph, state)
    assert (given(graph, 7), state.length) == (3 * LATER, 5)
    state.reset()
    assert (state.length, [given(graph, number) for number in (1, 2, 3)]) == (0, [0, 0, LATER])


def test_steps_and_resets_without_end_take_nothing(fake: Fake, device: Device, load: Callable[..., Graph]) -> None:
    graph = load("one")
    held = set()
    with State.of(graph, device) as state:
        use_state(graph, state)
        for number in range(STEPS):
            if number % CAPACITY == 0:
                state.reset()
            assert given(graph, number) == (LATER * (number - 2) if number % CAPACITY > 1 else 0)
            held.add((fake.alive, device.nbytes))
    assert len(held) == 1
    assert device.nbytes < held.pop()[1]


@pytest.mark.parametrize("act", ["step", "reset", "copy"])
def test_where_a_call_fails_all_is_remembered(fake: Fake, device: Device, load: Callable[..., Graph], act: str) -> None:
    graph = load("fixed")
    state = State.of(graph, device)
    use_state(graph, state)
    assert [given(graph, number) for number in (1, 2)] == [0, 0]

    def do() -> None:
        if act == "step":
            given(graph, 3)
        elif act == "reset":
            state.reset()
        else:
            state.copy().close()

    failed = 0
    for number in range(1, 30):
        alive = fake.alive
        fake.fail_at(number)
        try:
            do()
        except FAILURES:
            failed += 1
        else:
            break
        finally:
            fake.fail_at(0)
        assert fake.alive == alive, f"call {number} failed, in {fake.failed}, and something was not released"
        assert [set(state.read(name, "float32", (8, 8)).flat) for name in "ab"] == [{4}, {4}]
    assert failed >= 3
    wanted = {"step": 2 * LATER, "reset": 0, "copy": LATER}[act]
    assert given(graph, 4) == wanted
    state.close()


OTHERS: dict[str, Callable[[Path], Path]] = {
    "nothing": doubling_context,
    "rows along another axis": lambda path: stateful_context(path, {"main": 1}, axis=1),
    "longer rows": lambda path: stateful_context(path, {"main": 1}, row=16),
    "a fixed state": lambda path: stateful_context(path, {"main": 0}),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_state_fits_graphs_that_remember_the_same(
    native: Native, device: Device, load: Callable[..., Graph], state: State, tmp_path: Path, kind: str
) -> None:
    one = load("one")
    use_state(one, state)
    with native.open(OTHERS[kind](tmp_path / "other.bin")) as file, device.load(file) as other:
        with pytest.raises(ValueError, match="cannot use this state: graph 'one', for which it was opened, remembers"):
            use_state(other, state)
        if kind == "nothing":
            with pytest.raises(ValueError, match="graph 'main' has no state"):
                State.of(other, device)
    assert given(one, 1) == 0


@pytest.fixture
def sizes(native: Native, device: Device, tmp_path: Path) -> Iterator[dict[int, Graph]]:
    """Graphs that add a row to strips of 4 rows and of 8. Their records have the pairs in different orders."""
    with contextlib.ExitStack() as stack:
        found = {}
        for capacity, order in ((4, "ba"), (CAPACITY, "ab")):
            path = stateful_context(tmp_path / f"{capacity}.bin", {f"of {capacity}": 1}, axis=1, pairs=order)
            file = stack.enter_context(native.open(path))
            found[capacity] = stack.enter_context(device.load(file))
        yield found


def moved(values: Array, *capacities: int) -> Array:
    """Return values as strips of the capacities that they had one after the other."""
    for one, other in itertools.pairwise(capacities):
        rows = values[: 8 * one].reshape(8, one)[:, :other]
        values = np.pad(rows, [(0, 0), (0, other - rows.shape[1])]).ravel()
    return values


def test_rows_are_moved_to_where_graphs_of_another_capacity_look(device: Device, sizes: dict[int, Graph]) -> None:
    """What was given two inferences before comes out at its row of each strip."""
    given = np.random.default_rng(0).integers(1, 9, (8, ELEMENTS)).astype(np.float32)
    with State.of(sizes[CAPACITY], device) as state:
        for graph in sizes.values():
            use_state(graph, state)
        made, held = [], set()
        for capacity, x in zip((4, 4, 8, 8, 4, 8, 8, 8), given, strict=True):
            if capacity == 4:
                state.rewind(min(state.length, 3))
            made.append(step(sizes[capacity], x)["y"])
            held.add(device.nbytes)
        found = [state.read(name, "float32", (8, CAPACITY)) for name in "ab"]
        assert (state.length, state.capacity, state.nbytes, len(held)) == (7, CAPACITY, 2 * 2 * 4 * ELEMENTS, 1)
        with state.copy() as copy:
            assert (copy.read("a", "float32", (8, CAPACITY)) == found[0]).all()
        state.reset()
        assert not step(sizes[4], given[0])["y"].any()
        assert {name: int(state.read(name, "float32", (8, CAPACITY)).any()) for name in "ab"} == {"a": 1, "b": 0}

    ways = [(4, 8), (4, 8, 8), (8, 8, 4), (8, 4, 8), (4, 8, 8), (8, 8, 8)]
    for number, way in enumerate(ways):
        size = 8 * way[-1]
        assert (made[number + 2].ravel()[:size] == moved(LATER * given[number], *way)[:size]).all(), number
    assert [(found[0] == 2 * given[7].reshape(8, 8)).all(), (found[1] == 4 * given[6].reshape(8, 8)).all()] == [1, 1]


@dataclass
class Expected:
    """What a state remembers: strips of so many rows, 0 for zeros alone."""

    rows: int = 0
    length: int = 0
    a: Array = field(default_factory=lambda: np.zeros(ELEMENTS, np.float32))
    b: Array = field(default_factory=lambda: np.zeros(ELEMENTS, np.float32))

    def lie_for(self, rows: int) -> None:
        for name in "ab" if self.rows else "":
            setattr(self, name, moved(getattr(self, name), self.rows, rows))
        self.rows = rows

    def step(self, x: Array, tokens: int, rows: int) -> Array:
        self.lie_for(rows)
        y, self.b, self.a = 2 * self.b, 2 * self.a, 2 * x.ravel()
        self.length += tokens
        return y[: 8 * rows]


@pytest.fixture
def many(native: Native, device: Device, tmp_path: Path) -> Iterator[dict[tuple[int, int], Graph]]:
    """Graphs by the rows that they add, and to how many."""
    with contextlib.ExitStack() as stack:
        found: dict[tuple[int, int], Graph] = {}
        for rows, order in ((4, "ba"), (6, "ab"), (CAPACITY, "ab")):
            names = {f"{tokens}": tokens for tokens in (1, 2, 4)}
            path = stateful_context(tmp_path / f"{rows}.bin", names, axis=1, capacity=rows, pairs=order)
            file = stack.enter_context(native.open(path))
            found |= {(names[name], rows): stack.enter_context(device.load(file, name)) for name in names}
        yield found


@hypothesis.settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20)
@hypothesis.given(st.randoms(use_true_random=False))
def test_calls_in_any_order_do_what_a_model_does(
    device: Device, many: dict[tuple[int, int], Graph], chance: random.Random
) -> None:
    with contextlib.ExitStack() as stack:
        states = [(stack.enter_context(State.of(many[1, CAPACITY], device)), Expected())]
        for number in range(25):
            state, want = chance.choice(states)
            act = chance.choice(("step", "step", "step", "step", "rewind", "reset", "copy", "read"))
            if act == "step":
                (tokens, rows), graph = chance.choice([*many.items()])
                use_state(graph, state)
                x = np.arange(ELEMENTS, dtype=np.float32).reshape(graph.info.inputs[0].shape) + number
                if want.length + tokens > rows:
                    with pytest.raises(LimitExceeded):
                        step(graph, x)
                else:
                    length, y = want.length, want.step(x, tokens, rows)
                    made = step(graph, x)
                    assert (made["y"].ravel()[: len(y)] == y).all() and made["twice the length"] == 2 * length
            elif act == "rewind":
                want.length = chance.randint(0, want.length)
                state.rewind(want.length)
            elif act == "reset":
                state.reset()
                states[states.index((state, want))] = (state, Expected())
            elif act == "copy" and len(states) < 4:
                states.append((stack.enter_context(state.copy()), replace(want)))
            else:
                want.lie_for(CAPACITY)
                for name in "ab":
                    assert (state.read(name, "float32", (ELEMENTS,)) == getattr(want, name)).all()
            assert [state.length for state, _ in states] == [want.length for _, want in states]


def test_where_a_move_fails_all_is_remembered(fake: Fake, device: Device, sizes: dict[int, Graph]) -> None:
    small, large = sizes.values()
    failed = 0
    for number in range(1, 30):
        with State.of(large, device) as state:
            for graph in (small, large):
                use_state(graph, state)
            assert not step(small, 1)["y"].any() and not step(small, 2)["y"].any()
            fake.fail_at(number)
            with contextlib.suppress(*FAILURES):
                step(large, 3)
            fake.fail_at(0)
            ended, failed = state.length == 3, failed + (state.length == 2)
            state.rewind(2)
            made = step(large, 4)["y"].reshape(8, 8)
        wanted = {2 * LATER} if ended else {LATER}
        assert [set(part.flat) for part in (made[:, :4], made[:, 4:])] == [wanted, {0}]
    assert failed > 6


def test_the_fewest_rows_with_room_are_chosen(device: Device, sizes: dict[int, Graph]) -> None:
    small, large = sizes.values()
    with State.of(small, device) as state, State.of(large, device) as own:
        use_state(small, state)
        use_state(large, own)
        assert given(large, 1) == 0
        with pytest.raises(ValueError, match="graph 'of 4', for which it was opened, has fewer rows: open a state for"):
            use_state(large, state)
        assert [given(large, number) for number in (2, 3)] == [0, LATER], "what was refused has changed nothing"
    with State.of(large, device) as state:
        for graph in (large, small):
            use_state(graph, state)
        chosen = []
        for _ in range(CAPACITY):
            pointer = state.native.made("state_graph", state.pointer, 1)
            chosen.append(next(size for size, graph in sizes.items() if graph.pointer == pointer))
            step(sizes[chosen[-1]], 1)
        assert chosen == [4] * 4 + [8] * 4
        with pytest.raises(LimitExceeded, match="no graph that uses this state adds 1 rows to 8: rewind or reset it"):
            state.native.made("state_graph", state.pointer, 1)
        state.rewind(4)
        with pytest.raises(LimitExceeded, match="'of 4' adds 1 rows to a state that has 4 of 4: run a graph with more"):
            step(small, 1)
        assert step(large, 1)["y"].any()


def test_a_state_of_another_device_is_refused(
    native: Native, fake: Fake, load: Callable[..., Graph], file: File
) -> None:
    with (
        native.device(opencl=str(fake.path)) as other,
        other.load(file, "one") as graph,
        State.of(graph, other) as state,
        pytest.raises(ValueError, match="graph 'one', for which it was opened, is on another device"),
    ):
        use_state(load("one"), state)


X, A = np.zeros((1, ELEMENTS), np.float32), np.zeros((CAPACITY, ELEMENTS // CAPACITY), np.float32)
LENGTH = np.zeros((), np.int32)
BAD: dict[str, tuple[Callable[[Graph, State], object], str]] = {
    "an input of it": (lambda graph, _: graph.run({"x": X, "a": A}), "input 'a' of graph 'one' belongs to its state"),
    "its length": (lambda graph, _: graph.run({"x": X, "length": LENGTH}), "input 'length' of graph 'one' belongs"),
    "an output of it": (lambda graph, _: graph.run({"x": X}, {"next a": A}), "output 'next a' of graph 'one' belongs"),
    "no input": (lambda graph, _: graph.run({}, {}), "needs the input 'x'"),
    "a rewind beyond": (lambda _, state: state.rewind(3), "a state of 2 rows cannot be rewound to 3"),
    "what it has not": (lambda _, state: state.read("x", "float32", (1,)), "the state has no 'x'"),
    "too little room": (lambda _, state: state.read("a", "float32", (8,)), "'a' of the state has 256 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_use_is_one_line_and_loses_nothing(load: Callable[..., Graph], state: State, what: str) -> None:
    act, words = BAD[what]
    graph = load("one")
    use_state(graph, state)
    assert [given(graph, number) for number in (1, 2)] == [0, 0]
    with pytest.raises(ValueError, match=words) as caught:
        act(graph, state)
    assert "\n" not in str(caught.value)
    assert [given(graph, number) for number in (3, 4)] == [LATER, 2 * LATER]


@pytest.mark.parametrize(("name", "inputs"), [("fixed", [1, 2]), ("one", [1, 2, 3])])
def test_a_graph_says_what_belongs_to_a_state(load: Callable[..., Graph], name: str, inputs: list[int]) -> None:
    graph = load(name)
    found = [
        [place for place in range(9) if graph.native.call("is_remembered", graph.pointer, output, place)]
        for output in (False, True)
    ]
    assert found == [inputs, [1, 2]]


def test_a_fixed_state_cannot_be_rewound(device: Device, load: Callable[..., Graph]) -> None:
    with (
        State.of(load("fixed"), device) as state,
        pytest.raises(ValueError, match="a state with 'a', which does not grow, cannot be rewound: copy it before"),
    ):
        state.rewind(0)


def test_what_is_linked_is_no_state(device: Device, load: Callable[..., Graph]) -> None:
    first, second = load("one"), load("one")
    with State.of(first, device) as state:
        use_state(first, state)
        with pytest.raises(ValueError, match="output 'next a' of graph 'one' belongs to its state"):
            first.link("next a", second, "b")
        use_state(first, None)
        first.link("next a", second, "b")
        with pytest.raises(ValueError, match="output 'next a' of graph 'one' is linked to another graph"):
            use_state(first, state)


def test_without_a_state_the_tensors_are_given_again(device: Device, load: Callable[..., Graph]) -> None:
    graph = load("fixed")
    x, a, b = (np.full((1, 64) if name == "x" else (8, 8), 3, np.float32) for name in "xab")
    with State.of(graph, device) as state:
        use_state(graph, state)
        assert given(graph, 1) == 0
        use_state(graph, None)
        found = graph.run({"x": x, "a": a, "b": b})
        assert [set(each.flat) for each in found.values()] == [{6}] * 3
        use_state(graph, state)
        assert [given(graph, 2), given(graph, 3)] == [0, LATER]
    with pytest.raises(ValueError, match="graph 'fixed' needs the input 'a'"):
        graph.run({"x": x})


def test_a_state_outlives_its_graph(fake: Fake, device: Device, file: File) -> None:
    graph = device.load(file, "fixed")
    state = State.of(graph, device)
    use_state(graph, state)
    given(graph, 1)
    graph.close()
    with device.load(file, "fixed") as other:
        use_state(other, state)
        assert [given(other, 2), given(other, 3)] == [0, LATER]
        state.close()
    with pytest.raises(ContextClosed, match="this state was closed"):
        state.reset()


def test_a_state_is_used_by_one_thread_at_a_time(fake: Fake, device: Device, file: File) -> None:
    """Two graphs on two streams: one waits for its inference, until another one waits, too."""
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(device.group([file], 2))
        first, second = (stack.enter_context(device.load(file, "fixed", group=group, stream=at)) for at in range(2))
        state, other = (stack.enter_context(State.of(first, device)) for _ in range(2))
        use_state(first, state)
        use_state(second, other)
        fake.meet(2)
        running = threading.Thread(target=given, args=(first, 1))
        running.start()
        refused: list[Any] = []
        while not refused:
            try:
                state.read("a", "float32", (1,))
            except ValueError as error:
                refused += [error] if "used by another thread" in str(error) else []
        use_state(second, state)
        with pytest.raises(ValueError, match="the state is used by another thread: each thread needs its own"):
            given(second, 1)
        use_state(second, other)
        given(second, 1)
        running.join()
        fake.meet(0)
        assert [set(one.read("a", "float32", (8, 8)).flat) for one in (state, other)] == [{2}, {2}]
