"""Lower LSTM, GRU and RNN, whose inputs passes/recurrent.py has brought into one form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod

from gputune.client.model.graph import Node
from gputune.client.model.lowering.emitting import Lowering
from gputune.kernels.chain import Chain, Step
from gputune.kernels.indexing.cells import ACTIVATIONS, DIRECTIONS, GATES, OUTPUTS, RecurrentProblem
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops.move import MoveProblem, move

NAMES = ("gates", "weight", "bias", "lengths", "initial_h", "initial_c", "peepholes", "scales")
OF_ONE_CELL = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}

SCALARS: Mapping[str, tuple[float | None, ...]] = {
    "affine": (None, None),
    "elu": (1,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "relu": (),
    "scaledtanh": (None, None),
    "sigmoid": (),
    "softplus": (),
    "softsign": (),
    "tanh": (),
    "thresholdedrelu": (1,),
}
"""The functions that cells know, in lower case, with their alpha and beta where a node gives none; None: it must."""


def recurrent(lowering: Lowering, node: Node) -> None:
    graph = lowering.graph
    read = {name: tensor for name, tensor in zip(NAMES, node.inputs, strict=False) if tensor}
    wanted = {name: each for name, each in zip(OUTPUTS, node.outputs, strict=False) if lowering.uses[each]}
    batch_first = bool(node.attributes.get("layout", 0))
    first, second, _ = graph.shape(read["gates"])
    steps, batch = (second, first) if batch_first else (first, second)
    spared = {"Y", "Y_h"} <= wanted.keys() and "lengths" not in read and (steps == 1 or "Y_c" not in wanted)
    direction = node.attributes.get("direction", "forward")
    problem = RecurrentProblem(
        node.op,
        steps,
        batch,
        graph.shape(read["weight"])[-1],
        direction,
        tuple(_activations(node, DIRECTIONS.get(direction, 1))),
        tuple(name for name in wanted if not (spared and name == "Y_h")),
        initial_h="initial_h" in read,
        initial_c="initial_c" in read,
        lengths="lengths" in read,
        peepholes="peepholes" in read,
        after_reset="bias" in read,
        coupled=bool(node.attributes.get("input_forget", 0)),
        batch_first=batch_first,
        whole="scales" in read,
    )
    _check_shapes(lowering, node, problem, read)
    weight = lowering.bytes_of(read["weight"]) if problem.whole else ""
    problem = replace(problem, bytes=bool(weight))
    inputs = {name: lowering.layouts.get(tensor, on_device=False) for name, tensor in read.items()}
    inputs |= {"weight": weight} if weight else {}
    whole = len(problem.outputs) == 1
    if whole:
        line = lowering.layouts.define(wanted[problem.outputs[0]], on_device=False)
    else:
        line = lowering.layouts.temporary(f"{node.name}/outputs", (problem.elements,))
    lowering.emit(node.name, "Recurrent", problem, inputs, line, node.stands_for)
    for name, (start, shape) in problem.places.items() if not whole else ():
        part = move(problem.elements, start, [Loop(prod(shape), 1)])
        _part(lowering, node, f"{node.name}/{name}", part, line, wanted[name])
    if spared and steps == 1:
        lowering.layouts.reshape(wanted["Y_h"], wanted["Y"])
    elif spared:
        _part(lowering, node, f"{node.name}/Y_h", _last(problem), line, wanted["Y_h"])


def _part(lowering: Lowering, node: Node, name: str, part: MoveProblem, source: str, target: str) -> None:
    output = lowering.layouts.define(target, on_device=False)
    lowering.emit(name, "Move", part, {"input": source}, output, node.stands_for)


def _last(problem: RecurrentProblem) -> MoveProblem:
    """Y_h out of Y, where all entries have all steps: forwards the last one is the end, backwards the first."""
    hidden, directions, batch = problem.hidden, problem.directions, problem.batch
    across, apart, later = hidden, batch * hidden, directions * batch * hidden
    if problem.batch_first:
        across, apart, later = problem.steps * directions * hidden, hidden, directions * hidden
    end = (problem.steps - 1) * later
    loops = [Loop(directions, apart - end), Loop(batch, across)]
    start = 0 if problem.direction == "reverse" else end
    ordered = loops[::-1] if problem.batch_first else loops
    return move(prod(problem.places["Y"][1]), start, [*ordered, Loop(hidden, 1)])


def _check_shapes(lowering: Lowering, node: Node, problem: RecurrentProblem, read: Mapping[str, str]) -> None:
    """Check what onnx's own checks leave open, for the messages; sizes are checked where operations are emitted."""
    if (said := node.attributes.get("hidden_size", problem.hidden)) != problem.hidden:
        raise node.unsupported(f"its hidden_size is {said}, its weights are for {problem.hidden}")
    if (held := lowering.graph.shape(read["weight"])[0]) != problem.directions:
        raise node.unsupported(f"it runs {problem.direction}, its weights are for {held} directions")


def _activations(node: Node, directions: int) -> Iterator[Chain]:
    """Yield the chains of all functions of all directions; alphas and betas go to those that have them, in their
    order."""
    default = OF_ONE_CELL[node.op] * directions
    names = [str(name).lower() for name in node.attributes.get("activations", default)]
    alphas, betas = (iter(node.attributes.get(f"activation_{which}", ())) for which in ("alpha", "beta"))
    clip = node.attributes.get("clip", 0.0)
    if len(names) != len(default):
        raise node.unsupported(f"it has {len(names)} activations instead of {len(default)}")
    for place, name in enumerate(names):
        if name not in SCALARS:
            raise node.unsupported(f"its activation {name!r} is none of {', '.join(SCALARS)}")
        given: list[float] = []
        for source, usual in zip((alphas, betas), SCALARS[name], strict=False):
            if (value := next(source, usual)) is None:
                raise node.unsupported(f"its activation {name!r} needs an alpha and a beta")
            given.append(float(value))
        clips = clip > 0 and not (node.op == "LSTM" and place % ACTIVATIONS["LSTM"] == 2)  # the last one reads c
        yield Chain((*([Step("clip", (-clip, clip))] if clips else []), *_steps(name, *given)))


def _steps(name: str, alpha: float = 0, beta: float = 0) -> tuple[Step, ...]:
    match name:
        case "affine":
            return Step("mul", (alpha,)), Step("add", (beta,))
        case "scaledtanh":
            return Step("mul", (beta,)), Step("tanh"), Step("mul", (alpha,))
        case "hardsigmoid":
            return (Step("hard_sigmoid", (alpha, beta)),)
        case "leakyrelu":
            return (Step("leaky_relu", (alpha,)),)
        case "elu":
            return (Step("elu", (alpha,)),)
        case "thresholdedrelu":
            return (Step("threshold", (alpha,)),)
    return (Step(name),)


LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    **dict.fromkeys(GATES, recurrent),
}
