"""Check that a context and a model belong together: what they take and give, and whether they compute the same."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from gputune.client.context.verifying.distance import ALLOWED, Compared, check_compared, compared
from gputune.client.context.verifying.exactness import quantised_graphs, rounds_less
from gputune.client.context.verifying.origin import Origin
from gputune.client.errors import OtherModel, VerificationError
from gputune.client.input_lists import constants_in
from gputune.client.model.graph import Array
from gputune.client.model.importer import Input, read_interface, read_static_inputs, sized_names
from gputune.client.model.oracle import Oracle
from gputune.core.dtypes import is_float
from gputune.runtime.application.made_up_inputs import random_inputs, telling_draw
from gputune.runtime.context.records import GraphRecord, TensorRecord

log = logging.getLogger(__name__)

Outputs = Callable[[int], Mapping[str, Array]]
"""Computes outputs by name of the random inputs of a draw."""

REMEDY = (
    "`gputune context-binary-generator --verify --input_list` compares on inputs that the model is made for; if there "
    "are none, look for NaN in its weights"
)
"""The remedy for outputs that are NaN or infinite on both sides."""


def check_interface(origin: Origin, graph: GraphRecord) -> None:
    """Check that a graph of a context has the inputs and outputs of a model, with types and shapes, unless it was made
    from that file. Raises OtherModel that says all that differs, ModelError for a file that is no valid model."""
    if origin.match == "same":
        return
    configuration, model = origin.headers[0].configuration, origin.model
    declared = read_interface(model)
    fixed = constants_in(configuration) | _empty(configuration, declared.inputs.values())
    wrong = [
        *_misfits("input", graph.inputs, declared.inputs, ()),
        *(f"has no input {name!r}" for name in _missing(graph.inputs, declared.inputs) if name not in fixed),
        *_misfits("output", graph.outputs, declared.outputs, declared.inner),
        *(f"has no output {name!r}" for name in _missing(graph.outputs, declared.outputs)),
    ]
    if wrong:
        raise OtherModel(
            f"{origin.words}: graph {graph.name!r} {'; '.join(wrong)}; make a context from {model}, or name the model "
            "that the context was made from"
        )


def model_outputs(model: Path, tensors: Sequence[TensorRecord], constants: Mapping[str, Array]) -> Outputs:
    """Return what computes a model in onnxruntime, as --verify does. tensors: the inputs of its context; constants: the
    model's other inputs. Raises ConfigError where onnxruntime is missing or cannot run the model."""
    oracle = Oracle(model).given(constants)

    @lru_cache(maxsize=1)
    def run(draw: int) -> Mapping[str, Array]:
        return oracle.run(random_inputs(tensors, draw))

    run(0)
    return run


def optimised_outputs(model: Path, tensors: Sequence[TensorRecord], constants: Mapping[str, Array]) -> Outputs:
    """Return the same with onnxruntime's optimisations, which is opened when it is asked."""
    return lambda draw: Oracle(model).given(constants).optimised().run(random_inputs(tensors, draw))


def compare_lines(
    origin: Origin,
    graph: GraphRecord,
    infer: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    lines: Iterable[Mapping[str, Array]],
    steps: Mapping[str, float],
) -> dict[str, Compared]:
    """Return what comparing the outputs of a graph with those of the model shows, by their names, on all of these
    inputs. steps: as Exactness has them. Raises OtherModel; ConfigError where onnxruntime is missing or cannot run the
    model; what `infer` raises."""
    check_interface(origin, graph)
    oracle = Oracle(origin.model).given(constants_of(origin, graph))
    found: dict[str, Compared] = {}
    for inputs in lines:
        own = partial(lambda given: oracle.optimised().run(given), inputs)
        for name, one in _compared(origin, infer(inputs), oracle.run(inputs), steps, own).items():
            found[name] = found.get(name, Compared()) + one
    return found


def constants_of(origin: Origin, graph: GraphRecord) -> dict[str, Array]:
    """Return the inputs of a model that are constants in a graph of a context, by what the context says. Raises
    OtherModel for a value that it does not repeat, ModelError for values that do not fit."""
    header = origin.headers[0]
    place = next((place for place, one in enumerate(header.graphs) if one.name == graph.name), 0)
    values = _told(header.configuration, "input_values", place)
    for name in (name for name, value in values.items() if isinstance(value, dict)):
        raise OtherModel(
            f"{origin.words}; the context does not repeat the value of input {name!r}, so outputs cannot be compared: "
            "`gputune compare` takes it with --input_value"
        )
    names = sized_names(origin.model)
    sizes = {
        name: tuple(shape)
        for name, shape in _told(header.configuration, "input_dimensions", place).items()
        if name in names and isinstance(shape, list) and all(type(size) is int for size in shape)
    }
    known = {tensor.name: tensor.shape for tensor in graph.inputs}
    return read_static_inputs(origin.model, sizes | known, values)[1]


