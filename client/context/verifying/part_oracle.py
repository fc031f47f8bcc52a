"""Know what the parts of a model compute, by running the whole model in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputune.client.model.graph import Array
from gputune.client.model.oracle import Oracle
from gputune.client.model.parts import Cut, Part


class PartOracle:
    """Knows the right outputs of a part of a model for what the part reads when the model has these inputs. It does for
    a part what an Oracle does for a model."""

    def __init__(self, oracle: Oracle, part: Part, model_inputs: Sequence[Mapping[str, Array]]) -> None:
        """Raises ConfigError where onnxruntime cannot run the model."""
        self._oracle = oracle
        self._outputs = part.graph.outputs
        self._model_inputs = model_inputs
        self.inputs: list[dict[str, Array]] = [self._tensors(part.graph.inputs, given) for given in model_inputs]
        """Of the part, for each inference of the model."""

    @property
    def names(self) -> frozenset[str]:
        """The tensors that the model's nodes compute."""
        return self._oracle.names

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The part's outputs by name, for some of `self.inputs`. Raises ConfigError."""
        return self.tensors(self._outputs, inputs)

    def tensors(self, names: Sequence[str], inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Those of some tensors that the model computes, for some of `self.inputs`. Raises ConfigError."""
        number = next(number for number, one in enumerate(self.inputs) if one is inputs)
        return self._oracle.tensors(names, self._model_inputs[number])

    def _tensors(self, names: Sequence[str], given: Mapping[str, Array]) -> dict[str, Array]:
        computed = self._oracle.tensors(names, given)
        return {name: given[name] if name in given else computed[name] for name in names}


def part_oracles(cut: Cut, oracle: Oracle, model_inputs: Sequence[Mapping[str, Array]]) -> dict[str, PartOracle]:
    """By the name of its graph, the oracle of each part. Raises ConfigError."""
    return {part.graph.name: PartOracle(oracle, part, model_inputs) for part in cut.parts}
