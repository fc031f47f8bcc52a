"""List the problems for which kernels are checked: shapes of well-known networks, at least one of each family."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gputune.core.dtypes import FLOAT, HALF
from gputune.kernels.chain import Chain, Step
from gputune.kernels.indexing.cells import RecurrentProblem
from gputune.kernels.indexing.steps import Places
from gputune.kernels.ops.arg import ArgProblem
from gputune.kernels.ops.attention import AttentionPlaces, AttentionProblem
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

RELU = Chain((Step("relu"),))
RESIDUAL = Chain((Step("add", operand=0), Step("relu")))
SIGMOID, TANH = Chain((Step("sigmoid"),)), Chain((Step("tanh"),))
AROUND = (1, 1, 1, 1)
SUFFIX = " in half"
"""The end of the titles of families on tensors of half."""


@dataclass(frozen=True)
class Named:
    """A problem of a family, and the name that reports and exceptions know it by."""

    name: str
    family: str
    problem: Any

    @property
    def in_half(self) -> bool:
        """Return whether its tensors are stored in half."""
        return getattr(self.problem, "dtype", FLOAT) == HALF

    @property
    def title(self) -> str:
        """The family, and the type of elements if that is half."""
        return self.family + (SUFFIX if self.in_half else "")


def _conv(size: int, channels: int, outputs: int, kernel: int = 3, stride: int = 1, **more: Any) -> ConvProblem:
    """A convolution of a square map of one image, with bias and relu."""
    pads = (kernel // 2,) * 4
    given: dict[str, Any] = {"bias": True, "epilogue": RELU} | more
    return ConvProblem(1, size, size, channels, outputs, (kernel, kernel), (stride, stride), pads, **given)


def _depthwise(size: int, channels: int, kernel: int = 3, stride: int = 1) -> DepthwiseProblem:
    pads = (kernel // 2,) * 4
    return DepthwiseProblem(1, size, size, channels, (kernel, kernel), (stride, stride), pads, bias=True, epilogue=RELU)


def _heads(heads: int, tokens: int, width: int, merged: bool) -> MatMulProblem:
    """The products of an attention in [token, head, number]: scores q x k, or the weighted values."""
    whole, square = heads * width, tokens * tokens
    scores, rows = (square, tokens, 1), (width, whole, 1)
    if merged:
        places = Places((heads,), scores, rows, rows, (heads * square, tokens * whole))
        return MatMulProblem(tokens, tokens, width, places=places)
    places = Places((heads,), rows, (width, 1, whole), scores, (tokens * whole, tokens * whole))
    return MatMulProblem(tokens, width, tokens, places=places)


def _attention(heads: int, tokens: int, width: int) -> AttentionProblem:
    """An attention in [token, head, number], whose scores are scaled."""
    whole, steps = heads * width * tokens, (width, heads * width, 1)
    places = AttentionPlaces((heads,), steps, steps, steps, steps, (whole,) * 3)
    return AttentionProblem(tokens, tokens, width, width, places, Chain((Step("mul", (width**-0.5,)),)))


def _all() -> Iterator[Named]:
    of: dict[str, dict[str, Any]] = {
        "Conv": {
            "squeezenet-first": _conv(224, 3, 64, 3, 2, layout="NCHW"),
            "squeezenet-expand": _conv(55, 16, 64),
            "resnet-first": _conv(224, 3, 64, 7, 2, layout="NCHW"),
            "resnet-56": _conv(56, 64, 64),
            "resnet-28": _conv(28, 128, 128),
            "resnet-14": _conv(14, 256, 256),
            "resnet-7": _conv(7, 512, 512),
            "resnet-shortcut": _conv(56, 256, 512, 1, 2, epilogue=Chain(())),
        },
        "MatMul": {
            "gemm-1024": MatMulProblem(1024, 1024, 1024),
            "squeezenet-squeeze": MatMulProblem(3025, 128, 16, bias=True, epilogue=RELU),
            "resnet-56-expand": MatMulProblem(3136, 64, 256, bias=True, epilogue=RESIDUAL),
            "resnet-7-reduce": MatMulProblem(49, 2048, 512, bias=True, epilogue=RELU),
            "minilm-feed-forward": MatMulProblem(128, 384, 1536, bias=True),
            "resnet-head": MatMulProblem(1, 2048, 1000, bias=True),
            "decoder-row": MatMulProblem(1, 4096, 4096),
            "decoder-16-rows": MatMulProblem(16, 4096, 4096),
            "vit-scores": _heads(12, 197, 64, merged=False),
            "vit-values": _heads(12, 197, 64, merged=True),
            "minilm-scores": _heads(12, 128, 32, merged=False),
            "minilm-values": _heads(12, 128, 32, merged=True),
        },
        "Attention": {
            "vit-heads": _attention(12, 197, 64),
            "minilm-heads": _attention(12, 128, 32),
            "decoder-heads": _attention(8, 512, 128),
            "wide-heads": _attention(8, 512, 256),
        },
        "DepthwiseConv": {
            "mobilenet-112": _depthwise(112, 32),
            "mobilenet-56-strided": _depthwise(56, 144, stride=2),
            "mobilenet-14": _depthwise(14, 576),
            "efficientnet-28": _depthwise(28, 240, 5),
        },
        "SeparableConv": {
            "mobilenet-28": SeparableProblem(1, 28, 28, 192, 32, (3, 3), pads=AROUND, depthwise_epilogue=RELU)
        },
        "InvertedResidual": {
            "mobilenet-28-whole": InvertedResidualProblem(
                1, 28, 28, 32, 192, 32, (3, 3), pads=AROUND, expand_epilogue=RELU, depthwise_epilogue=RELU
            )
        },
        "ConvTranspose": {
            "unet-up": ConvTransposeProblem(1, 28, 28, 64, 32, (2, 2), (2, 2), (56, 56), bias=True),
        },
        "Softmax": {
            "softmax-1x1000": SoftmaxProblem(1, 1000, 1),
            "vit-attention": SoftmaxProblem(2364, 197, 1),
            "minilm-attention": SoftmaxProblem(1536, 128, 1),
        },
        "Normalise": {
            "vit-norm": NormaliseProblem("deviation", (197, 768), (1,), (1,), True, True, 1e-5),
            "minilm-norm": NormaliseProblem("deviation", (128, 384), (1,), (1,), True, True, 1e-12),
        },
    }
    for family, problems in (of | _moving()).items():
        yield from (Named(name, family, problem) for name, problem in problems.items())


def _of_floats(named: Named) -> bool:
    return named.problem.dtype == FLOAT and named.family != "Typed"


def _moving() -> dict[str, dict[str, Any]]:
    """Those of families whose time is memory's."""
    return {
        "Reduce": {"resnet-pool": ReduceProblem("mean", (1, 7, 7, 2048), (1, 2))},
        "Pool": {
            "squeezenet-pool": PoolProblem("max", 1, 111, 111, 64, (3, 3), (2, 2), (0, 0, 0, 0), (55, 55)),
            "resnet-first-pool": PoolProblem("max", 1, 112, 112, 64, (3, 3), (2, 2), AROUND, (56, 56)),
        },
        "PoolIndices": {"segnet-pool": PoolIndicesProblem(1, 56, 56, 128, (2, 2), (2, 2), (0, 0, 0, 0), (28, 28))},
        "Elementwise": {
            "resnet-residual": ElementwiseProblem((1, 56, 56, 256), ((1, 56, 56, 256),), (1, 56, 56, 256), RESIDUAL)
        },
        "Typed": {
            "mask": TypedProblem("less", (128, 128), ((128, 1), (1, 128)), ("int64", "int64"), "bool"),
            "from-half": TypedProblem("cast", (128, 384), ((128, 384),), ("float16",), "float32"),
            "to-half": TypedProblem("cast", (128, 384), ((128, 384),), ("float32",), "float16"),
        },
        "Transpose": {
            "image": TransposeProblem(1, 3, 224, 224, "NCHW", "NHWC"),
            "map": TransposeProblem(1, 256, 56, 56, "NHWC", "NCHW"),
        },
        "Concat": {"squeezenet-concat": ConcatProblem(3025, (64, 64))},
        "Move": {"pad": MoveProblem(56 * 56 * 64, 0, (58, 58, 64), (3584, 64, 1), (1, 1, 0), (56, 56, 64))},
        "Gather": {"minilm-words": GatherProblem(30522 * 384, 128, (128,), (0,), (1,), (30522,), (384,), 384)},
        "Scatter": {"rows": along((512, 384), (128, 384), 0, reduction="add")},
        "Resize": {"yolo-nearest": ResizeProblem(1, 26, 26, 256, (52, 52), (1, 1), (2, 2))},
        "Resample": {"bilinear": ResampleProblem(1, 28, 28, 64, (56, 56), (2, 2))},
        "GridSample": {"warp": GridSampleProblem(1, 56, 56, 64, (56, 56))},
        "LRN": {"alexnet-lrn": LrnProblem(55 * 55, 96, 1, 5, 0.0001, 0.75, 2.0)},
        "ArgMax": {"classes": ArgProblem(1, 1000, 1)},
        "TopK": {"best-five": TopProblem(1, 1000, 1, 5)},
        "Scan": {"sums": ScanProblem(128, 512, 1)},
        "Recurrent": {
            "lstm-256": RecurrentProblem("LSTM", 32, 1, 256, "forward", (SIGMOID, TANH, TANH), ("Y", "Y_h", "Y_c"))
        },
    }


PROBLEMS = tuple(_all())
IN_HALF = tuple(replace(each, problem=replace(each.problem, dtype=HALF)) for each in PROBLEMS if _of_floats(each))
"""The problems of floats on tensors of half; exceptions know both by one name."""
MULTIPLIED_IN_HALF = tuple(
    replace(each, problem=replace(each.problem, factors=HALF)) for each in IN_HALF if hasattr(each.problem, "factors")
)
"""The products among them, which may be multiplied in half, too."""

SAMPLE = (
    "squeezenet-first",
    "squeezenet-expand",
    "gemm-1024",
    "mobilenet-14",
    "mobilenet-28",
    "vit-values",
    "vit-norm",
    "softmax-1x1000",
    "resnet-pool",
    "resnet-first-pool",
    "map",
    "lstm-256",
)
"""Those of the test in the suite, for defaults only."""

PHONE_SAMPLE = ("gemm-1024", "resnet-56", "mobilenet-14", "softmax-1x1000")
"""Those of it for phones."""
