"""Represent the models of one context and the input shapes that they are given: a graph for each choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputune.client.errors import ConfigError
from gputune.client.model.importer import OPTION, sized_names
from gputune.client.suggestions import instead

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ModelFile:
    """A model, and shapes by the name of an input or of a dimension: a graph for each of them."""

    path: Path
    shapes: Sequence[Mapping[str, Shape]] = ({},)


def model_files(paths: Sequence[Path], given: Sequence[tuple[str, Shape]]) -> tuple[ModelFile, ...]:
    """The models with the shapes that are given for names of inputs, or of their dimensions.

    MODEL:NAME is one of the model in MODEL.onnx, and NAME alone that of each model which has it.
    Raises ConfigError for two models of one name, and for shapes that belong to no model or do not fit together;
    ModelError for a file that cannot be read.
    """
    stems = [path.stem for path in paths]
    if len(paths) == 1 and not any(name.startswith(f"{stems[0]}:") for name, _ in given):
        return (ModelFile(paths[0], combined(given)),)
    for stem in stems:
        if stems.count(stem) > 1:
            twins = " and ".join(str(path) for path in paths if path.stem == stem)
            raise ConfigError(f"--model: {twins} would both be graph {stem!r}; rename one of the files")
    own: dict[str, list[tuple[str, Shape]]] = {stem: [] for stem in stems}
    known: dict[str, Sequence[str]] = {}
    for name, shape in given:
        owner = max((stem for stem in stems if name.startswith(f"{stem}:")), key=len, default=None)
        if owner is not None:
            own[owner].append((name.removeprefix(f"{owner}:"), shape))
            continue
        known = known or {path.stem: sized_names(path) for path in paths}
        for stem in (having := [stem for stem in stems if name in known[stem]]):
            own[stem].append((name, shape))
        if not having:
            raise ConfigError(_unknown(name, known))
    return tuple(ModelFile(path, combined(own[path.stem], path.stem)) for path in paths)


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


def _unknown(name: str, names: Mapping[str, Sequence[str]]) -> str:
    """What is wrong with a name that no model has. names: of the inputs and dimensions of the models."""
    known = [each for several in names.values() for each in several]
    known += [f"{stem}:{each}" for stem, several in names.items() for each in several]
    return f"{OPTION}: none of the models {', '.join(names)} has an input or dimension {name!r}; {instead(name, known)}"
