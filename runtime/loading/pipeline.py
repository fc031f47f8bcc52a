"""Run contexts in sequence: each reads in place what the previous context writes, and nothing is copied."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputune.core.errors import shortened
from gputune.core.opened import Closing
from gputune.runtime.context.records import TensorRecord
from gputune.runtime.executor import Executor
from gputune.runtime.loading.groups import ContextGroup, load_group
from gputune.runtime.loading.verdict import Compatibility
from gputune.runtime.memory.handles import is_empty
from gputune.runtime.values import NOTHING, Array, Value, Values


@dataclass(frozen=True)
class Link:
    """Link the output of one stage to the input of the next."""

    output: str
    input: str


class Pipeline(Closing):
    """Run stages on one device, which share their arenas. Several threads may use a pipeline, one inference at a time.

    stages: their executors in order; links: between each stage and the next. inputs, outputs: the tensors that no link
    has, by the names that `run` takes. A name is the tensor's own name, or STAGE/NAME, with stages counted from 0, if
    two stages have the same name.
    """

    def __init__(self, group: ContextGroup, stages: Sequence[Executor], links: Sequence[Sequence[Link]]) -> None:
        """Make a pipeline with pipeline(); it allocates the memory of the links, which only the device uses, and closes
        the group. Raises DeviceError."""
        self._group = group
        self._turn = threading.Lock()
        self.stages, self.links = tuple(stages), tuple(map(tuple, links))
        for number, between in enumerate(self.links):
            for link in between:
                self.stages[number].join_output(link.output, self.stages[number + 1], link.input)
        given = [{link.input for link in between} for between in [(), *self.links]]
        taken = [{link.output for link in between} for between in [*self.links, ()]]
        self._inputs = _named([one.graph.inputs for one in stages], given)
        self._outputs = _named([one.graph.outputs for one in stages], taken)

    @property
    def inputs(self) -> dict[str, TensorRecord]:
        """Return the inputs that `run` takes."""
        return {name: tensor for name, (_, tensor) in self._inputs.items()}

    @property
    def outputs(self) -> dict[str, TensorRecord]:
        """Return the outputs that `run` returns."""
        return {name: tensor for name, (_, tensor) in self._outputs.items()}

    def run(self, inputs: Values = NOTHING, outputs: Values = NOTHING) -> dict[str, Array]:
        """Run one inference through all stages: arrays and memory handles by the names of `inputs` and `outputs`, as
        Executor.run takes them. Raises as Executor.run does."""
        inputs = {name: value for name, value in inputs.items() if name in self._inputs or not is_empty(value)}
        for what, known, names in (("input", self._inputs, inputs), ("output", self._outputs, outputs)):
            for name in names:
                if name not in known:
                    raise ValueError(f"the pipeline has no {what} {name!r}; there are {list(known)}")
        results: dict[str, Array] = {}
        with self._turn:
            for number, stage in enumerate(self.stages):
                found = stage.run(_of(number, self._inputs, inputs), _of(number, self._outputs, outputs))
                for name, (place, tensor) in self._outputs.items():
                    if place == number and tensor.name in found:
                        results[name] = found[tensor.name]
        return results

    def close(self) -> None:
        """Close all stages and free their memory. A second call does nothing."""
        self._group.close()


def pipeline(
    paths: Sequence[Path | str],
    device: str | None = None,
    links: Sequence[Mapping[str, str]] | None = None,
    cache_compatibility_mode: Compatibility = "permissive",
) -> Pipeline:
    """Load contexts that each feed the next; the first graph of each runs.

    links: for each context except the last, a map from its outputs' names to the inputs of the next. By default,
    tensors with equal names are linked; if there are none, all outputs and inputs in order, if their numbers are equal.
    Linked tensors must have the same shape and dtype. Tensors of contexts are in their models' element order, so
    nothing else can differ.

    Raises ValueError that names both tensors if they do not fit, and as load_group does.
    """
    if links is not None and len(links) != len(paths) - 1:
        raise ValueError(f"{len(paths)} contexts need {len(paths) - 1} maps of links, there are {len(links)}")
    names = [str(number) for number in range(len(paths))]
    group = load_group(paths, device, names, cache_compatibility_mode=cache_compatibility_mode)
    try:
        stages = [group[name] for name in names]
        between = [
            _links(number, stages[number], stages[number + 1], None if links is None else links[number])
            for number in range(len(stages) - 1)
        ]
        return Pipeline(group, stages, between)
    except BaseException:
        group.close()
        raise


def _links(number: int, first: Executor, second: Executor, wanted: Mapping[str, str] | None) -> list[Link]:
    """Return what joins a stage with the next."""
    outputs = {tensor.name: tensor for tensor in first.graph.outputs}
    inputs = {tensor.name: tensor for tensor in second.graph.inputs}
    where = f"stages {number} ({first.graph.name!r}) and {number + 1} ({second.graph.name!r})"
    if wanted is None:
        wanted = {name: name for name in outputs if name in inputs}
        if not wanted and len(outputs) == len(inputs):
            wanted = dict(zip(outputs, inputs, strict=True))
    if not wanted:
        raise ValueError(
            f"{where} have no tensor in common: outputs {shortened(outputs)}, inputs {shortened(inputs)}; give links"
        )
    if len(set(wanted.values())) < len(wanted):
        raise ValueError(f"{where}: two outputs are linked to one input: {dict(wanted)}")
    found = []
    for output, name in wanted.items():
        if output not in outputs or name not in inputs:
            kind, missing, known = ("output", output, outputs) if output not in outputs else ("input", name, inputs)
            raise ValueError(f"{where}: there is no {kind} {missing!r}; there are {shortened(known)}")
        one, other = outputs[output], inputs[name]
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            raise ValueError(
                f"{where}: output {output!r} is {one.dtype}{list(one.shape)}, "
                f"input {name!r} takes {other.dtype}{list(other.shape)}"
            )
        found.append(Link(output, name))
    return found


Named = dict[str, tuple[int, TensorRecord]]
"""Stage and tensor by the name that the pipeline has for it."""


def _named(tensors: Sequence[Sequence[TensorRecord]], linked: Sequence[set[str]]) -> Named:
    free = [(number, one) for number, every in enumerate(tensors) for one in every if one.name not in linked[number]]
    often = Counter(one.name for _, one in free)
    return {f"{number}/{one.name}" if often[one.name] > 1 else one.name: (number, one) for number, one in free}


def _of(stage: int, named: Named, values: Values) -> dict[str, Value]:
    """Return those values that are a stage's, by its own names."""
    return {named[name][1].name: value for name, value in values.items() if named[name][0] == stage}
