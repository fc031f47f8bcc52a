"""Make random ONNX models: odd attributes, operator sets 7 to 21, shared weights, several readers, names that collide.

A model is made node by node. Each node is computed by onnxruntime alone as soon as it is drawn, so its outputs' shapes
and values are known, and what onnxruntime refuses, what is too large or not finite, or what a rounding error could turn
into something else (see `steady`), is drawn again.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]

OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)
MOST_ELEMENTS = 6000
MOST_RANK = 5
LARGEST = 1e4
"""Of a value: what grows on would overflow soon."""
HARD = (np.inf, -np.inf, np.nan, 3.4e38, -2e38, 1e20, -0.0, 0.0, -1e-30, 1.2e-38)
"""Not finite, nearly so, zero and small. No subnormal numbers: devices may take them for zero."""
MOST_TRIED = 20
SIZES = (
    (1, 3, 5, 7), (2, 4, 6, 6), (1, 8, 1, 9), (3, 5, 4, 1), (2, 16, 3, 3), (1, 1, 7, 5), (1, 6, 8, 10),
    (7,), (5, 3), (16, 1), (2, 3, 5), (1, 1, 33), (1, 40, 6), (3, 8, 12), (2, 1, 3, 2, 5), (1, 4, 3, 4, 5),
    (1, 3, 4, 4, 4),
)  # fmt: skip
"""Of inputs."""
SUFFIXES = (
    "add", "alpha", "bare", "beta", "bias", "factor", "float", "map", "mask", "matrix", "number", "product", "raised",
    "shape", "shift", "sum", "turned", "value", "values", "weight", "zero", "zeros", "0", "output", "packed",
)  # fmt: skip
"""What passes and lowering put behind a name to make another one."""


@dataclass
class Drawn:
    """A node that is to be added: what it reads, its attributes, and how many outputs it has."""

    op: str
    inputs: Sequence[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1


@dataclass(frozen=True)
class Made:
    """A model, inputs for it, and the dimensions that its dynamic inputs get. `values` is what each of its inputs and
    tensors is where every node is computed alone, `weights` are its constants."""

    model: onnx.ModelProto
    inputs: Mapping[str, Array]
    dimensions: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Array]
    weights: Mapping[str, Array]


class Maker:
    """Draws one model from a seed. What draws nodes (nodes.py) reads `random`, `numbers`, `opset`, `values`.
    hard: models are of one to five nodes, and there are HARD values among their inputs, weights and results.
    plain: models have no odd names, functions, dynamic sizes and nodes of constants."""

    def __init__(
        self,
        seed: int,
        draws: Sequence[Callable[["Maker", str], Drawn | None]],
        hard: bool = False,
        plain: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = self.random.choice(OPSETS)
        self.hard = hard
        self._odd = not plain
        self.values: dict[str, Array] = {}
        self._draws = draws
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, Array] = {}
        self._inputs: dict[str, Array] = {}
        for _ in range(self.random.choice((1, 1, 1, 2))):
            value = self.numbers.standard_normal(self.random.choice(SIZES), dtype=np.float32)
            self._inputs[self._name("x")] = self._hardened(value, 0.8)
        self.values.update(self._inputs)

    def make(self) -> Made:
        """Return the model, of one to ten nodes, or six at least if it is plain."""
        usual = (1, 2, 3, 4, 6, 8, 10) if self._odd else (6, 8, 10)
        wanted = self.random.choice((1, 2, 3, 4, 5) if self.hard else usual)
        for _ in range(wanted * MOST_TRIED):
            if len(self._nodes) >= wanted:
                break
            before = dict(self._weights)
            drawn = self.random.choice(self._draws)(self, self.recent())
            if drawn is None or not self._add(drawn):
                self._weights = before  # what only a node that is not there reads
        made = [name for node in self._nodes for name in node.output if name]
        if not made:
            return Maker(self.random.randrange(2**32), self._draws, self.hard, not self._odd).make()
        chosen = self.random.sample(made, self.random.randint(1, min(3, len(made))))
        outputs = list(dict.fromkeys([*chosen, self._nodes[-1].output[0]]))
        self.random.shuffle(outputs)
        model, dimensions = self._model(outputs)
        return Made(model, self._inputs, dimensions, self.values, self._weights)

    # --- what nodes are drawn with ---

    def recent(self, dtype: str = "float32", fits: Callable[[Array], bool] = lambda value: True) -> str:
        """A tensor of a type that fits, more likely one of the last; "" where there is none."""
        names = [name for name, value in self.values.items() if value.dtype == dtype and fits(value)]
        return names[-1 - min(int(self.random.expovariate(0.5)), len(names) - 1)] if names else ""

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.values[name].shape)

    def rank(self, name: str) -> int:
        return self.values[name].ndim

    def axes(self, name: str) -> list[int]:
        """Some axes of a tensor, in any order, counted from either end."""
        rank = self.rank(name)
        axes = self.random.sample(range(rank), self.random.randint(min(1, rank), rank))
        return [axis - rank if self.flip(0.3) else axis for axis in axes]

    def weight(self, *shape: int, low: float | None = None) -> str:
        """A constant of normal numbers by the root of what is summed, or of uniform ones from `low` to one above it;
        often one that is there already."""
        shared = [name for name, value in self._weights.items() if value.shape == shape and value.dtype == np.float32]
        if shared and low is None and self.random.random() < 0.4:
            return self.random.choice(shared)
        if low is not None:
            return self.constant(self.numbers.uniform(low, low + 1, shape).astype(np.float32))
        scale = np.float32(max(prod(shape[1:]), 1) ** -0.5)
        return self.constant(self._hardened(self.numbers.standard_normal(shape, dtype=np.float32) * scale, 0.15))

    def _hardened(self, value: Array, probability: float) -> Array:
        """Return the value with some elements replaced by HARD ones, often of one kind."""
        if not self.hard or not value.size or not self.flip(probability):
            return value
        among = HARD if self.flip() else (self.random.choice(HARD),)
        for _ in range(self.random.choice((1, 1, 2, 5))):
            value.flat[self.random.randrange(value.size)] = self.random.choice(among)
        return value

    def constant(self, value: Any) -> str:
        name = self._name("w")
        self._weights[name] = np.asarray(value)
        return name

    def number(self, value: float) -> str:
        """A float32 scalar, of rank 0 or 1."""
        return self.constant(np.full(self.random.choice(((), (), (1,))), value, np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def flip(self, probability: float = 0.5) -> bool:
        return self.random.random() < probability

    # --- the model ---

    def _add(self, drawn: Drawn) -> bool:
        names = [self._name("t") for _ in range(drawn.outputs)]
        if any(value == [] for value in drawn.attributes.values()):  # a list of nothing has no type
            return False
        node = helper.make_node(drawn.op, list(drawn.inputs), names, self._node_name(), **drawn.attributes)
        known = {name: self.values.get(name, self._weights.get(name)) for name in drawn.inputs if name}
        results = alone(node, {name: value for name, value in known.items() if value is not None}, self.opset)
        if results is None or not all(_usable(result, self.hard) for result in results):
            return False
        if not steady(node, [known.get(name) for name in drawn.inputs]):
            return False
        self._nodes.append(node)
        self.values.update(zip(names, results, strict=True))
        return True

    def _name(self, kind: str) -> str:
        """A name that is not there yet; now and then one that looks as if a pass had made it."""
        taken = {*self.values, *self._weights, *self._inputs}
        if taken and self._odd and self.flip(0.15):
            wanted = f"{self.random.choice(sorted(taken))}/{self.random.choice(SUFFIXES)}"
            if wanted not in taken:
                return wanted
        count = len(taken)
        while (wanted := f"{kind}{count}") in taken:
            count += 1
        return wanted

    def _node_name(self) -> str:
        """Unique, missing, or that of another thing."""
        own = f"n{len(self._nodes)}"
        if not self._odd:
            return own
        others = sorted({*self.values, *(node.name for node in self._nodes)} - {""})
        among = [own, own, "", f"{self.random.choice(others)}/{self.random.choice(SUFFIXES)}"]
        wanted = self.random.choice(among)
        return wanted if wanted not in {node.name for node in self._nodes} else own

    def _model(self, outputs: Sequence[str]) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
        nodes, read = list(self._nodes), {name for node in self._nodes for name in node.input}
        weights = {name: value for name, value in self._weights.items() if name in read}
        for name in [name for name in weights if self._odd and self.flip(0.1)]:
            constant = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(weights.pop(name)))
            nodes.insert(0, constant)
        functions = []
        if self._odd and self.opset >= 15 and self.flip(0.2):
            functions = _as_function(nodes, self.random.randrange(len(nodes)), self.opset)
        dimensions = {name: value.shape for name, value in self._inputs.items() if self._odd and self.flip(0.3)}
        inputs = [_info(name, value, name in dimensions) for name, value in self._inputs.items()]
        graph = helper.make_graph(
            nodes, "random", inputs,
            [_info(name, self.values[name], self._odd and self.flip(0.3)) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in weights.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", self.opset), *([helper.make_opsetid("own", 1)] if functions else [])]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions), dimensions


def _info(name: str, value: Array, dynamic: bool) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    shape = [f"d{axis}_{size}" for axis, size in enumerate(value.shape)] if dynamic else value.shape
    return helper.make_tensor_value_info(name, kind, shape)


def _as_function(nodes: list[onnx.NodeProto], place: int, opset: int) -> list[onnx.FunctionProto]:
    """Puts the node at `place` into a function of the model, its attributes included, and a call in its place."""
    node = nodes[place]
    if node.op_type == "Constant" or "" in node.input or len(set(node.input)) < len(node.input):
        return []
    inputs, outputs = [f"a{k}" for k in range(len(node.input))], [f"t{k}" for k in range(len(node.output))]
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    del inner.input[:], inner.output[:]
    inner.input.extend(inputs)
    inner.output.extend(outputs)
    nodes[place] = helper.make_node("Wrapped", node.input, node.output, node.name, domain="own")
    return [helper.make_function("own", "Wrapped", inputs, outputs, [inner], [helper.make_opsetid("", opset)])]


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime without the fusions that change numbers, on one thread. Raises whatever it raises."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def single(
    node: onnx.NodeProto, inputs: Mapping[str, Array], constants: Mapping[str, Array], opset: int
) -> onnx.ModelProto:
    """A model of one node."""
    graph = helper.make_graph(
        [node],
        "single",
        [_info(name, value, False) for name, value in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in node.output],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def alone(node: onnx.NodeProto, inputs: Mapping[str, Array], opset: int) -> list[Array] | None:
    """What onnxruntime computes for one node; None where it refuses to, or knows more than the operator set."""
    try:
        if onnx.defs.get_schema(node.op_type, opset, node.domain).deprecated:
            return None
        return list(session(single(node, inputs, {}, opset)).run(None, dict(inputs)))
    except Exception:  # onnxruntime's errors have no class of their own
        return None


def _usable(value: Any, hard: bool) -> bool:
    if not isinstance(value, np.ndarray) or not 0 < value.size <= MOST_ELEMENTS or value.ndim > MOST_RANK:
        return False
    if value.dtype == np.float32:
        return hard or bool(np.isfinite(value).all() and np.abs(value).max() < LARGEST)
    return value.dtype in (np.int64, np.int32, np.bool_)


NEAR = 1e-3
"""Numbers nearer than this may change places, or fall on the other side of an edge, where sums are rounded in another
way."""
EDGES = {"Floor": 1.0, "Ceil": 1.0, "Cast": 1.0, "Round": 0.5, "Sign": 0.0}
ORDERED = ("ArgMax", "ArgMin", "TopK", "Hardmax", "MaxPool")
COMPARED = ("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual", "Mod")


def steady(node: onnx.NodeProto, inputs: Sequence[Array | None]) -> bool:
    """Whether another rounding of its inputs gives nearly the same result. Equal numbers are equal in both."""
    first = inputs[0] if inputs else None
    if first is None or first.dtype != np.float32:
        return True
    with np.errstate(all="ignore"):  # infinities less themselves
        return _steady(node, first, inputs)


def _steady(node: onnx.NodeProto, first: Array, inputs: Sequence[Array | None]) -> bool:
    if node.op_type in EDGES:
        step = EDGES[node.op_type]
        off = np.abs(first - np.rint(first / step) * step if step else first)
        return not ((off > 0) & (off < NEAR)).any()
    if node.op_type in ORDERED and (len(node.output) > 1 or node.op_type != "MaxPool"):
        gaps = np.diff(np.sort(first[np.isfinite(first)], axis=None))
        return not ((gaps > 0) & (gaps < NEAR * 0.1)).any()
    if node.op_type in COMPARED and inputs[1] is not None:
        gaps = np.abs(first - inputs[1])
        return not ((gaps > 0) & (gaps < NEAR)).any()
    return node.op_type not in ("ThresholdedRelu", "Shrink") or not (np.abs(np.abs(first) - 1) < NEAR).any()
