"""Lower elementwise operators whose elements are not all float32: casts, comparisons, logic, integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.passes.fuse_elementwise import ELEMENTWISE
from gputune.kernels.ops.typed import TypedProblem

FUNCTIONS: Mapping[str, str] = {
    "Abs": "abs",
    "Add": "add",
    "And": "and",
    "BitCast": "bit_cast",
    "BitwiseAnd": "bitwise_and",
    "BitwiseNot": "bitwise_not",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Cast": "cast",
    "Div": "div",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_or_equal",
    "Identity": "copy",
    "IsNaN": "is_nan",
    "Less": "less",
    "LessOrEqual": "less_or_equal",
    "Max": "max",
    "Min": "min",
    "Mul": "mul",
    "Neg": "neg",
    "Not": "not",
    "Or": "or",
    "Pow": "pow",
    "Relu": "relu",
    "Sign": "sign",
    "Sub": "sub",
    "Where": "where",
    "Xor": "xor",
}
"""The function of each operator that has one, whatever its attributes."""

INFINITE = {(1, 1): "is_inf", (0, 1): "is_positive_inf", (1, 0): "is_negative_inf"}
"""By whether negative and positive ones are detected."""

SHIFTS = {"LEFT": "shift_left", "RIGHT": "shift_right"}


def typed(lowering: Lowering, node: Node) -> None:
    """Lower an operation on tensors in ONNX order, of whatever types."""
    _run(lowering, node, FUNCTIONS[node.op])


def bit_shift(lowering: Lowering, node: Node) -> None:
    if (direction := node.attributes.get("direction")) not in SHIFTS:
        raise node.unsupported(f"its direction is {direction!r}; LEFT and RIGHT are supported")
    _run(lowering, node, SHIFTS[direction])


def is_inf(lowering: Lowering, node: Node) -> None:
    detected = tuple(int(node.attributes.get(f"detect_{which}", 1)) for which in ("negative", "positive"))
    if detected not in INFINITE:
        raise node.unsupported("it detects neither negative nor positive infinity")
    _run(lowering, node, INFINITE[detected])


def mod(lowering: Lowering, node: Node) -> None:
    _run(lowering, node, "fmod" if node.attributes.get("fmod", 0) else "mod")


def only_float(lowering: Lowering, node: Node) -> None:
    """Refuse a function of float32 numbers that is applied to others."""
    dtypes = dict.fromkeys(lowering.graph.tensors[name].dtype for name in (*node.reads, node.output))
    raise node.unsupported(f"it is of {' and '.join(dtypes)}; float32 is supported")


def _run(lowering: Lowering, node: Node, function: str) -> None:
    layouts, output = lowering.layouts, lowering.graph.tensors[node.output]
    names = [layouts.get(name, on_device=False) for name in node.inputs]
    shapes, dtypes = tuple(map(layouts.shape, node.inputs)), tuple(map(layouts.dtype, node.inputs))
    problem = TypedProblem(function, output.shape, shapes, dtypes, output.dtype)
    inputs = {f"input{index}": name for index, name in enumerate(names)}
    lowering.emit(node.name, "Typed", problem, inputs, layouts.define(node.output, False), node.stands_for)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    **dict.fromkeys(ELEMENTWISE - FUNCTIONS.keys(), only_float),
    **dict.fromkeys(FUNCTIONS, typed),
    "BitShift": bit_shift,
    "IsInf": is_inf,
    "Mod": mod,
}
