"""Fuse elementwise operators into chains: after the operator that computes their value, or in one Elementwise node.

A fused step costs no launch and no trip through memory. A residual Add is fused after the operand that is computed
later, because by then the other operand exists. A discontinuous function begins an Elementwise node, so that it sees
the numbers that its producer has written; but whole numbers are quantised where they are computed, since these have no
error that could become larger.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from gputune.client.model.graph import ONE_FOR_ZERO, QUANTISE, RATIO, ROUNDINGS, WHOLE_SUM, Graph, Node
from gputune.client.model.passes.elementwise_forms import LARGEST
from gputune.client.model.passes.refusing import refusing
from gputune.core.dtypes import ELEMENT_TYPES
from gputune.kernels.chain import EMPTY, Chain, Step, rounded

BINARY = {
    "Add": "add",
    "Div": "div",
    "Max": "max",
    "Min": "min",
    "Mod": "mod",
    "Mul": "mul",
    "PRelu": "prelu",
    "Pow": "pow",
    "Sub": "sub",
    RATIO: "ratio",
}
SCALARS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "Celu": ("celu", {"alpha": 1.0}),
    "Elu": ("elu", {"alpha": 1.0}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Selu": ("selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "Shrink": ("shrink", {"lambd": 0.5, "bias": 0.0}),
    "Swish": ("swish", {"alpha": 1.0}),
    "ThresholdedRelu": ("threshold", {"alpha": 1.0}),
}
"""The function of an operator, and its attributes with their defaults, which are the function's values."""

UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "HardSwish": "hard_swish",
    "Log": "log",
    "Mish": "mish",
    "Neg": "neg",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
    **{op: ELEMENT_TYPES[dtype].rounding for dtype, op in ROUNDINGS.items()},
    ONE_FOR_ZERO: "one_for_zero",
    WHOLE_SUM: "whole",
}
GELUS = {"none": "gelu", "tanh": "gelu_tanh"}
"""By the attribute "approximate"."""

POWERS = {0.5: "sqrt", 2.0: "square", 3.0: "cube", -1.0: "reciprocal"}
"""Powers that are functions of their own, which cost less."""

