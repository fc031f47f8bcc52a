"""What of a model is known before it runs, computed by onnx's reference evaluator."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from gputune.client.graph import Array
from gputune.client.importer.texts import first_lines

# fmt: off
NEVER_FOLDED = frozenset((
    # Random results are not constants; the reference evaluator runs BatchNormalization in training mode, and does not
    # look at the activations, lengths and clip of recurrent cells.
    "BatchNormalization", "Bernoulli", "GRU", "LSTM", "Multinomial", "RNN", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike",
))
# fmt: on
FOLDED_AS = {"DequantizeLinear": 19}
"""Operators that onnx evaluates from an operator set on, though they mean the same in those before."""


def folded(node: onnx.NodeProto, feeds: Mapping[str, Array], opset: int) -> dict[str, Array]:
    """The outputs of a node by name, for values of all of its inputs. Raises ValueError where it cannot be computed."""
    outputs = [name for name in node.output if name]
    opsets = [helper.make_opsetid("", max(opset, FOLDED_AS.get(node.op_type, 0)))]
    function = helper.make_function("gputune", "folded", list(feeds), outputs, [node], opsets)
    try:
        values = ReferenceEvaluator(function).run(None, dict(feeds), attributes={})
    except Exception as error:  # the evaluator raises whatever its numpy code meets
        raise ValueError(f"has constant inputs but cannot be computed: {first_lines(error)}") from error
    return {name: np.asarray(value) for name, value in zip(outputs, values, strict=True)}
