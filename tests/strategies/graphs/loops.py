"""Make random ONNX models of Loops, Scans and Ifs, nested up to three deep, which read what lies around them.

All tensors are [ROWS, COLUMNS] outside of what a Loop grows or stacks. A Loop ends by its count or by its condition,
which follows from the number of its round.
"""

import random
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.strategies.graphs.making import Array, Made

OPSETS = (11, 13, 16, 18, 21)
ROWS, COLUMNS = 3, 4
DEEPEST = 3
UNARY = ("Tanh", "Sigmoid", "Neg", "Relu", "Sin", "Identity")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")


def made(seed: int) -> Made:
    """Return the model of a seed."""
    return _Maker(seed).make()


class _Maker:
    """Draw nodes into the list on top of `_lists`, which is that of the innermost body."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._opset = self._random.choice(OPSETS)
        self._lists: list[list[NodeProto]] = [[]]
        self._weights: dict[str, Array] = {}
        self._names = 0

    def make(self) -> Made:
        seen = ["x"]
        for _ in range(self._random.randint(2, 4)):
            seen.append(self._something(seen, DEEPEST))
        x: Array = self._numbers.standard_normal((ROWS, COLUMNS), dtype=np.float32)
        ends = [self._info("x"), helper.make_tensor_value_info(seen[-1], TensorProto.FLOAT, [None, None])]
        weights = [numpy_helper.from_array(value, name) for name, value in self._weights.items()]
        graph = helper.make_graph(self._lists[0], "random", ends[:1], ends[1:], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self._opset)], ir_version=8)
        return Made(model, {"x": x}, {}, {"x": x}, self._weights)

    def _name(self, start: str) -> str:
        self._names += 1
        return f"{start}{self._names}"

    def _add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = self._name(op.lower())
        self._lists[-1].append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def _constant(self, value: Any, dtype: Any = np.float32) -> str:
        """Write a constant, in the body where it is read or as a weight of the model."""
        array = np.asarray(value, dtype)
        if self._random.random() < 0.5:
            return self._add("Constant", value=numpy_helper.from_array(array))
        name = self._name("w")
        self._weights[name] = array
        return name

    def _info(self, name: str, dtype: int = TensorProto.FLOAT, shape: Any = (ROWS, COLUMNS)) -> Any:
        return helper.make_tensor_value_info(name, dtype, shape)

    def _something(self, seen: list[str], deep: int) -> str:
        """Write some nodes, and return a tensor of the common shape."""
        kinds = [self._plain, self._plain] + ([self._loop, self._scan, self._if, self._growing] if deep else [])
        return self._random.choice(kinds)(seen, deep)

    def _plain(self, seen: list[str], deep: int) -> str:
        value = self._random.choice(seen)
        if self._random.random() < 0.4:
            return self._add(self._random.choice(UNARY), value)
        if self._random.random() < 0.3:
            weight = self._numbers.standard_normal((COLUMNS, COLUMNS)) / 2
            return self._add("Tanh", self._add("MatMul", value, self._constant(weight)))
        other = self._random.choice([*seen, self._constant(self._numbers.standard_normal(COLUMNS))])
        return self._add("Tanh", self._add(self._random.choice(BINARY), value, other))

    def _loop(self, seen: list[str], deep: int) -> str:
        rounds, number, going, state = self._random.randint(1, 4), *map(self._name, ("i", "go", "s"))
        inputs = [self._info(number, TensorProto.INT64, []), self._info(going, TensorProto.BOOL, []),
                  self._info(state, shape=None)]  # fmt: skip
        self._lists.append([])
        result = self._add("Identity", self._something([*seen, state], deep - 1))
        kind = self._random.choice(("count", "condition", "both"))
        if kind == "count":
            again = self._add("Identity", going)
        else:
            again = self._add("Less", number, self._constant(rounds - 1, np.int64))
        counted = self._add("Tanh", self._add("Add", result, self._add("Cast", number, to=TensorProto.FLOAT)))
        infos = [self._info(again, TensorProto.BOOL, []), *(self._info(each, shape=None) for each in (result, counted))]
        body = helper.make_graph(self._lists.pop(), self._name("body"), inputs, infos)
        most = "" if kind == "condition" else self._constant(rounds + (2 if kind == "both" else 0), np.int64)
        start = self._constant(True, np.bool_) if self._random.random() < 0.5 or not most else ""
        last, stacked = self._name("last"), self._name("stacked")
        node = helper.make_node("Loop", [most, start, self._random.choice(seen)], [last, stacked], last, body=body)
        self._lists[-1].append(node)
        if self._random.random() < 0.5:
            return last
        return self._mean(stacked, 0)

    def _growing(self, seen: list[str], deep: int) -> str:
        """Write a Loop whose state gets longer by each round."""
        number, going, state = map(self._name, ("i", "go", "s"))
        inputs = [self._info(number, TensorProto.INT64, []), self._info(going, TensorProto.BOOL, []),
                  self._info(state, shape=None)]  # fmt: skip
        self._lists.append([])
        grown = self._add("Concat", state, self._something(seen, deep - 1), axis=0)
        again = self._add("Identity", going)
        infos = [self._info(again, TensorProto.BOOL, []), self._info(grown, shape=None)]
        body = helper.make_graph(self._lists.pop(), self._name("body"), inputs, infos)
        last = self._name("last")
        most = self._constant(self._random.randint(1, 3), np.int64)
        self._lists[-1].append(helper.make_node("Loop", [most, "", self._random.choice(seen)], [last], last, body=body))
        bounds = [self._constant([each], np.int64) for each in (-ROWS, 1 << 20, 0)]
        return self._add("Slice", last, *bounds)

    def _scan(self, seen: list[str], deep: int) -> str:
        axis, state, part = self._random.choice((0, 1, -1)), self._name("s"), self._name("part")
        inputs = [self._info(state, shape=None), self._info(part, shape=None)]
        self._lists.append([])
        wide = self._add("Reshape", part, self._constant([-1, 1], np.int64)) if axis else part
        drawn = self._something([*seen, state], deep - 1)
        total = self._add("Tanh", self._add("Add", drawn, wide))
        out = self._add("Neg", part)
        infos = [self._info(each, shape=None) for each in (total, out)]
        body = helper.make_graph(self._lists.pop(), self._name("body"), inputs, infos)
        last, stacked = self._name("last"), self._name("stacked")
        back, turned = self._random.randint(0, 1), self._random.randint(0, 1)
        node = helper.make_node(
            "Scan", [self._random.choice(seen), self._random.choice(seen)], [last, stacked], last, body=body,
            num_scan_inputs=1, scan_input_axes=[axis], scan_input_directions=[back], scan_output_axes=[axis],
            scan_output_directions=[turned],
        )  # fmt: skip
        self._lists[-1].append(node)
        return self._random.choice((last, stacked))

    def _if(self, seen: list[str], deep: int) -> str:
        """Write an If, whose condition is known or follows from data."""
        if self._random.random() < 0.5:
            condition = self._constant(self._random.random() < 0.5, np.bool_)
        else:
            value = self._add("ReduceMax", self._random.choice(seen), keepdims=0)
            condition = self._add("Greater", value, self._constant(0.5))
        branches = []
        for name in ("then", "else"):
            self._lists.append([])
            drawn = self._add("Identity", self._something(seen, deep - 1))
            info = self._info(drawn, shape=None)
            branches.append(helper.make_graph(self._lists.pop(), self._name(name), [], [info]))
        result = self._name("if")
        self._lists[-1].append(
            helper.make_node("If", [condition], [result], result, then_branch=branches[0], else_branch=branches[1])
        )
        return result

    def _mean(self, value: str, axis: int) -> str:
        if self._opset < 18:
            return self._add("ReduceMean", value, axes=[axis], keepdims=0)
        return self._add("ReduceMean", value, self._constant([axis], np.int64), keepdims=0)
