"""Know what the parts of a model compute, by running the whole model in onnxruntime."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from gputune.client.model.graph import Array
from gputune.client.model.oracle import Oracle
from gputune.client.model.parts import Cut, Part


class PartOracle:
    """Knows the right outputs of a part of a model for what the part reads when the model has these inputs. It does for
    a part what an Oracle does for a model."""

    def __init__(self, oracle: Oracle, part: Part, model_inputs: Sequence[Mapping[str, Array]]) -> None:
        """Raise ConfigError where onnxruntime cannot run the model."""
        self._oracle = oracle
        self._outputs = part.graph.outputs
        self._model_inputs = model_inputs
        self.inputs: list[dict[str, Array]] = [values_of(oracle, part.graph.inputs, given) for given in model_inputs]
        """The inputs of the part, for each inference of the model."""

    def optimised(self) -> PartOracle:
        """Return this oracle with all of onnxruntime's optimisations. Raises ConfigError."""
        other = copy.copy(self)
        other._oracle = self._oracle.optimised()
        return other

    @property
    def names(self) -> frozenset[str]:
        """The tensors that the model's nodes compute."""
        return self._oracle.names

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the part's outputs by name, for some of `self.inputs`. Raises ConfigError."""
        return self.tensors(self._outputs, inputs)

    def tensors(self, names: Sequence[str], inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return those tensors that the model computes, for one of `self.inputs`. Raises ConfigError."""
        number = next(number for number, one in enumerate(self.inputs) if one is inputs)
        return self._oracle.tensors(names, self._model_inputs[number])


def part_oracles(cut: Cut, oracle: Oracle, model_inputs: Sequence[Mapping[str, Array]]) -> dict[str, PartOracle]:
    """By the name of its graph, the oracle of each part. A branch is a model whose inputs are what it takes from around
    it, whether it is taken or not. Raises ConfigError."""
    found = {part.graph.name: PartOracle(oracle, part, model_inputs) for part in cut.own}
    for branch in (branch for branches in cut.inner.values() for branch in branches.values() if branch.parts):
        model = branch.imported.model
        names = [item.name for item in model.graph.input]
        inputs = [values_of(oracle, names, given) for given in model_inputs]
        found |= part_oracles(branch, Oracle(branch.imported.path, model), inputs)
    return found


def values_of(oracle: Oracle, names: Sequence[str], given: Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs and other tensors of a model by name, if it has these inputs. Raises ConfigError."""
    computed = oracle.tensors(names, given)
    return {name: given[name] if name in given else computed[name] for name in names}
