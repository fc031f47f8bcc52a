"""Leave out the rounding of activations, as --quantised float asks for: what was quantised stays the float that it was.

A quantised tensor stands for (q - zero point) * scale. If its floats are known, nothing has to be rounded:

QuantizeLinear         its input, within the range of its integers: that is the Relu or Clip which quantisers leave out
DequantizeLinear       these floats; with another scale or zero point, what that makes of them
DynamicQuantizeLinear  its input, with a scale of 1 and a zero point of 0, so that nothing behind it changes
products of integers   products of these floats and of weights that are dequantised
moves                  of these floats

Where integers themselves are read, such as outputs of the model, they are computed as by the exact rules. So are scales
that are computed in other ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gputune.client.model.graph import Exactness, Graph, Node, TensorInfo
from gputune.client.model.passes.additions import Work
from gputune.client.model.passes.quantised import is_quantised
from gputune.client.model.passes.whole_numbers import BYTES, MOVES
from gputune.core.precision import IN_FLOATS

INTEGER_PRODUCTS = {"ConvInteger": ("Conv", 0), "MatMulInteger": ("MatMul", -1)}
"""By operator, the product of floats, and the axis along which weights have several zero points."""
QUANTISED_PRODUCTS = {"QLinearConv": ("Conv", 0), "QLinearMatMul": ("MatMul", -1)}


def without_encodings(graph: Graph) -> Graph:
    """Return the graph without the rounding of activations, if its precision says so."""
    if graph.precision.quantised != IN_FLOATS or not is_quantised(graph):
        return graph
    work = _Floats(graph)
    for node in graph.nodes:
        FORMS.get(node.op, _other)(work, node)
    rewritten = graph.rewritten(work.nodes, work.constants, work.tensors)
    return replace(rewritten, scaled={}, exactness=Exactness(IN_FLOATS))


@dataclass(frozen=True)
class _Real:
    """The floats that a quantised tensor stands for, with its scale and zero point. dynamic: a DynamicQuantizeLinear
    would compute these."""

    tensor: str
    scale: float = 1.0
    zero: int = 0
    dynamic: bool = False


class _Floats(Work):
    """The nodes so far. reals: the floats of quantised tensors, by these; sums: of what products of integers would
    compute; ranges: between what floats lie; weights: of products of integers, by what these compute."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.reals: dict[str, _Real] = {}
        self.sums: dict[str, str] = {}
        self.ranges: dict[str, tuple[float, float]] = {}
        self.weights: dict[str, str | None] = {}
        self.readers = graph.readers()

    def scalar(self, node: Node, index: int) -> float | None:
        """Return the only number of a scale or zero point that is known; 0 for one that is absent."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        value = self.constants.get(name, self.graph.constants.get(name)) if name else np.zeros(())
        return None if value is None or value.size != 1 else float(value.reshape(()))

    def encoding(self, node: Node, index: int) -> tuple[float, int] | None:
        """Return a scale and the zero point behind it, if both are single numbers that are known."""
        scale, zero = self.scalar(node, index), self.scalar(node, index + 1)
        return None if scale is None or zero is None else (scale, int(zero))

    def new(self, node: Node, op: str, inputs: tuple[str, ...], wanted: str, **attributes: object) -> str:
        """Append a node that computes floats of the shape of a tensor, and return these."""
        tensor = self.tensor(f"{wanted}/float", TensorInfo(self.info(wanted).shape))
        self.nodes.append(Node(op, tensor, inputs, (tensor,), attributes, origins=node.origins))
        return tensor

    def read(self, node: Node, real: _Real, encoding: tuple[float, int], wanted: str) -> str:
        """Return the floats that a scale and zero point make of a quantised tensor, which may have others."""
        (scale, zero), source = encoding, real.tensor
        if scale != real.scale:
            factor = self.constant(f"{wanted}/factor", scale / real.scale)
            source = self.new(node, "Mul", (source, factor), wanted)
        if zero != real.zero:
            shift = self.constant(f"{wanted}/shift", (real.zero - zero) * scale)
            source = self.new(node, "Add", (source, shift), wanted)
        return source

    def weight(self, node: Node, index: int, zero: int, scale: int | None, axis: int) -> str | None:
        """Return a constant input of a product as floats. zero, scale: where its zero point and scale are among the
        inputs, single ones or along an axis. None where these are computed, or are others."""
        places = [place for place in (index, zero, scale) if place is not None and place < len(node.inputs)]
        names = [node.inputs[place] for place in places if node.inputs[place]]
        if any(name not in self.graph.constants for name in names):
            return None
        numbers, *others = (self.graph.constants[name] for name in names)
        if any(value.size not in (1, numbers.shape[axis]) for value in others):
            return None
        along = [1] * numbers.ndim
        along[axis] = -1
        spread = [value.astype(np.float32).reshape(along if value.size > 1 else ()) for value in others]
        factor = np.float32(1) if scale is None else spread.pop()
        return self.constant(f"{node.inputs[index]}/floats", (numbers.astype(np.float32) - sum(spread)) * factor)


def _other(work: _Floats, node: Node) -> None:
    """Append a node that quantises nothing; a product of two constants is one, so that scales are folded."""
    sources = [name for name in node.inputs if name] if node.op == "Concat" else node.inputs[:1]
    constants = [work.constants.get(name, work.graph.constants.get(name)) for name in node.inputs]
    if node.op == "Mul" and constants[0] is not None and constants[1] is not None:
        work.constants[node.output] = constants[0] * constants[1]
    elif node.op == "Cast" and node.inputs[0] in work.sums:
        work.nodes.append(replace(node, op="Identity", inputs=(work.sums[node.inputs[0]],), attributes={}))
    else:
        work.nodes.append(node)
        if node.op in MOVES or node.op == "Concat":
            _move(work, node, sources)


def _move(work: _Floats, node: Node, sources: Sequence[str]) -> None:
    """Append the same move of floats, where it moves quantised tensors, and note their range."""
    reals = [work.reals[name] for name in sources if name in work.reals]
    alike = len(reals) == len(sources) and len({(one.scale, one.zero) for one in reals}) == 1
    outputs = [name for name in node.outputs if name]
    if alike and node.op != "Relu" and (node.op == "Split" or len(outputs) == 1):
        made = {name: work.tensor(f"{name}/float", TensorInfo(work.info(name).shape)) for name in outputs}
        inputs = (*(one.tensor for one in reals), *node.inputs[len(sources) :])
        work.nodes.append(
            replace(
                node, name=f"{node.name}/float", inputs=inputs, outputs=tuple(made.get(n, "") for n in node.outputs)
            )
        )
        work.reals |= {name: replace(reals[0], tensor=tensor) for name, tensor in made.items()}
        _keep_range(work, [one.tensor for one in reals], made.values())
    _keep_range(work, sources, outputs)


def _keep_range(work: _Floats, sources: Sequence[str], outputs: Iterable[str]) -> None:
    ranges = [work.ranges[name] for name in sources if name in work.ranges]
    if len(ranges) == len(sources):
        lows, highs = zip(*ranges, strict=True)
        work.ranges |= dict.fromkeys(outputs, (min(lows), max(highs)))


def _quantize_linear(work: _Floats, node: Node) -> None:
    work.nodes.append(node)  # unless something reads the integers, it is not needed any more
    if work.info(node.output).dtype in BYTES and (known := work.encoding(node, 1)) is not None:
        _within(work, node, node.inputs[0], known, node.output)


def _within(work: _Floats, node: Node, source: str, encoding: tuple[float, int], output: str) -> None:
    """Note that a quantised tensor stands for floats, within the range of its integers."""
    (scale, zero), limits = encoding, np.iinfo(work.info(output).dtype)
    low, high = (limits.min - zero) * scale, (limits.max - zero) * scale
    known = work.ranges.get(source)
    if known is None or known[0] < low or high < known[1]:
        source = work.new(node, "Clip", (source,), output, min=low, max=high)
        work.ranges[source] = low, high
    work.reals[output] = _Real(source, scale, zero)


def _dequantize_linear(work: _Floats, node: Node) -> None:
    real, known = work.reals.get(node.inputs[0]), work.encoding(node, 1)
    if real is None or known is None:
        work.nodes.append(node)
        return
    source = work.read(node, real, known, node.output)
    work.nodes.append(replace(node, op="Identity", inputs=(source,), attributes={}))
    if source == real.tensor:
        _keep_range(work, [source], [node.output])


def _dynamic_quantize_linear(work: _Floats, node: Node) -> None:
    """Take the input for the quantised tensor, unless something reads integers that would be others then."""
    output, scale, zero = (*node.outputs, "", "")[:3]
    if not _is_for_products(work, node):
        work.nodes.append(node)
        return
    work.reals[output] = _Real(node.inputs[0], dynamic=True)
    work.constants[scale] = np.ones((), np.float32)
    work.constants[zero] = np.zeros((), np.uint8)


def _is_for_products(work: _Floats, node: Node) -> bool:
    """Return whether nothing but products of integers, and casts of their sums to floats, reads a quantised tensor."""
    if len(node.outputs) < 3 or not {*node.outputs}.isdisjoint(work.graph.outputs):
        return False
    output, scale, zero = node.outputs
    if any(reader.op not in ("DequantizeLinear", "Mul") for reader in work.readers.get(scale, ())):
        return False
    for reader in (*work.readers.get(output, ()), *work.readers.get(zero, ())):
        if reader.op == "DequantizeLinear" and reader.inputs == tuple(node.outputs):
            continue
        sums = work.readers.get(reader.output, []) if reader.op in INTEGER_PRODUCTS else []
        casts = [each for each in sums if each.op == "Cast" and work.info(each.output).dtype == "float32"]
        if not sums or len(casts) < len(sums) or reader.output in work.graph.outputs:
            return False
        if (reader.inputs[0], *reader.inputs[2:3]) != (output, zero) or _weight(work, reader) is None:
            return False
    return True


def _weight(work: _Floats, node: Node) -> str | None:
    """Return the weight of a product of integers as floats, if it is known."""
    if node.output not in work.weights:
        work.weights[node.output] = work.weight(node, 1, 3, None, INTEGER_PRODUCTS[node.op][1])
    return work.weights[node.output]


def _integer_product(work: _Floats, node: Node) -> None:
    op, _ = INTEGER_PRODUCTS[node.op]
    real = work.reals.get(node.inputs[0])
    right = None if real is None or not real.dynamic else _weight(work, node)
    if real is None or right is None:
        work.nodes.append(node)
        return
    work.sums[node.output] = work.new(node, op, (real.tensor, right), node.output, **node.attributes)


def _quantised_product(work: _Floats, node: Node) -> None:
    work.nodes.append(node)
    op, axis = QUANTISED_PRODUCTS[node.op]
    known = work.encoding(node, 6)
    sides = [_side(work, node, index, axis) for index in (0, 3)]
    bias = work.graph.constants.get(node.inputs[8]) if len(node.inputs) > 8 and node.inputs[8] else None
    scales = [work.graph.constants.get(node.inputs[index]) for index in (1, 4)]
    if known is None or None in sides or any(scale is None for scale in scales):
        return
    inputs = [side for side in sides if side]
    if bias is not None and scales[0] is not None and scales[1] is not None:
        inputs.append(work.constant(f"{node.name}/bias", bias * (scales[0].reshape(()) * scales[1].ravel())))
    _within(work, node, work.new(node, op, tuple(inputs), node.output, **node.attributes), known, node.output)


def _side(work: _Floats, node: Node, index: int, axis: int) -> str | None:
    """Return an input of a quantised product as floats; of the model's bytes they are dequantised."""
    name, encoding = node.inputs[index], work.encoding(node, index + 1)
    if name in work.graph.constants and (index > 0 or encoding is not None):
        return work.weight(node, index, index + 2, index + 1, axis)
    if encoding is None:
        return None
    if (real := work.reals.get(name)) is not None:
        return work.read(node, real, encoding, name)
    return work.new(node, "DequantizeLinear", tuple(node.inputs[index : index + 3]), name)


FORMS: Mapping[str, Callable[[_Floats, Node], None]] = {
    "DequantizeLinear": _dequantize_linear,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "QuantizeLinear": _quantize_linear,
    **dict.fromkeys(INTEGER_PRODUCTS, _integer_product),
    **dict.fromkeys(QUANTISED_PRODUCTS, _quantised_product),
}
