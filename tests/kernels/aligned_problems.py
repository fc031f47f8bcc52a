"""List problems of all families with vectors, and the widest vectors that are aligned in them."""

from typing import Any

from gputune.kernels.chain import Chain, Step
from gputune.kernels.indexing.cells import RecurrentProblem
from gputune.kernels.ops.arg import ArgProblem
from gputune.kernels.ops.concat import ConcatProblem
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.conv_transpose import ConvTransposeProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.gather import GatherProblem
from gputune.kernels.ops.grid_sample import GridSampleProblem
from gputune.kernels.ops.inverted_residual import InvertedResidualProblem
from gputune.kernels.ops.lrn import LrnProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.move import MoveProblem
from gputune.kernels.ops.normalise import NormaliseProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.resample import ResampleProblem
from gputune.kernels.ops.resize import ResizeProblem
from gputune.kernels.ops.scan import ScanProblem
from gputune.kernels.ops.scatter import along, at_points
from gputune.kernels.ops.separable import SeparableProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.kernels.ops.typed import TypedProblem

from .attention_problems import ATTENTIONS
from .batched_problems import BATCHED, batched
from .problems import GATED, RELU, RESIDUAL

SIGMOID, TANH = Chain((Step("sigmoid"),)), Chain((Step("tanh"),))
AROUND = (1, 1, 1, 1)
REQUANTISED = Chain((Step("whole"), Step("mul", operand=0, channels=24), Step("saturate", (-9, 246))))

