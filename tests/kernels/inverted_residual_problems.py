"""List inverted residual blocks with difficult shapes, and real blocks."""

from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.inverted_residual import InvertedResidualProblem as Problem

from .problems import GATED, RELU, RESIDUAL

PADS = (1, 1, 1, 1)
CLIP = Chain((Step("clip", (0.0, 6.0)),))

INVERTED = {
    "batch-residual": Problem(2, 9, 7, 5, 20, 13, (3, 3), (1, 1), PADS, (1, 1), True, True, True, CLIP, RELU, RESIDUAL),
    "strided": Problem(1, 11, 12, 6, 24, 17, (5, 5), (2, 2), (2, 2, 2, 2), (1, 1), True, True, True, RELU, CLIP),
    "asymmetric": Problem(1, 12, 11, 3, 33, 40, (5, 3), (1, 2), (2, 0, 1, 1), epilogue=GATED),
    "dilated": Problem(1, 13, 12, 4, 8, 3, (3, 2), (1, 1), (3, 1, 3, 2), (3, 2), depthwise_bias=True),
    "strides-beyond-the-kernel": Problem(1, 10, 13, 2, 5, 7, (1, 2), (3, 4), expand_bias=True),
    "one-of-all": Problem(1, 3, 3, 1, 1, 1, (3, 3), bias=True),
    "windows-in-the-padding": Problem(1, 2, 2, 4, 20, 18, (3, 3), (1, 1), (4, 4, 4, 4), expand_epilogue=RELU),
    "channels-of-a-power-of-two": Problem(1, 6, 5, 16, 256, 24, (3, 3), (1, 1), PADS, expand_bias=True),
}
REAL = {
    "56x56x24-144-24": Problem(1, 56, 56, 24, 144, 24, (3, 3), (1, 1), PADS, (1, 1), True, True, True, CLIP, CLIP),
    "10x10x32-192-32": Problem(1, 10, 10, 32, 192, 32, (3, 3), (1, 1), PADS, (1, 1), True, True, True, CLIP, CLIP),
    "7x7x160-960-320": Problem(1, 7, 7, 160, 960, 320, (3, 3), (1, 1), PADS, (1, 1), True, True, True, CLIP, CLIP),
}
