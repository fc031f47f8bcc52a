"""Make small decoders in the forms that exporters write, with random weights.

`llama` builds its mask as transformers does, and is given positions; `gpt2` takes its mask out of a constant triangle;
`t5` has relative positions in buckets, and keys of an encoder; `attention` is ONNX's own operator, of operator set 23;
`grouped` is what onnxruntime-genai makes; `merged` has an If on use_cache_branch with a whole decoder in each branch,
of which one begins; `prefix` has no past.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

HEADS, GROUPS, SIZE, WORDS, LOWEST = 4, 2, 8, 40, float(np.finfo(np.float32).min)
WIDTH = HEADS * SIZE
PLACES = 64
PAST, STEP, TOTAL = "past_sequence_length", "sequence_length", "past_sequence_length + sequence_length"
END = 2**62


class Maker:
    """Collects nodes; each method returns the name of a tensor."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.random = np.random.default_rng(0)

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, count: int, *inputs: Any, **attributes: Any) -> list[str]:
        names = [f"{kind}_{len(self.nodes)}.{place}" for place in range(count)]
        read = [each if isinstance(each, str) else self.value(each) for each in inputs]
        self.nodes.append(helper.make_node(kind, read, names, f"/{kind}_{len(self.nodes)}", **attributes))
        return names

    def value(self, given: npt.ArrayLike) -> str:
        array = np.asarray(given)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        self.weights.append(numpy_helper.from_array(array, f"value_{len(self.weights)}"))
        return self.weights[-1].name

    def weight(self, *shape: int) -> str:
        return self.value(self.random.standard_normal(shape) * shape[0] ** -0.5)

    def into(self, name: str, kind: int, *shape: str | int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def out(self, tensor: str, name: str, *shape: str | int) -> None:
        self.nodes.append(helper.make_node("Identity", [tensor], [name], f"/{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def dim(self, tensor: str, axis: int) -> str:
        return self.op("Gather", self.op("Shape", tensor), np.int64(axis), axis=0)

    def shape(self, *parts: str | int) -> str:
        rows = [
            self.op("Unsqueeze", each, np.array([0])) if isinstance(each, str) else np.array([each]) for each in parts
        ]
        return self.op("Concat", *rows, axis=0)

    def range(self, start: str | np.int64, end: str) -> str:
        return self.op("Range", start, end, np.int64(1))

    def model(self, opset: int = 17) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "step", self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=8 if opset < 23 else 11)
        onnx.checker.check_model(made)
        return made

    # pieces of decoders

    def words(self) -> tuple[str, str, str]:
        """Return the embedded words, and the sizes of batch and step."""
        ids = self.into("input_ids", TensorProto.INT64, "batch_size", STEP)
        return self.op("Gather", self.weight(WORDS, WIDTH), ids), self.dim(ids, 0), self.dim(ids, 1)

    def scaled(self, x: str) -> str:
        mean = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1])
        return self.op("Div", x, self.op("Sqrt", self.op("Add", mean, np.float32(1e-6))))

    def product(self, x: str, columns: int = 0) -> str:
        return self.op("MatMul", x, self.weight(WIDTH, columns or WIDTH))

    def heads(self, x: str, batch: str, step: str, count: int = 0) -> str:
        shape = self.shape(batch, step, count or HEADS, SIZE)
        return self.op("Transpose", self.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def attended(self, q: str, k: str, v: str, batch: str, step: str, scored: Callable[[str], str]) -> str:
        """Return what heads take of values; scored: what becomes of the scores."""
        scores = scored(self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2])))
        mixed = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.product(self.op("Reshape", mixed, self.shape(batch, step, WIDTH)))

    def past(self, name: str, new: str, groups: int = 0) -> str:
        groups = groups or HEADS
        past = self.into(f"past_key_values.{name}", TensorProto.FLOAT, "batch_size", groups, PAST, SIZE)
        joined = self.op("Concat", past, new, axis=2)
        self.out(joined, f"present.{name}", "batch_size", groups, TOTAL, SIZE)
        return joined

    def logits(self, x: str, rows: str = STEP) -> None:
        self.out(self.product(x, columns=WORDS), "logits", "batch_size", rows, WORDS)