ELEMENTWISE = frozenset((*BINARY, *SCALARS, *UNARY, QUANTISE, "Clip", "Gelu", "Identity"))
POOLING = frozenset(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"))
BROADCASTING = frozenset(("Einsum", "Elementwise"))
"""Operators whose operands may repeat along axes of the result; those of all others are shaped as it is."""

# fmt: off
MOVING = frozenset((
    "CenterCropPad", "DepthToSpace", "Expand", "Pad", "Rearrange", "Resize", "Slice", "SpaceToDepth", "Tile",
    "Transpose", "Upsample",
))
# fmt: on
"""Operators that put elements elsewhere."""

REDUCING = frozenset(
    f"Reduce{kind}" for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)
NORMALISING = frozenset(f"{kind}Normalization" for kind in ("Group", "Instance", "Layer", "Lp", "MeanVariance", "RMS"))
OF_CHANNELS = {"Conv": 1, "Gemm": -1}
"""Operators that add up products of whole numbers without an error, and the axis of their channels."""

UNROUNDED = frozenset(("Elementwise", "GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin", *MOVING)) - {
    "Resize",
    "Upsample",
}
"""Operators that leave the numbers as they are which their chain begins with."""

WITH_EPILOGUE = POOLING | REDUCING | NORMALISING | BROADCASTING | MOVING | {"Conv", "ConvTranspose", "Gemm"}


def fuse_elementwise(graph: Graph) -> Graph:
    """Return the same graph in which the only elementwise operator of float32 numbers left is Elementwise: inputs[0]
    through a chain."""
    fusion = _Fusion(graph)
    for node in graph.nodes:
        if node.op in ELEMENTWISE and graph.is_float(node):
            with refusing(node):
                fusion.take(node)
        else:
            fusion.append(node)
    return graph.rewritten(node for node in fusion.nodes if node is not None)


class _Fusion:
    """The nodes so far; None where one moved further back."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = graph.uses()
        self.nodes: list[Node | None] = []
        self.place: dict[str, int] = {}

    def append(self, node: Node) -> None:
        self.place.update(dict.fromkeys(node.outputs, len(self.nodes)))
        self.nodes.append(node)

    def take(self, node: Node) -> None:
        """Fuse an elementwise node into the latest producer that can take it, else start an Elementwise node."""
        readings = _readings(self.graph, node)
        readings.sort(key=lambda reading: self.place.get(reading[0], -1), reverse=True)
        for value, chain, operands in readings:
            index = self.place.get(value)
            producer = None if index is None else self.nodes[index]
            if index is not None and producer and self._fits(producer, value, chain, operands, node):
                self._fuse(index, producer, node, chain, operands)
                return
        shape = self.graph.shape(node.output)
        value, chain, operands = max(readings, key=lambda reading: self.graph.shape(reading[0]) == shape)
        self.append(Node("Elementwise", node.name, (value,), node.outputs, {}, chain, operands, origins=node.origins))

    def _fits(self, producer: Node, value: str, chain: Chain, operands: tuple[str, ...], reader: Node) -> bool:
        shapes = [self.graph.shape(name) for name in (value, reader.output)]
        if producer.op not in BROADCASTING:
            shapes += [self.graph.shape(name) for name in operands if not self._channels(producer, name)]
        alone = self.uses[value] == reader.inputs.count(value) and value not in operands
        return producer.op in WITH_EPILOGUE and alone and len(set(shapes)) == 1 and _stays_exact(producer, chain)

    def _channels(self, producer: Node, operand: str) -> int:
        """Return how many numbers an operand has if it has one for each channel of a product of whole numbers, or one
        for all; 0 for any other."""
        if producer.op not in OF_CHANNELS or not producer.chain.of_whole:
            return 0
        shape, output = self.graph.shape(operand), self.graph.shape(producer.output)
        wanted = [1] * len(output)
        wanted[OF_CHANNELS[producer.op]] = output[OF_CHANNELS[producer.op]]
        padded = [1] * (len(output) - len(shape)) + list(shape)
        return prod(shape) if padded in (wanted, [1] * len(output)) and shape != output else 0

    def _fuse(self, index: int, producer: Node, node: Node, chain: Chain, operands: tuple[str, ...]) -> None:
        known = tuple(dict.fromkeys((*producer.operands, *operands)))
        steps = tuple(
            step
            if step.operand is None
            else replace(
                step,
                operand=known.index(operands[step.operand]),
                channels=self._channels(producer, operands[step.operand]),
            )
            for step in chain.steps
        )
        fused = replace(
            producer,
            outputs=(node.output, *producer.outputs[1:]),
            chain=Chain((*producer.chain.steps, *steps)),
            operands=known,
            origins=(*producer.origins, *node.origins),
        )
        if all(self.place.get(name, -1) < index for name in operands):
            self.nodes[index] = fused
            self.place[node.output] = index
        else:
            self.nodes[index] = None
            self.append(fused)


def _stays_exact(producer: Node, chain: Chain) -> bool:
    """Return whether steps behind a producer give the same wherever they are computed."""
    if chain.of_whole:
        return producer.op in OF_CHANNELS
    if not chain.discontinuous:
        return True
    whole = Chain((*producer.chain.steps, *chain.steps))
    exact = whole.of_whole if producer.op in OF_CHANNELS else producer.op in UNROUNDED
    return exact and whole.quantises_exactly


def _readings(graph: Graph, node: Node) -> list[tuple[str, Chain, tuple[str, ...]]]:
    """Return the ways to see the node as a chain on one of its inputs: (value, chain, operands)."""
    if node.op not in BINARY:
        return [(node.inputs[0], _unary(node), ())]
    function = "fmod" if node.op == "Mod" and node.attributes.get("fmod", 0) else BINARY[node.op]
    left, right = node.inputs
    if left == right and function == "mul":
        return [(left, Chain((Step("square"),)), ())]
    readings: list[tuple[str, Chain, tuple[str, ...]]] = []
    for value, other, swapped in ((left, right, False), (right, left, True)):
        number = graph.scalar(other)
        if value in graph.constants and other not in graph.constants:
            continue
        if number is not None:
            power = POWERS.get(number) if function == "pow" and not swapped else None
            step = Step(power) if power else Step(function, (number,), swapped=swapped)
            readings.append((value, Chain((step,)), ()))
        else:
            readings.append((value, Chain((Step(function, operand=0, swapped=swapped),)), (other,)))
    return readings


def _unary(node: Node) -> Chain:
    if node.op == "Identity":
        return EMPTY
    if node.op in UNARY:
        return Chain((Step(UNARY[node.op]),))
    if node.op in SCALARS:
        function, defaults = SCALARS[node.op]
        return Chain((Step(function, tuple(node.attributes.get(name, number) for name, number in defaults.items())),))
    if node.op == QUANTISE:
        scale = rounded(node.attributes["scale"])
        saturate = Step("saturate", (node.attributes["low"], node.attributes["high"]))
        return Chain((saturate,) if scale == 1 else (Step("quotient", (scale, 1 / scale)), saturate))
    if node.op == "Gelu":
        if (form := node.attributes.get("approximate", "none")) not in GELUS:
            raise ValueError(f"its approximation is {form!r}; none and tanh are supported")
        return Chain((Step(GELUS[form]),))
    low, high = node.attributes["min"], node.attributes["max"]
    return Chain((Step("relu") if low == 0 and high >= LARGEST else Step("clip", (low, high)),))
