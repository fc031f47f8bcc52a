"""Remember what graphs leave for their next inference, and cut what is longer than a graph takes into inferences."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from gputune.core.errors import LimitExceeded
from gputune.core.opened import Closing
from gputune.runtime.application.inputs import Array, Inputs, given_in_words, named, takes, tensors_in_words
from gputune.runtime.context.records import GraphRecord, TensorRecord
from gputune.runtime.context.states import StateRecord, TokenAxis
from gputune.runtime.executor import Executor, StateMemory
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.values import NOTHING, Values


class _Step(NamedTuple):
    """One inference: `real` tokens from `begin` on, and padding where its graph takes more."""

    executor: Executor
    begin: int
    real: int

    @property
    def padding(self) -> int:
        return _states_of(self.executor).tokens - self.real


class State(Closing):
    """Hold what graphs of a context remember, in memory of their device. Context.state makes one.

    It is for one thread at a time. A graph adds rows to it for the tokens that it sees, or replaces it as a whole.
    Closing it frees its memory; so does `with`.
    """

    def __init__(self, executors: Mapping[str, Executor], memory: StateMemory) -> None:
        """executors: by the names of the graphs that use it; memory: of one with the most rows."""
        self.executors = dict(executors)
        self._alike = _alike(executors.values())
        self._memory = memory
        self._turn = threading.Lock()
        self._first = most_rows(executors.values())
        self._record = _states_of(self._first)

    @property
    def length(self) -> int:
        """Return how many rows it has; 0 if it does not grow."""
        return self._memory.length

    @property
    def capacity(self) -> int:
        """Return how many rows there is room for; 0 if it does not grow."""
        return self._memory.capacity

    @property
    def nbytes(self) -> int:
        """Return the bytes of its device memory."""
        return self._memory.nbytes

    def reset(self) -> None:
        """Forget everything. Raises DeviceError."""
        with self._alone():
            self._memory.reset()

    def rewind(self, length: int) -> None:
        """Forget the rows behind the first `length`. Raises ValueError if there are fewer, or if a part of the state
        does not grow."""
        if length < 0:
            raise ValueError(f"a state cannot be rewound to {length} rows")
        with self._alone():
            self._memory.rewind(length)

    def copy(self) -> State:
        """Return another state that remembers the same. Raises DeviceError."""
        with self._alone():
            return State(self.executors, self._memory.copy())

    def read(self, name: str) -> Array:
        """Return what is remembered for an input of that name. Rows behind the length have any content. Raises
        ValueError, DeviceError."""
        tensor = next((one for one in self._first.graph.inputs if one.name == name), None)
        with self._alone():
            return self._memory.read(name, *(("uint8", ()) if tensor is None else (tensor.dtype, tensor.shape)))

    def close(self) -> None:
        """Free its memory. A second call does nothing."""
        self._memory.close()

    def __repr__(self) -> str:
        return f"<gputune.State of {', '.join(map(repr, self.executors))}: {self._record}>"

    # --- running ----------------------------------------------------------------------------------------

    def run(self, inputs: Inputs = NOTHING, outputs: Values = NOTHING, *, graph: str | None = None) -> dict[str, Array]:
        """Run inferences that move the state on, as Context.run does. If one fails, a state that can be rewound is as
        it was."""
        return self.run_timed(inputs, outputs, graph=graph)[0]

    def run_timed(
        self, inputs: Inputs = NOTHING, outputs: Values = NOTHING, *, graph: str | None = None
    ) -> tuple[dict[str, Array], int]:
        """Run as run does, and also return what the inferences took together, in ns."""
        with self._alone():
            alike = self._chosen(graph)
            if not self._record.token_inputs:
                executor = _taking(_with_room(alike, self.length) or [alike[0][-1]], inputs)
                return executor.step_timed(self._memory, _given(executor, inputs), outputs)
            given = _given(alike[0][0], inputs)
            steps = self._planned(self._fitting(alike, given), given)
            if outputs and (len(steps) > 1 or steps[0].padding):
                raise ValueError(
                    "outputs: this takes several inferences, or padding; take the arrays that are returned"
                )
            length = self.length
            try:
                made, ns = zip(*[self._made(step, given, outputs) for step in steps], strict=True)
                return self._joined(made), sum(ns)
            except BaseException:
                if self._record.can_rewind and self.length > length:
                    self._memory.rewind(length)
                raise

    def _made(self, step: _Step, given: Values, outputs: Values) -> tuple[dict[str, Array], int]:
        """Run an inference; return its outputs without those of padding, and its ns."""
        states = _states_of(step.executor)
        cut = {token.name: _part(given[token.name], token, step) for token in states.token_inputs}
        made, ns = step.executor.step_timed(self._memory, {**given, **cut}, outputs)
        if not step.padding:
            return made, ns
        self._memory.rewind(self.length - step.padding)
        for token in states.token_outputs:
            made[token.name] = made[token.name][_range(token.axis, 0, step.real)]
        return made, ns

    def _joined(self, made: Sequence[dict[str, Array]]) -> dict[str, Array]:
        """Return the outputs of all inferences: rows of tokens together, of others what the last one made."""
        if len(made) == 1:
            return made[0]
        axes = {token.name: token.axis for token in self._record.token_outputs}
        return {
            name: np.concatenate([each[name] for each in made], axes[name]) if name in axes else array
            for name, array in made[-1].items()
        }

    def _fitting(self, alike: Sequence[Sequence[Executor]], given: Values) -> Sequence[Sequence[Executor]]:
        """Return graphs that take what is given beside tokens; if none does, all, of which one says what is wrong."""
        tokens = {token.name for token in self._record.token_inputs}
        others = {name: value for name, value in given.items() if name not in tokens}
        return [
            several
            for several in alike
            if takes([tensor for tensor in _beside(several[0]) if tensor.name not in tokens], others)
        ] or alike

    def _planned(self, alike: Sequence[Sequence[Executor]], given: Values) -> list[_Step]:
        """Return the inferences that see all tokens: the fewest. Raises LimitExceeded, ValueError."""
        count, length = self._count(given), self.length
        if length + count > self.capacity:
            raise LimitExceeded(
                f"{count} tokens do not fit a state that has {length} of {self.capacity} rows: rewind or reset it"
            )
        steps, begin = [], 0
        while begin < count:
            left = count - begin
            sizes = {_states_of(one).tokens: one for one in reversed(_with_room(alike, length + begin))}
            enough = [size for size, one in sizes.items() if size == left or (size > left and _states_of(one).can_pad)]
            size = min(enough, default=max((size for size in sizes if size < left), default=0))
            if not size:
                known = sorted({_states_of(one).tokens for each in alike for one in each})
                raise ValueError(f"no graph takes the last {left} of {count} tokens: they take {known} at a time")
            steps.append(_Step(sizes[size], begin, min(size, left)))
            begin += steps[-1].real
        return steps

    def _count(self, given: Values) -> int:
        """Return how many tokens are given. Raises ValueError where inputs disagree."""
        counts: dict[str, int] = {}
        for name, axis in ((token.name, token.axis) for token in self._record.token_inputs):
            value = given.get(name)
            shape = () if value is None or isinstance(value, MemHandle) else np.shape(value)
            if axis >= len(shape):
                raise ValueError(f"input {name!r} needs an array with a row for each token along axis {axis}")
            counts[name] = shape[axis]
        if len(set(counts.values())) > 1 or not min(counts.values()):
            raise ValueError(f"inputs need as many tokens each, and one at least: {counts}")
        return min(counts.values())

    def _chosen(self, graph: str | None) -> Sequence[Sequence[Executor]]:
        if graph is None:
            return self._alike
        if graph not in self.executors:
            raise ValueError(f"graph {graph!r} does not use this state; {list(self.executors)} do")
        return [[self.executors[graph]]]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a second thread: waiting would only hide that two conversations are mixed."""
        if not self._turn.acquire(blocking=False):
            raise ValueError("the state is used by another thread: each thread needs its own")
        try:
            yield
        finally:
            self._turn.release()