def _told(configuration: Mapping[str, Any], key: str, place: int) -> dict[str, Any]:
    """Return what a context says of a graph at a place."""
    told = configuration.get(key)
    own = told[place] if isinstance(told, list) and place < len(told) else {}
    return own if isinstance(own, dict) else {}


def compare_outputs(
    origin: Origin, context: Outputs, right: Outputs, steps: Mapping[str, float], optimised: Outputs | None = None
) -> dict[str, Compared]:
    """Return what comparing the outputs that both have shows, by their names, on the random inputs that leave as few of
    the right ones NaN or infinite as possible. steps: as Exactness has them. optimised: computes the right ones
    with onnxruntime's optimisations. Raises OtherModel for another shape or type, which a model may leave open."""
    draw = telling_draw(right)
    own = None if optimised is None else partial(optimised, draw)
    return _compared(origin, context(draw), right(draw), steps, own)


def _compared(
    origin: Origin,
    mine: Mapping[str, Array],
    right: Mapping[str, Array],
    steps: Mapping[str, float],
    own: Callable[[], Mapping[str, Array]] | None,
) -> dict[str, Compared]:
    pairs = {name: (mine[name], array) for name, array in right.items() if name in mine}
    for name, (got, array) in pairs.items():
        if got.shape != array.shape or not _alike(got.dtype.name, array.dtype.name):
            raise OtherModel(
                f"{origin.words}: output {name!r} is {got.dtype}{list(got.shape)}, and {array.dtype}"
                f"{list(array.shape)} of the model; make a context from {origin.model}"
            )
    found = {name: compared(got, array, steps.get(name, 0.0)) for name, (got, array) in pairs.items()}
    if (
        own is None
        or not any(map(quantised_graphs, origin.headers))
        or all(one.within(ALLOWED) for one in found.values())
    ):
        return found
    moved = own()
    return {name: one if one.within(ALLOWED) else one.beside(*pairs[name], moved[name]) for name, one in found.items()}


def check_outputs(origin: Origin, found: Mapping[str, Compared], allowed: float) -> None:
    """Check what `compare_outputs` has found, unless the context rounds less than its model. Raises VerificationError
    for outputs that differ, NothingCompared."""
    if any(map(rounds_less, origin.headers)):
        log.warning(f"{origin.context} was made with --quantised float, so its outputs are not those of {origin.model}")
        return
    worst = max(found, key=lambda name: found[name].error - found[name].own, default=None)
    pair = f"{origin.context} and {origin.model}"
    if worst is not None and not found[worst].within(allowed):
        error = found[worst].error
        off = "by NaN or infinite values" if error == float("inf") else f"by {error:.2g} of its largest value"
        raise VerificationError(
            f"{pair} do not compute the same: output {worst!r} differs {off}, {allowed:g} is allowed; {_advice(origin)}"
        )
    check_compared(found, REMEDY, f"{pair}: ")


def _advice(origin: Origin) -> str:
    verify = "`gputune context-binary-generator --verify` names the wrong operation"
    if origin.match == "same":
        return verify
    return f"{origin.words}; make a context from {origin.model}" + f"; {verify}" * (origin.match == "unknown")


def _missing(tensors: Sequence[TensorRecord], declared: Collection[str]) -> list[str]:
    known = {tensor.name for tensor in tensors}
    return [name for name in declared if name not in known]


def _misfits(
    what: str, tensors: Sequence[TensorRecord], declared: Mapping[str, Input], inner: Collection[str]
) -> Iterator[str]:
    """Yield how tensors of a context differ from a model's. inner: tensors that may be outputs, too."""
    for tensor in tensors:
        one = declared.get(tensor.name)
        if one is None:
            if tensor.name not in inner:
                yield f"has the {what} {tensor.name!r}, which the model has not"
        elif not _alike(tensor.dtype, one.dtype):
            yield f"has the {what} {tensor.name!r} in {tensor.dtype}, the model in {one.dtype}"
        elif not _fits(tensor.shape, one):
            yield f"has the {what} {tensor.name!r} with the shape {list(tensor.shape)}, the model with {one}"


def _alike(mine: str, declared: str) -> bool:
    """Return whether types are equal or both are floats, which --io_type may have changed."""
    return mine == declared or (is_float(mine) and is_float(declared))


def _fits(shape: Sequence[int], declared: Input) -> bool:
    """Return whether a model leaves a shape open or has it. A negative size of a model in parts is not known."""
    sizes = declared.shape({})
    return declared.dims is None or (
        len(shape) == len(sizes)
        and all(size is None or own < 0 or own == size for own, size in zip(shape, sizes, strict=True))
    )


def _empty(configuration: Mapping[str, Any], inputs: Collection[Input]) -> set[str]:
    """Return the inputs without elements, of which a context has none."""
    told = configuration.get("input_dimensions")
    given = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    zeros = {name for sizes in given for name, shape in sizes.items() if isinstance(shape, list) and 0 in shape}
    return {one.name for one in inputs if one.name in zeros or 0 in one.shape({}) or not zeros.isdisjoint(one.symbols)}
