"""Compute the constant parts of a model with onnx's reference evaluator, within memory limits."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from gputune.client.model.graph import Array, Scaled
from gputune.client.model.importer.opening.messages import first_lines

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

MOST_POINT = 255
"""The largest zero point of bytes; a larger number that is subtracted is no zero point."""

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
    if node.op_type == "OneHot":  # whose depth may be a number of shape [1], as onnx's evaluator does not know
        feeds = {**feeds, node.input[1]: feeds[node.input[1]].reshape(())}
    outputs = [name for name in node.output if name]
    opsets = [helper.make_opsetid("", max(opset, FOLDED_AS.get(node.op_type, 0)))]
    function = helper.make_function("gputune", "folded", list(feeds), outputs, [node], opsets)
    try:
        with np.errstate(all="ignore"):
            values = ReferenceEvaluator(function).run(None, dict(feeds), attributes={})
    except Exception as error:  # the evaluator raises whatever its numpy code meets
        raise ValueError(f"has constant inputs but cannot be computed: {first_lines(error)}") from error
    return {name: np.asarray(value) for name, value in zip(outputs, values, strict=True)}


_RESHAPES = frozenset(("Flatten", "Reshape", "Squeeze", "Unsqueeze"))


def as_scaled(node: onnx.NodeProto, constants: Mapping[str, Array], known: Mapping[str, Scaled]) -> Scaled | None:
    """Return the whole numbers and scales of a constant that is folded, if these are simple to tell.

    constants: what the node reads and computes. known: those that are so."""
    if node.op_type == "DequantizeLinear":
        return _dequantised(node, constants)
    if node.op_type == "Cast":
        number, result = constants[node.input[0]], constants[node.output[0]]
        return Scaled(number) if number.dtype.name in ("int8", "uint8") and "float" in result.dtype.name else None
    names = [name for name in node.input if name in known]
    if not names:
        return None
    source, shape = known[names[0]], constants[node.output[0]].shape
    if node.op_type in ("Mul", "Sub"):
        other = constants[node.input[0 if node.input[0] != names[0] else 1]]
        if shape != source.numbers.shape or other.ndim > len(shape):
            return None
        if node.op_type == "Mul":
            return source.times(other)
        bare = source.scales is None and source.zeros is None and node.input[0] == names[0]
        points = other.reshape((1,) * (len(shape) - other.ndim) + other.shape)
        whole = bare and (points == np.rint(points)).all() and np.abs(points).max() <= MOST_POINT
        return replace(source, zeros=points.astype(np.int16)) if whole else None
    if node.op_type == "Transpose":
        return source.turned(next((tuple(item.ints) for item in node.attribute if item.name == "perm"), None))
    if node.op_type == "Identity" or (node.op_type in _RESHAPES and shape == source.numbers.shape):
        return source
    if node.op_type in _RESHAPES and source.scales is not None and source.scales.size == 1 and source.block == 1:
        ones = (1,) * len(shape)
        zeros = None if source.zeros is None else source.zeros.reshape(ones)
        numbers = source.numbers.reshape(shape)
        return replace(source, numbers=numbers, scales=source.scales.reshape(ones), zeros=zeros, axis=0)
    return None


def _dequantised(node: onnx.NodeProto, constants: Mapping[str, Array]) -> Scaled | None:
    stored, scales, *zeros = (constants[name] for name in node.input if name)
    attributes = {item.name: item.i for item in node.attribute}
    if "float" in stored.dtype.name or not stored.size:
        return None
    axis, block = attributes.get("axis", 1), attributes.get("block_size", 0) or 1
    shape = [1] * stored.ndim
    if scales.ndim == stored.ndim and block > 1:
        shape = list(scales.shape)
    elif scales.size > 1:
        shape[axis] = scales.size
    numbers = stored if stored.dtype.kind in "iu" else stored.astype(np.int8)  # those of 4 bits are no type of numpy's
    given = zeros[0].astype(np.int64).reshape(shape) if zeros and np.any(zeros[0].astype(np.int64)) else None
    return Scaled(numbers, scales.reshape(shape), given, axis % max(stored.ndim, 1), block, dequantised=True)