ALIGNED: tuple[tuple[str, Any, int], ...] = (
    ("ArgMax", ArgProblem(2, 37, 12, last=True), 4),
    ("ArgMax", ArgProblem(3, 40, 1), 8),
    ("Attention", ATTENTIONS["thirds"], 4),
    ("MatMul", BATCHED["heads-merged"], 8),
    ("MatMul", BATCHED["heads"], 2),
    # rows of b begin at its element 2, and rows of the output 12 elements apart
    (
        "MatMul",
        batched((3,), 6, 5, 4, (30, 5, 1), (4, 12, 1), (4, 12, 1), (90, 62), starts=(0, 2)),
        2,
    ),
    ("Concat", ConcatProblem(30, (4, 12, 24)), 4),
    ("Concat", ConcatProblem(30, (16, 6, 10)), 2),
    ("Conv", ConvProblem(2, 9, 7, 5, 24, (3, 3), pads=(0, 1, 2, 1), bias=True, epilogue=RESIDUAL), 8),
    ("Conv", ConvProblem(1, 9, 11, 16, 24, (3, 3), pads=AROUND, bias=True, epilogue=REQUANTISED), 8),
    ("Conv", ConvProblem(1, 9, 11, 16, 20, (3, 3), pads=AROUND, bias=True, epilogue=GATED), 4),
    ("Conv", ConvProblem(2, 7, 6, 24, 40, (3, 3), pads=AROUND, groups=8, bias=True), 1),
    ("Conv", ConvProblem(1, 12, 23, 3, 40, (3, 3), (2, 2), (0, 0, 1, 1), epilogue=RESIDUAL, layout="NCHW"), 8),
    ("ConvTranspose", ConvTransposeProblem(2, 5, 6, 7, 12, (3, 3), (2, 2), (10, 11), (1, 1), bias=True), 4),
    ("DepthwiseConv", DepthwiseProblem(2, 9, 7, 20, (3, 3), (1, 2), AROUND, bias=True, epilogue=RESIDUAL), 4),
    ("DepthwiseConv", DepthwiseProblem(1, 10, 9, 40, (3, 3), pads=AROUND, group=4, epilogue=GATED), 8),
    (
        "Elementwise",
        ElementwiseProblem(
            (2, 5, 7, 20),
            ((20,), (2, 1, 1, 20)),
            (2, 5, 7, 20),
            Chain((Step("sub", operand=0), Step("mul", operand=1))),
        ),
        4,
    ),
    ("Gather", GatherProblem(7 * 12, 5, (5,), (0,), (1,), (7,), (12,), 12), 4),
    ("Gather", GatherProblem(7 * 18, 5, (5,), (0,), (1,), (7,), (18,), 16), 2),
    ("GridSample", GridSampleProblem(2, 5, 7, 12, (4, 3), "cubic", "reflection"), 4),
    ("InvertedResidual", InvertedResidualProblem(2, 7, 9, 5, 19, 12, (3, 3), (2, 1), AROUND, bias=True), 4),
    ("LRN", LrnProblem(3, 19, 12, 5, 0.5, 0.75, 2.0), 4),
    ("LRN", LrnProblem(3, 24, 1, 5, 0.5, 0.75, 2.0), 1),
    ("MatMul", MatMulProblem(49, 24, 100, bias=True, epilogue=GATED), 4),
    ("MatMul", MatMulProblem(3, 80, 104, bias=True, epilogue=RESIDUAL, parts=(79, 1)), 8),
    ("Move", MoveProblem(84, 24, (5, 12), (12, 1), (0, 0), (5, 12), epilogue=RESIDUAL), 4),
    ("Move", MoveProblem(84, 0, (9, 24), (12, 1), (1, 4), (7, 12), fill=2), 4),
    ("Move", MoveProblem(88, 2, (5, 16), (16, 1), (0, 0), (5, 16)), 2),
    ("Move", MoveProblem(84, 0, (7, 20), (12, 1), (0, 6), (7, 12), "reflect"), 2),
    ("Move", MoveProblem(35, 30, (7, 8), (1, -5), (0, 1), (5, 7)), 8),
    ("Normalise", NormaliseProblem("deviation", (5, 36), (1,), (1,), True, True, 1e-5, RESIDUAL), 4),
    ("Normalise", NormaliseProblem("deviation", (2, 33, 20), (1,), (2,), True, True, 1e-5), 4),
    ("Pool", PoolProblem("max", 2, 13, 17, 20, (3, 5), (2, 3), (1, 2, 1, 1), (7, 6)), 4),
    (
        "Recurrent",
        RecurrentProblem("LSTM", 5, 3, 12, "bidirectional", (SIGMOID, TANH, TANH) * 2, ("Y", "Y_h"), initial_h=True),
        4,
    ),
    ("Recurrent", RecurrentProblem("GRU", 4, 2, 20, "reverse", (SIGMOID, TANH), ("Y", "Y_h"), after_reset=True), 4),
    ("Reduce", ReduceProblem("log_sum_exp", (3, 5, 7, 12), (1, 3), epilogue=RESIDUAL), 4),
    ("Reduce", ReduceProblem("max", (3, 49, 24), (1,), "int8"), 8),
    ("Resample", ResampleProblem(2, 5, 7, 20, (10, 13), (2, 2)), 4),
    ("Resize", ResizeProblem(2, 5, 7, 20, (10, 21), (1, 1), (2, 3)), 4),
    ("Scan", ScanProblem(2, 5, 12, exclusive=True, reverse=True), 4),
    ("Scatter", along((3, 5, 12), (2, 4, 12), 1, reduction="add"), 4),
    ("Scatter", at_points((4, 3, 20), (6, 2), dtype="int64"), 4),
    ("SeparableConv", SeparableProblem(2, 7, 9, 20, 12, (3, 3), (1, 2), AROUND, depthwise_bias=True, epilogue=RELU), 4),
    ("SeparableConv", SeparableProblem(2, 7, 9, 24, 18, (3, 3), pads=AROUND), 2),
    ("Softmax", SoftmaxProblem(17, 36, 1), 4),
    ("Softmax", SoftmaxProblem(3, 10, 24), 8),
    ("Transpose", TransposeProblem(2, 12, 4, 5, "NCHW", "NHWC"), 4),
    ("Transpose", TransposeProblem(1, 24, 4, 10, "NHWC", "NCHW"), 8),
    ("Typed", TypedProblem("cast", (2, 5, 20), ((5, 20),), ("float32",), "float16"), 4),
    ("Typed", TypedProblem("where", (5, 36), ((5, 1), (36,), (5, 36)), ("bool", "int64", "int64"), "int64"), 4),
)  # fmt: skip
"""Families, problems and widths in elements."""