def llama() -> onnx.ModelProto:
    m = Maker()
    x, batch, step = m.words()
    given = m.into("attention_mask", TensorProto.INT64, "batch_size", TOTAL)
    places = m.into("position_ids", TensorProto.INT64, "batch_size", STEP)
    target = m.dim(given, 1)
    mask = _written_mask(m, given, batch, step, target)
    inverse = m.op("Expand", (100.0 ** -(np.arange(0, SIZE, 2) / SIZE)).reshape(1, -1, 1), m.shape(batch, SIZE // 2, 1))
    turned = m.op("MatMul", inverse, m.op("Cast", m.op("Unsqueeze", places, np.array([1])), to=1))
    angles = m.op("Transpose", turned, perm=[0, 2, 1])
    angles = m.op("Concat", angles, angles, axis=-1)
    cos, sin = (m.op("Unsqueeze", m.op(kind, angles), np.array([1])) for kind in ("Cos", "Sin"))

    def rotated(x: str) -> str:
        half = SIZE // 2
        first, last = (
            m.op("Slice", x, np.array([a]), np.array([b]), np.array([3])) for a, b in ((0, half), (half, END))
        )
        return m.op("Add", m.op("Mul", x, cos), m.op("Mul", m.op("Concat", m.op("Neg", last), first, axis=-1), sin))

    def repeated(x: str) -> str:
        length = m.dim(x, 2)
        wide = m.op(
            "Expand", m.op("Unsqueeze", x, np.array([2])), m.shape(batch, GROUPS, HEADS // GROUPS, length, SIZE)
        )
        return m.op("Reshape", wide, m.shape(batch, HEADS, length, SIZE))

    y = m.scaled(x)
    q = rotated(m.heads(m.product(y), batch, step))
    k = m.past("0.key", rotated(m.heads(m.product(y, columns=GROUPS * SIZE), batch, step, GROUPS)), GROUPS)
    v = m.past("0.value", m.heads(m.product(y, columns=GROUPS * SIZE), batch, step, GROUPS), GROUPS)
    seen = m.op("Slice", mask, np.array([0]), m.shape(m.dim(k, 2)), np.array([3]))
    x = m.op("Add", x, m.attended(q, repeated(k), repeated(v), batch, step, lambda scores: m.op("Add", scores, seen)))
    gate = m.product(m.scaled(x))
    m.logits(m.op("Add", x, m.op("Mul", gate, m.op("Sigmoid", gate))))
    return m.model()


def _written_mask(m: Maker, given: str, batch: str, step: str, target: str) -> str:
    """Return the mask as transformers builds it: the lowest number above the diagonal, into which the padding is
    written."""
    positions = m.range(m.op("Sub", target, step), target)
    full = m.op("ConstantOfShape", m.shape(step, target), value=helper.make_tensor("v", 1, [1], [LOWEST]))
    full = m.op("Trilu", full, np.int64(1), upper=1)
    later = m.op("Greater", m.range(np.int64(0), target), m.op("Reshape", positions, np.array([-1, 1])))
    full = m.op("Mul", full, m.op("Cast", later, to=1))
    grid = m.shape(batch, 1, step, target)
    full = m.op("Expand", m.op("Unsqueeze", full, np.array([0, 1])), grid)
    seen = m.op("Slice", full, np.array([0]), m.shape(target), np.array([3]))
    padding = m.op("Add", seen, m.op("Cast", m.op("Unsqueeze", given, np.array([1, 2])), to=1))
    filled = m.op("Where", m.op("Equal", padding, np.float32(0)), np.float32(LOWEST), seen)
    sizes = ((batch, [-1, 1, 1, 1]), (m.op("Identity", np.int64(1)), [-1, 1, 1]), (step, [-1, 1]), (target, [-1]))
    index = [
        m.op(
            "Unsqueeze",
            m.op("Expand", m.op("Reshape", m.range(np.int64(0), dim), np.array(shape)), grid),
            np.array([-1]),
        )
        for dim, shape in sizes
    ]
    return m.op("ScatterND", full, m.op("Concat", *index, axis=-1), filled)


def gpt2() -> onnx.ModelProto:
    m = Maker()
    x, batch, step = m.words()
    total = m.op("Add", m.dim("past_key_values.0.key", 2), step)
    places = m.op("Unsqueeze", m.range(m.op("Sub", total, step), total), np.array([0]))
    x = m.op("Add", x, m.op("Gather", m.weight(PLACES, WIDTH), places))
    triangle = m.value(np.tril(np.ones((1, 1, PLACES, PLACES), bool)))
    y = m.op("LayerNormalization", x, m.weight(WIDTH), m.weight(WIDTH), axis=-1)
    parts = m.ops("Split", 3, m.product(y, columns=3 * WIDTH), np.array([WIDTH] * 3), axis=2)
    q, k, v = (m.heads(part, batch, step) for part in parts)
    k, v = m.past("0.key", k), m.past("0.value", v)
    keys = m.dim(k, 2)
    seen = m.op("Slice", triangle, m.shape(m.op("Sub", keys, m.dim(q, 2))), m.shape(keys), np.array([2]))
    seen = m.op("Slice", seen, np.array([0]), m.shape(keys), np.array([3]))
    x = m.op("Add", x, m.attended(q, k, v, batch, step, lambda s: m.op("Where", seen, s, np.float32(LOWEST))))
    m.logits(m.op("Add", x, m.op("Tanh", m.product(x))))
    return m.model()


def t5() -> onnx.ModelProto:
    m = Maker()
    x, batch, step = m.words()
    total = m.op("Add", m.dim("past_key_values.0.decoder.key", 2), step)
    every = m.range(np.int64(0), total)
    bias = m.op("Slice", _buckets(m, every), m.shape(m.op("Neg", step)), np.array([END]), np.array([2]))
    rows = m.op("Reshape", m.range(m.op("Sub", total, step), total), np.array([-1, 1]))
    later = m.op("Cast", m.op("Greater", every, rows), to=1)
    bias = m.op("Add", bias, m.op("Mul", m.op("Unsqueeze", later, np.array([0, 1])), np.float32(LOWEST)))
    q, k, v = (m.heads(m.product(m.scaled(x)), batch, step) for _ in range(3))
    k, v = m.past("0.decoder.key", k), m.past("0.decoder.value", v)
    x = m.op("Add", x, m.attended(q, k, v, batch, step, lambda scores: m.op("Add", scores, bias)))
    k, v = (
        m.into(f"past_key_values.0.encoder.{name}", TensorProto.FLOAT, "batch_size", HEADS, "encoder_length", SIZE)
        for name in ("key", "value")
    )
    x = m.op(
        "Add", x, m.attended(m.heads(m.product(m.scaled(x)), batch, step), k, v, batch, step, lambda scores: scores)
    )
    m.logits(m.op("Add", x, m.op("Relu", m.product(m.scaled(x)))))
    return m.model()


def _buckets(m: Maker, every: str) -> str:
    """Return a number for each head and the distance of two positions, which lies in one of 16 buckets."""
    apart = m.op("Sub", m.op("Unsqueeze", every, np.array([1])), m.op("Unsqueeze", every, np.array([0])))
    apart = m.op("Max", apart, np.int64(0))
    far = m.op("Log", m.op("Div", m.op("Cast", apart, to=1), np.float32(8)))
    far = m.op("Add", m.op("Cast", m.op("Mul", far, np.float32(4)), to=7), np.int64(8))
    bucket = m.op("Where", m.op("Less", apart, np.int64(8)), apart, m.op("Min", far, np.int64(15)))
    bias = m.op("Gather", m.weight(16, HEADS), bucket)
    return m.op("Unsqueeze", m.op("Transpose", bias, perm=[2, 0, 1]), np.array([0]))


def fused() -> onnx.ModelProto:
    """Return a decoder as onnxruntime's tool for transformers fuses it."""
    m = Maker()
    x, _, _ = m.words()
    q, k, v = (m.product(x) for _ in range(3))
    k, v = (m.op("Add", each, m.weight(WIDTH)) for each in (k, v))
    pasts = [
        m.into(f"past_key_values.0.{name}", TensorProto.FLOAT, "batch_size", HEADS, PAST, SIZE)
        for name in ("key", "value")
    ]
    given = [q, k, v, "", "", "", *pasts]
    mixed, key, value = m.ops(
        "MultiHeadAttention", 3, *given, domain="com.microsoft", num_heads=HEADS, unidirectional=1
    )
    for name, tensor in (("key", key), ("value", value)):
        m.out(tensor, f"present.0.{name}", "batch_size", HEADS, TOTAL, SIZE)
    gamma, beta = m.weight(WIDTH), m.weight(WIDTH)
    y = m.op("SkipLayerNormalization", mixed, x, gamma, beta, domain="com.microsoft", epsilon=1e-5)
    m.logits(m.scaled(m.op("FastGelu", m.product(y), domain="com.microsoft")))
    return m.model()


def grouped() -> onnx.ModelProto:
    """Return a decoder as onnxruntime-genai builds it: the mask says how long each sequence is. onnxruntime wants heads
    of 16 numbers."""
    m, size = Maker(), 16
    x, _, _ = m.words()
    mask = m.into("attention_mask", TensorProto.INT64, "batch_size", "total_sequence_length")
    ends = m.op("Cast", m.op("Sub", m.op("ReduceSum", mask, np.array([1]), keepdims=0), np.int64(1)), to=6)
    total = m.op("Cast", m.dim(mask, 1), to=6)
    pasts = [
        m.into(f"past_key_values.0.{name}", TensorProto.FLOAT, "batch_size", 1, PAST, size) for name in ("key", "value")
    ]
    angles = np.arange(PLACES).reshape(-1, 1) * 100.0 ** -(np.arange(0, size, 2) / size)
    inputs = [m.product(x), m.product(x, columns=size), m.product(x, columns=size), *pasts, ends, total]
    mixed, key, value = m.ops(
        "GroupQueryAttention",
        3,
        *inputs,
        np.cos(angles),
        np.sin(angles),
        domain="com.microsoft",
        num_heads=WIDTH // size,
        kv_num_heads=1,
        do_rotary=1,
        local_window_size=9,
    )
    for name, tensor in (("key", key), ("value", value)):
        m.out(tensor, f"present.0.{name}", "batch_size", 1, "total_sequence_length", size)
    y, _, _, total = m.ops("SkipSimplifiedLayerNormalization", 4, x, mixed, m.weight(WIDTH), domain="com.microsoft")
    m.logits(m.op("Add", total, m.product(y)))
    return m.model()


def attention() -> onnx.ModelProto:
    m = Maker()
    x, _, _ = m.words()
    q, k, v = (m.product(m.op("Tanh", x), columns=count * SIZE) for count in (HEADS, GROUPS, GROUPS))
    q, k, v = (
        m.op("Transpose", m.op("Reshape", part, np.array([0, 0, count, SIZE])), perm=[0, 2, 1, 3])
        for part, count in ((q, HEADS), (k, GROUPS), (v, GROUPS))
    )
    pasts = [
        m.into(f"past_key_values.0.{name}", TensorProto.FLOAT, "batch_size", GROUPS, PAST, SIZE)
        for name in ("key", "value")
    ]
    y, key, value = m.ops("Attention", 3, q, k, v, "", *pasts, is_causal=1)
    for name, tensor in (("key", key), ("value", value)):
        m.out(tensor, f"present.0.{name}", "batch_size", GROUPS, TOTAL, SIZE)
    y = m.op("Reshape", m.op("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, WIDTH]))
    m.logits(m.op("Add", x, m.product(y)))
    return m.model(23)


def merged() -> onnx.ModelProto:
    model = llama()
    computed = {name for node in model.graph.node for name in node.output}
    branches = []
    for word in ("cached", "first"):
        branch = onnx.GraphProto()
        branch.CopyFrom(model.graph)
        for node in branch.node:
            node.input[:] = [f"{word}/{name}" if name in computed else name for name in node.input]
            node.output[:] = [f"{word}/{name}" for name in node.output]
            if word == "first" and node.op_type == "Concat" and node.input[0].startswith("past"):
                node.op_type, node.input[:] = "Identity", node.input[1:]
                del node.attribute[:]
        for value in branch.output:
            value.name = f"{word}/{value.name}"
        del branch.input[:], branch.initializer[:]
        branches.append(branch)
    names = [each.name for each in model.graph.output]
    node = helper.make_node("If", ["use_cache_branch"], names, then_branch=branches[0], else_branch=branches[1])
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    inputs = [*model.graph.input, flag]
    graph = helper.make_graph([node], "merged", inputs, model.graph.output, model.graph.initializer)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)


def prefix() -> onnx.ModelProto:
    m = Maker()
    x, batch, step = m.words()
    every = m.range(np.int64(0), step)
    later = m.op("Greater", m.op("Unsqueeze", every, np.array([0])), m.op("Unsqueeze", every, np.array([1])))
    bias = m.op("Add", _buckets(m, every), m.op("Mul", m.op("Cast", later, to=1), np.float32(LOWEST)))
    q, k, v = (m.heads(m.product(m.scaled(x)), batch, step) for _ in range(3))
    x = m.op("Add", x, m.attended(q, k, v, batch, step, lambda scores: m.op("Add", scores, bias)))
    m.logits(m.op("Add", x, m.op("Relu", m.product(m.scaled(x)))))
    return m.model()


BATCH = {"batch_size": (1,)}
MASKED = {"attention_mask": 1}

DECODERS: Mapping[str, tuple[Callable[[], onnx.ModelProto], Mapping[str, tuple[int, ...]], Mapping[str, Any]]] = {
    "llama": (llama, BATCH, MASKED),
    "llama, mask kept": (llama, BATCH, {}),
    "gpt2": (gpt2, BATCH, {}),
    "t5": (t5, {**BATCH, "encoder_length": (5,)}, {}),
    "attention": (attention, BATCH, {}),
    "fused": (fused, BATCH, {}),
    "grouped": (grouped, BATCH, MASKED),
    "merged": (merged, BATCH, MASKED),
}
"""Makers of decoders with a past, the sizes of their dimensions but for past and step, and values of inputs."""
