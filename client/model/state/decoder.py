"""Put a decoder with a state together: its pairs, its sizes, the rewritten model, and the record for the context."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from gputune.client.errors import INPUT_DIMENSIONS, INPUT_VALUE, ConfigError, ModelError, UnsupportedNodes
from gputune.client.model.graph import Array, Graph
from gputune.client.model.importer import Imported, import_nodes, interface_of
from gputune.client.model.model_files import StateChoice
from gputune.client.model.state.dimensions import UNNAMED, Dimensions, Shape, rename
from gputune.client.model.state.growing import measured, outline
from gputune.client.model.state.pairs import joined, joining_branches, named, told, with_past
from gputune.client.model.state.rewriting import rewritten
from gputune.runtime.context.states import FIXED, StatePair, StateRecord, TokenAxis

log = logging.getLogger(__name__)

SHORT = 2
"""The past at which is found out how many rows a step adds."""


@dataclass(frozen=True)
class Original:
    """What a decoder was made of: the model, in which each input that grows has a past.

    dimensions: the shapes of its inputs at any length. tokens: the dimension that says how many rows a step adds, empty
    if that is fixed. values: of inputs that are constants."""

    model: onnx.ModelProto
    dimensions: Dimensions
    tokens: str
    values: Mapping[str, npt.ArrayLike]

    def constants(self, past: int, count: int) -> dict[str, Array]:
        """Return the inputs that have a value, at a length of the past, for a step of so many tokens."""
        types = {item.name: item.type.tensor_type.elem_type for item in self.model.graph.input}
        shapes = self.dimensions.at(past, {self.tokens: count} if self.tokens else {})
        return {
            name: np.broadcast_to(
                np.asarray(value, onnx.helper.tensor_dtype_to_np_dtype(types[name])), shapes[name]
            ).copy()
            for name, value in self.values.items()
        }


@dataclass(frozen=True)
class Stateful:
    """A model that is to keep a state. shapes, values: of inputs, as `read_model` has them. tell: takes what was found
    out of it, in words."""

    model: onnx.ModelProto
    path: Path
    shapes: Mapping[str, Shape]
    values: Mapping[str, npt.ArrayLike]
    choice: StateChoice
    tell: Callable[[str], None] = log.info

    def named(self) -> dict[str, str]:
        """Return the outputs that inputs become by the names that were chosen. Raises ConfigError."""
        interface = interface_of(self.model.graph)
        return named(self.choice.pairs, list(interface.inputs), interface.outputs, self.path)

    def pairs(self) -> dict[str, str]:
        """Return the outputs that pasts become, by the names of these inputs. Raises ConfigError."""
        if self.choice.pairs or self.choice.prefix:
            return self.named()
        found = joined(self.model.graph)
        if not found:
            raise ConfigError(
                f"--state auto: no output of model {self.path} is an input with new rows behind it; name the pairs, "
                'e.g. --state "past*=present*", or the dimension that grows, if it is given everything each time'
            )
        self.tell(f"--state auto: {told(found)}")
        return found


@dataclass(frozen=True)
class Decoder:
    """A model of a fixed capacity. states: what its context says of the state, None for a growing prefix.

    length: the input that says how many rows there are; capacity: how many there can be."""

    model: onnx.ModelProto
    states: StateRecord | None
    length: str
    capacity: int
    original: Original

    def imported(self, given: Stateful) -> Imported:
        """Import it. given: what it was made of, which has the shapes and values of a state that does not grow."""
        if self.length:
            return import_nodes(self.model, given.path, {})
        return import_nodes(self.model, given.path, given.shapes, self.original.values)

    def told(self) -> str:
        """Return in words what it keeps, and what it takes with each step."""
        if self.states is None:
            return f"none; input {self.length!r} says how many of {self.capacity} rows there are"
        taken = ", ".join(one.name for one in self.states.token_inputs)
        return f"{self.states}{f', in {taken}' if taken else ''}"


def with_state(given: Stateful) -> Decoder:
    """Return a decoder with a state of a capacity. Raises ConfigError for pairs and sizes that do not fit, ModelError
    for what cannot have a state."""
    given, choice = replace(given, values={**_branches(given), **given.values}), given.choice
    if choice.pairs and (fixed := _fixed(given)) is not None:
        return fixed
    growth = _Growth(given)
    if not choice.capacity:
        raise ConfigError(f"--state: a dimension of model {given.path} grows; give --state_capacity, its largest size")
    longest = choice.capacity - growth.tokens
    if longest < 1:
        raise ConfigError(
            f"--state_capacity {choice.capacity}: a step of model {given.path} adds {growth.tokens} rows; take more"
        )
    growing = measured(growth.imported, given.path, 1 if choice.prefix else 0, longest)
    try:
        static, length = rewritten(growing, growth.pairs, growth.tokens)
    except UnsupportedNodes as error:
        raise growth.advised(error) from None
    symbol, inputs, outputs, whole = ("", [], [], False) if choice.prefix else growth.token_axes
    pairs = [StatePair(one, other, *growing.axes(one) or [FIXED]) for one, other in growth.pairs.items()]
    states = StateRecord(length, growth.tokens, choice.capacity, tuple(inputs), tuple(outputs), tuple(pairs), whole)
    original = Original(growth.model, growth.dimensions, symbol, given.values)
    return Decoder(static, None if choice.prefix else states, length, choice.capacity, original)


class _Growth:
    """Knows what of a model grows, and by how many rows a step."""

    def __init__(self, given: Stateful) -> None:
        self._path, self._values, self._tell, prefix = given.path, given.values, given.tell, given.choice.prefix
        self.model = onnx.ModelProto()
        self.model.CopyFrom(given.model)
        self.pairs = given.pairs()
        self._name_pasts(given.shapes)
        self.dimensions = self._dimensions(given.shapes, [prefix] if prefix else list(self.pairs))
        self._name_sums(given.shapes)
        self._check_known()
        self.tokens = 0 if prefix else self._tokens()
        self._masks = [] if prefix else self._others()
        for name in self._masks:
            past, present = self._with_past(name)
            self.pairs[past] = present
            self.dimensions = self._dimensions(given.shapes, list(self.pairs))

    def imported(self, past: int, more: Mapping[str, int] | None = None) -> Imported:
        """Import the model at a length; more: with other sizes of dimensions. Raises ModelError for one that cannot
        run."""
        found = import_nodes(self.model, self._path, self.dimensions.at(past, more), self._values)
        found.whole()
        return found

    def advised(self, error: UnsupportedNodes) -> UnsupportedNodes:
        """Return a refusal with the advice to make constants of inputs that were given a past."""
        if not self._masks:
            return error
        values = " and ".join(f"{INPUT_VALUE} {name}=1" for name in self._masks)
        advice = f"{values}, if nothing of the past is hidden"
        refusals = [replace(one, instead=one.instead or advice) for one in error.refusals]
        return UnsupportedNodes(refusals, str(self._path), error.looked_at)

    @cached_property
    def token_axes(self) -> tuple[str, list[TokenAxis], list[TokenAxis], bool]:
        """The dimension that says how many rows a step adds, and the inputs and outputs that have a row for each: those
        which are longer if it adds one more. Last whether a step takes whole chunks only."""
        short = self.imported(SHORT)
        own = outline(short).shapes
        for name in self.dimensions.candidates(self.tokens):
            if longer := self._adding(name, self.tokens + 1):
                shapes, graph = outline(longer).shapes, longer.graph
                inputs = [each for each in graph.inputs if each not in self.pairs]
                outputs = [each for each in graph.outputs if each not in self.pairs.values()]
                given, found = (_longer(own, shapes, names, self.tokens) for names in (inputs, outputs))
                shown = _following(graph, {*_changed(short, longer), *(one.name for one in given)})
                if why := self._whole_chunks(graph, shown.intersection(outputs) - {one.name for one in found}):
                    self._tell(
                        f"--state: {why}, so a step of model {self._path} takes {self.tokens} tokens and no fewer"
                    )
                return name, given, found, bool(why)
        return "", [], [], False

    def _adding(self, name: str, count: int) -> Imported | None:
        """Return the model with a size of a dimension, if a step adds as many rows then."""
        try:
            found = self.imported(SHORT, {name: count})
        except ModelError:
            return None
        return found if set(self._added(outline(found).shapes).values()) == {count} else None

    def _check_known(self) -> None:
        """Raise ConfigError for an input with a dimension of which no size follows."""
        for name, (symbol, *_) in self.dimensions.missing().items():
            raise ConfigError(
                f"--state: dimension {symbol!r} of input {name!r} of model {self._path} is not known; give "
                f"{INPUT_DIMENSIONS} {symbol}=N or, if it grows with the past, the same number everywhere: "
                f"{INPUT_VALUE} {name}=1"
            )

    def _name_pasts(self, shapes: Mapping[str, Shape]) -> None:
        """Have the dimensions of all pasts be called as that of the first, where each has one that is open: pasts that
        begin together and grow by the same rows have one length."""
        found = Dimensions.of_all(interface_of(self.model.graph), shapes)
        names = [found.open(found.interface.inputs[past]) for past in self.pairs]
        if all(len(each) == 1 and each[0] for each in names):
            rename(self.model.graph, {each[0] for each in names}, names[0][0] if names else "")

    def _name_sums(self, shapes: Mapping[str, Shape]) -> None:
        """Have dimensions that are the past and new rows, and have a name of their own, be called by the sum of both.
        The new rows are the largest dimension with which presents grow: a sum that is too small may cut them off."""
        symbols = self.dimensions.sums(self.pairs, self._values)
        sizes = {**self.dimensions.sizes, "1": 1} if symbols else {}
        called = {*symbols}
        for name, size in sorted(sizes.items(), key=lambda each: -each[1]):
            rename(self.model.graph, called, whole := f"{self.dimensions.growing} + {name}")
            called = {whole}
            self.dimensions = self._dimensions(shapes, list(self.pairs))
            if all(self._adding(name, count) for count in (size, size + (name != "1"))):
                return
        if symbols:
            rename(self.model.graph, called, symbols[0])
            self.dimensions = self._dimensions(shapes, list(self.pairs))

    def _whole_chunks(self, graph: Graph, others: Collection[str]) -> str:
        """Return why tokens that fill up a chunk would show; empty if they do not. others: outputs without a row for
        each token."""
        if self.tokens == 1:
            return ""
        if others:
            return f"output {min(others)!r} has no row for each token"
        ranges = (node.label for node in graph.nodes if node.op == "DynamicQuantizeLinear")
        return next((f"{label} has one range for all tokens" for label in ranges), "")

    def _dimensions(self, shapes: Mapping[str, Shape], pasts: Sequence[str]) -> Dimensions:
        return Dimensions.of(self._path, interface_of(self.model.graph), shapes, pasts)

    def _tokens(self) -> int:
        """Return how many rows a step adds."""
        added = self._added(outline(self.imported(SHORT)).shapes)
        if len(set(added.values())) != 1:
            counts = ", ".join(f"{count} to {name}" for name, count in added.items())
            raise ModelError(f"--state: a step of model {self._path} adds {counts}; it must be the same number")
        return next(iter(added.values()))

    def _added(self, shapes: Mapping[str, Shape]) -> dict[str, int]:
        """Return how many rows a step adds to each past that grows, by the shapes of tensors."""
        sums = {name: sum(shapes[present]) - sum(shapes[name]) for name, present in self.pairs.items()}
        return {name: count for name, count in sums.items() if self.dimensions.grows(name)}

    def _others(self) -> list[str]:
        """Return inputs that grow, are no pasts, and have no value."""
        return [
            name
            for name in self.dimensions.interface.inputs
            if name not in self.pairs and name not in self._values and self.dimensions.grows(name)
        ]

    def _with_past(self, name: str) -> tuple[str, str]:
        """Give an input that grows a past of its own."""
        short, longer = (self.dimensions.at(past)[name] for past in (SHORT, SHORT + 1))
        axes = [axis for axis, (one, other) in enumerate(zip(short, longer, strict=True)) if one != other]
        if len(axes) != 1 or short[axes[0]] != SHORT + self.tokens:
            raise ModelError(
                f"--state: input {name!r} of model {self._path} grows with the past, but is not as long as the past "
                f"and {self.tokens} rows; name the output that it becomes"
            )
        self._tell(
            f"--state: input {name!r} grows with the past; a step takes its last {self.tokens} rows, and the state "
            f"keeps the others. If it is the same everywhere, --input_value {name}=1 saves that"
        )
        return with_past(self.model.graph, name, axes[0], self.dimensions.growing or UNNAMED)


def _fixed(given: Stateful) -> Decoder | None:
    """Return a model with a state that does not grow, as it is; None if some of it does.

    Raises ConfigError for pairs of other types or shapes."""
    pairs, path = given.named(), given.path
    dimensions = Dimensions.of_all(interface_of(given.model.graph), given.shapes)
    if any(dimensions.open(dimensions.interface.inputs[name]) for name in pairs):
        return None
    tensors = import_nodes(given.model, path, given.shapes, given.values).tensors
    for past, present in pairs.items():
        one, other = tensors[past], tensors[present]
        if one != other:
            raise ConfigError(
                f"--state {past}={present}: input {past!r} of model {path} is {one.dtype} of {one.shape}, and output "
                f"{present!r} {other.dtype} of {other.shape}; they must be the same"
            )
    if capacity := given.choice.capacity:
        raise ConfigError(f"--state_capacity {capacity}: nothing of the state of model {path} grows; drop it")
    states = StateRecord("", 0, 0, (), (), tuple(StatePair(past, present, FIXED) for past, present in pairs.items()))
    return Decoder(given.model, states, "", 0, Original(given.model, dimensions, "", given.values))


def _branches(given: Stateful) -> Mapping[str, bool]:
    """Return values of inputs that choose a branch, and have none: of that which joins pasts with new rows."""
    found = {name: value for name, value in joining_branches(given.model.graph).items() if name not in given.values}
    for name, value in found.items():
        given.tell(
            f"--state: input {name!r} of model {given.path} is {str(value).lower()}, for the branch that takes a past, "
            "which takes an empty one for the first step"
        )
    return found


def _changed(one: Imported, other: Imported) -> set[str]:
    """Return the constants that are not the same in both."""
    computed = (name for step in other.trace if step.known for name in step.node.output if name)
    return {name for name in computed if not np.array_equal(one.constants.get(name, np.nan), other.constants[name])}


def _following(graph: Graph, names: Collection[str]) -> set[str]:
    """Return all tensors that follow from some."""
    found = set(names)
    for node in graph.nodes:
        if found.intersection(node.reads):
            found.update(node.outputs)
    return found


def _longer(
    own: Mapping[str, Shape], longer: Mapping[str, Shape], names: Sequence[str], tokens: int
) -> list[TokenAxis]:
    """Return the axes along which tensors of these names have so many rows, and one more if they are longer."""
    return [
        TokenAxis(name, axis)
        for name in names
        for axis, (one, other) in enumerate(zip(own[name], longer[name], strict=True))
        if (one, other) == (tokens, tokens + 1)
    ]
