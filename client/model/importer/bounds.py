"""Check that a node's axes, indices and lengths lie within its tensor, and that it divides no whole numbers by zero, as
far as they are known.

onnxruntime refuses to run a node that does, so a model with such constants is broken. Slice and OneHot are
not checked, because ONNX defines what they do with positions outside.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputune.client.model.graph import Array, TensorInfo


@dataclass(frozen=True)
class Reader:
    """A node as it is checked. tensors, constants: what is known of the tensors that it reads."""

    inputs: Sequence[str]
    attributes: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    constants: Mapping[str, Array]

    def shape(self, place: int) -> tuple[int, ...]:
        return self.tensors[self.inputs[place]].shape

    def number(self, attribute: str, default: int) -> int:
        return int(self.attributes.get(attribute, default))

    def known(self, place: int) -> tuple[str, Array | None]:
        """Return the name of an input and its value, None where it is absent or computed."""
        name = self.inputs[place] if place < len(self.inputs) else ""
        return name, self.constants.get(name) if name else None


def check_bounds(
    op: str,
    inputs: Sequence[str],
    attributes: Mapping[str, Any],
    tensors: Mapping[str, TensorInfo],
    constants: Mapping[str, Array],
) -> None:
    """Raise ValueError for the first axis, index or length that is outside, with what is allowed, or a zero."""
    node = Reader(inputs, attributes, tensors, constants)
    if op in AXES_OF_INPUT:
        _check_axes(node)
    if op in CHECKS:
        CHECKS[op](node)


def _check_axes(node: Reader) -> None:
    rank = len(node.shape(0))
    for axis in (*node.attributes.get("axes", ()), node.number("axis", 0)):
        if not -rank <= axis < max(rank, 1):
            raise ValueError(f"has no axis {axis} in its {rank} dimensions")


def _gather(node: Reader) -> None:
    _check_indices(node, [node.number("axis", 0) % len(node.shape(0))])


def _one_by_one(node: Reader) -> None:
    """GatherElements, ScatterElements and Scatter, whose indices are no longer than the data but along their axis."""
    shape, looked = node.shape(0), node.shape(1)
    axis = node.number("axis", 0) % max(len(shape), 1)
    if len(shape) != len(looked):
        raise ValueError(f"has indices of {len(looked)} dimensions, its data has {len(shape)}")
    for each, (size, length) in enumerate(zip(shape, looked, strict=True)):
        if each != axis and length > size:
            raise ValueError(
                f"has indices of the shape {looked} for data of the shape {shape}: axis {each} is too long"
            )
    _check_indices(node, [axis])


def _by_places(node: Reader) -> None:
    """GatherND and ScatterND, whose indices hold places: an index for each of several axes."""
    batch, depth, rank = node.number("batch_dims", 0), node.shape(1)[-1], len(node.shape(0))
    if batch + depth > rank:
        raise ValueError(f"has index tuples of length {depth}, but its data has only {rank - batch} dimensions")
    _check_indices(node, range(batch, batch + depth))


def _check_indices(node: Reader, axes: Sequence[int]) -> None:
    """Check indices of one axis, or in whose last dimension there is one for each of the axes."""
    name, indices = node.known(1)
    if indices is None or not indices.size:
        return
    columns = indices.reshape(-1, len(axes)).T
    for axis, values in zip(axes, columns, strict=True):
        size = node.shape(0)[axis]
        outside = values[(values < -size) | (values >= size)]
        if outside.size:
            allowed = f"{size} elements: {-size} to {size - 1}" if size else "no elements"
            raise ValueError(
                f"reads the index {outside[0]} in {name!r}; axis {axis} of {node.inputs[0]!r} has {allowed}"
            )


def _reversed(node: Reader) -> None:
    shape, times, batches = node.shape(0), node.number("time_axis", 0), node.number("batch_axis", 1)
    if {times, batches} != {0, 1}:
        raise ValueError(f"has time_axis {times} and batch_axis {batches}; ONNX allows 0 and 1, each once")
    _check_lengths(node, 1, shape[times], shape[batches])


def _recurrent(node: Reader) -> None:
    times, batches = (1, 0) if node.number("layout", 0) else (0, 1)
    _check_lengths(node, 4, node.shape(0)[times], node.shape(0)[batches])


def _check_lengths(node: Reader, place: int, longest: int, count: int) -> None:
    name, lengths = node.known(place)
    if not name:
        return
    if node.shape(place) != (count,):
        raise ValueError(f"has {count} sequences, but its lengths {name!r} have the shape {node.shape(place)}")
    if lengths is not None and (outside := lengths[(lengths < 0) | (lengths > longest)]).size:
        raise ValueError(f"reads the length {outside[0]} in {name!r}; sequences have {longest} elements at most")


def _divided(node: Reader) -> None:
    name, divisors = node.known(1)
    if divisors is not None and divisors.dtype.kind in "iu" and not divisors.all():
        raise ValueError(f"divides whole numbers by a 0 in {name!r}; other divisors are allowed")


def _scaled(node: Reader) -> None:
    """QuantizeLinear and DequantizeLinear, whose scales lie along an axis if there are several, or are of blocks."""
    shape, count, axis = node.shape(0), node.tensors[node.inputs[1]].size, node.number("axis", 1)
    block = node.number("block_size", 0)
    if count == 1 and not block:
        return
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"has no axis {axis} in its {len(shape)} dimensions")
    if block:
        wanted = list(shape)
        wanted[axis] = -(-shape[axis] // block)
        if node.shape(1) != tuple(wanted):
            raise ValueError(f"has scales of the shape {node.shape(1)}; its blocks need {tuple(wanted)}")
    elif count != shape[axis]:
        raise ValueError(f"has {count} scales for {shape[axis]} elements along axis {axis}")


AXES_OF_INPUT = frozenset(
    ("GatherElements", "MeanVarianceNormalization", "Scatter", "ScatterElements", "Slice", "Squeeze")
)
"""Operators whose axes, where they are attributes, onnx's shape inference does not look at."""

CHECKS: Mapping[str, Callable[[Reader], None]] = {
    "DequantizeLinear": _scaled,
    "Div": _divided,
    "GRU": _recurrent,
    "Gather": _gather,
    "GatherElements": _one_by_one,
    "GatherND": _by_places,
    "LSTM": _recurrent,
    "Mod": _divided,
    "QuantizeLinear": _scaled,
    "RNN": _recurrent,
    "ReverseSequence": _reversed,
    "Scatter": _one_by_one,
    "ScatterElements": _one_by_one,
    "ScatterND": _by_places,
}
