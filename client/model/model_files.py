"""Represent the models of one context, the input shapes that they are given, a graph for each choice, and the values of
inputs that are constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gputune.client.errors import INPUT_DIMENSIONS as OPTION
from gputune.client.errors import INPUT_VALUE as VALUE_OPTION
from gputune.client.errors import STATE, STATE_CAPACITY, ConfigError
from gputune.client.suggestions import instead

if TYPE_CHECKING:
    from gputune.client.model.importer import Value

Shape = tuple[int, ...]
AUTO = "auto"
"""The value of --state that finds the pairs in the model."""
Given = TypeVar("Given")


@dataclass(frozen=True)
class StateChoice:
    """What a model remembers between inferences, as --state and --state_capacity have it.

    pairs: patterns of names of inputs, and of the outputs that these become; none for those that the model joins with
    new rows. prefix: the dimension that grows of a model that is given everything from the start each time. capacity:
    the rows that a growing state has, or the longest prefix."""

    capacity: int
    pairs: tuple[tuple[str, str], ...] = ()
    prefix: str = ""


@dataclass(frozen=True)
class ModelFile:
    """A model, and shapes by the name of an input or of a dimension: a graph for each of them. values: of inputs that
    are constants in all of these graphs. states: what it remembers between inferences, if it does, in each capacity."""

    path: Path
    shapes: Sequence[Mapping[str, Shape]] = ({},)
    values: Mapping[str, Value] = field(default_factory=dict)
    states: tuple[StateChoice, ...] = ()

    @property
    def graphs(self) -> list[tuple[Mapping[str, Shape], StateChoice | None]]:
        """Return what is given to each graph: shapes, and its state."""
        return [(shapes, state) for shapes in self.shapes for state in self.states or (None,)]


def with_states(files: Sequence[ModelFile], parts: Sequence[str], capacities: Sequence[int]) -> tuple[ModelFile, ...]:
    """Return models with the states that --state and --state_capacity say. parts: of the text of --state.

    MODEL:TEXT is for the model in MODEL.onnx, and TEXT alone for each. Raises ConfigError for parts that contradict
    each other, and for a capacity of no state.
    """
    if not parts and capacities:
        told = ",".join(map(str, capacities))
        raise ConfigError(f"{STATE_CAPACITY} {told}: it is the room of a state; give {STATE}, too")
    stems = [file.path.stem for file in files]
    found = []
    for file in files:
        owned = [(part, next((stem for stem in stems if part.startswith(f"{stem}:")), "")) for part in parts]
        own = [part.removeprefix(f"{stem}:") for part, stem in owned if stem in ("", file.path.stem)]
        found.append(replace(file, states=tuple(_choice(own, each) for each in capacities or (0,))) if own else file)
    return tuple(found)


def _choice(parts: Sequence[str], capacity: int) -> StateChoice:
    """Return what parts say of a model. Raises ConfigError."""
    divided = [part.partition("=") for part in parts]
    pairs = [(one.strip(), other.strip()) for one, equals, other in divided if equals]
    if not pairs and len(parts) == 1:
        return StateChoice(capacity, prefix="" if parts[0] == AUTO else parts[0])
    if len(pairs) < len(parts):
        others = [part for part in parts if "=" not in part]
        raise ConfigError(f"{STATE}: {others[0]!r} is no pair IN=OUT; give pairs, {AUTO}, or the name of one dimension")
    if wrong := next((pair for pair in pairs if not all(pair) or pair[0].count("*") != pair[1].count("*")), None):
        raise ConfigError(f"{STATE} {'='.join(wrong)}: give two names, with as many * in both")
    return StateChoice(capacity, tuple(pairs))


def model_files(
    paths: Sequence[Path], given: Sequence[tuple[str, Shape]], values: Mapping[str, Value] | None = None
) -> tuple[ModelFile, ...]:
    """Return the models with the shapes that are given for names of inputs, or of their dimensions, and the values that
    are given for inputs.

    MODEL:NAME is one of the model in MODEL.onnx, and NAME alone that of each model which has it.
    Raises ConfigError for two models of one name, and for shapes and values that belong to no model or do not fit
    together; ModelError for a file that cannot be read.
    """
    stems, pairs = [path.stem for path in paths], list((values or {}).items())
    if len(paths) == 1 and not any(name.startswith(f"{stems[0]}:") for name, _ in (*given, *pairs)):
        return (ModelFile(paths[0], combined(given), dict(pairs)),)
    for stem in stems:
        if stems.count(stem) > 1:
            twins = " and ".join(str(path) for path in paths if path.stem == stem)
            raise ConfigError(f"--model: {twins} would both be graph {stem!r}; rename one of the files")
    from gputune.client.model.importer import input_names, sized_names  # needs onnx, and options do not

    shapes = _owned(paths, given, sized_names, f"{OPTION}: none of the models {{}} has an input or dimension")
    fixed = _owned(paths, pairs, input_names, f"{VALUE_OPTION}: none of the models {{}} has an input")
    return tuple(ModelFile(path, combined(shapes[path.stem], path.stem), dict(fixed[path.stem])) for path in paths)


def _owned(
    paths: Sequence[Path],
    given: Sequence[tuple[str, Given]],
    names_in: Callable[[Path], Sequence[str]],
    none_has: str,
) -> dict[str, list[tuple[str, Given]]]:
    """By model, the names in it that something is given for, with what is given. none_has: what is wrong with a name
    that no model has. Raises ConfigError, ModelError."""
    own: dict[str, list[tuple[str, Given]]] = {path.stem: [] for path in paths}
    known: dict[str, Sequence[str]] = {}
    for name, value in given:
        owner = max((stem for stem in own if name.startswith(f"{stem}:")), key=len, default=None)
        if owner is not None:
            own[owner].append((name.removeprefix(f"{owner}:"), value))
            continue
        known = known or {path.stem: names_in(path) for path in paths}
        having = [stem for stem in own if name in known[stem]]
        for stem in having:
            own[stem].append((name, value))
        if not having:
            others = [each for several in known.values() for each in several]
            others += [f"{stem}:{each}" for stem, several in known.items() for each in several]
            raise ConfigError(f"{none_has.format(', '.join(own))} {name!r}; {instead(name, others)}")
    return own


def combined(given: Sequence[tuple[str, Shape]], model: str = "") -> tuple[dict[str, Shape], ...]:
    """For each graph of a model, shapes by name: what is named several times has a shape for each graph, what is named
    once has it in all of them. model: its name, where there are others. Raises ConfigError."""
    whose = f" of model {model!r}" if model else ""
    shapes: dict[str, list[Shape]] = {}
    for name, shape in given:
        shapes.setdefault(name, []).append(shape)
    graphs = max((len(several) for several in shapes.values()), default=1)
    for name, several in shapes.items():
        if len(several) not in (1, graphs):
            raise ConfigError(
                f"{OPTION}: {name!r}{whose} has {len(several)} shapes, another name has {graphs}; give each name one "
                "shape, or one for each graph"
            )
    found = tuple({name: several[place % len(several)] for name, several in shapes.items()} for place in range(graphs))
    if len({tuple(sorted(one.items())) for one in found}) < graphs:
        raise ConfigError(f"{OPTION}: two graphs{whose} would have the same shapes")
    return found
