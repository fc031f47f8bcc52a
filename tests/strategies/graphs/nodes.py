"""Draw the nodes of making.py: each function draws a node that reads the tensor x, or none if it does not fit.

Attributes are odd on purpose. Many a draw means nothing; onnxruntime refuses that, and another one is drawn.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.strategies.graphs import moves
from tests.strategies.graphs.making import Drawn, Maker

UNARY = (
    "Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Erf", "Softsign", "Softplus", "Sin", "Cos", "Tan", "Atan", "Asinh",
    "Sinh", "Exp", "Floor", "Ceil", "Round", "Sign", "Identity", "Dropout", "HardSwish", "Mish", "Reciprocal",
    "Sqrt", "Log",
)  # fmt: skip
WITH_ALPHA = ("Elu", "LeakyRelu", "ThresholdedRelu", "Celu", "Selu", "HardSigmoid")
ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mean", "Sum", "Mod", "PRelu")
COMPARISONS = ("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual")
REDUCTIONS = (
    "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceProd", "ReduceSumSquare",
    "ReduceLogSumExp", "ReduceLogSum",
)  # fmt: skip


def unary(make: Maker, x: str) -> Drawn:
    return Drawn(make.random.choice(UNARY), [x])


def with_alpha(make: Maker, x: str) -> Drawn:
    op = make.random.choice(WITH_ALPHA)
    names = {"Selu": ("alpha", "gamma"), "HardSigmoid": ("alpha", "beta")}.get(op, ("alpha",))
    return Drawn(op, [x], {name: make.random.uniform(0.1, 1.5) for name in names if make.flip()})


def gelu(make: Maker, x: str) -> Drawn:
    return Drawn("Gelu", [x], {"approximate": "tanh"} if make.flip() else {})


def clip(make: Maker, x: str) -> Drawn:
    low, high = sorted(make.random.uniform(-2, 2) for _ in "lh")
    if make.opset < 11:
        return Drawn("Clip", [x], {name: value for name, value in (("min", low), ("max", high)) if make.flip(0.7)})
    bounds = [make.constant(np.float32(low)) if make.flip(0.7) else "", make.constant(np.float32(high))]
    return Drawn("Clip", [x, *(bounds if make.flip(0.7) else bounds[:1])])


def fitting(make: Maker, x: str) -> str:
    """A tensor, or a weight, that broadcasts with x."""
    shape = make.shape(x)
    if make.flip(0.4):
        return make.recent(fits=lambda value: _broadcasts(value.shape, shape))
    cut = make.random.randrange(len(shape) + 1)
    return make.weight(*(make.random.choice((1, size, size)) for size in shape[cut:]))


def arithmetic(make: Maker, x: str) -> Drawn:
    op = make.random.choice(ARITHMETIC)
    pair = [x, fitting(make, x)]
    if op in ("Max", "Min", "Mean", "Sum"):
        pair += [fitting(make, x) for _ in range(make.random.choice((0, 0, 1, 2)))][:4]
        pair = pair if make.flip(0.9) else [x]
    if op != "PRelu":
        make.random.shuffle(pair)
    return Drawn(op, pair, {"fmod": 1} if op == "Mod" else {})


def with_number(make: Maker, x: str) -> Drawn:
    op = make.random.choice(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"))
    number = make.number(make.random.choice((0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, make.random.gauss(0, 1))))
    return Drawn(op, [x, number] if make.flip(0.7) else [number, x])


def compare(make: Maker, x: str) -> Drawn:
    return Drawn(make.random.choice(COMPARISONS), [x, fitting(make, x)])


def logic(make: Maker, x: str) -> Drawn | None:
    condition = make.recent("bool")
    if not condition:
        return None
    if make.flip(0.3):
        return Drawn("Not", [condition])
    if make.flip(0.4):
        return Drawn(make.random.choice(("And", "Or", "Xor")), [condition, make.recent("bool")])
    return Drawn("Cast", [condition], {"to": make.random.choice((TensorProto.FLOAT, TensorProto.INT64))})


def where(make: Maker, x: str) -> Drawn | None:
    condition = make.recent("bool")
    return Drawn("Where", [condition, *make.random.sample([x, fitting(make, x)], 2)]) if condition else None


def cast(make: Maker, x: str) -> Drawn:
    whole = make.recent("int64")
    if whole and make.flip(0.6):
        return Drawn("Cast", [whole], {"to": TensorProto.FLOAT})
    return Drawn("Cast", [x], {"to": make.random.choice((TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL))})


def whole_numbers(make: Maker, x: str) -> Drawn | None:
    one = make.recent("int64")
    if not one:
        return None
    number = make.constant(np.int64(make.random.choice((2, 3, 5))))
    op = make.random.choice(
        ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Abs", "Neg", "Sign", "ReduceMax", "Equal")
    )
    return Drawn(op, [one] if op in ("Abs", "Neg", "Sign", "ReduceMax") else [one, number])


# --- windows ---


def _windows(make: Maker, sizes: Sequence[int], kernel: Sequence[int], dilated: bool) -> dict[str, Any]:
    """Strides, dilations and pads; each may be missing, unequal, or given by auto_pad."""
    found: dict[str, Any] = {}
    if make.flip(0.6):
        found["strides"] = [make.random.choice((1, 1, 2, 3)) for _ in sizes]
    if dilated and make.flip(0.3):
        found["dilations"] = [make.random.choice((1, 2, 3)) for _ in sizes]
    if make.flip(0.2):
        found["auto_pad"] = make.random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif make.flip(0.6):
        found["pads"] = [
            make.random.randint(0, size // 2 if make.flip(0.7) else size - 1) for size in [*kernel, *kernel]
        ]
    return found


def conv(make: Maker, x: str) -> Drawn | None:
    if make.rank(x) < 3:
        return None
    _, channels, *sizes = make.shape(x)
    group = make.random.choice([each for each in range(1, channels + 1) if channels % each == 0 and each < 17])
    filters = group * make.random.choice((1, 1, 2, 4, 7))
    kernel = [make.random.choice((1, 1, 2, 3, 3, 5)) for _ in sizes]
    attributes = _windows(make, sizes, kernel, True) | ({"kernel_shape": kernel} if make.flip() else {})
    biases = [make.weight(filters)] if make.flip() else []
    attributes |= {"group": group} if group > 1 or make.flip(0.2) else {}
    return Drawn("Conv", [x, make.weight(filters, channels // group, *kernel), *biases], attributes)


def conv_transpose(make: Maker, x: str) -> Drawn | None:
    if make.rank(x) not in (3, 4):
        return None
    _, channels, *sizes = make.shape(x)
    group = make.random.choice([each for each in range(1, channels + 1) if channels % each == 0 and each < 9])
    filters, kernel = make.random.choice((1, 2, 5)), [make.random.choice((1, 2, 3, 4)) for _ in sizes]
    attributes = _windows(make, sizes, kernel, True) | {"group": group}
    if make.flip(0.3):
        attributes["output_padding"] = [make.random.choice((0, 0, 1)) for _ in sizes]
    elif make.flip(0.2):
        strides = attributes.get("strides", [1] * len(sizes))
        attributes["output_shape"] = [
            size * step + make.random.choice((0, 0, 1)) for size, step in zip(sizes, strides, strict=True)
        ]
    biases = [make.weight(filters * group)] if make.flip() else []
    return Drawn("ConvTranspose", [x, make.weight(channels, filters, *kernel), *biases], attributes)


def pool(make: Maker, x: str) -> Drawn | None:
    if make.rank(x) < 3:
        return None
    sizes, op = make.shape(x)[2:], make.random.choice(("MaxPool", "AveragePool", "LpPool"))
    kernel = [make.random.choice((1, 2, 2, 3, 3, 4)) for _ in sizes]
    dilated = (op == "MaxPool" and make.opset >= 10) or (op == "LpPool" and make.opset >= 18) or make.opset >= 19
    attributes = _windows(make, sizes, kernel, dilated) | {"kernel_shape": kernel}
    if op == "LpPool":
        return Drawn(op, [x], attributes | {"p": make.random.choice((1, 2, 3))})
    if op == "AveragePool" and make.flip():
        attributes["count_include_pad"] = 1
    if make.opset >= 10 and make.flip(0.3):
        attributes["ceil_mode"] = 1
    places = op == "MaxPool" and make.opset >= 8 and make.flip(0.2)
    if places and make.flip(0.3):
        attributes["storage_order"] = 1
    return Drawn(op, [x], attributes, 2 if places else 1)


def global_pool(make: Maker, x: str) -> Drawn | None:
    op = make.random.choice(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    return (
        Drawn(op, [x], {"p": make.random.choice((1, 2, 3))} if op == "GlobalLpPool" else {})
        if make.rank(x) > 2
        else None
    )


# --- reductions, normalisations ---


def reduce(make: Maker, x: str) -> Drawn:
    op, attributes = make.random.choice(REDUCTIONS), {"keepdims": 0} if make.flip() else {}
    if make.flip(0.2):
        return Drawn(op, [x], attributes)
    if not (axes := make.axes(x)):
        return Drawn(op, [x], attributes)
    if make.opset >= (13 if op == "ReduceSum" else 18):
        if make.flip(0.1):
            return Drawn(op, [x], attributes | {"noop_with_empty_axes": 1})
        return Drawn(op, [x, make.integers(*axes)], attributes)
    return Drawn(op, [x], attributes | {"axes": [abs(axis) if make.opset < 11 else axis for axis in axes]})


def softmax(make: Maker, x: str) -> Drawn:
    op = make.random.choice(("Softmax", "LogSoftmax", "Hardmax"))
    return Drawn(
        op, [x], {"axis": make.random.randrange(-make.rank(x), make.rank(x))} if make.rank(x) and make.flip(0.8) else {}
    )


def arg(make: Maker, x: str) -> Drawn:
    attributes: dict[str, Any] = {"keepdims": make.random.choice((0, 1))}
    if make.rank(x) and make.flip(0.8):
        attributes["axis"] = make.random.randrange(make.rank(x))
    if make.opset >= 12 and make.flip(0.3):
        attributes["select_last_index"] = 1
    return Drawn(make.random.choice(("ArgMax", "ArgMin")), [x], attributes)


def top(make: Maker, x: str) -> Drawn | None:
    if not make.rank(x):
        return None
    axis = make.random.randrange(make.rank(x))
    count = make.random.randint(1, make.shape(x)[axis])
    if make.opset < 10:
        return Drawn("TopK", [x], {"k": count, "axis": axis}, 2)
    attributes = {"axis": axis} | ({"largest": 0} if make.opset >= 11 and make.flip() else {})
    return Drawn("TopK", [x, make.integers(count)], attributes, 2)


def normalise(make: Maker, x: str) -> Drawn | None:
    rank, shape = make.rank(x), make.shape(x)
    if rank < 2:
        return None
    op = make.random.choice(("BatchNormalization", "InstanceNormalization", "LayerNormalization", "LRN",
                             "LpNormalization", "MeanVarianceNormalization", "GroupNormalization"))  # fmt: skip
    channels = shape[1]
    if op == "BatchNormalization":
        scale, shift, mean = (make.weight(channels) for _ in "sbm")
        return Drawn(
            op, [x, scale, shift, mean, make.weight(channels, low=0.5)], {"epsilon": 1e-3} if make.flip() else {}
        )
    if op == "InstanceNormalization" and prod(shape[2:]) > 2:
        return Drawn(op, [x, make.weight(channels), make.weight(channels)], {"epsilon": 1e-2} if make.flip() else {})
    if op == "LayerNormalization":
        axis = make.random.randrange(-rank, rank)
        weights = [make.weight(*shape[axis:]) for _ in range(make.random.choice((1, 2)))]
        return Drawn(op, [x, *weights], {"axis": axis}) if prod(shape[axis:]) > 2 else None
    if op == "LRN":
        return Drawn(
            op, [x], {"size": make.random.choice((1, 2, 3, 4, 5)), "alpha": 0.1, "bias": make.random.uniform(0.5, 2)}
        )
    if op == "LpNormalization":
        return Drawn(op, [x], {"axis": make.random.randrange(-rank, rank), "p": make.random.choice((1, 2))})
    if op == "MeanVarianceNormalization" and prod(shape) > 2 * channels:
        return Drawn(op, [x], {} if rank == 4 and make.flip() else {"axes": [0, *range(2, rank)]})
    groups = make.random.choice([each for each in range(1, channels + 1) if channels % each == 0])
    sizes = (channels if make.opset >= 21 else groups,)
    if op == "GroupNormalization" and prod(shape[2:]) * channels // groups > 2:
        return Drawn(op, [x, make.weight(*sizes), make.weight(*sizes)], {"num_groups": groups})
    return None


def cum_sum(make: Maker, x: str) -> Drawn | None:
    if not make.rank(x):
        return None
    axis = make.constant(np.int64(make.random.randrange(-make.rank(x), make.rank(x))))
    return Drawn("CumSum", [x, axis], {name: 1 for name in ("exclusive", "reverse") if make.flip()})


# --- products ---


def matmul(make: Maker, x: str) -> Drawn | None:
    shape = make.shape(x)
    if not shape:
        return None
    batch = [make.random.choice((1, size)) for size in shape[:-2]][make.random.randrange(max(len(shape) - 1, 1)) :]
    other = make.random.choice([(shape[-1],), (*batch, shape[-1], make.random.choice((1, 4, 9))), (shape[-1], 5)])
    if make.flip(0.3):
        found = make.recent(fits=lambda value: value.ndim > 1 and value.shape[-2] == shape[-1])
        return Drawn("MatMul", [x, found]) if found else None
    if len(shape) > 1 and make.flip(0.2):
        return Drawn("MatMul", [make.weight(make.random.choice((1, 6)), shape[-2]), x])
    return Drawn("MatMul", [x, make.weight(*other)])


def gemm(make: Maker, x: str) -> Drawn | None:
    if make.rank(x) != 2:
        return None
    across, turned, columns = make.flip(), make.flip(), make.random.choice((1, 5, 16))
    rows, depth = reversed(make.shape(x)) if across else make.shape(x)
    weight = make.weight(*((columns, depth) if turned else (depth, columns)))
    biases = [make.weight(*make.random.choice([(columns,), (1, columns), (rows, 1), (rows, columns), (), (1,)]))]
    attributes: dict[str, Any] = {"transA": int(across), "transB": int(turned)}
    attributes |= {name: make.random.choice((0.5, 1.0, 2.0, -1.0)) for name in ("alpha", "beta") if make.flip()}
    return Drawn("Gemm", [x, weight, *(biases if make.opset < 11 or make.flip(0.7) else [])], attributes)


def einsum(make: Maker, x: str) -> Drawn | None:
    letters = "abcde"[: make.rank(x)]
    if len(letters) < 2:
        return None
    result = make.random.sample(letters, make.random.randint(1, len(letters)))
    if make.flip():
        return Drawn("Einsum", [x], {"equation": f"{letters}->{''.join(result)}"})
    shared = make.random.sample(letters, make.random.randint(1, 2))
    other = make.weight(*(make.shape(x)[letters.index(each)] for each in shared), 3)
    kept = "".join(each for each in letters if each not in shared or make.flip(0.3))
    return Drawn("Einsum", [x, other], {"equation": f"{letters},{''.join(shared)}z->{kept}z"})


def recurrent(make: Maker, x: str) -> Drawn | None:
    if make.rank(x) != 3:
        return None
    op, hidden = make.random.choice(("LSTM", "GRU", "RNN")), make.random.choice((1, 4, 5))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    direction = make.random.choice(("forward", "reverse", "bidirectional"))
    ways, depth = 1 + (direction == "bidirectional"), make.shape(x)[2]
    weights = [make.weight(ways, gates * hidden, depth), make.weight(ways, gates * hidden, hidden)]
    biases = [make.weight(ways, 2 * gates * hidden)] if make.flip() else []
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU" and make.flip():
        attributes["linear_before_reset"] = 1
    return Drawn(op, [x, *weights, *biases], attributes, make.random.choice((1, 2)))


DRAWS: tuple[Callable[[Maker, str], Drawn | None], ...] = (
    *[unary, with_alpha, arithmetic, with_number, conv, moves.transpose, moves.reshape, matmul, pool, reduce] * 3,
    *[gelu, clip, compare, logic, where, cast, whole_numbers, conv_transpose, global_pool, softmax, arg, top] * 2,
    *[normalise, gemm, moves.squeeze, moves.unsqueeze, moves.slices, moves.split, moves.concat, moves.pad, moves.gather,
      moves.resize] * 2,
    cum_sum, einsum, recurrent, moves.flatten, moves.expand, moves.tile, moves.scatter, moves.trilu, moves.blocks,
    moves.one_hot, moves.grid_sample, moves.shape_of,
)  # fmt: skip


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))
