"""Make up models that mix operators of all kinds: windows, products, reductions, moves, elementwise.

Only here is the code between operators tested together: element orders, views, fusions, shared memory.
"""

import random
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
OPSETS = (11, 13, 18, 21)
LARGEST = 6000
"""Elements of a tensor; what would compute more is left out."""

SIZES = (
    *[(1, 3, 5, 7), (2, 4, 6, 6), (1, 8, 1, 9), (3, 5, 4, 1), (2, 16, 3, 3), (1, 1, 7, 5)] * 2,
    (7,), (5, 3), (16, 1), (2, 3, 5), (1, 1, 33), (1, 40, 6), (2, 1, 3, 2, 5),
)  # fmt: skip
"""Of the input: pictures more often than others."""

UNARY = (
    "Relu", "Sigmoid", "Tanh", "HardSigmoid", "Abs", "Neg", "Erf", "Elu", "LeakyRelu", "Softsign", "Softplus", "Selu",
    "Sin", "Identity", "Dropout", "ThresholdedRelu",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Max", "Min")


class Maker:
    """Makes one model from a seed: `model` with the input x, and outputs of any of its nodes."""

    def __init__(self, seed: int, nodes: int) -> None:
        self._random = random.Random(seed)
        self._opset = self._random.choice(OPSETS)
        self._numbers = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        size = self._random.choice(SIZES)
        self._shapes: dict[str, Shape] = {"x": size}
        while len(self._nodes) < nodes:
            self._random.choice(STEPS)(self, self._any())
        made = [name for name in self._shapes if name != "x"]
        outputs = dict.fromkeys([made[-1], *self._random.sample(made, min(2, len(made)))])
        graph = helper.make_graph(
            self._nodes,
            f"mixed{seed}",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, size)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, self._shapes[name]) for name in outputs],
            self._weights,
        )
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self._opset)], ir_version=8)
        self.input = self._numbers.standard_normal(size, dtype=np.float32)

    def _any(self) -> str:
        """A tensor, more likely one of the last."""
        names = list(self._shapes)
        return names[-1 - min(int(self._random.expovariate(0.7)), len(names) - 1)]

    def _weight(self, *shape: int) -> str:
        fan_in = prod(shape[1:]) or 1
        return self._known(self._numbers.standard_normal(shape, dtype=np.float32) / np.float32(fan_in**0.5))

    def _known(self, value: Any) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _integers(self, *values: int) -> str:
        return self._known(np.array(values, np.int64))

    def known(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """A node whose result is shape arithmetic."""
        name = f"s{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def add(self, op: str, inputs: list[str], *shapes: Shape, **attributes: Any) -> str:
        """A node whose outputs have these shapes, and the first of them; its first input where they are too large, or
        where what it reads was."""
        if any(not 0 < prod(shape) <= LARGEST for shape in shapes):
            return inputs[0]
        names = [f"t{len(self._nodes)}_{place}" if place else f"t{len(self._nodes)}" for place in range(len(shapes))]
        self._nodes.append(helper.make_node(op, inputs, names, **attributes))
        self._shapes.update(zip(names, shapes, strict=True))
        return names[0]

    # --- steps: each adds a node to a tensor, or none where it does not fit ---

    def unary(self, x: str) -> None:
        self.add(self._random.choice(UNARY), [x], self._shapes[x])

    def clip(self, x: str) -> None:
        self.add("Clip", [x, self._known(np.float32(-0.5)), self._known(np.float32(1.5))], self._shapes[x])

    def binary(self, x: str) -> None:
        """With a tensor of the same shape, or one that broadcasts."""
        shape = self._shapes[x]
        fitting = [name for name, other in self._shapes.items() if _broadcasts(other, shape)]
        pair = [x, self._random.choice(fitting)]
        self._random.shuffle(pair)
        self.add(self._random.choice(BINARY), pair, shape)

    def binary_with_weight(self, x: str) -> None:
        shape = self._shapes[x]
        cut = self._random.randrange(len(shape) + 1)
        sizes = [self._random.choice((1, size)) for size in shape[cut:]]
        pair = [x, self._weight(*sizes)]
        self._random.shuffle(pair)
        self.add(self._random.choice(BINARY), pair, shape)

    def where(self, x: str) -> None:
        shape = self._shapes[x]
        self.add("Greater", [x, self._known(np.float32(0.1))], shape)
        chosen = self._nodes[-1].output[0]
        del self._shapes[chosen]  # bool: nobody else reads it
        fitting = [name for name, other in self._shapes.items() if _broadcasts(other, shape)]
        self.add("Where", [chosen, x, self._random.choice(fitting)], shape)

    def conv(self, x: str) -> None:
        if len(shape := self._shapes[x]) not in (3, 4):
            return
        batch, channels, *sizes = shape
        rank = len(sizes)
        kernel = [self._random.choice((1, 1, 3)) for _ in sizes]
        strides = [self._random.choice((1, 1, 2)) for _ in sizes]
        depthwise = self._random.random() < 0.3
        filters = channels if depthwise else self._random.choice((1, 4, 7, 16))
        weight = self._weight(filters, 1 if depthwise else channels, *kernel)
        pads = [size // 2 for size in kernel] * 2
        output = [(size - 1) // stride + 1 for size, stride in zip(sizes, strides, strict=True)]
        biases = [self._weight(filters)] if self._random.random() < 0.5 else []
        groups = channels if depthwise else 1
        self.add("Conv", [x, weight, *biases], (batch, filters, *output), pads=pads, strides=strides, group=groups)
        assert rank == len(pads) // 2

    def pool(self, x: str) -> None:
        if len(shape := self._shapes[x]) not in (3, 4):
            return
        spatial = len(shape) - 2
        op = self._random.choice(("MaxPool", "AveragePool"))
        self.add(op, [x], shape, kernel_shape=[3] * spatial, pads=[1] * 2 * spatial)

    def global_pool(self, x: str) -> None:
        if len(shape := self._shapes[x]) in (3, 4):
            op = self._random.choice(("GlobalAveragePool", "GlobalMaxPool"))
            self.add(op, [x], (*shape[:2], *[1] * (len(shape) - 2)))

    def reduce(self, x: str) -> None:
        if not (shape := self._shapes[x]):
            return
        axes = self._random.sample(range(len(shape)), self._random.randint(1, len(shape)))
        keep = self._random.random() < 0.6
        sizes = tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)
        op = self._random.choice(("ReduceMean", "ReduceMax", "ReduceSum", "ReduceMin", "ReduceL2"))
        if self._opset >= (13 if op == "ReduceSum" else 18):
            self.add(op, [x, self._integers(*axes)], sizes, keepdims=int(keep))
        else:
            self.add(op, [x], sizes, keepdims=int(keep), axes=axes)

    def softmax(self, x: str) -> None:
        if shape := self._shapes[x]:
            op = self._random.choice(("Softmax", "LogSoftmax"))
            self.add(op, [x], shape, axis=self._random.randrange(-len(shape), len(shape)))

    def arg_max(self, x: str) -> None:
        if shape := self._shapes[x]:
            axis = self._random.randrange(len(shape))
            sizes = (*shape[:axis], 1, *shape[axis + 1 :])
            self.add("ArgMax", [x], sizes, axis=axis)
            whole = self._nodes[-1].output[0]
            del self._shapes[whole]
            self.add("Cast", [whole], sizes, to=TensorProto.FLOAT)

    def normalise(self, x: str) -> None:
        shape = self._shapes[x]
        if self._opset >= 17 and shape and shape[-1] > 2:
            axis = self._random.choice([axis for axis in range(len(shape)) if prod(shape[axis:]) > 2])
            weights = [self._weight(*shape[axis:]) for _ in "sb"]
            self.add("LayerNormalization", [x, *weights], shape, axis=axis)
        elif len(shape) == 4 and shape[2] * shape[3] > 2:
            self.add("InstanceNormalization", [x, self._weight(shape[1]), self._weight(shape[1])], shape)

    def transpose(self, x: str) -> None:
        if not (shape := self._shapes[x]):
            return
        order = self._random.sample(range(len(shape)), len(shape))
        self.add("Transpose", [x], tuple(shape[axis] for axis in order), perm=order)

    def to_channels_last(self, x: str) -> None:
        if len(shape := self._shapes[x]) == 4:
            order = self._random.choice([(0, 2, 3, 1), (0, 3, 1, 2)])
            self.add("Transpose", [x], tuple(shape[axis] for axis in order), perm=order)

    def reshape(self, x: str) -> None:
        shape = self._shapes[x]
        if len(shape) > 1:
            axis = self._random.randrange(len(shape) - 1)
            joined = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
            self.add("Reshape", [x, self._integers(*joined)], joined)

    def split_axis(self, x: str) -> None:
        """A reshape that makes two axes of one."""
        shape = self._shapes[x]
        if places := [axis for axis, size in enumerate(shape) if size % 2 == 0 and len(shape) < 5]:
            axis = self._random.choice(places)
            halves = self._random.choice([(2, shape[axis] // 2), (shape[axis] // 2, 2)])
            wider = (*shape[:axis], *halves, *shape[axis + 1 :])
            self.add("Reshape", [x, self._integers(*wider)], wider)

    def unsqueeze(self, x: str) -> None:
        shape = self._shapes[x]
        axis = self._random.randrange(len(shape) + 1)
        if len(shape) < 4:
            sizes = (*shape[:axis], 1, *shape[axis:])
            if self._opset >= 13:
                self.add("Unsqueeze", [x, self._integers(axis)], sizes)
            else:
                self.add("Unsqueeze", [x], sizes, axes=[axis])

    def squeeze(self, x: str) -> None:
        shape = self._shapes[x]
        if ones := [axis for axis, size in enumerate(shape) if size == 1]:
            axis = self._random.choice(ones)
            sizes = (*shape[:axis], *shape[axis + 1 :])
            if self._opset >= 13:
                self.add("Squeeze", [x, self._integers(axis)], sizes)
            else:
                self.add("Squeeze", [x], sizes, axes=[axis])

    def flatten(self, x: str) -> None:
        shape = self._shapes[x]
        axis = self._random.randrange(len(shape) + 1)
        self.add("Flatten", [x], (prod(shape[:axis]), prod(shape[axis:])), axis=axis)

    def slice(self, x: str) -> None:
        if not (shape := self._shapes[x]):
            return
        axis = self._random.randrange(len(shape))
        start, step = self._random.randrange(shape[axis]), self._random.choice((1, 1, 2, -1, -2))
        kept = len(range(shape[axis])[start::step])
        stop = 1000 if step > 0 else -1000
        sizes = (*shape[:axis], kept, *shape[axis + 1 :])
        self.add("Slice", [x, *map(self._integers, (start, stop, axis, step))], sizes)

    def split(self, x: str) -> None:
        shape = self._shapes[x]
        if places := [axis for axis, size in enumerate(shape) if size > 1]:
            axis = self._random.choice(places)
            first = self._random.randrange(1, shape[axis])
            parts = first, shape[axis] - first
            sizes = [(*shape[:axis], part, *shape[axis + 1 :]) for part in parts]
            if self._opset >= 13:
                self.add("Split", [x, self._integers(*parts)], *sizes, axis=axis)
            else:
                self.add("Split", [x], *sizes, axis=axis, split=parts)

    def concat(self, x: str) -> None:
        """With itself, and with what differs along the axis only."""
        if not (shape := self._shapes[x]):
            return
        axis = self._random.randrange(len(shape))
        fitting = [name for name, other in self._shapes.items() if _alike(shape, other, axis)]
        parts = [x, *self._random.choices(fitting, k=self._random.choice((1, 2)))]
        self._random.shuffle(parts)
        total = sum(self._shapes[name][axis] for name in parts)
        self.add(
            "Concat",
            parts,
            (*shape[:axis], total, *shape[axis + 1 :]),
            axis=axis - self._random.choice((0, len(shape))),
        )

    def pad(self, x: str) -> None:
        if not (shape := self._shapes[x]):
            return
        mode = self._random.choice(("constant", "edge", "reflect"))
        most = [min(2, size - 1) if mode == "reflect" else 2 for size in shape]
        before, behind = ([self._random.randint(0, each) for each in most] for _ in "be")
        sizes = tuple(a + size + b for a, size, b in zip(before, shape, behind, strict=True))
        self.add("Pad", [x, self._integers(*before, *behind)], sizes, mode=mode)

    def expand(self, x: str) -> None:
        if not (shape := self._shapes[x]):
            return
        sizes = tuple(self._random.choice((1, 3)) if size == 1 else size for size in shape)
        self.add("Expand", [x, self._integers(*sizes)], sizes)

    def tile(self, x: str) -> None:
        if shape := self._shapes[x]:
            times = [self._random.choice((1, 1, 2)) for _ in shape]
            self.add("Tile", [x, self._integers(*times)], tuple(a * b for a, b in zip(shape, times, strict=True)))

    def gather(self, x: str) -> None:
        if shape := self._shapes[x]:
            axis = self._random.randrange(len(shape))
            indices = self._numbers.integers(-shape[axis], shape[axis], self._random.choice([(2,), (1, 3), ()]))
            sizes = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
            if len(sizes) < 5:
                self.add("Gather", [x, self._known(indices.astype(np.int64))], sizes, axis=axis)

    def depth_to_space(self, x: str) -> None:
        shape = self._shapes[x]
        if len(shape) == 4 and shape[1] % 4 == 0:
            sizes = shape[0], shape[1] // 4, shape[2] * 2, shape[3] * 2
            self.add("DepthToSpace", [x], sizes, blocksize=2, mode=self._random.choice(("DCR", "CRD")))

    def space_to_depth(self, x: str) -> None:
        shape = self._shapes[x]
        if len(shape) == 4 and shape[2] % 2 == shape[3] % 2 == 0:
            self.add("SpaceToDepth", [x], (shape[0], shape[1] * 4, shape[2] // 2, shape[3] // 2), blocksize=2)

    def resize(self, x: str) -> None:
        shape = self._shapes[x]
        if len(shape) == 4 and self._opset >= 13:
            sizes = (*shape[:2], shape[2] * 2, shape[3] + 1)
            mode = self._random.choice(("nearest", "linear"))
            options = (
                {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if mode == "nearest" else {}
            )
            self.add("Resize", [x, "", "", self._integers(*sizes)], sizes, mode=mode, **options)

    def matmul(self, x: str) -> None:
        """With a weight, or with another tensor whose rows fit."""
        shape = self._shapes[x]
        if len(shape) < 2:
            return
        fitting = [
            name
            for name, other in self._shapes.items()
            if len(other) >= 2 and other[-2] == shape[-1] and _broadcasts(other[:-2], shape[:-2])
        ]
        if fitting and self._random.random() < 0.5:
            other = self._random.choice(fitting)
            self.add("MatMul", [x, other], (*shape[:-1], self._shapes[other][-1]))
        else:
            columns = self._random.choice((1, 5, 16))
            self.add("MatMul", [x, self._weight(shape[-1], columns)], (*shape[:-1], columns))

    def gemm(self, x: str) -> None:
        if len(shape := self._shapes[x]) != 2:
            return
        across, columns = self._random.random() < 0.5, self._random.choice((1, 5, 16))
        rows, depth = reversed(shape) if across else shape
        bias = [self._weight(*self._random.choice([(columns,), (1, columns), (rows, 1)]))]
        options = {"transA": int(across), "alpha": 0.5, "beta": self._random.choice((1.0, 2.0))}
        self.add("Gemm", [x, self._weight(depth, columns), *bias], (rows, columns), **options)

    def with_itself(self, x: str) -> None:
        """Products of a tensor with itself transposed, as in attention."""
        shape = self._shapes[x]
        if len(shape) < 2 or prod(shape) * shape[-2] > LARGEST:
            return
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        turned = self.add("Transpose", [x], (*shape[:-2], shape[-1], shape[-2]), perm=order)
        scores = self.add("MatMul", [x, turned], (*shape[:-1], shape[-2]))
        scaled = self.add("Div", [scores, self._known(np.float32(shape[-1] ** 0.5))], (*shape[:-1], shape[-2]))
        weights = self.add(
            "Softmax", [scaled], (*shape[:-1], shape[-2]), axis=-1 if self._opset >= 13 else len(shape) - 1
        )
        self.add("MatMul", [weights, x], shape)

    def conv_transpose(self, x: str) -> None:
        shape = self._shapes[x]
        if len(shape) == 4:
            filters = self._random.choice((1, 5))
            sizes = (shape[0], filters, shape[2] * 2, shape[3] * 2)
            self.add("ConvTranspose", [x, self._weight(shape[1], filters, 2, 2)], sizes, strides=[2, 2])

    def lrn(self, x: str) -> None:
        if len(self._shapes[x]) == 4:
            self.add("LRN", [x], self._shapes[x], size=3)

    def trilu(self, x: str) -> None:
        if len(self._shapes[x]) > 1 and self._opset >= 14:
            self.add("Trilu", [x], self._shapes[x], upper=self._random.choice((0, 1)))

    def gather_elements(self, x: str) -> None:
        if shape := self._shapes[x]:
            axis = self._random.randrange(len(shape))
            indices = self._numbers.integers(-shape[axis], shape[axis], shape)
            self.add("GatherElements", [x, self._known(indices.astype(np.int64))], shape, axis=axis)

    def scatter(self, x: str) -> None:
        if shape := self._shapes[x]:
            indices = np.stack([self._numbers.permutation(size)[:1] for size in shape], -1)
            self.add("ScatterND", [x, self._known(indices.astype(np.int64)), self._weight(1)], shape)

    def shape_arithmetic(self, x: str) -> None:
        """A reshape as exporters write it: with sizes taken from a shape."""
        if len(shape := self._shapes[x]) < 2:
            return
        sizes = self.known("Shape", [x])
        first = self.known("Gather", [sizes, self._integers(0)])
        self.add("Reshape", [x, self.known("Concat", [first, self._integers(-1)], axis=0)], (shape[0], prod(shape[1:])))

    # --- patterns that passes recognise; what lies inside may be read by others, or be an output ---

    def gelu(self, x: str) -> None:
        shape = self._shapes[x]
        bent = self.add("Erf", [self.add("Div", [x, self._known(np.float32(2**0.5))], shape)], shape)
        raised = self.add("Add", [bent, self._known(np.float32(1))], shape)
        self.add("Mul", [self.add("Mul", [x, raised], shape), self._known(np.float32(0.5))], shape)

    def gated(self, x: str) -> None:
        """SiLU, or the hard form."""
        gate = self.add(self._random.choice(("Sigmoid", "HardSigmoid")), [x], self._shapes[x])
        self.add("Mul", self._random.choice(([x, gate], [gate, x])), self._shapes[x])

    def hard_swish(self, x: str) -> None:
        shape = self._shapes[x]
        raised = self.add("Add", [x, self._known(np.float32(3))], shape)
        cut = self.add("Clip", [raised, self._known(np.float32(0)), self._known(np.float32(6))], shape)
        self.add("Div", [self.add("Mul", [x, cut], shape), self._known(np.float32(6))], shape)

    def squeeze_excite(self, x: str) -> None:
        if len(shape := self._shapes[x]) != 4:
            return
        pooled = self.add("GlobalAveragePool", [x], (*shape[:2], 1, 1))
        mixed = self.add("Conv", [pooled, self._weight(shape[1], shape[1], 1, 1)], (*shape[:2], 1, 1))
        self.add("Mul", [x, self.add("Sigmoid", [mixed], (*shape[:2], 1, 1))], shape)

    def layer_norm(self, x: str) -> None:
        shape = self._shapes[x]
        if not shape or shape[-1] < 3 or self._opset >= 18:
            return
        row = (*shape[:-1], 1)
        centred = self.add("Sub", [x, self.add("ReduceMean", [x], row, axes=[-1])], shape)
        squared = self.add("Pow", [centred, self._known(np.float32(2))], shape)
        variance = self.add("ReduceMean", [squared], row, axes=[-1])
        raised = self.add("Add", [variance, self._known(np.float32(1e-5))], row)
        normal = self.add("Div", [centred, self.add("Sqrt", [raised], row)], shape)
        scaled = self.add("Mul", [normal, self._weight(shape[-1])], shape)
        self.add("Add", [scaled, self._weight(shape[-1])], shape)

    def cum_sum(self, x: str) -> None:
        if shape := self._shapes[x]:
            axis = self._known(np.int64(self._random.randrange(len(shape))))
            self.add(
                "CumSum", [x, axis], shape, exclusive=self._random.choice((0, 1)), reverse=self._random.choice((0, 1))
            )

    def prelu(self, x: str) -> None:
        shape = self._shapes[x]
        if len(shape) > 1:
            self.add("PRelu", [x, self._weight(shape[1], *[1] * (len(shape) - 2))], shape)

    def batch_norm(self, x: str) -> None:
        shape = self._shapes[x]
        if len(shape) > 1:
            scale, shift, mean = (self._weight(shape[1]) for _ in "sbm")
            variance = self._known(self._numbers.uniform(0.5, 1.5, shape[1]).astype(np.float32))
            self.add("BatchNormalization", [x, scale, shift, mean, variance], shape)


STEPS: tuple[Callable[[Maker, str], None], ...] = (
    *[Maker.unary, Maker.binary, Maker.binary_with_weight, Maker.conv, Maker.transpose, Maker.to_channels_last] * 2,
    Maker.clip, Maker.where, Maker.pool, Maker.global_pool, Maker.reduce, Maker.softmax, Maker.arg_max, Maker.normalise,
    Maker.reshape, Maker.split_axis, Maker.unsqueeze, Maker.slice, Maker.split, Maker.concat, Maker.pad, Maker.expand,
    Maker.tile, Maker.gather, Maker.depth_to_space, Maker.space_to_depth, Maker.resize, Maker.matmul, Maker.cum_sum,
    Maker.prelu, Maker.batch_norm, Maker.squeeze, Maker.flatten, Maker.gemm, Maker.with_itself, Maker.conv_transpose,
    Maker.lrn, Maker.trilu, Maker.gather_elements, Maker.scatter, Maker.shape_arithmetic, Maker.gelu, Maker.gated,
    Maker.hard_swish, Maker.squeeze_excite, Maker.layer_norm,
)  # fmt: skip


def _broadcasts(shape: Shape, to: Shape) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def _alike(shape: Shape, other: Shape, axis: int) -> bool:
    return len(shape) == len(other) and all(
        a == b for k, (a, b) in enumerate(zip(shape, other, strict=True)) if k != axis
    )


def wanted(made: Maker) -> dict[str, npt.NDArray[Any]]:
    """What onnxruntime computes, by output; without those that overflow."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(made.model.SerializeToString(), options)
    results = zip(made.model.graph.output, session.run(None, {"x": made.input}), strict=True)
    return {item.name: result for item, result in results if np.isfinite(result).all()}


def far_off(got: npt.NDArray[Any], want: npt.NDArray[Any]) -> str:
    """What is wrong with a result; empty when it is right."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    scale = 1e-4 * (1.0 + float(np.abs(want).max(initial=0)))
    return "" if np.allclose(got, want, 0, scale, equal_nan=True) else f"off by {np.nanmax(np.abs(got - want))}"
