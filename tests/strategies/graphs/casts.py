"""Make random ONNX models of casts among six types, with moves, whole numbers and rounded results between them.

Where nothing before a tensor rounds, gputune and onnxruntime must agree in every bit. What is cast behind a result that
may be rounded in another way must be the cast of the value that gputune itself computes as an output.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gputune.client.model.graph import Graph, Precision
from gputune.core.dtypes import FLOAT
from gputune.core.precision import PRECISION_MODES
from tests.strategies.graphs.making import Array, Made, alone

TYPES = ("float32", "float16", "int64", "int32", "int8", "bool")
WEIGHTS: Mapping[str, Sequence[int]] = {
    "float32": (0, 6, 1, 1, 1, 1),
    "float16": (6, 0, 1, 1, 1, 1),
    **dict.fromkeys(TYPES[2:], (2, 4, 1, 1, 1, 1)),
}
"""How often each type is cast to each other one."""
SHAPES = ((5,), (3, 4), (2, 3, 5), (1, 4, 3, 3), (1, 2, 2, 3, 2))
OPSET = 19
MOST_NODES = 12
MOST_TRIED = 200
NUMBERS: Mapping[str, Sequence[float]] = {
    "float32": (1 / 3, 1e5, -7e4, 65519, 65520, -65505, 1e-8, 6e-8, 3e-5, 2049, 2051, 0.1, -1.5, 99.9, 0, 1e-3),
    "float16": (1 / 3, 65504, -2048, 6e-8, 3e-5, 2046, 0.1, -1.5, 99.9, 0, 1e-3, 17.25),
    "int64": (2049, 4099, 70000, -65521, 2**24 + 1, 2**40 + 1, 3, 0, -7, 100),
    "int32": (2049, 4099, 70000, -65521, 2**24 + 1, 3, 0, -7, 100),
    "int8": (-128, 127, 3, 0, -7, 100),
    "bool": (0, 1),
}
"""Numbers among which each type's halves, or whole numbers, are odd, too large or too small."""

EXACT = ("Neg", "Abs", "Relu", "Max", "Min")
WHOLE = ("Add", "Sub", "Mul", "Neg", "Abs", "Max", "Min")
ROUNDED = ("Mul", "Add", "Sub", "Div", "Tanh", "Sqrt", "Exp", "MatMul", "ReduceSum", "Softmax")


def made(seed: int) -> Made:
    """Return the model of a seed, whose tensors are all outputs."""
    return _Maker(seed).make()


Run = Callable[[Graph, Mapping[str, Array]], Mapping[str, Array]]


def wrong(made: Made, compute: Run, read: Callable[[onnx.ModelProto], Graph]) -> str:
    """Say what is wrong with the casts of a model; empty where nothing is. What is right is known of each node alone:
    onnxruntime leaves out casts between nodes that it computes in float32."""
    exact = _exact(made.model)
    chosen = random.Random(str(made.model.graph.node))
    computed = [name for node in made.model.graph.node for name in node.output if name in exact]
    for names in (computed[-2:], *([name] for name in computed[-1:-5:-1])):
        if not names:
            continue
        graph = read(_with_outputs(made.model, names))
        mode = chosen.choice(("", "", *PRECISION_MODES) if graph.halves else ("", FLOAT))
        got = compute(replace(graph, precision=Precision(mode)), made.inputs)
        if found := _different(got, {name: made.values[name] for name in names}):
            return f"{found} of what is exact, precision {mode or 'of the model'}"
    for node in made.model.graph.node:
        if node.op_type != "Cast" or node.input[0] in exact:
            continue
        source, target = node.input[0], node.output[0]
        value = compute(read(_with_outputs(made.model, [source])), made.inputs)[source]
        (want,) = alone(node, {source: value}, OPSET) or (None,)
        got = compute(read(_with_outputs(made.model, [target])), made.inputs)
        if want is not None and (found := _different(got, {target: want})):
            return f"{found} of the cast of {source!r}"
    return ""


def _different(got: Mapping[str, Array], want: Mapping[str, Array]) -> str:
    for name, value in want.items():
        mine = got[name]
        if mine.shape != value.shape or mine.dtype != value.dtype:
            return f"output {name!r} is {mine.dtype}{mine.shape} instead of {value.dtype}{value.shape}"
        if not np.array_equal(mine, value, equal_nan=value.dtype.kind == "f"):
            where = np.flatnonzero(mine != value)[0]
            return f"output {name!r} has {mine.flat[where]} for {value.flat[where]}"
    return ""


def _exact(model: onnx.ModelProto) -> set[str]:
    """Return the tensors before which nothing rounds but casts."""
    exact = {item.name for item in (*model.graph.input, *model.graph.initializer)}
    for node in model.graph.node:
        if exact.issuperset(node.input) and not node.name:
            exact.update(node.output)
    return exact


def _with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [item for item in model.graph.output if item.name in names]
    del copy.graph.output[:]
    copy.graph.output.extend(kept)
    return copy


