"""Build small ONNX models for tests, written in onnx's text form, with weights from a seeded generator."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
from onnx import numpy_helper

Array = npt.NDArray[Any]


def build(
    signature: str,
    body: str,
    weights: Mapping[str, tuple[int, ...] | Array] | None = None,
    opset: int = 13,
    ir_version: int = 8,
) -> onnx.ModelProto:
    """A model of the graph `signature` {`body`}; a weight given as a shape is drawn from a normal distribution."""
    text = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> small {signature} {{ {body} }}'
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(sum(map(ord, text)))
    for name, value in (weights or {}).items():
        if isinstance(value, tuple):
            value = 0.5 * generator.standard_normal(value, dtype=np.float32)
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return model


def save(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def numbers(*values: float) -> Array:
    """Constants: one value is a scalar, more are a vector."""
    return np.array(values[0] if len(values) == 1 else values, dtype=np.float32)


def integers(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def positive(*shape: int) -> Array:
    """Values between one half and one and a half."""
    return np.random.default_rng(7).random(shape, dtype=np.float32) + np.float32(0.5)


def conv_relu_gemm() -> onnx.ModelProto:
    """The smallest whole network; the map that Flatten takes is larger than 1x1, so its order matters."""
    return build(
        "(float[1,3,9,7] x) => (float[1,5] y)",
        """c = Conv<kernel_shape=[3,3], pads=[1,0,1,2], strides=[2,1]>(x, w, b)
           r = Relu(c)
           f = Flatten(r)
           y = Gemm<transB=1>(f, m, n)""",
        {"w": (4, 3, 3, 3), "b": (4,), "m": (5, 140), "n": (5,)},
    )


def residual_block() -> onnx.ModelProto:
    return build(
        "(float[1,4,6,6] x) => (float[1,4,6,6] y)",
        """a = Conv<pads=[1,1,1,1]>(x, w1)
           n = BatchNormalization(a, scale, shift, mean, variance)
           r = Relu(n)
           c = Conv<pads=[1,1,1,1]>(r, w2, b2)
           s = Add(x, c)
           y = Relu(s)""",
        {
            "w1": (4, 4, 3, 3),
            "w2": (4, 4, 3, 3),
            "b2": (4,),
            "scale": (4,),
            "shift": (4,),
            "mean": (4,),
            "variance": positive(4),
        },
    )


def projected_residual() -> onnx.ModelProto:
    """The side of the Add that is written first is computed last."""
    return build(
        "(float[2,4,6,6] x) => (float[2,6,3,3] y)",
        """a = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w1)
           p = Conv<strides=[2,2]>(x, w2)
           s = Sub(a, p)
           y = Relu(s)""",
        {"w1": (6, 4, 3, 3), "w2": (6, 4, 1, 1)},
    )


def squeeze_excite() -> onnx.ModelProto:
    return build(
        "(float[1,6,5,5] x) => (float[1,6,5,5] y)",
        """d = Conv<group=6, pads=[1,1,1,1]>(x, w)
           h = HardSwish(d)
           p = GlobalAveragePool(h)
           a = Conv(p, w1)
           shaped = Reshape(b1, channels)
           b = Add(a, shaped)
           r = Relu(b)
           c = Conv(r, w2, b2)
           g = HardSigmoid<alpha=0.2, beta=0.5>(c)
           y = Mul(h, g)""",
        {
            "w": (6, 1, 3, 3),
            "w1": (2, 6, 1, 1),
            "b1": (2,),
            "channels": integers(1, 2, 1, 1),
            "w2": (6, 2, 1, 1),
            "b2": (6,),
        },
        opset=14,
    )


def hard_swish(spelling: str) -> onnx.ModelProto:
    """x -> hard-swish -> y behind a convolution, spelt in one of the ways that exporters know."""
    spellings = {
        "mul_then_div": "a = Add(x3, three) g = Clip(a, zero, six) m = Mul(x3, g) y = Div(m, six)",
        "mul_then_sixth": "a = Add(three, x3) g = Clip(a, zero, six) m = Mul(g, x3) y = Mul(m, sixth)",
        "gate_divided": "a = Add(x3, three) g = Clip(a, zero, six) d = Div(g, six) y = Mul(x3, d)",
        "value_divided": "a = Add(x3, three) g = Clip(a, zero, six) d = Div(x3, six) y = Mul(d, g)",
        "hard_sigmoid": "g = HardSigmoid<alpha=0.16666667, beta=0.5>(x3) y = Mul(g, x3)",
    }
    return build(
        "(float[1,3,5,5] x) => (float[1,4,5,5] y)",
        f"x3 = Conv<pads=[1,1,1,1]>(x, w) {spellings[spelling]}",
        {
            "w": (4, 3, 3, 3),
            "three": numbers(3),
            "zero": numbers(0),
            "six": numbers(6),
            "sixth": numbers(1 / 6),
        },
    )


HARD_SWISH_SPELLINGS = ("mul_then_div", "mul_then_sixth", "gate_divided", "value_divided", "hard_sigmoid")


def almost_hard_swish() -> onnx.ModelProto:
    """Looks like hard-swish and is none: the offset, the bound and the divisor are others."""
    return build(
        "(float[1,3,5,5] x) => (float[1,3,5,5] y)",
        """a = Add(x, two) g = Clip(a, zero, six) m = Mul(x, g) p = Div(m, six)
           b = Add(x, three) h = Clip(b, zero, five) n = Mul(x, h) q = Div(n, six)
           c = Add(x, three) i = Clip(c, zero, six) o = Mul(x, i) r = Div(o, five)
           s = Add(p, q) y = Add(s, r)""",
        {name: numbers(n) for name, n in {"zero": 0, "two": 2, "three": 3, "five": 5, "six": 6}.items()},
    )


def pooling() -> onnx.ModelProto:
    return build(
        "(float[1,3,11,10] x) => (float[1,3,6,5] a, float[1,3,5,4] b, float[1,3,6,5] c, float[1,3,6,5] d,"
        " float[1,3,1,1] e, float[1,3] f, float[1,3,1,1] g)",
        """a = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(x)
           b = AveragePool<kernel_shape=[3,4], strides=[2,2], pads=[0,0,0,1]>(x)
           c = AveragePool<kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_UPPER">(x)
           d = AveragePool<kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_LOWER", count_include_pad=1>(x)
           e = GlobalMaxPool(x)
           f = ReduceMean<axes=[3,2], keepdims=0>(x)
           g = ReduceMean<axes=[-1,-2]>(x)""",
    )


def old_clip() -> onnx.ModelProto:
    """Operator set 6 style: bounds as attributes, one of them left out."""
    return build(
        "(float[1,8] x) => (float[1,8] y, float[1,8] z)",
        "y = Clip<min=-0.5, max=0.25>(x) z = Clip<min=0.0>(x)",
        opset=10,
    )


def clip_inputs() -> onnx.ModelProto:
    return build(
        "(float[1,8] x) => (float[1,8] y, float[1,8] z)",
        "y = Clip(x, , high) z = Clip(x, low)",
        {"low": numbers(-0.25), "high": numbers(0.5)},
        opset=11,
    )


def identities() -> onnx.ModelProto:
    """Copies at every place: before, between, and as outputs."""
    return build(
        "(float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] z, float[1,2,4,4] again)",
        """i = Identity(x)
           d, mask = Dropout(i, ratio)
           r = Relu(d)
           s = Reshape(r, same)
           e = Exp(s)
           y = Identity(e)
           z = Identity(y)
           again = Identity(x)""",
        {"ratio": numbers(0.5), "same": integers(1, 2, 4, 4)},
    )


def shared_output() -> onnx.ModelProto:
    """An output that is used inside as well, so that it may not vanish into its reader."""
    return build(
        "(float[1,3,6,6] x) => (float[1,4,6,6] inner, float[1,4,1,1] y)",
        """inner = Conv(x, w)
           r = Relu(inner)
           y = GlobalAveragePool(r)""",
        {"w": (4, 3, 1, 1)},
    )


def views_as_outputs() -> onnx.ModelProto:
    """Views of an input, of another output, and of a tensor that is read elsewhere."""
    return build(
        "(float[2,3] x) => (float[6] flat, float[3,2] y, float[6] line, float[1,6] kept, float[6] more)",
        """flat = Reshape(x, six)
           r = Reshape(x, pairs)
           y = MatMul(r, w)
           line = Reshape(y, six)
           t = Tanh(x)
           kept = Reshape(t, row)
           u = Reshape(t, six)
           more = Exp(u)""",
        {"six": integers(6), "pairs": integers(3, 2), "row": integers(1, 6), "w": (2, 2)},
    )


def reshapes() -> onnx.ModelProto:
    """Rank 4 to other ranks and back, with maps larger than one position."""
    return build(
        "(float[1,4,3,2] x) => (float[1,6,2,2] y, float[4,6] z)",
        """r = Relu(x)
           c = Conv(r, w)
           f = Reshape(c, shape)
           y = Conv(f, v)
           q = Reshape(c, flat)
           z = Squeeze(q, axis)""",
        {
            "w": (4, 4, 1, 1),
            "v": (6, 6, 1, 1),
            "shape": integers(1, 6, 2, -1),
            "flat": integers(1, 4, 6),
            "axis": integers(0),
        },
    )


def shape_arithmetic() -> onnx.ModelProto:
    """A flatten as exporters write it: the batch is read from the shape."""
    return build(
        "(float[2,3,4,4] x) => (float[2,48] y)",
        """r = Relu(x)
           s = Shape(r)
           n = Slice(s, first, second)
           c = Concat<axis=0>(n, rest)
           y = Reshape(r, c)""",
        {"first": integers(0), "second": integers(1), "rest": integers(-1)},
    )


def gemms() -> onnx.ModelProto:
    """Every way to spell a product with a constant."""
    return build(
        "(float[2,3] x) => (float[2,4] a, float[2,4] b, float[2,4] c, float[2,4] d, float[2,4] e)",
        """a = Gemm<alpha=0.5, beta=2.0, transB=1>(x, wt, bias)
           b = Gemm(x, w)
           m = MatMul(x, w)
           n = Mul(m, bias)
           c = Sub(bias, n)
           d = Gemm<beta=0.5>(x, w, m)
           e = Gemm(x, w, full)""",
        {"w": (3, 4), "wt": (4, 3), "bias": (4,), "full": (2, 4)},
    )


def products_of_higher_rank() -> onnx.ModelProto:
    return build(
        "(float[2,3,5] x, float[1,2,3,5] v) => (float[2,3,4] y, float[1,2,3,4] z)",
        """m = MatMul(x, w)
           a = Add(m, b)
           y = Relu(a)
           r = Relu(v)
           c = Conv(r, k)
           p = MatMul(c, w)
           q = Add(p, p)
           z = Add(q, b)""",
        {"w": (5, 4), "b": (4,), "k": (2, 2, 1, 1)},
    )


def softmaxes(opset: int) -> onnx.ModelProto:
    """Every axis of a tensor in device order; before operator set 13 the axes behind it count as one."""
    return build(
        "(float[2,3,4,5] x, float[3,4] v) => (float[2,3,4,5] a, float[2,3,4,5] b, float[2,3,4,5] c,"
        " float[2,3,4,5] d, float[2,3,4,5] e, float[3,4] f)",
        """r = Conv(x, w)
           a = Softmax<axis=0>(r)
           b = Softmax<axis=1>(r)
           c = Softmax<axis=2>(r)
           d = Softmax<axis=-1>(r)
           e = Softmax<axis=1>(x)
           f = Softmax(v)""",
        {"w": (3, 3, 1, 1)},
        opset=opset,
    )


def broadcasts() -> onnx.ModelProto:
    """Operands of fewer dimensions, on either side, constant and computed, in both orders."""
    return build(
        "(float[2,3,4,5] x, float[4,5] v) => (float[2,3,4,5] y, float[2,3,4,5] z, float[2,3,4,5] u)",
        """c = Conv(x, w)
           r = Relu(c)
           a = Mul(r, channel)
           b = Sub(row, a)
           d = Div(b, full)
           t = Tanh(v)
           y = Add(d, t)
           e = Add(x, channel)
           z = Sub(e, v)
           s = Sigmoid(v)
           g = Mul(s, channel)
           u = Mul(g, batch)""",
        {"w": (3, 3, 1, 1), "channel": (3, 1, 1), "row": (5,), "full": positive(2, 3, 4, 5), "batch": (2, 1, 1, 1)},
    )


def elementwise_chain() -> onnx.ModelProto:
    """One operation: every function, scalars on both sides, and a value that is its own operand."""
    return build(
        "(float[3,7] x) => (float[3,7] y)",
        """a = Sub(one, x)
           e = Exp(a)
           b = Div(two, e)
           s = Sigmoid(b)
           q = Mul(b, s)
           p = Exp(q)
           w = Sqrt(p)
           h = HardSigmoid(w)
           y = Mul(h, x)""",
        {"one": numbers(1), "two": numbers(2)},
    )


def batch_norm_alone() -> onnx.ModelProto:
    """Before any convolution, behind one with two readers, and on a matrix."""
    names = ("scale", "shift", "mean", "variance")
    return build(
        "(float[1,3,4,4] x, float[2,3] v) => (float[1,3,4,4] y, float[1,3,4,4] z, float[2,3] u)",
        """n = BatchNormalization<epsilon=0.01>(x, scale, shift, mean, variance)
           c = Conv(n, w)
           m = BatchNormalization(c, scale, shift, mean, variance)
           y = Relu(m)
           z = Tanh(c)
           u = BatchNormalization(v, scale, shift, mean, variance)""",
        {"w": (3, 3, 1, 1), **{name: positive(3) for name in names}},
    )


def scaled_convolution() -> onnx.ModelProto:
    """Scales and shifts per channel and per model, on both sides; all of them end in weights and bias."""
    return build(
        "(float[1,4,5,5] x) => (float[1,6,5,5] y)",
        """c = Conv<group=2, pads=[1,1,1,1]>(x, w, b)
           a = Mul(channel, c)
           d = Sub(half, a)
           e = Div(d, channel)
           f = Add(e, channel)
           y = Sub(f, half)""",
        {"w": (6, 2, 3, 3), "b": (6,), "channel": positive(6, 1, 1), "half": numbers(0.5)},
    )


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "conv_relu_gemm": conv_relu_gemm,
    "residual_block": residual_block,
    "projected_residual": projected_residual,
    "squeeze_excite": squeeze_excite,
    **{f"hard_swish_{name}": partial(hard_swish, name) for name in HARD_SWISH_SPELLINGS},
    "almost_hard_swish": almost_hard_swish,
    "pooling": pooling,
    "old_clip": old_clip,
    "clip_inputs": clip_inputs,
    "identities": identities,
    "shared_output": shared_output,
    "views_as_outputs": views_as_outputs,
    "reshapes": reshapes,
    "shape_arithmetic": shape_arithmetic,
    "gemms": gemms,
    "products_of_higher_rank": products_of_higher_rank,
    "softmaxes_11": partial(softmaxes, 11),
    "softmaxes_13": partial(softmaxes, 13),
    "broadcasts": broadcasts,
    "elementwise_chain": elementwise_chain,
    "batch_norm_alone": batch_norm_alone,
    "scaled_convolution": scaled_convolution,
}
"""Every model above by name."""
