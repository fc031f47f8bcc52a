"""Define com.microsoft's DynamicQuantizeLSTM by operators of ONNX, step by step.

The input is quantised by one range, the state of a step by one over the batch, as onnxruntime does. So every step is a
product of bytes of its own, and a model has the nodes of all steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MOST_STEPS = 512
"""Sequences of more steps would make too many nodes."""
GATES = "iofc"


def dynamic_lstm(attributes: Mapping[str, Any], shape: Sequence[int], given: Sequence[bool], opset: int) -> str:
    """Return the nodes that compute Y, h and c of inputs i0 and so on; none for uses that are not known. shape: of the
    first input. given: which inputs are."""
    direction = attributes.get("direction", b"forward").decode()
    functions = [name.decode().lower() for name in attributes.get("activations", ())]
    steps, batch, _ = shape
    if (
        functions not in ([], ["sigmoid", "tanh", "tanh"], ["sigmoid", "tanh", "tanh"] * 2)
        or any(attributes.get(name) for name in ("clip", "input_forget"))
        or given[4]
        or given[7]
        or steps > MOST_STEPS
    ):
        return ""
    directions = 2 if direction == "bidirectional" else 1
    use = _Cell(batch, int(attributes["hidden_size"]), steps, given, opset)
    written = ["q, s, z = DynamicQuantizeLinear(i0)", use.constants()]
    for number in range(directions):
        written += use.direction(number, backwards=direction == "reverse" or number == 1)
    every = range(directions)
    for name, axis in (("Y", 1), ("h", 0), ("c", 0)):
        parts = [f"{name}{number}" for number in every]
        written.append(f"{name} = Concat<axis = {axis}>({', '.join(parts)})")
    return " ".join(written)


class _Cell:
    """The steps of a direction, whose tensors have its number behind their names."""

    def __init__(self, batch: int, hidden: int, steps: int, given: Sequence[bool], opset: int) -> None:
        self._batch, self._hidden, self._steps, self._given = batch, hidden, steps, given
        self._split = "Split<axis = -1, num_outputs = 4>" if opset >= 18 else "Split<axis = -1>"

    def constants(self) -> str:
        numbers = " ".join(f"n{step} = Constant<value_int = {step}>()" for step in range(max(self._steps, 2)))
        shapes = {"row": [self._batch, self._hidden], "map": [1, 1, self._batch, self._hidden]}
        shapes |= {"state": [1, self._batch, self._hidden], "halves": [2, 4 * self._hidden]}
        return " ".join([numbers, *(f"{name} = Constant<value_ints = {shape}>()" for name, shape in shapes.items())])

    def direction(self, d: int, backwards: bool) -> Iterator[str]:
        """Yield the nodes of a direction: the product of all inputs, and the steps."""
        for name, place in (("W", 1), ("R", 2), ("Ws", 8), ("Wz", 9), ("Rs", 10), ("Rz", 11)):
            if self._given[place]:
                yield f"{name}{d} = Gather<axis = 0>(i{place}, n{d})"
        yield self._product(f"x{d}", "q", "s", "z", f"W{d}", 9, d)
        if self._given[3]:
            yield f"b{d} = Gather<axis = 0>(i3, n{d}) bh{d} = Reshape(b{d}, halves) bw{d} = Gather<axis = 0>(bh{d}, n0)"
            yield f"br{d} = Gather<axis = 0>(bh{d}, n1) bias{d} = Add(bw{d}, br{d})"
        for name, place in (("h", 5), ("c", 6)):
            if self._given[place]:
                yield f"{name}{d}first = Gather<axis = 0>(i{place}, n{d})"
        state, cell = (f"{name}{d}first" if self._given[place] else "" for name, place in (("h", 5), ("c", 6)))
        maps = {}
        for step in reversed(range(self._steps)) if backwards else range(self._steps):
            at = f"{d}at{step}"
            yield from self._step(d, at, step, state, cell)
            state, cell, maps[step] = f"h{at}", f"c{at}", f"m{at}"
            yield f"m{at} = Reshape(h{at}, map)"
        rows = ", ".join(maps[step] for step in sorted(maps))
        yield f"Y{d} = Concat<axis = 0>({rows}) h{d} = Reshape({state}, state) c{d} = Reshape({cell}, state)"

    def _step(self, d: int, at: str, step: int, state: str, cell: str) -> Iterator[str]:
        yield f"g{at} = Gather<axis = 0>(x{d}, n{step})"
        total = f"g{at}"
        if state:
            yield f"q{at}, s{at}, z{at} = DynamicQuantizeLinear({state})"
            yield self._product(f"r{at}", f"q{at}", f"s{at}", f"z{at}", f"R{d}", 11, d)
            yield f"t{at} = Add({total}, r{at})"
            total = f"t{at}"
        if self._given[3]:
            yield f"u{at} = Add({total}, bias{d})"
            total = f"u{at}"
        yield f"{', '.join(f'{gate}g{at}' for gate in GATES)} = {self._split}({total})"
        yield " ".join(f"{gate}a{at} = {'Tanh' if gate == 'c' else 'Sigmoid'}({gate}g{at})" for gate in GATES)
        yield f"k{at} = Mul(ia{at}, ca{at})"
        yield f"p{at} = Mul(fa{at}, {cell}) c{at} = Add(p{at}, k{at})" if cell else f"c{at} = Identity(k{at})"
        yield f"y{at} = Tanh(c{at}) h{at} = Mul(oa{at}, y{at})"

    def _product(self, name: str, value: str, scale: str, zero: str, weight: str, place: int, d: int) -> str:
        """Write a product of bytes and one factor of both scales."""
        point = f", {weight[0]}z{d}" if self._given[place] else ""
        return (
            f"{name}i = MatMulInteger({value}, {weight}, {zero}{point}) {name}f = Cast<to = 1>({name}i) "
            f"{name}s = Mul({scale}, {weight[0]}s{d}) {name} = Mul({name}f, {name}s)"
        )
