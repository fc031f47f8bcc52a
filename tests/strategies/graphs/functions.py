"""Make random ONNX models of functions that call each other, three deep, and whose attributes may have defaults.

A call gives an attribute, hands on one of the function that it is in, or omits it. Functions hold branches, too.
"""

import random
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, NodeProto, TensorProto, helper, numpy_helper

from tests.strategies.graphs.making import Array, Made

SIZE = 4
"""Of both axes of all tensors."""
OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
DEEPEST = 3

Kind = tuple[str, str, str, tuple[Any, ...]]
KINDS: tuple[Kind, ...] = (
    ("LeakyRelu", "alpha", "", (0.3, -0.5, 0.7)),
    ("Elu", "alpha", "", (0.3, 1.5, 0.7)),
    ("HardSigmoid", "beta", "", (0.1, 0.3, 0.9)),
    ("Softmax", "axis", "", (0, 1, -2)),
    ("Gelu", "approximate", "", ("none", "tanh")),
    ("Transpose", "perm", "", ([0, 1], [1, 0])),
    ("Constant", "value_float", "Mul", (0.5, -1.25, 3.0)),
    ("Constant", "value_floats", "Add", ([1.0, 2.0, 3.0, 4.0], [-1.0, 0.5, 0.0, 2.0])),
    (
        "Constant",
        "value",
        "Mul",
        tuple(numpy_helper.from_array(np.array(each, np.float32)) for each in (0.25, -2, 1.5)),
    ),
    ("Constant", "value_int", "Gather", (0, 1, 3)),
)
"""Operators with an attribute, what reads the constant if it makes one, and values that it may have."""


def made(seed: int) -> Made:
    """Return the model of a seed."""
    return _Maker(seed).make()


class _Maker:
    """Draw functions from the innermost on; those of depth 0 call no other."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._functions: list[FunctionProto] = []
        self._kinds: dict[str, dict[str, Kind]] = {}  # of the attributes of each function
        self._count = 0

    def make(self) -> Made:
        for depth in range(DEEPEST):
            inner = [each.name for each in self._functions]
            for _ in range(self._random.randint(1, 2)):
                self._function(depth, inner)
        nodes, result = self._body("x", {}, [each.name for each in self._functions[-4:]])
        numbers = np.random.default_rng(self._random.randrange(2**32))
        x: Array = numbers.standard_normal((SIZE, SIZE), dtype=np.float32)
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", result)]
        graph = helper.make_graph(nodes, "random", ends[:1], ends[1:])
        self._random.shuffle(self._functions)
        model = helper.make_model(graph, opset_imports=OPSETS, ir_version=9, functions=self._functions)
        return Made(model, {"x": x}, {}, {"x": x}, {})

    def _name(self, start: str) -> str:
        self._count += 1
        return f"{start}{self._count}"

    def _function(self, depth: int, inner: list[str]) -> None:
        """Add a function with one to three attributes, most of which have a default."""
        kinds = {self._name("a"): self._random.choice(KINDS) for _ in range(self._random.randint(1, 3))}
        defaults = [
            helper.make_attribute(name, self._random.choice(kind[3]))
            for name, kind in kinds.items()
            if self._random.random() < 0.7
        ]
        nodes, result = self._body("x", kinds, inner if depth else [])
        nodes.append(helper.make_node("Identity", [result], ["y"]))
        known = {each.name for each in defaults}
        function = helper.make_function(
            "own", self._name("F"), ["x"], ["y"], nodes, OPSETS, [name for name in kinds if name not in known], defaults
        )
        self._functions.append(function)
        self._kinds[function.name] = kinds

    def _body(self, value: str, own: dict[str, Kind], callable_: list[str]) -> tuple[list[NodeProto], str]:
        """Return nodes on a value, which use each attribute of the function that they are in, and call others; and what
        they compute."""
        nodes: list[NodeProto] = []
        for attribute, kind in own.items():
            nodes += self._operator(value, kind, attribute)
            value = nodes[-1].output[0]
        for _ in range(self._random.randint(1, 2) if callable_ else 0):
            call = self._call(value, self._random.choice(callable_), own)
            nodes += self._in_branch(call) if self._random.random() < 0.25 else [call]
            value = nodes[-1].output[0]
        return nodes, value

    def _operator(self, value: str, kind: Kind, attribute: str) -> list[NodeProto]:
        """Return an operator whose attribute is one of the function."""
        op, name, reader, values = kind
        result = self._name("t")
        node = helper.make_node(op, [] if reader else [value], [result])
        node.attribute.append(_reference(name, attribute, values[0]))
        if not reader:
            return [node]
        if reader != "Gather":
            read = self._name("t")
            return [node, helper.make_node(reader, [value, result], [read])]
        row, read = self._name("t"), self._name("t")
        return [node, helper.make_node("Gather", [value, result], [row]), helper.make_node("Add", [value, row], [read])]

    def _call(self, value: str, name: str, own: dict[str, Kind]) -> NodeProto:
        node = helper.make_node(name, [value], [self._name("t")], domain="own")
        for attribute, kind in self._kinds[name].items():
            handed = [mine for mine, other in own.items() if other[1] == kind[1]]
            must = not self._may_omit(name, attribute, kind)
            if handed and self._random.random() < 0.6 and not must:
                node.attribute.append(_reference(attribute, self._random.choice(handed), kind[3][0]))
            elif must or self._random.random() < 0.3:
                node.attribute.append(helper.make_attribute(attribute, self._random.choice(kind[3])))
        return node

    def _may_omit(self, name: str, attribute: str, kind: Kind) -> bool:
        """Return whether the operator has a default where the function has none: a constant needs a value."""
        function = next(each for each in self._functions if each.name == name)
        return kind[0] != "Constant" or any(each.name == attribute for each in function.attribute_proto)

    def _in_branch(self, node: NodeProto) -> list[NodeProto]:
        """Return an If whose condition is known, with the node in the branch that is taken."""
        condition, result, other = self._name("c"), self._name("t"), self._name("t")
        taken = self._random.random() < 0.5
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (node.output[0], other)]
        branches = [
            helper.make_graph([node], "branch", [], outputs[:1]),
            helper.make_graph([helper.make_node("Neg", node.input, [other])], "branch", [], outputs[1:]),
        ]
        then, otherwise = branches if taken else branches[::-1]
        value = numpy_helper.from_array(np.array(taken))
        return [
            helper.make_node("Constant", [], [condition], value=value),
            helper.make_node("If", [condition], [result], then_branch=then, else_branch=otherwise),
        ]


def _reference(name: str, attribute: str, example: Any) -> AttributeProto:
    """Return an attribute that is one of the function around it. example: a value that it may have."""
    kind = helper.make_attribute("any", example).type
    return AttributeProto(name=name, ref_attr_name=attribute, type=kind)
