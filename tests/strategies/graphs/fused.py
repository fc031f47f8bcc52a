"""Make random blocks of transformers and CNNs, and have onnxruntime fuse them: the fused model computes the plain one.

onnxruntime's optimiser writes what it has fused to a file. Attention is fused by its tool for transformers.
"""

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.strategies.graphs.making import Array, Made

OPSETS = (11, 13, 14, 17, 18, 20)
BATCH, ROWS, HEADS, SIZE = 2, 6, 4, 8
WIDTH = HEADS * SIZE


def made(seed: int) -> Made:
    """Return the plain model of a seed."""
    return _Maker(seed).make()


def fused(model: ModelProto, transformer: bool) -> ModelProto:
    """Return what onnxruntime makes of a model at level extended, or its tool for transformers."""
    with tempfile.TemporaryDirectory(prefix="gputune-fuzz-") as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(Path(folder) / "fused.onnx")
        options.log_severity_level = 4
        if not transformer:
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return onnx.load(options.optimized_model_filepath)
        from onnxruntime.transformers.optimizer import optimize_model  # it takes a second to import

        path = Path(folder) / "plain.onnx"
        onnx.save(model, path)
        optimize_model(str(path), "bert", HEADS, WIDTH, opt_level=0).save_model_to_file(
            options.optimized_model_filepath
        )
        return onnx.load(options.optimized_model_filepath)


class _Maker:
    """Write blocks, each of which turns rows [BATCH, ROWS, WIDTH] into such rows."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._opset = self._random.choice(OPSETS)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, Array] = {}

    def make(self) -> Made:
        blocks: Sequence[Callable[[str], str]] = (
            self._feed_forward, self._attention, self._maps, self._rows, self._scaled, self._normalised,
        )  # fmt: skip
        result = "x"
        for block in self._random.choices(blocks, k=self._random.randint(1, 4)):
            result = block(result)
            if self._random.random() < 0.5:
                result = self._normalised(self._add("Add", result, "x"))
        x: Array = self._numbers.standard_normal((BATCH, ROWS, WIDTH), dtype=np.float32)
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", result)]
        weights = [numpy_helper.from_array(value, name) for name, value in self._weights.items()]
        graph = helper.make_graph(self._nodes, "random", ends[:1], ends[1:], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self._opset)], ir_version=8)
        return Made(model, {"x": x}, {}, {"x": x}, self._weights)

    def _add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def _weight(self, *shape: int) -> str:
        return self._constant(self._numbers.standard_normal(shape, dtype=np.float32) / np.sqrt(shape[0]))

    def _constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"w{len(self._weights)}"
        self._weights[name] = np.asarray(value, dtype)
        return name

    def _shaped(self, value: str, *shape: int) -> str:
        return self._add("Reshape", value, self._constant(shape, np.int64))

    def _mean(self, value: str) -> str:
        if self._opset < 18:
            return self._add("ReduceMean", value, axes=[-1])
        return self._add("ReduceMean", value, self._constant([-1], np.int64))

    def _projected(self, value: str, width: int = WIDTH) -> str:
        return self._add("Add", self._add("MatMul", value, self._weight(WIDTH, width)), self._weight(width))

    def _gated(self, value: str) -> str:
        """Write an activation as exporters do."""
        kind = self._random.choice(("erf", "tanh", "sigmoid", "relu"))
        half, one = self._constant(0.5), self._constant(1.0)
        if kind == "erf":
            error = self._add("Erf", self._add("Div", value, self._constant(np.sqrt(2))))
            return self._add("Mul", self._add("Mul", value, self._add("Add", error, one)), half)
        if kind == "tanh":
            cube = self._add("Mul", self._add("Pow", value, self._constant(3.0)), self._constant(0.044715))
            bent = self._add(
                "Tanh", self._add("Mul", self._add("Add", value, cube), self._constant(np.sqrt(2 / np.pi)))
            )
            return self._add("Mul", self._add("Mul", value, self._add("Add", bent, one)), half)
        if kind == "sigmoid":
            return self._add("Mul", value, self._add("Sigmoid", self._add("Mul", value, self._constant(1.702))))
        return self._add("Relu", value)

    def _feed_forward(self, value: str) -> str:
        return self._projected(self._gated(self._projected(value)))

    def _normalised(self, value: str) -> str:
        if self._opset >= 17 and self._random.random() < 0.4:
            return self._add("LayerNormalization", value, self._weight(WIDTH), self._weight(WIDTH), epsilon=1e-5)
        simple = self._random.random() < 0.4
        apart = value if simple else self._add("Sub", value, self._mean(value))
        square = self._mean(self._add("Pow", apart, self._constant(2.0)))
        normal = self._add("Div", apart, self._add("Sqrt", self._add("Add", square, self._constant(1e-5))))
        scaled = self._add("Mul", normal, self._weight(WIDTH))
        return scaled if simple else self._add("Add", scaled, self._weight(WIDTH))

    def _scaled(self, value: str) -> str:
        turned = self._add("Transpose", value, perm=[0, 2, 1])
        scores = self._add("Mul", self._add("MatMul", value, turned), self._constant(0.17))
        return self._add("MatMul", self._add("Softmax", scores, axis=2), value)

    def _maps(self, value: str) -> str:
        maps = self._shaped(value, BATCH, ROWS, SIZE, HEADS)
        weight = self._weight(ROWS, ROWS, 3, 3)
        found = self._add("Conv", maps, weight, self._weight(ROWS), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        if self._random.random() < 0.5:
            found = self._add("Add", found, maps)
        op, attributes = self._random.choice(
            (("Relu", {}), ("LeakyRelu", {"alpha": 0.2}), ("Sigmoid", {}), ("Tanh", {}))
        )
        return self._shaped(self._add(op, found, **attributes), BATCH, ROWS, WIDTH)

    def _rows(self, value: str) -> str:
        rows = self._shaped(value, BATCH * ROWS, WIDTH)
        product = self._add(
            "Gemm", rows, self._weight(WIDTH, WIDTH), self._weight(WIDTH), transB=self._random.randint(0, 1)
        )
        op = self._random.choice(("Relu", "LeakyRelu", "Sigmoid", "Tanh"))
        return self._shaped(self._add(op, product), BATCH, ROWS, WIDTH)

    def _attention(self, value: str) -> str:
        heads = [self._shaped(self._projected(value), BATCH, ROWS, HEADS, SIZE) for _ in range(3)]
        query, key, kept = (
            self._add("Transpose", each, perm=[0, 2, 3, 1] if k == 1 else [0, 2, 1, 3]) for k, each in enumerate(heads)
        )
        scores = self._add("Div", self._add("MatMul", query, key), self._constant(np.sqrt(SIZE)))
        if self._random.random() < 0.5:
            hidden = np.where(self._numbers.random((1, 1, ROWS, ROWS)) < 0.3, -1e4, 0)
            scores = self._add("Add", scores, self._constant(hidden))
        sums = self._add("MatMul", self._add("Softmax", scores, axis=3), kept)
        rows = self._shaped(self._add("Transpose", sums, perm=[0, 2, 1, 3]), BATCH, ROWS, WIDTH)
        return self._normalised(self._add("Add", self._projected(rows), value))
