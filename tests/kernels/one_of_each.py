"""Provide one problem of every family, with sizes that no vector and no work-group divides."""

from gputune.kernels.chain import Chain, Step
from gputune.kernels.indexing.cells import RecurrentProblem
from gputune.kernels.ops.arg import ArgProblem
from gputune.kernels.ops.concat import ConcatProblem
from gputune.kernels.ops.conv_transpose import ConvTransposeProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.gather import GatherProblem
from gputune.kernels.ops.grid_sample import GridSampleProblem
from gputune.kernels.ops.inverted_residual import InvertedResidualProblem
from gputune.kernels.ops.lrn import LrnProblem
from gputune.kernels.ops.move import MoveProblem
from gputune.kernels.ops.normalise import NormaliseProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.pool_indices import PoolIndicesProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.resample import ResampleProblem
from gputune.kernels.ops.resize import ResizeProblem
from gputune.kernels.ops.scan import ScanProblem
from gputune.kernels.ops.scatter import along
from gputune.kernels.ops.separable import SeparableProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.ops.top import TopProblem
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.kernels.ops.typed import TypedProblem

from .attention_problems import ATTENTIONS
from .problems import CASES, RESIDUAL

TANH = Chain((Step("tanh"),))
SIGMOID = Chain((Step("sigmoid"),))

ONE_OF_EACH = {op: problem for op, _, problem in CASES} | {
    "ArgMax": ArgProblem(2, 37, 7, last=True),
    "Attention": ATTENTIONS["mask-of-queries"],
    "Concat": ConcatProblem(300, (5, 16, 7, 33)),
    "ConvTranspose": ConvTransposeProblem(2, 5, 6, 7, 5, (3, 3), (2, 2), (10, 11), (1, 1), bias=True),
    "Elementwise": ElementwiseProblem(
        (2, 5, 7, 19),
        ((19,), (2, 1, 1, 19)),
        (2, 5, 7, 19),
        Chain((Step("sub", operand=0), Step("relu"), Step("mul", operand=1))),
    ),
    "Gather": GatherProblem(7 * 33, 5, (5,), (0,), (1,), (7,), (33,), 33),
    "GridSample": GridSampleProblem(2, 5, 7, 3, (4, 3), "cubic", "reflection"),
    "InvertedResidual": InvertedResidualProblem(2, 7, 9, 5, 19, 7, (3, 3), (2, 1), (1, 1, 1, 1), bias=True),
    "LRN": LrnProblem(3, 19, 1, 5, 0.5, 0.75, 2.0),
    "Move": MoveProblem(35, 30, (5, 7), (1, -5), (0, 0), (5, 7), epilogue=RESIDUAL),
    "Normalise": NormaliseProblem("deviation", (5, 37), (1,), (1,), True, True, 1e-5, RESIDUAL),
    "Pool": PoolProblem("max", 2, 13, 17, 19, (3, 5), (2, 3), (1, 2, 1, 1), (7, 6)),
    "PoolIndices": PoolIndicesProblem(2, 7, 5, 19, (3, 2), (2, 1), (1, 1, 2, 0), (4, 5)),
    "Recurrent": RecurrentProblem(
        "LSTM", 5, 3, 13, "forward", (SIGMOID, TANH, TANH), ("Y", "Y_h", "Y_c"), initial_h=True
    ),
    "Reduce": ReduceProblem("log_sum_exp", (3, 5, 7, 13), (1, 3), epilogue=RESIDUAL),
    "Resample": ResampleProblem(2, 5, 7, 19, (10, 13), (2, 2)),
    "Resize": ResizeProblem(2, 5, 7, 19, (10, 21), (1, 1), (2, 3)),
    "Scan": ScanProblem(2, 5, 7, exclusive=True, reverse=True),
    "Scatter": along((3, 5, 7), (2, 4, 3), 1, reduction="add"),
    "SeparableConv": SeparableProblem(2, 7, 9, 19, 5, (3, 3), (1, 2), (1, 1, 1, 1), depthwise_bias=True),
    "Softmax": SoftmaxProblem(3, 100, 2),
    "TopK": TopProblem(2, 37, 5, 9),
    "Transpose": TransposeProblem(2, 19, 7, 5, "NCHW", "NHWC"),
    "Typed": TypedProblem("less", (3, 5, 7), ((3, 1, 7), (5, 1)), ("int64", "int64"), "bool"),
}