class _Maker:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._shape = self._random.choice(SHAPES)
        self._values: dict[str, Array] = {}
        self._inputs: dict[str, Array] = {}
        self._weights: dict[str, Array] = {}
        self._nodes: list[onnx.NodeProto] = []
        for _ in range(self._random.choice((1, 1, 2))):
            name = f"x{len(self._inputs)}"
            self._inputs[name] = self._values[name] = self._numbers(
                self._random.choice(("float32", *TYPES[:4])), self._shape
            )

    def make(self) -> Made:
        wanted = self._random.randint(2, MOST_NODES)
        draws = (self._cast, self._cast, self._cast, self._move, self._same, self._whole, self._compare, self._rounded)
        for _ in range(MOST_TRIED):
            if len(self._nodes) < wanted:
                name = self._random.choice(list(self._values)[-4:])
                self._random.choice(draws)(name, self._values[name])
        outputs = [_info(name, self._values[name]) for node in self._nodes for name in node.output]
        graph = helper.make_graph(
            self._nodes, "casts", [_info(name, value) for name, value in self._inputs.items()], outputs,
            [numpy_helper.from_array(value, name) for name, value in self._weights.items()],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        return Made(model, self._inputs, {}, self._values, self._weights)

    def _numbers(self, dtype: str, shape: Sequence[int]) -> Array:
        values = np.array(self._random.choices(NUMBERS[dtype], k=int(np.prod(shape))))
        with np.errstate(all="ignore"):
            return values.astype(dtype).reshape(shape)

    def _weight(self, value: Array) -> str:
        name = f"w{len(self._weights)}"
        self._weights[name] = value
        return name

    def _add(self, op: str, inputs: Sequence[str], label: str = "", **attributes: Any) -> None:
        """Add a node, if onnxruntime runs it. label: of one that rounds."""
        name = f"t{len(self._nodes)}"
        node = helper.make_node(op, inputs, [name], label, **attributes)
        known = {**self._values, **self._weights}
        with np.errstate(all="ignore"):
            results = alone(node, {each: known[each] for each in inputs if each}, OPSET)
        if results is not None and results[0].size:
            self._nodes.append(node)
            self._values[name] = results[0]

    def _cast(self, name: str, value: Array) -> None:
        (dtype,) = self._random.choices(TYPES, WEIGHTS[value.dtype.name])
        if value.dtype.kind == "f" and np.dtype(dtype).kind == "i":
            most = {"int8": 120, "int32": 2e9, "int64": 9e18}[dtype]  # beyond, the device's conversion decides
            if not np.all(np.isfinite(value)) or np.abs(value.astype(np.float64)).max() > most:
                return
        if self._random.random() < 0.2:
            self._add("CastLike", [name, self._weight(np.zeros(1, dtype))])
        else:
            self._add("Cast", [name], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def _move(self, name: str, value: Array) -> None:
        rank = value.ndim
        kind = self._random.randrange(5)
        if kind == 0:
            self._add("Transpose", [name], perm=self._random.sample(range(rank), rank))
        elif kind == 1:
            self._add("Reshape", [name, self._weight(np.array([-1, value.shape[-1]]))])
        elif kind == 2:
            self._add("Concat", [name, self._like(name)], axis=self._random.randrange(rank))
        elif kind == 3:
            self._add("Slice", [name, *(self._weight(np.array([each])) for each in (0, 2, rank - 1))])
        else:
            self._add("Identity", [name])

    def _like(self, name: str) -> str:
        """Return another tensor of this type and shape, or the same."""
        value = self._values[name]
        alike = [
            each for each, other in self._values.items() if (other.dtype, other.shape) == (value.dtype, value.shape)
        ]
        return self._random.choice(alike)

    def _same(self, name: str, value: Array) -> None:
        """Add a result that is one of the operands, or has another sign."""
        op = self._random.choice(EXACT)
        self._add(op, [name, self._like(name)] if op in ("Max", "Min") else [name])

    def _whole(self, name: str, value: Array) -> None:
        if value.dtype.kind == "i":
            op = self._random.choice(WHOLE)
            self._add(op, [name] if op in ("Neg", "Abs") else [name, self._like(name)])

    def _compare(self, name: str, value: Array) -> None:
        other = self._like(name)
        if _may_be_rounded(self._nodes).isdisjoint((name, other)):
            self._add(self._random.choice(("Equal", "Greater", "Less")), [name, other])

    def _rounded(self, name: str, value: Array) -> None:
        if value.dtype.kind != "f":
            return
        op = self._random.choice(ROUNDED)
        if op == "MatMul":
            if value.ndim < 2:
                return
            weight = np.random.default_rng(self._random.randrange(99)).standard_normal((value.shape[-1], 3))
            self._add(op, [name, self._weight(weight.astype(value.dtype))], f"rounded{len(self._nodes)}")
        elif op == "ReduceSum":
            self._add(op, [name, self._weight(np.array([value.ndim - 1]))], f"rounded{len(self._nodes)}")
        elif op in ("Mul", "Add", "Sub", "Div"):
            other = self._weight(np.array(self._random.choice((0.1, 3.3, -1.7)), value.dtype))
            other = self._like(name) if self._random.random() < 0.4 else other
            self._add(op, [name, other], f"rounded{len(self._nodes)}")
        else:
            self._add(op, [name], f"rounded{len(self._nodes)}")


def _may_be_rounded(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    found = set[str]()
    for node in nodes:
        if node.name or not found.isdisjoint(node.input):
            found.update(node.output)
    return found


def _info(name: str, value: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
