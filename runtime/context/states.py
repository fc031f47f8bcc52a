"""Define what a graph remembers between inferences: which of its outputs are the next one's inputs.

A fixed state is replaced as a whole: the output is the next input. A growing state has a row for each token that was
seen, up to a capacity. An inference writes `tokens` rows behind the `length` rows that are there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from gputune.core.bounds import Amount, CText, Within, in_files
from gputune.core.errors import MalformedHeader

FIXED = -1
"""The axis of a pair whose rows do not grow."""
LARGEST_RANK = 16
LENGTH_DTYPE = "int32"
"""What the input with the length is, of one element."""
LARGEST_CAPACITY = 2**31 - 1
UNIT_BYTES = 4
"""A buffer of a state has a multiple of so many bytes, in which devices fill memory."""
MOST_TOLD = 4
"""Pairs that people are told."""


class Tensor(Protocol):
    """Describe an input or output."""

    @property
    def name(self) -> str:
        """Return its name."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return its sizes."""

    @property
    def dtype(self) -> str:
        """Return its element type."""

    @property
    def nbytes(self) -> int:
        """Return the bytes of all elements."""


@in_files()
@dataclass(frozen=True)
class StatePair:
    """An output that becomes an input of the next inference. Both have one dtype and shape. axis: of the rows that
    grow, or FIXED, which is -1."""

    input: CText
    output: CText
    axis: Annotated[int, Within(FIXED, LARGEST_RANK - 1)]


@in_files()
@dataclass(frozen=True)
class TokenAxis:
    """An input or output with a row for each token of an inference, and the axis of these rows."""

    name: CText
    axis: Annotated[int, Within(0, LARGEST_RANK - 1)]


@in_files("whole")
@dataclass(frozen=True)
class StateRecord:
    """What a graph remembers. length: the input that says how many rows are there before an inference; tokens: rows
    that one inference adds; capacity: rows of growing pairs; token_inputs, token_outputs: what a long input can be cut
    along; whole: what fills up a part that is not full would show. If all pairs are fixed, length is "", and tokens and
    capacity are 0. Graphs whose pairs differ by capacity alone can use one state."""

    length: CText
    tokens: Amount
    capacity: Annotated[int, Within(0, LARGEST_CAPACITY)]
    token_inputs: tuple[TokenAxis, ...]
    token_outputs: tuple[TokenAxis, ...]
    pairs: tuple[StatePair, ...]
    whole: bool = False

    @property
    def growing(self) -> bool:
        """Return whether any pair grows."""
        return any(pair.axis != FIXED for pair in self.pairs)

    @property
    def can_rewind(self) -> bool:
        """Return whether rows can be forgotten, which a fixed state cannot."""
        return all(pair.axis != FIXED for pair in self.pairs)

    @property
    def can_pad(self) -> bool:
        """Return whether an inference may see fewer tokens, with rows behind them that are forgotten."""
        return self.can_rewind and not self.whole

    def nbytes(self, inputs: Iterable[Tensor]) -> int:
        """Return the device memory of a state: two buffers of a pair change places. inputs: of the graph."""
        own = {pair.input for pair in self.pairs}
        return sum(2 * -(-tensor.nbytes // UNIT_BYTES) * UNIT_BYTES for tensor in inputs if tensor.name in own)

    def __str__(self) -> str:
        """Return what it is for people."""
        pairs = ", ".join(f"{pair.input} = {pair.output}" for pair in self.pairs[:MOST_TOLD])
        more = f" and {len(self.pairs) - MOST_TOLD} more" if len(self.pairs) > MOST_TOLD else ""
        rows = f"; {self.capacity} rows, of which an inference adds {self.tokens}" if self.growing else ""
        return f"{pairs}{more}{rows}"

    @property
    def inputs(self) -> set[str]:
        """Return the names of the inputs that a state gives."""
        return {pair.input for pair in self.pairs} | ({self.length} if self.length else set())

    @property
    def outputs(self) -> set[str]:
        """Return the names of the outputs that a state takes."""
        return {pair.output for pair in self.pairs}


def check_states(record: StateRecord, graph: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Raise MalformedHeader if a record does not fit the inputs and outputs of its graph."""
    taken, given = ({tensor.name: tensor for tensor in tensors} for tensors in (inputs, outputs))
    place = f"graph {graph!r}: its states"
    if not record.pairs:
        raise MalformedHeader(f"{place} have no pair")
    for pair in record.pairs:
        _check_pair(pair, taken.get(pair.input), given.get(pair.output), record.capacity, place)
    _check_length(record, taken, place)
    for tokens, tensors in ((record.token_inputs, taken), (record.token_outputs, given)):
        for token in tokens:
            tensor = tensors.get(token.name)
            if tensor is None or token.axis >= len(tensor.shape) or tensor.shape[token.axis] != record.tokens:
                raise MalformedHeader(f"{place}: {token.name!r} has no axis {token.axis} of {record.tokens} tokens")
    for names in (
        [record.length, *(pair.input for pair in record.pairs), *(token.name for token in record.token_inputs)],
        [*(pair.output for pair in record.pairs), *(token.name for token in record.token_outputs)],
    ):
        _check_once(names, place)


def _check_pair(pair: StatePair, one: Tensor | None, other: Tensor | None, capacity: int, place: str) -> None:
    if one is None or other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
        raise MalformedHeader(f"{place}: {pair.input!r} and {pair.output!r} are no pair of one dtype and shape")
    if pair.axis != FIXED and (pair.axis >= len(one.shape) or one.shape[pair.axis] != capacity):
        raise MalformedHeader(f"{place}: {pair.input!r} has no axis {pair.axis} of {capacity} rows")


def _check_length(record: StateRecord, inputs: dict[str, Tensor], place: str) -> None:
    """Check that there are a length, tokens and a capacity exactly if rows grow."""
    if not record.growing:
        if record.length or record.tokens or record.capacity or record.token_inputs or record.token_outputs:
            raise MalformedHeader(f"{place} are fixed, and have a length, tokens or a capacity")
        return
    if not 0 < record.tokens <= record.capacity:
        raise MalformedHeader(f"{place}: {record.tokens} tokens do not fit {record.capacity} rows")
    length = inputs.get(record.length)
    if length is None or length.dtype != LENGTH_DTYPE or set(length.shape) - {1}:
        raise MalformedHeader(f"{place}: {record.length!r} is no input with one {LENGTH_DTYPE}")


def _check_once(names: Collection[str], place: str) -> None:
    if len(set(names)) != len(names):
        raise MalformedHeader(f"{place} name a tensor twice")
