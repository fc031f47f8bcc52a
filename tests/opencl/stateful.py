"""Make models that remember, and contexts of them: a recurrent one, and a decoder of one layer and a fixed capacity."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gputune.client.context.builder import Wanted, build_all
from gputune.client.memory_types import RAW
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.importer import import_model
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.task_search import device_limits
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import Context
from gputune.runtime.context.states import FIXED, StatePair, StateRecord, TokenAxis
from tests.opencl.contexts import compiling

WORDS, HEADS, SIZE = 50, 2, 8
WIDTH = HEADS * SIZE
FIXED_STATE = StateRecord("", 0, 0, (), (), (StatePair("h", "hn", FIXED), StatePair("c", "cn", FIXED)))


def write(path: Path, backend: Backend, models: Mapping[str, tuple[onnx.ModelProto, StateRecord]]) -> Path:
    """Write a context of models with default configurations."""
    limits, wanted = device_limits(backend.identity), []
    for name, (model, states) in models.items():
        both = Alternatives(replace(import_model(model, Path(name), {}), name=name))
        plan = replace(both.plan_with(both.likely(limits)), states=states)
        wanted.append(Wanted(plan, {one.key: one for one in (untuned(task, limits) for task in plan.tasks)}))
    built = build_all(wanted, compiling(backend))
    graphs = [RAW.applied(graph) for graph in built.graphs]
    device = backend.identity.to_dict()
    write_context(path, Context(graphs, built.programs, built.weights, device, "test", {}, {}))
    return path


def growing(tokens: int, capacity: int) -> StateRecord:
    """Return the state of a decoder."""
    pairs = tuple(StatePair(f"past.{name}", f"present.{name}", 2) for name in ("key", "value"))
    return StateRecord("length", tokens, capacity, (TokenAxis("ids", 1),), (TokenAxis("logits", 1),), pairs)


class _Maker:
    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(seed)

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def value(self, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def weight(self, *shape: int) -> str:
        return self.value((self._random.standard_normal(shape) * shape[0] ** -0.5).astype(np.float32))

    def whole(self, *numbers: int) -> str:
        return self.value(np.array(numbers, np.int64))

    def model(self, inputs: Mapping[str, tuple[int, list[int]]], outputs: Mapping[str, list[int]]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "step",
            [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        return model


def cell() -> onnx.ModelProto:
    """Return a recurrent model of products: x, h and c in, y, hn and cn out."""
    make = _Maker(1)
    both = make.op("Concat", "x", "h", axis=1)
    gate = make.op("Sigmoid", make.op("MatMul", both, make.weight(12 + WIDTH, WIDTH)))
    fresh = make.op("Tanh", make.op("MatMul", both, make.weight(12 + WIDTH, WIDTH)))
    kept = make.op("Mul", gate, "c")
    make.op("Add", kept, make.op("Mul", make.op("Sub", make.value(np.array([1], np.float32)), gate), fresh), name="cn")
    make.op("Tanh", "cn", name="hn")
    make.op("MatMul", "hn", make.weight(WIDTH, 5), name="y")
    return make.model(_recurrent_inputs([1, 12], [1, WIDTH]), {"y": [1, 5], "hn": [1, WIDTH], "cn": [1, WIDTH]})


def lstm() -> onnx.ModelProto:
    """Return a model of an LSTM with the same inputs and outputs."""
    make = _Maker(1)
    weights = [make.weight(1, 4 * WIDTH, 12), make.weight(1, 4 * WIDTH, WIDTH), make.weight(1, 8 * WIDTH)]
    make.nodes.append(helper.make_node("LSTM", ["x", *weights, "", "h", "c"], ["y", "hn", "cn"], hidden_size=WIDTH))
    state = [1, 1, WIDTH]
    return make.model(_recurrent_inputs([3, 1, 12], state), {"y": [3, 1, 1, WIDTH], "hn": state, "cn": state})


def _recurrent_inputs(x: list[int], state: list[int]) -> dict[str, tuple[int, list[int]]]:
    return {"x": (TensorProto.FLOAT, x), "h": (TensorProto.FLOAT, state), "c": (TensorProto.FLOAT, state)}


def decoder(tokens: int, capacity: int) -> onnx.ModelProto:
    """Return a layer of attention over all rows so far. Its weights are the same for any number of tokens. New rows are
    written at the length, and rows behind the end are masked."""
    make = _Maker(2)
    rows = make.value(np.arange(capacity, dtype=np.int32))
    offsets = make.op("Sub", rows, "length")
    inside = make.op("And", make.op("GreaterOrEqual", offsets, make.value(np.array([0], np.int32))),
                     make.op("Less", offsets, make.value(np.array([tokens], np.int32))))  # fmt: skip
    inside = make.op("Reshape", inside, make.whole(1, 1, capacity, 1))
    taken = make.op("Clip", offsets, make.value(np.array(0, np.int32)), make.value(np.array(tokens - 1, np.int32)))
    x = make.op("Gather", make.weight(WORDS, WIDTH), "ids")
    split = make.whole(1, tokens, HEADS, SIZE)

    def heads() -> str:
        flat = make.op("MatMul", x, make.weight(WIDTH, WIDTH))
        return make.op("Transpose", make.op("Reshape", flat, split), perm=[0, 2, 1, 3])

    def kept(name: str) -> str:
        new = make.op("Gather", heads(), taken, axis=2)
        return make.op("Where", inside, new, f"past.{name}", name=f"present.{name}")

    query, key, value = heads(), kept("key"), kept("value")
    scores = make.op("MatMul", query, make.op("Transpose", key, perm=[0, 1, 3, 2]))
    last = make.op("Add", make.value(np.arange(tokens, dtype=np.int32).reshape(1, 1, tokens, 1)), "length")
    seen = make.op("LessOrEqual", make.op("Reshape", rows, make.whole(1, 1, 1, capacity)), last)
    scores = make.op("Where", seen, scores, make.value(np.array(-1e30, np.float32)))
    mixed = make.op("MatMul", make.op("Softmax", scores, axis=-1), value)
    joined = make.op("Reshape", make.op("Transpose", mixed, perm=[0, 2, 1, 3]), make.whole(1, tokens, WIDTH))
    make.op("MatMul", make.op("Add", x, joined), make.weight(WIDTH, WORDS), name="logits")
    state = [1, HEADS, capacity, SIZE]
    inputs = {"ids": (TensorProto.INT64, [1, tokens]), "length": (TensorProto.INT32, [1])}
    inputs |= {f"past.{name}": (TensorProto.FLOAT, state) for name in ("key", "value")}
    outputs = {"logits": [1, tokens, WORDS], **{f"present.{name}": state for name in ("key", "value")}}
    return make.model(inputs, outputs)
