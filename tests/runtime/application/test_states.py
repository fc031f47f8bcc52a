"""Test how a state cuts inputs into inferences and puts outputs together, on graphs that add up what they get."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gputune.core.errors import DeviceError, LimitExceeded
from gputune.runtime.application.context import load
from gputune.runtime.application.states import State, remembered
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import Context, GraphRecord, TensorRecord
from gputune.runtime.context.states import FIXED, StatePair, StateRecord, TokenAxis

CAPACITY = 16


class Memory:
    """A state in Python: rows, and for a fixed part the sum of all that was ever seen."""

    def __init__(self) -> None:
        self.rows, self.length, self.capacity, self.nbytes, self.seen = np.zeros(CAPACITY), 0, CAPACITY, 128, 0.0
        self.waits: threading.Event | None = None

    def rewind(self, length: int) -> None:
        assert length <= self.length
        self.length = length


class Adding:
    """An executor whose outputs are the sums of all rows up to each token, and how many inferences have run."""

    def __init__(
        self,
        name: str,
        tokens: int,
        fixed: bool = False,
        capacity: int = CAPACITY,
        whole: bool = False,
        scales: int = 1,
    ) -> None:
        shape = (1, tokens)
        pairs = [StatePair("past", "present", 0)] + ([StatePair("h", "hn", FIXED)] if fixed else [])
        axes = (TokenAxis("ids", 1),), (TokenAxis("sums", 1),)
        states = StateRecord("length", tokens, capacity, *axes, tuple(pairs), whole)
        inputs = [TensorRecord("ids", shape), TensorRecord("scale", (scales,)), TensorRecord("past", (capacity,))]
        inputs += [TensorRecord("length", (), "int32")] + [TensorRecord("h", (1,))] * fixed
        self.graph = GraphRecord(name, tuple(inputs), (), (), (), states=states)
        self.ran: list[int] = []
        self.fails_at = -1

    def step_timed(
        self, memory: Memory, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], int]:
        ids, states = np.asarray(inputs["ids"]), self.graph.states
        assert states is not None and ids.shape == (1, states.tokens) and set(inputs) == {"ids", "scale"}
        if memory.waits is not None:
            memory.waits.wait()
        if len(self.ran) == self.fails_at:
            raise LimitExceeded("planted")
        end = memory.length + states.tokens
        memory.rows[memory.length : end] = ids[0] * inputs["scale"][0]
        sums = np.cumsum(memory.rows[:end])[memory.length :]
        memory.length = end
        self.ran.append(states.tokens)
        return {"sums": sums[None], "last": sums[-1:]}, 1


def opened(*graphs: Adding) -> tuple[State, Memory]:
    memory: Any = Memory()
    return State({one.graph.name: one for one in graphs}, memory), memory  # type: ignore[misc]


def fed(state: State, ids: Any, **more: Any) -> dict[str, Any]:
    return state.run({"ids": np.asarray(ids, float)[None], "scale": np.ones(1)}, **more)


@pytest.mark.parametrize(
    ("tokens", "runs"),
    [
        ([1], {"one": 1}),
        ([4], {"four": 1}),
        ([3], {"four": 1}),
        ([5], {"four": 1, "one": 1}),
        ([11], {"four": 3}),
        ([13], {"four": 3, "one": 1}),
        ([4, 4, 4, 3], {"four": 4}),
        ([15, 1], {"four": 4, "one": 1}),
        ([14, 2], {"four": 4, "one": 2}),
    ],
)
def test_the_fewest_inferences_see_all_tokens(tokens: list[int], runs: dict[str, int]) -> None:
    """Padding leaves no trace, and stays within the capacity: there single tokens run."""
    one, four = Adding("one", 1), Adding("four", 4)
    state, memory = opened(one, four)
    ids = np.arange(1.0, 1 + sum(tokens))
    begin = 0
    for count in tokens:
        made = fed(state, ids[begin : begin + count])
        begin += count
        assert made["sums"].tolist() == [np.cumsum(ids)[begin - count : begin].tolist()]
        assert state.length == memory.length == begin
    assert {name: len(each.ran) for name, each in (("one", one), ("four", four)) if each.ran} == runs


@pytest.mark.parametrize("why", ["fixed", "whole"])
def test_what_does_not_grow_and_whole_chunks_are_never_padded(why: str) -> None:
    one, four = Adding("one", 1, fixed=why == "fixed"), Adding("four", 4, **{why: True})
    state, _ = opened(one, four)
    made = fed(state, np.ones(7))
    assert (made["sums"].tolist(), made["last"].tolist()) == ([[1, 2, 3, 4, 5, 6, 7]], [7])
    assert (one.ran, four.ran) == ([1, 1, 1], [4])
    state, memory = opened(four)
    with pytest.raises(ValueError, match=r"no graph takes the last 3 of 7 tokens: they take \[4\] at a time"):
        fed(state, np.ones(7))
    assert memory.length == 0


def test_where_an_inference_fails_all_are_taken_back() -> None:
    one, four = Adding("one", 1), Adding("four", 4)
    state, memory = opened(one, four)
    fed(state, np.ones(2))
    four.fails_at = 2
    with pytest.raises(LimitExceeded, match="planted"):
        fed(state, np.ones(8))
    assert memory.length == 2
    assert fed(state, [5])["sums"].tolist() == [[7]]


NO_ROWS = "input 'ids' needs an array with a row for each token along axis 1"
NO_PLACE = "outputs: this takes several inferences, or padding"
BAD: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "too many": ({"ids": np.zeros((1, 13))}, {}, LimitExceeded, "13 tokens do not fit a state that has 4 of 16 rows"),
    "none": ({"ids": np.zeros((1, 0))}, {}, ValueError, "inputs need as many tokens each, and one at least"),
    "no array": ({"ids": 3}, {}, ValueError, NO_ROWS),
    "nothing": ({}, {}, ValueError, NO_ROWS),
    "a line": ({"ids": np.zeros(3)}, {}, ValueError, NO_ROWS),
    "an array alone": (np.zeros(3), {}, ValueError, "graph 'one' has 2 inputs; give arrays by name"),
    "outputs of several": ({"ids": np.zeros((1, 5))}, {"outputs": {"sums": np.zeros((1, 5))}}, ValueError, NO_PLACE),
    "outputs of padding": ({"ids": np.zeros((1, 3))}, {"outputs": {"sums": np.zeros((1, 3))}}, ValueError, NO_PLACE),
    "no graph": ({"ids": np.zeros((1, 1))}, {"graph": "two"}, ValueError, "graph 'two' does not use this state"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_use_is_one_line_and_loses_nothing(what: str) -> None:
    inputs, more, kind, words = BAD[what]
    state, memory = opened(Adding("one", 1), Adding("four", 4))
    fed(state, np.ones(4))
    with pytest.raises(kind, match=words) as caught:
        state.run({**inputs, "scale": np.ones(1)} if isinstance(inputs, dict) else inputs, **more)
    assert "\n" not in str(caught.value)
    assert memory.length == 4
    with pytest.raises(ValueError, match="a state cannot be rewound to -1 rows"):
        state.rewind(-1)


def test_a_state_is_used_by_one_thread_at_a_time() -> None:
    state, memory = opened(Adding("one", 1))
    memory.waits = threading.Event()
    running = threading.Thread(target=fed, args=(state, [1]))
    running.start()
    refused = 0
    while not refused:
        try:
            state.rewind(0)
        except ValueError as error:
            assert "the state is used by another thread: each thread needs its own" in str(error)
            refused += 1
    memory.waits.set()
    running.join()
    assert state.length == 1


def test_a_device_that_computes_nothing_keeps_no_states(context: Context, tmp_path: Path) -> None:
    h, hn = TensorRecord("h", (3,)), TensorRecord("hn", (3,))
    states = StateRecord("", 0, 0, (), (), (StatePair("h", "hn", FIXED),))
    first, other = context.graphs
    kept = replace(first, inputs=(*first.inputs, h), outputs=(*first.outputs, hn), states=states)
    write_context(tmp_path / "a.bin", replace(context, graphs=(kept, other)))
    with load(tmp_path / "a.bin", device="null") as opened:
        with pytest.raises(DeviceError, match="keeps no states: give and take what is remembered as arrays"):
            opened.state()
        with pytest.raises(ValueError, match="graph 'other' has no state"):
            opened.state("other")
        assert opened.run({"x": np.zeros((2, 4), np.float32), "h": np.zeros(3, np.float32)})["hn"].shape == (3,)


def test_the_fewest_rows_with_room_are_run() -> None:
    """Also where a state is rewound, or a graph is named."""
    graphs = [Adding(f"{tokens} of {rows}", tokens, capacity=rows) for rows in (16, 4, 8) for tokens in (1, 4)]
    state, _ = opened(*graphs)
    ran = []
    for count, length in ((3, 0), (1, 3), (1, 4), (2, 5), (9, 7), (1, 2)):
        state.rewind(length)
        fed(state, np.ones(count))
        ran.append([one.graph.name for one in graphs for _ in one.ran])
        for one in graphs:
            one.ran.clear()
    assert ran[:4] == [["4 of 4"], ["1 of 4"], ["1 of 8"], ["4 of 16"]]
    assert ran[4:] == [["1 of 16", "4 of 16", "4 of 16"], ["1 of 4"]]
    fed(state, np.ones(1), graph="1 of 16")
    assert graphs[0].ran == [1] and state.length == 4
    with pytest.raises(ValueError, match=r"no graph takes the last 1 of 1 tokens: they take \[4\] at a time"):
        fed(state, np.ones(1), graph="4 of 4")


def test_what_is_given_beside_tokens_chooses_the_graphs() -> None:
    graphs = [Adding(f"{tokens} of {scales}", tokens, scales=scales) for scales in (1, 2) for tokens in (1, 4)]
    state, _ = opened(*graphs)
    for scales in (2, 1, 2):
        state.run({"ids": np.ones((1, 5)), "scale": np.ones(scales, np.float32)})
    assert [one.ran for one in graphs] == [[1], [4], [1, 1], [4, 4]]


def test_graphs_share_a_state_that_remember_the_same() -> None:
    one, four, fewer, other = Adding("one", 1), Adding("four", 4), Adding("fewer", 1, capacity=8), Adding("h", 1, True)
    assert remembered(one.graph) == remembered(four.graph) == remembered(fewer.graph) != remembered(other.graph)
    assert remembered(GraphRecord("plain", (), (), (), ())) == frozenset()
    assert repr(State({"one": one}, SimpleNamespace())).startswith("<gputune.State of 'one': past = present; 16 rows")  # type: ignore
