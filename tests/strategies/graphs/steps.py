"""Make random decoders, and compare them with a state step by step with onnxruntime: chunks, and returns to fewer rows.

They are those of decoders.py with other heads, positions, names, sizes of steps and capacities.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

import onnx

from gputune.client.context.verifying.steps import Steps
from gputune.client.errors import VerificationError
from gputune.client.model.graph import Array, Graph
from gputune.client.model.model_files import StateChoice
from gputune.client.model.oracle import Oracle
from gputune.client.model.state import Stateful, with_state
from gputune.runtime.context.records import TensorRecord
from tests.strategies import decoders
from tests.strategies.graphs.casts import Run
from tests.strategies.graphs.making import Made

MOST_STEPS = 8
ALLOWED = 1e-4
SIZES = tuple((heads, groups, size) for heads in (1, 2, 3, 4, 6) for groups in (1, 2, 3) for size in (2, 4, 8, 10, 16)
              if not heads % groups)  # fmt: skip
NAMES = ("length", "state/Where", "past", "present", "here", "k.0/whole", "attention_mask.past", "x")
"""What inputs and outputs are called now and then; the first ones as what a state adds."""


@dataclass(frozen=True)
class MadeDecoder(Made):
    """A decoder, and what its state is to be. fixed: values of inputs. seed: of its steps."""

    capacity: int
    fixed: dict[str, int]
    seed: int


def made(seed: int) -> Made:
    """Return the decoder of a seed."""
    chance = random.Random(seed)
    name = chance.choice(list(decoders.DECODERS))
    make, shapes, fixed = decoders.DECODERS[name]
    heads, groups, size = chance.choice([each for each in SIZES if name != "grouped" or each[0] * each[2] % 16 == 0])
    with patch.multiple(decoders, HEADS=heads, GROUPS=groups, SIZE=size, WIDTH=heads * size):
        model = make()
    if chance.random() < 0.4 and "merged" not in name:
        _rename(model.graph, chance)
    capacity = chance.choice((2, 3, 5, 8, 16, 17, 31, 60))
    tokens = chance.choice([each for each in (1, 1, 2, 3, 5, 8, 16) if each < capacity])
    dimensions = {**shapes, "sequence_length": (tokens,)}
    return MadeDecoder(model, {}, dimensions, {}, {}, capacity, dict(fixed), seed)


def _rename(graph: onnx.GraphProto, chance: random.Random) -> None:
    """Give an input or output of a past another name."""
    item = chance.choice([each for each in (*graph.input, *graph.output) if each.name.startswith(("past", "pres"))])
    old, item.name = item.name, chance.choice(NAMES)
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [item.name if name == old else name for name in names]


class _Steps(Steps):
    """Steps in any order."""

    chance: random.Random

    @cached_property
    def _inputs(self) -> dict[str, Array]:
        """Return the inputs of all steps. A token that may see nothing would see later ones, too: all see the first."""
        given = dict(super()._inputs)
        if "attention_mask" in given:
            given["attention_mask"][:, 0] = 1
        return given

    def _way(self) -> Iterator[tuple[int, int, bool]]:
        length, states = 0, self._decoder.states
        assert states is not None
        for _ in range(MOST_STEPS):
            most = self._decoder.capacity - self._tokens
            if length > most or self.chance.random() < 0.2:
                length = self.chance.choice((0, min(most, length), self.chance.randint(0, min(most, length))))
            part = self.chance.randint(1, self._tokens) if self.chance.random() < 0.3 else self._tokens
            count = part if states.can_pad else self._tokens
            yield length, count, self.chance.random() < 0.9
            length += count


def wrong(given: Made, compute: Run, imported: Callable[[onnx.ModelProto], Graph], folder: Path) -> str:
    """Say what is wrong with the steps of a decoder. imported: reads a model. Raises GputuneError."""
    assert isinstance(given, MadeDecoder)
    path = folder / "random.onnx"
    onnx.save(given.model, path)
    decoder = with_state(Stateful(given.model, path, given.dimensions, given.fixed, StateChoice(given.capacity)))
    graph = imported(decoder.model)
    tensors = [TensorRecord(name, graph.tensors[name].shape, graph.tensors[name].dtype) for name in graph.inputs]
    steps = _Steps("graph", tensors, decoder, Oracle(path, decoder.original.model), ALLOWED, {})
    steps.chance = random.Random(given.seed)
    try:
        steps.verify(lambda inputs: compute(graph, inputs))
    except VerificationError as error:
        return str(error)
    return ""
