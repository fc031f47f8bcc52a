"""Define recurrent cells, RNN, GRU and LSTM, along sequences: the computation, and its numpy reference."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gputune.core.dtypes import FLOAT
from gputune.kernels.chain import Chain
from gputune.kernels.family import ADDED, Array, Problem
from gputune.kernels.indexing.ranges import by_range
from gputune.kernels.tiling.streaming import check_indices

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
"""How many functions a cell has: F, G and H of recurrent_steps.cl, as far as it has them."""

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
OUTPUTS = ("Y", "Y_h", "Y_c")
MOST_SUMMED = 33_000
"""Products of whole numbers up to 255 whose sum is one of int32."""
STARTS = ("initial_h", "initial_c")


@dataclass(frozen=True)
class RecurrentProblem(Problem):
    """`steps` steps of a cell with `hidden` elements, for `batch` sequences, in one or both directions.

    `gates` [steps, batch, directions * gates * hidden] is what the input brings to the gates, in ONNX's order of them
    and with all biases that are plain sums; with `batch_first` batch and steps change places, in the results too.
    `weight` [directions, hidden, gates, hidden (of the state that is read)] is the recurrent part. `activations` holds
    F, G and H of each direction, as many as the cell has.

    `outputs` says what is wanted; it lies one behind the other: "Y", the state after each step, [steps, directions,
    batch, hidden], zeros behind an entry's length; "Y_h" and "Y_c", the last states, [directions, batch, hidden].
    `after_reset`: a GRU's candidate applies r to the product and to `bias` [directions, hidden]; `coupled`: an LSTM's
    f is 1 - i; `lengths`: each entry has a number of steps of its own.

    `whole`, of an LSTM without lengths: `weight` holds whole numbers up to 255, of which `scales` [directions, gates *
    hidden] makes numbers, and each step quantises h by the range that it has in the whole batch. `bytes`: these whole
    numbers are there as int8.
    """

    op = "Recurrent"

    cell: str
    steps: int
    batch: int
    hidden: int
    direction: str
    activations: tuple[Chain, ...]
    outputs: tuple[str, ...]
    initial_h: bool = False
    initial_c: bool = False
    lengths: bool = False
    peepholes: bool = False
    after_reset: bool = False
    coupled: bool = False
    batch_first: bool = False
    whole: bool = False
    dtype: str = FLOAT
    bytes: bool = field(default=False, metadata=ADDED)

    def check(self) -> None:
        if self.cell not in GATES or self.direction not in DIRECTIONS:
            raise ValueError(f"Recurrent knows {', '.join(GATES)}, not a {self.direction} {self.cell}")
        if min(self.steps, self.batch, self.hidden) < 1:
            raise ValueError(
                f"Recurrent needs positive sizes, not steps={self.steps} batch={self.batch} hidden={self.hidden}"
            )
        wanted = ACTIVATIONS[self.cell] * self.directions
        if len(self.activations) != wanted or any(chain.operands for chain in self.activations):
            raise ValueError(f"{self.direction} {self.cell} has {wanted} activations without operands")
        known = OUTPUTS if self.cell == "LSTM" else OUTPUTS[:2]
        if not self.outputs or self.outputs != tuple(name for name in known if name in self.outputs):
            raise ValueError(f"{self.cell} gives some of {', '.join(known)} in this order, not {self.outputs}")
        if self.cell != "LSTM" and (self.initial_c or self.peepholes or self.coupled):
            raise ValueError(f"{self.cell} has no c, no peepholes and no coupled gates")
        if self.after_reset and self.cell != "GRU":
            raise ValueError(f"{self.cell} has no reset gate")
        if self.whole and (self.cell != "LSTM" or self.lengths or self.hidden > MOST_SUMMED):
            raise ValueError(f"whole numbers are for LSTMs without lengths, of up to {MOST_SUMMED} elements")
        if self.bytes and not self.whole:
            raise ValueError("weights of bytes are whole numbers")
        check_indices("Recurrent", self.gates_shape, self.weight_shape, (self.elements,))

    @property
    def directions(self) -> int:
        return DIRECTIONS[self.direction]

    @property
    def gates(self) -> int:
        return GATES[self.cell]

    @property
    def gates_shape(self) -> tuple[int, int]:
        return (self.steps * self.batch, self.directions * self.gates * self.hidden)

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        return (self.directions, self.hidden, self.gates, self.hidden)

    @property
    def places(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """For each output its first element and its shape."""
        last = (self.batch, self.directions) if self.batch_first else (self.directions, self.batch)
        first = (self.batch, self.steps, self.directions) if self.batch_first else (self.steps, *last)
        places, start = {}, 0
        for name in self.outputs:
            shape = (*(first if name == "Y" else last), self.hidden)
            places[name] = (start, shape)
            start += math.prod(shape)
        return places

    @property
    def elements(self) -> int:
        """Elements of all outputs."""
        return sum(math.prod(shape) for _, shape in self.places.values())


def run_cells(problem: RecurrentProblem, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs wanted, shaped as ONNX has them: step by step in float64."""
    given = {name: value.astype(np.float64) for name, value in inputs.items() if name != "lengths"}
    if problem.whole:
        scales = given["scales"].reshape(problem.directions, problem.gates, problem.hidden).swapaxes(1, 2)
        given["weight"] = given["weight"].reshape(problem.weight_shape) * scales[..., np.newaxis]
    batch, directions, hidden = problem.batch, problem.directions, problem.hidden
    both = (batch, directions) if problem.batch_first else (directions, batch)
    order = (batch, problem.steps) if problem.batch_first else (problem.steps, batch)

    def entries(value: Array, axis: int = 1) -> Array:
        """Return the same memory with the batch first."""
        return value if problem.batch_first else np.moveaxis(value, axis, 0)

    gates = entries(given["gates"].reshape(*order, directions, problem.gates, hidden))
    begin = [entries(given.get(name, np.zeros((*both, hidden))).reshape(*both, hidden)) for name in STARTS]
    ends = np.clip(inputs["lengths"], 0, problem.steps) if problem.lengths else np.full(batch, problem.steps)
    results = {name: np.zeros(shape) for name, (_, shape) in problem.places.items()}
    for direction in range(directions):
        h, c = (state[:, direction].copy() for state in begin)
        backwards = problem.direction == "reverse" or direction == 1
        for step in range(problem.steps):
            seen = by_range(h) if problem.whole else h.copy()
            for entry in np.flatnonzero(step < ends):
                time = int(ends[entry]) - 1 - step if backwards else step
                x = gates[entry, time, direction]
                h[entry], c[entry] = _step(problem, direction, given, x, seen[entry], c[entry])
                if "Y" in results:
                    entries(results["Y"], 2)[entry, time, direction] = h[entry]
        for name, state in (("Y_h", h), ("Y_c", c)):
            if name in results:
                entries(results[name])[:, direction] = state
    return results


