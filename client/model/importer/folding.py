"""Compute the constant parts of a model with onnx's reference evaluator, within memory limits."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from gputune.client.model.graph import Array
from gputune.client.model.importer.messages import first_lines

# fmt: off
NEVER_FOLDED = frozenset((
    # Random results are not constants; the reference evaluator runs BatchNormalization in training mode, knows no
    # GroupNormalization, and does not look at the activations, lengths and clip of recurrent cells.
    "BatchNormalization", "Bernoulli", "GRU", "GroupNormalization", "LSTM", "Multinomial", "RNN", "RandomNormal",
    "RandomNormalLike", "RandomUniform", "RandomUniformLike",
    # How much memory these take nothing knows beforehand, and no kernel has a use for texts and pictures in files.
    "ImageDecoder", "MaxUnpool", "RegexFullMatch", "STFT", "StringConcat", "StringNormalizer", "StringSplit",
    "TfIdfVectorizer",
))
# fmt: on
FOLDED_AS = {"DequantizeLinear": 19}
"""Operators that onnx evaluates from an operator set on, though they mean the same in those before."""

FOLDED_BYTES = 1 << 30
FOLDED_PER_HELD = 16
"""What is folded may take so many bytes, or so many times what the model itself holds where that is more: weights of 4
bits become float32, and are transposed then."""

STRING_BYTES = 128
"""What a number that is written out may take."""


class Budget:
    """The memory that folding has left; `held_bytes` is what the model itself holds."""

    def __init__(self, held_bytes: int) -> None:
        self._held = held_bytes
        self._folded = 0

    def hold(self, nbytes: int) -> None:
        """Count a constant that the model holds as a node."""
        self._held += nbytes

    def spend(self, nbytes: int) -> None:
        """Raise ValueError where folding would take more memory than it may."""
        self._folded += nbytes
        limit = max(FOLDED_BYTES, FOLDED_PER_HELD * self._held)
        if self._folded > limit:
            raise ValueError(f"has constant inputs, but constants would take {self._folded} bytes; {limit} are allowed")


def folded(node: onnx.NodeProto, feeds: Mapping[str, Array], opset: int) -> dict[str, Array]:
    """Return the outputs of a node by name, for values of all of its inputs. Raises ValueError where it cannot be
    computed.

    Memory is up to the caller: `expected_bytes` of shapes.py says beforehand how much it takes."""
    outputs = [name for name in node.output if name]
    opsets = [helper.make_opsetid("", max(opset, FOLDED_AS.get(node.op_type, 0)))]
    function = helper.make_function("gputune", "folded", list(feeds), outputs, [node], opsets)
    try:
        with np.errstate(all="ignore"):
            values = ReferenceEvaluator(function).run(None, dict(feeds), attributes={})
    except Exception as error:  # the evaluator raises whatever its numpy code meets
        raise ValueError(f"has constant inputs but cannot be computed: {first_lines(error)}") from error
    return {name: np.asarray(value) for name, value in zip(outputs, values, strict=True)}
