"""Say what becomes of operators that take some rows of the past, or write into it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from gputune.client.model.graph import Array
from gputune.client.model.state.by_length import begins
from gputune.client.model.state.conversion import Conversion, NotApart

PARTIAL = "it takes a part of the rows of the past that is neither their end nor their beginning"
UNKNOWN = "it takes rows of the past that are not known before it runs"


def gather(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Take rows of which the numbers are known, at each length."""
    data, indices = node.input
    axis = attributes.get("axis", 0) % len(to.sizes(data))
    if axis not in to.axes(data):
        to.keep(node)
        return
    _check_known(to, [indices])
    rest = to.sizes(data)[axis][1]

    def rows(past: int) -> Array:
        found = _value(to, indices, past).astype(np.int64)
        return np.where(found < 0, found + past + rest, found)

    found = [rows(past) for past in to.lookups.lengths]
    if len({each.shape for each in found}) == 1:
        picked = to.lookups.written(node.output[0], rows)
    elif all(begins(each, found[-1]) for each in found):  # as many as there are
        picked = to.writing.value(found[-1])
    else:
        raise NotApart(PARTIAL)
    to.writing.op("Gather", [to.read(data), picked], node.output[0], axis=axis)


def take_slice(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Take slices along axes that grow, or by numbers that depend on the length, one axis after the other."""
    data, sizes = node.input[0], to.sizes(node.input[0])
    if not to.axes(data) and not to.by_length.names.intersection(node.input[1:]):
        to.keep(node)
        return
    _check_known(to, node.input[1:])
    name, axes = to.read(data), list(_rows(to, node, attributes, to.growing.longest))
    for place, axis in enumerate(axes):
        found = {past: _rows(to, node, attributes, past)[axis] for past in to.lookups.lengths}
        output = node.output[0] if place == len(axes) - 1 else ""
        slope, rest = sizes[axis]
        if slope and all(len(each) == past + rest for past, each in found.items()):
            name = to.writing.op("Identity", [name], output)
        else:
            name = to.writing.op("Gather", [name, _picked(to, node, attributes, axis, found)], output, axis=axis)


def _picked(
    to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any], axis: int, found: Mapping[int, Array]
) -> str:
    """Write which rows a slice takes; found: those by the lengths that are looked at."""
    last = found[to.growing.longest]
    if len({len(each) for each in found.values()}) == 1:
        return to.lookups.written(node.output[0], lambda past: _rows(to, node, attributes, past)[axis])
    grows = len({len(each) - past for past, each in found.items()}) == 1
    if not grows or not all(np.array_equal(each, last[: len(each)]) for each in found.values()):
        raise NotApart(PARTIAL)
    if (np.diff(last) != 1).any():
        raise NotApart(PARTIAL)
    return to.writing.value(last)


def _rows(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any], past: int) -> dict[int, Array]:
    """Return the numbers of the rows that a slice takes, by axis, at a length."""

    def numbers(place: int, key: str) -> Sequence[int]:
        given = node.input[place] if place < len(node.input) else ""
        return [int(each) for each in _value(to, given, past).flat] if given else attributes.get(key, ())

    shape = to.growing.shape(node.input[0], past)
    starts, ends = numbers(1, "starts"), numbers(2, "ends")
    axes = numbers(3, "axes") or range(len(starts))
    found = {}
    for start, end, axis, step in zip(starts, ends, axes, numbers(4, "steps") or [1] * len(starts), strict=True):
        size = shape[axis]
        before = step < 0 and end < -size  # all to the first row, which Python has no number for
        found[axis % len(shape)] = np.arange(size)[slice(start, None if before else end, step)]
    return found


def scatter(to: Conversion, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Take updates themselves where they replace everything in order."""
    data, indices, updates = node.input
    if not any(map(to.axes, node.input)):
        to.keep(node)
        return
    everywhere = np.moveaxis(np.indices(to.growing.shape(data, to.growing.longest)), 0, -1)
    last = to.imported.constants.get(indices, np.empty(0))
    if attributes.get("reduction", b"none") != b"none" or not np.array_equal(last, everywhere):
        raise NotApart("it writes into a part of the rows of the past")
    to.writing.op("Identity", [to.read(updates)], node.output[0])


def _value(to: Conversion, name: str, past: int) -> Array:
    return to.lookups.at(name, past) if name in to.by_length.names else to.imported.constants[name]


def _check_known(to: Conversion, names: Sequence[str]) -> None:
    if not all(name in to.imported.constants for name in filter(None, names)):
        raise NotApart(UNKNOWN)