def _step(
    problem: RecurrentProblem, direction: int, given: Mapping[str, Array], x: Array, h: Array, c: Array
) -> tuple[Array, Array]:
    """Return the next h and c from what the input brings to the gates, [gates, hidden]."""
    count = ACTIVATIONS[problem.cell]
    functions = [chain.apply for chain in problem.activations[direction * count : (direction + 1) * count]]
    weight = given["weight"].reshape(problem.weight_shape)[direction].swapaxes(0, 1)
    if problem.cell == "RNN":
        return functions[0](x[0] + weight[0] @ h), c
    if problem.cell == "GRU":
        z, r = (functions[0](x[gate] + weight[gate] @ h) for gate in (0, 1))
        if problem.after_reset:
            candidate = r * (weight[2] @ h + given["bias"].reshape(problem.directions, -1)[direction])
        else:
            candidate = weight[2] @ (r * h)
        return (1 - z) * functions[1](x[2] + candidate) + z * h, c
    i, o, f, g = x + weight @ h
    into, out, keep = given["peepholes"].reshape(-1, 3, problem.hidden)[direction] if problem.peepholes else (0, 0, 0)
    i = functions[0](i + into * c)
    f = 1 - i if problem.coupled else functions[0](f + keep * c)
    c = f * c + i * functions[1](g)
    return functions[0](o + out * c) * functions[2](c), c
