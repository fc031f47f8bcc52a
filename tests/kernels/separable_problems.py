"""List separable convolutions with difficult shapes, and real convolutions."""

from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.separable import SeparableProblem

from .problems import GATED, RELU, RESIDUAL

PADS = (1, 1, 1, 1)
SWISH = Chain((Step("hard_swish"),))

SEPARABLE = {
    "strided": SeparableProblem(1, 15, 17, 24, 20, (3, 3), (2, 2), PADS, (1, 1), True, True, RELU),
    "batch-prime-channels-residual": SeparableProblem(
        2, 9, 7, 17, 13, (5, 5), (1, 1), (2, 2, 2, 2), (1, 1), True, True, SWISH, RESIDUAL
    ),
    "asymmetric": SeparableProblem(1, 12, 11, 104, 40, (5, 3), (1, 2), (2, 0, 1, 1), epilogue=GATED),
    "dilated": SeparableProblem(1, 13, 12, 8, 33, (3, 2), (1, 1), (3, 1, 3, 2), (3, 2), depthwise_bias=True),
    "strides-beyond-the-kernel": SeparableProblem(1, 10, 13, 5, 7, (1, 2), (3, 4), bias=True),
    "one-channel": SeparableProblem(1, 5, 6, 1, 1, (3, 3), (1, 2), PADS),
    "one-pixel": SeparableProblem(1, 3, 3, 3, 5, (3, 3), bias=True),
    "windows-in-the-padding": SeparableProblem(1, 2, 2, 20, 18, (3, 3), (1, 1), (4, 4, 4, 4), depthwise_bias=True),
    "channels-of-a-power-of-two": SeparableProblem(1, 6, 5, 256, 24, (3, 3), (1, 1), PADS, bias=True, epilogue=RELU),
}
REAL = {
    "112x112x32-16": SeparableProblem(1, 112, 112, 32, 16, (3, 3), (1, 1), PADS, (1, 1), True, True, RELU),
    "14x14x576-160-strided": SeparableProblem(1, 14, 14, 576, 160, (3, 3), (2, 2), PADS, (1, 1), True, True, RELU),
    "7x7x960-320": SeparableProblem(1, 7, 7, 960, 320, (3, 3), (1, 1), PADS, (1, 1), True, True, RELU),
}
