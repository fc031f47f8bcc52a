"""Find the inputs of a model that say how to compute, not on what: axes, shapes, pads, and what kernels pack
beforehand.

A context is made for the values of these inputs, so they must be known before it is made.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol


class Operator(Protocol):
    """What is read of a node, here as onnx has it."""

    @property
    def op_type(self) -> str: ...
    @property
    def input(self) -> Sequence[str]: ...
    @property
    def output(self) -> Sequence[str]: ...


EVERY = range(1000)
REST = range(1, 1000)

# fmt: off
COMPILE_TIME: dict[str, Sequence[int]] = {
    # shapes, sizes and counts
    "AffineGrid": (1,), "BlackmanWindow": EVERY, "CenterCropPad": (1,), "Col2Im": (1, 2), "ConstantOfShape": EVERY,
    "Expand": (1,), "HammingWindow": EVERY, "HannWindow": EVERY, "MaxUnpool": (2,), "MelWeightMatrix": EVERY,
    "OneHot": (1,), "Pad": (1, 2, 3), "Range": EVERY, "Reshape": (1,), "Resize": REST, "Slice": REST, "Split": (1,),
    "STFT": (1, 3), "Tile": (1,), "TopK": (1,), "Trilu": (1,), "Upsample": (1,),
    # axes, places and modes
    "Compress": (1,), "CumProd": (1,), "CumSum": (1,), "DFT": (1, 2), "Dropout": (1, 2), "ReverseSequence": (1,),
    "Squeeze": (1,), "Unsqueeze": (1,),
    "ReduceL1": (1,), "ReduceL2": (1,), "ReduceLogSum": (1,), "ReduceLogSumExp": (1,), "ReduceMax": (1,),
    "ReduceMean": (1,), "ReduceMin": (1,), "ReduceProd": (1,), "ReduceSum": (1,), "ReduceSumSquare": (1,),
    # weights, which are packed for the winning configuration
    "BatchNormalization": (1, 2, 3, 4), "Clip": (1, 2), "Conv": (1, 2), "ConvTranspose": (1, 2),
    "GRU": (1, 2, 3, 4), "LSTM": (1, 2, 3, 4, 7), "RNN": (1, 2, 3, 4),
    # a branch is chosen, and rounds are written, when a model is imported
    "If": (0,), "Loop": (0, 1),
}
# fmt: on
"""By operator, the places of such inputs."""

STEERED = frozenset(op for op, places in COMPILE_TIME.items() if places is EVERY)
"""Operators of which nothing runs: all of their inputs must be known, and then the result is."""

OF_SHAPES = frozenset(("EyeLike", "Shape", "Size"))
"""Operators whose results are known whatever the values of their inputs."""


def compile_time_inputs(nodes: Sequence[Operator]) -> frozenset[str]:
    """Return the tensors whose values must be known before a model of these nodes can be lowered, with all from which
    they are computed; nodes in an order in which they can run."""
    needed: set[str] = set()
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update([] if node.op_type in OF_SHAPES else filter(None, node.input))
        places = COMPILE_TIME.get(node.op_type, ())
        needed.update(name for place, name in enumerate(node.input) if name and place in places)
    return frozenset(needed)


def computed_from(nodes: Iterable[Operator], known: Iterable[str]) -> frozenset[str]:
    """Return the tensors that follow from those known, these included; so do constants, and shapes."""
    found = set(known)
    for node in nodes:
        if node.op_type in OF_SHAPES or found.issuperset(filter(None, node.input)):
            found.update(node.output)
    return frozenset(found)