def remembered(graph: GraphRecord) -> frozenset[Any]:
    """Return what graphs have in common that use one state: all but how many rows it has."""
    if graph.states is None:
        return frozenset()
    axes = {pair.input: pair.axis for pair in graph.states.pairs}
    return frozenset(
        (one.name, one.dtype, tuple(size for at, size in enumerate(one.shape) if at != axis), axis)
        for one in graph.inputs
        if (axis := axes.get(one.name)) is not None
    )


def most_rows(executors: Iterable[Executor]) -> Executor:
    """Return the one whose state has room for the most rows."""
    return max(executors, key=lambda one: _states_of(one).capacity)


def _alike(executors: Iterable[Executor]) -> list[list[Executor]]:
    """Return graphs together that take the same and differ by how many rows they have, those with fewer first."""
    found: dict[Any, list[Executor]] = {}
    for one in sorted(executors, key=lambda one: _states_of(one).capacity):
        found.setdefault(tuple(_beside(one)) if _states_of(one).growing else one, []).append(one)
    return list(found.values())


def _with_room(alike: Sequence[Sequence[Executor]], length: int) -> list[Executor]:
    """Return of graphs that take the same the one with the fewest rows in which there is room, if there is one."""
    found = []
    for several in alike:
        for one in several:
            states = _states_of(one)
            if length + states.tokens <= states.capacity:
                found.append(one)
                break
    return found


def _states_of(executor: Executor) -> StateRecord:
    states = executor.graph.states
    assert states is not None
    return states


def _beside(executor: Executor) -> list[TensorRecord]:
    """Return the inputs that an application gives."""
    own = _states_of(executor).inputs
    return [tensor for tensor in executor.graph.inputs if tensor.name not in own]


def _given(executor: Executor, inputs: Inputs) -> Values:
    return inputs if isinstance(inputs, Mapping) else named(inputs, executor.graph, _beside(executor))


def _taking(executors: Sequence[Executor], inputs: Inputs) -> Executor:
    """Return the graph that takes these inputs; the only one says itself what is wrong with them."""
    if len(executors) == 1:
        return executors[0]
    found = [one for one in executors if takes(_beside(one), inputs)]
    if len(found) != 1:
        known = "; ".join(f"{one.graph.name}: {tensors_in_words(_beside(one))}" for one in executors)
        how = "several graphs take" if found else "no graph takes"
        raise ValueError(f"{how} {given_in_words(inputs)}; the graphs take {known}")
    return found[0]


def _range(axis: int, begin: int, end: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(begin, end))


def _part(value: object, token: TokenAxis, step: _Step) -> Array:
    """Return the tokens of an inference; padding is zeros."""
    part: Array = np.asarray(value)[_range(token.axis, step.begin, step.begin + step.real)]
    if not step.padding:
        return part
    widths = [(0, step.padding if axis == token.axis else 0) for axis in range(part.ndim)]
    return np.pad(part, widths)
