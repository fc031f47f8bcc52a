"""Hold the tensors of a quantised model as whole numbers in float32, and write moves and products of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gputune.client.errors import Refusal
from gputune.client.model.graph import QUANTISE, Array, Exactness, Graph, Node, Scaled, TensorInfo
from gputune.client.model.passes.additions import Work
from gputune.client.model.passes.whole_products import LIMIT, Factor, output_scales, whole_product
from gputune.core.precision import EXACT

BYTES = ("int8", "uint8", "int16", "uint16")
"""Types of quantised tensors; products are of whole numbers where both have one byte."""
SCALES = (2.0**-100, 2.0**100)
"""Between these no remainder of a division is subnormal, so it is exact on devices that have no such numbers."""

# fmt: off
MOVES = frozenset((
    "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Relu", "Reshape", "Slice", "SpaceToDepth",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
))
# fmt: on
"""Operators whose results are numbers of their first input, or zero, whatever positive scale these have."""
PRODUCTS = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))


@dataclass(frozen=True)
class Whole:
    """A float32 tensor of whole numbers from `low` to `high`; `scale` makes numbers of them."""

    tensor: str
    low: int
    high: int
    scale: float = 1.0

    @property
    def most(self) -> int:
        return max(-self.low, self.high)


@dataclass(frozen=True)
class Sum:
    """A float32 tensor of sums, and what each is to be multiplied with. exact: none of them was rounded."""

    tensor: str
    factor: Array
    exact: bool = True


class WholeNumbers(Work):
    """The nodes so far. numbers: the whole numbers of quantised tensors, by these and their zero points; values: those
    of tensors that were dequantised; sums: of the results of products; rounded: those in float32 of integers that were
    floats; steps, quotients: what rounds to such floats, and what these round. kept: the model's nodes of which float16
    would make something else. dequantised: the tensors that quantised ones stand for. inexact: those that follow from
    floats, which kernels may round in other ways. exceptions: the model's nodes that break the exact rules, by their
    names; `except_node` is the place to say so."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.numbers: dict[tuple[str, int | str], Whole] = {}
        self.values: dict[str, Whole] = {}
        self.sums: dict[str, Sum] = {}
        self.rounded: dict[str, str] = {}
        self.kept: set[str] = set()
        self.dequantised = {name for name, each in graph.scaled.items() if each.dequantised}
        self.inexact: set[str] = set()
        self.exceptions: dict[str, Refusal] = {}
        roundings = [node for node in graph.nodes if node.op in ("Ceil", "Floor", "Round")]
        self.steps = frozenset(node.output for node in roundings)
        self.quotients = frozenset(node.inputs[0] for node in roundings)

    def except_node(self, node: Node, why: str) -> None:
        """Note that a node multiplies quantised tensors as floats, and why."""
        for one in self.graph.in_its_words(node.unsupported(why).refusals):
            self.exceptions.setdefault(one.node, one)

    def in_floats(self, node: Node) -> None:
        """Append a node of the model as it is."""
        self.nodes.append(node)
        self.inexact.update(name for name in node.outputs if name and self.info(name).dtype == "float32")

    def exactness(self) -> Exactness:
        """Return how exact the new graph is."""
        asked, ops = self.graph.precision.quantised, self.graph.node_ops
        counts = Counter(op for name, op in ops.items() if name in self.kept and op != "DequantizeLinear")
        if asked != EXACT:
            return Exactness(asked, counts)
        steps = {tensor: 1.0 for tensor, _ in self.numbers if tensor in self.inexact}
        steps |= {tensor: whole.scale for tensor, whole in self.values.items() if tensor in self.inexact}
        return Exactness(asked, counts, tuple(self.exceptions.values()), steps)

    def add(self, node: Node, op: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        """Append a node that stands for one of the model's, and return what it computes."""
        name = node.name if output in node.outputs else output
        self.nodes.append(Node(op, name, tuple(inputs), (output,), attributes, origins=node.origins))
        return output

    def new(
        self, node: Node, op: str, inputs: Sequence[str], wanted: str, shape: tuple[int, ...], **more: object
    ) -> str:
        """Append a node that computes a new tensor of float32."""
        return self.add(node, op, inputs, self.tensor(wanted, TensorInfo(shape)), **more)

    def stored(self, node: Node, whole: str, zero: int | str, output: str) -> None:
        """Append what computes the integers of a quantised tensor."""
        shape = self.info(output).shape
        if zero:
            point = self.constant(f"{output}/zero", zero) if isinstance(zero, int) else zero
            whole = self.new(node, "Add", (whole, point), f"{output}/float", shape)
        self.add(node, "Cast", (whole,), output)

    def scale(self, node: Node, index: int) -> Array:
        """Return a scale that is known."""
        name = node.inputs[index]
        value = self.value(node, name, "scale")
        if value.dtype != np.float32:
            raise node.unsupported(f"its scale {name!r} is {value.dtype}")
        if not ((value >= SCALES[0]) & (value <= SCALES[1])).all():
            raise node.unsupported(f"its scale {name!r} is not between 2 ** -100 and 2 ** 100")
        return value

    def zero(self, node: Node, index: int) -> Array:
        """Return a zero point that is known, 0 where it is absent."""
        value = self.known(node, index, "zero point")
        return np.zeros((), np.int64) if value is None else value.astype(np.int64)

    def one(self, node: Node, value: Array, what: str) -> Array:
        """Return the only number of a scale or zero point."""
        if value.size != 1:
            raise node.unsupported(f"it has {value.size} {what}s; 1 is supported")
        return value.reshape(())

    def limits(self, node: Node, tensor: str) -> tuple[int, int]:
        """Return the least and the largest number that a quantised tensor can have."""
        dtype = self.info(tensor).dtype
        if dtype not in BYTES:
            raise node.unsupported(f"{tensor!r} is {dtype}; {', '.join(BYTES)} are supported")
        known = np.iinfo(dtype)
        return int(known.min), int(known.max)

    def whole(self, node: Node, tensor: str, zero: int | str) -> Whole:
        """Return the whole numbers of a quantised tensor, less a zero point; a name is of one that is computed."""
        if (tensor, zero) not in self.numbers and isinstance(zero, int):
            for (name, other), known in list(self.numbers.items()):
                if name == tensor and isinstance(other, int):
                    shift = self.constant(f"{tensor}/shift", other - zero)
                    moved = self.new(node, "Add", (known.tensor, shift), f"{tensor}/whole", self.info(tensor).shape)
                    self.numbers[tensor, zero] = Whole(moved, known.low + other - zero, known.high + other - zero)
                    break
        if (tensor, zero) not in self.numbers:
            low, high = self.limits(node, tensor)
            shape = self.info(tensor).shape
            found = self.new(node, "Cast", (tensor,), f"{tensor}/float", shape)
            if isinstance(zero, str):
                point = self.new(node, "Cast", (zero,), f"{zero}/float", self.info(zero).shape)
                found = self.new(node, "Sub", (found, point), f"{tensor}/whole", shape)
                low, high = low - high, high - low
            elif zero:
                point = self.constant(f"{tensor}/zero", zero)
                found = self.new(node, "Sub", (found, point), f"{tensor}/whole", shape)
                low, high = low - zero, high - zero
            self.numbers[tensor, zero] = Whole(found, low, high)
        return self.numbers[tensor, zero]

    def zero_of(self, node: Node, index: int) -> int | str:
        """Return the zero point of a whole tensor, the name of one that is computed."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        if name and name not in self.graph.constants:
            if self.info(name).size != 1:
                raise node.unsupported(f"its zero point {name!r} has several numbers, and is computed at run time")
            return name
        return int(self.one(node, self.zero(node, index), "zero point"))

    def move(self, node: Node) -> None:
        """Append a move, and the same of whole numbers where it moves such."""
        sources = [name for name in node.inputs if name] if node.op == "Concat" else node.inputs[:1]
        if self.dequantised.issuperset(sources):
            self.dequantised.update(node.outputs)
        if node.op == "Relu" and (known := self.sums.get(sources[0])) is not None:
            total = self.new(node, "Relu", (known.tensor,), f"{node.output}/sum", self.info(node.output).shape)
            self.sums[node.output] = replace(known, tensor=total)
        if node.op in ("Reshape", "Unsqueeze") and (floats := self.rounded.get(sources[0])) is not None:
            moved = self.tensor(f"{node.output}/float", TensorInfo(self.info(node.output).shape))
            self.nodes.append(replace(node, name=moved, inputs=(floats, *node.inputs[1:]), outputs=(moved,)))
            self.rounded[node.output] = moved
        values = [self.values[name] for name in sources if name in self.values]
        if node.op == "MaxPool" and len(list(filter(None, node.outputs))) > 1:  # places are no numbers of its input
            self.nodes.append(node)
        elif len(values) == len(sources) and len({one.scale for one in values}) == 1:
            for output, whole in self._moved(node, values):
                self.values[output] = whole
                factor = self.constant(f"{output}/scale", whole.scale)
                self.add(node, "Mul", (whole.tensor, factor), output)
        elif node.op != "Relu" and (zero := self._common_zero(node, sources)) is not None:
            for output, whole in self._moved(node, [self.numbers[name, zero] for name in sources]):
                self.numbers[output, zero] = whole
                self.stored(node, whole.tensor, zero, output)
        else:
            self.nodes.append(node)

    def _common_zero(self, node: Node, sources: Sequence[str]) -> int | None:
        """Return a zero point for which the whole numbers of all these tensors are there; of bytes that a pooling reads
        they always are."""
        if node.op == "MaxPool" and self.info(sources[0]).dtype in BYTES:
            self.whole(node, sources[0], next((zero for name, zero in self.numbers if name == sources[0]), 0))
        zeros = [zero for name, zero in self.numbers if name == sources[0] and isinstance(zero, int)]
        return next((zero for zero in zeros if all((name, zero) in self.numbers for name in sources)), None)

    def _moved(self, node: Node, sources: Sequence[Whole]) -> Iterator[tuple[str, Whole]]:
        """Append a move of whole numbers; yield its results, by the outputs of the model's node."""
        shapes = {name: self.info(name).shape for name in node.outputs if name}
        made = {name: self.tensor(f"{name}/whole", TensorInfo(shape)) for name, shape in shapes.items()}
        inputs = (*(each.tensor for each in sources), *node.inputs[len(sources) :])
        self.nodes.append(
            replace(
                node,
                name=f"{node.name}/whole",
                inputs=inputs,
                outputs=tuple(made.get(name, "") for name in node.outputs),
            )
        )
        low, high = min(each.low for each in sources), max(each.high for each in sources)
        for name in shapes:
            yield name, Whole(made[name], max(low, 0) if node.op == "Relu" else low, high, sources[0].scale)

    def add_integers(self, node: Node) -> None:
        """Note the sum of integers as one of floats, where it is rounded once. The integers are appended, too."""
        self.nodes.append(node)
        for name, other in (node.inputs, node.inputs[::-1]):
            total, added = self.sums.get(name), self.rounded.get(other)
            if (known := self.graph.constants.get(other)) is not None and np.abs(known).max(initial=0) < LIMIT:
                added = self.constant(f"{other}/float", known)
            if total is not None and total.exact and total.factor.size == 1 and added is not None:
                shape = self.info(node.output).shape
                both = self.new(node, "Add", (total.tensor, added), f"{node.output}/float", shape)
                self.sums[node.output] = Sum(both, total.factor, exact=False)
                return

    def multiply(self, node: Node) -> bool:
        """Append a product of dequantised tensors as one of whole numbers. Return whether it is one."""
        if not self.dequantised.issuperset(node.inputs[:2]):
            return False
        left, right = (self._factor(name) for name in node.inputs[:2])
        factor = None if left is None or right is None else output_scales(self, node, left, right)
        why = self._why_floats(node)
        if left is None or right is None or factor is None or why:
            self.except_node(node, why or "its scales differ within a sum")
            return False
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        known = self.graph.scaled.get(bias)
        whole = known.whole if known is not None and _is_of(known, factor) else None
        total = Sum(whole_product(self, node, left, right, whole)[0], factor)
        if not bias or whole is not None:
            self.sums[node.output] = total
            self.scaled_sum(node, total, node.output)
            return True
        shape = self.info(node.output).shape
        bare = self.scaled_sum(node, total, self.tensor(f"{node.output}/bare", TensorInfo(shape)))
        if node.op == "Conv":
            if bias not in self.graph.constants:
                raise self.graph.computed(node, "bias", bias)
            value = self.graph.constants[bias]
            bias = self.constant(f"{bias}/channels", value.reshape(-1, *[1] * (len(shape) - 2)))
        self.add(node, "Add", (bare, bias), node.output)
        self.inexact.add(node.output)
        return True

    def _why_floats(self, node: Node) -> str:
        """Return why a product of two dequantised tensors is one of floats, whatever their scales."""
        if any(node.attributes.get(name, 1.0) != 1.0 for name in ("alpha", "beta")):
            return "its alpha or beta is not 1"
        if node.op == "ConvTranspose":
            return "there are no whole numbers in a ConvTranspose"
        if node.op == "Conv" and len(self.info(node.output).shape) > 4:  # several convolutions are made of it
            return "it is a convolution of volumes"
        if any(self._factor(name) is None for name in node.inputs[:2]):
            return "its inputs have more than 8 bits, or a scale that is computed or along an axis of an activation"
        return ""

    def _factor(self, tensor: str) -> Factor | None:
        """Return a tensor that was dequantised from bytes as one side of a product."""
        if (known := self.values.get(tensor)) is not None:
            return Factor(known.tensor, known.most, np.asarray(known.scale)) if known.most <= 255 else None
        scaled = self.graph.scaled.get(tensor)
        if scaled is None or scaled.scales is None or not _is_plain(scaled):
            return None
        numbers = scaled.whole
        most = int(np.abs(numbers).max(initial=0))
        return Factor(numbers, most, scaled.scales) if most <= 255 else None

    def scaled_sum(self, node: Node, total: Sum, output: str) -> str:
        """Append what makes numbers of sums."""
        factor = self.constant(f"{output}/scale", total.factor)
        return self.add(node, "Mul", (total.tensor, factor), output)

    def quantised_sum(self, node: Node, total: Sum, scale: float, zero: int, output: str) -> None:
        """Append what makes quantised numbers of sums: one factor, and a rounding."""
        shape = self.info(output).shape
        factor = self.constant(f"{output}/scale", total.factor / np.float32(scale))
        scaled = self.new(node, "Mul", (total.tensor, factor), f"{output}/scaled", shape)
        self.quantise(node, scaled, 1.0, zero, output)

    def quantise(self, node: Node, value: str, scale: float, zero: int, output: str) -> None:
        """Append what rounds to the numbers of a quantised tensor."""
        shape, (low, high) = self.info(output).shape, self.limits(node, output)
        limits = {"scale": scale, "low": low - zero, "high": high - zero}
        whole = self.new(node, QUANTISE, (value,), f"{output}/whole", shape, **limits)
        self.numbers[output, zero] = Whole(whole, low - zero, high - zero)
        self.stored(node, whole, zero, output)


def _is_plain(scaled: Scaled) -> bool:
    """Return whether a DequantizeLinear made a constant by scales of float32, and not by blocks."""
    return scaled.dequantised and scaled.block == 1 and scaled.scales is not None and scaled.scales.dtype == np.float32


def _is_of(bias: Scaled, factor: Array) -> bool:
    """Return whether a bias has the scales of sums, but for how they were rounded."""
    width = bias.numbers.shape[-1] if bias.numbers.ndim else 1
    if (
        bias.scales is None
        or not _is_plain(bias)
        or bias.numbers.size != width
        or factor.size not in (1, width)
        or bias.scales.size not in (1, width)
    ):
        return False
    return np.allclose(bias.scales.ravel(), factor.ravel(), rtol=1e-5, atol=0)
