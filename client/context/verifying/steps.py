"""Verify a decoder with a state step by step against the model that it was made of, at exact lengths.

The state goes from empty to full. Rows behind its end are large before each step, so that a step that sees them is
found. A chunk that is not full, and a return to fewer rows, are steps, too. What grows without a past is compared at
several lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from gputune.client.context.verifying.distance import Compared, compared, in_words
from gputune.client.errors import VerificationError
from gputune.client.model.graph import Array
from gputune.client.model.oracle import Oracle
from gputune.client.model.state import Decoder
from gputune.core.dtypes import is_float
from gputune.runtime.application.made_up_inputs import TensorLike, random_inputs, telling_draw
from gputune.runtime.context.records import TensorRecord

Arrays = Mapping[str, Array]
Run = Callable[[Arrays], Arrays]

MOST_STEPS = 64
"""So many steps run on the target; of a longer way from empty to full, half of them at its beginning."""
FIXED_STEPS = 8
"""So many are taken of a state that does not grow."""
BACK = 10
"""So many rows are forgotten halfway."""
BEHIND = 1e30
"""The number behind the end of a state; in float16 its largest number takes this one's place."""


class Steps:
    """A graph with a state, and the model that it was made of."""

    def __init__(
        self,
        graph: str,
        inputs: Sequence[TensorLike],
        decoder: Decoder,
        oracle: Oracle,
        allowed: float,
        step: Mapping[str, float],
    ) -> None:
        """graph: its name; inputs: what it takes. oracle: of decoder.original.model. allowed: how far outputs may be
        off, as a share of their largest values. step: of outputs that are rounded to whole numbers, by their names."""
        self._graph, self._decoder, self._oracle = graph, decoder, oracle
        self._tensors = {one.name: one for one in inputs}
        self._allowed, self._step = allowed, step
        states = decoder.states
        self._tokens = states.tokens if states is not None else 0
        self._axes = {} if states is None else {one.name: one.axis for one in states.token_inputs}
        self._pairs = () if states is None else states.pairs
        self.found: dict[str, Compared] = {}

    def verify(self, run: Run) -> dict[str, Compared]:
        """Run all steps, and return what they have shown of each output. run: an inference of the graph.

        Raises VerificationError that names the length at which an output is wrong."""
        if self._decoder.states is None:
            self._prefixes(run)
        else:
            self._walk(run)
        return self.found

    # with a past

    def _walk(self, run: Run) -> None:
        exact = {pair.input: self._rows(pair.input, 0) for pair in self._pairs}
        state: dict[str, Array] | None = None  # of the graph, if it has run the step before
        for length, count, runs in self._way():
            exact = {name: self._cut(name, past, length) for name, past in exact.items()}
            given = self._given(length, count)
            want = self._oracle.run({**given, **exact, **self._decoder.original.constants(length, count)})
            if runs:
                before = state or {name: self._wide(name, past) for name, past in exact.items()}
                before = {name: self._spoilt(name, past, length) for name, past in before.items()}
                rows = {self._decoder.length: np.array([length], np.int32)} if self._decoder.length else {}
                got = run({**self._padded(given), **before, **rows})
                self._compare(got, want, length)
                state = {pair.input: got[pair.output] for pair in self._pairs}
            else:
                state = None
            exact = {pair.input: want[pair.output] for pair in self._pairs}

    def _way(self) -> Iterator[tuple[int, int, bool]]:
        """Yield the length before each step, how many of its tokens are real, and whether it runs on the target."""
        capacity, tokens = self._decoder.capacity, self._tokens
        if not tokens:
            yield from ((0, 0, True) for _ in range(FIXED_STEPS))
            return
        part = tokens // 2 if self._decoder.states is not None and self._decoder.states.can_pad else 0
        ways = [(length, tokens) for length in range(0, capacity // 2 - tokens + 1, tokens)]
        end = ways[-1][0] + tokens if ways else 0
        if part and end + tokens <= capacity:
            ways.append((end, part))
            end += part
        if end > BACK:
            end -= BACK
        ways += [(length, tokens) for length in range(end, capacity - tokens + 1, tokens)]
        if ways[-1][0] + tokens < capacity:  # the last row of the capacity
            ways.append((capacity - tokens, tokens))
        for place, (length, count) in enumerate(ways):
            rest = max(len(ways) - MOST_STEPS // 2, 1)
            skipped = -(-rest // (MOST_STEPS // 2))
            runs = place < MOST_STEPS // 2 or (len(ways) - 1 - place) % skipped == 0
            yield length, count, runs

    @cached_property
    def _inputs(self) -> dict[str, Array]:
        """Return the inputs of all steps together, with a row for each token along the axes of tokens."""
        kept = {pair.input for pair in self._pairs} | {self._decoder.length}
        tensors = []
        for name in (name for name in self._tensors if name not in kept):
            shape = list(self._tensors[name].shape)
            if name in self._axes:
                shape[self._axes[name]] = self._decoder.capacity
            tensors.append(TensorRecord(name, tuple(shape), self._tensors[name].dtype))
        return random_inputs(tensors, telling_draw(lambda draw: self._first(random_inputs(tensors, draw))))

    def _first(self, inputs: Arrays) -> Arrays:
        """Return what the original computes of these inputs from nothing."""
        if self._decoder.states is None:
            return self._oracle.run({**inputs, **self._decoder.original.constants(self._decoder.capacity, 0)})
        given = {name: self._taken(name, value, 0, self._tokens) for name, value in inputs.items()}
        past = {pair.input: self._rows(pair.input, 0) for pair in self._pairs}
        return self._oracle.run({**given, **past, **self._decoder.original.constants(0, self._tokens)})

    def _given(self, length: int, count: int) -> dict[str, Array]:
        return {name: self._taken(name, value, length, count) for name, value in self._inputs.items()}

    def _taken(self, name: str, value: Array, length: int, count: int) -> Array:
        axis = self._axes.get(name)
        return value if axis is None else np.take(value, range(length, length + count), axis)

    def _padded(self, given: Arrays) -> dict[str, Array]:
        """Return the inputs of a step as the graph takes them: a chunk that is not full has zeros behind it."""
        return {name: self._wide(name, value) for name, value in given.items()}

    def _rows(self, name: str, count: int) -> Array:
        """Return so many rows of zeros of a past, or a fixed state."""
        return self._cut(name, np.zeros(self._tensors[name].shape, self._tensors[name].dtype), count)

    def _axis(self, name: str) -> int:
        return next(pair.axis for pair in self._pairs if pair.input == name)

    def _cut(self, name: str, past: Array, count: int) -> Array:
        axis = self._axis(name)
        return past if axis < 0 else np.take(past, range(count), axis)

    def _wide(self, name: str, value: Array) -> Array:
        """Return an input with as many rows as the graph has."""
        return np.pad(
            value, [(0, size - own) for size, own in zip(self._tensors[name].shape, value.shape, strict=True)]
        )

    def _spoilt(self, name: str, past: Array, length: int) -> Array:
        """Return a past with large numbers behind the end."""
        if (axis := self._axis(name)) < 0:
            return past
        rows = np.arange(past.shape[axis]).reshape([-1 if each == axis else 1 for each in range(past.ndim)])
        most = BEHIND if is_float(past.dtype.name) else 1
        most = float(np.finfo(np.float16).max) if past.dtype == np.float16 else most
        return np.where(rows < length, past, np.array(most, past.dtype))

    # without one

    def _prefixes(self, run: Run) -> None:
        """Compare at several lengths; behind them is what a longer prefix would have."""
        longest, dimensions = self._decoder.capacity, self._decoder.original.dimensions
        for length in sorted({int(each) for each in np.linspace(1, longest, min(longest, MOST_STEPS))}):
            shapes = dimensions.at(length)
            given = {name: value[tuple(map(slice, shapes[name]))] for name, value in self._inputs.items()}
            want = self._oracle.run({**given, **self._decoder.original.constants(length, 0)})
            got = run({**self._inputs, self._decoder.length: np.array([length], np.int32)})
            self._compare(got, want, length)

    def _compare(self, got: Arrays, want: Arrays, length: int) -> None:
        """Take in how far outputs are off, as far as the original has them at this length. Raises VerificationError."""
        for name, right in want.items():
            if name not in got:
                continue
            own = got[name][tuple(map(slice, right.shape))]
            step = self._step.get(name, 0.0)
            one = compared(own, right, step)
            self.found[name] = self.found.get(name, Compared()) + one
            blank = is_float(own.dtype.name) and bool(np.isnan(own).any())
            if blank or not one.within(self._allowed):
                why = "it has NaN" if blank else in_words(own, right, self._allowed, step)
                raise VerificationError(
                    f"graph {self._graph!r}: with {length} rows in its state, output {name!r} is not what onnxruntime "
                    f"computes of the model at this length: {why}"
                )
