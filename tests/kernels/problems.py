"""List problems with difficult shapes, and the devices for which their spaces are tested."""

from typing import Any

import numpy as np

from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.family import Array, DeviceLimits
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem

CPU = DeviceLimits(
    max_work_group_size=4096,
    max_work_item_sizes=(4096, 4096, 4096),
    local_memory_bytes=1 << 20,
    max_allocation_bytes=1 << 31,
    compute_units=2,
    device_type="cpu",
    preferred_float_width=16,
)
GPU = DeviceLimits(
    max_work_group_size=256,
    max_work_item_sizes=(256, 256, 64),
    local_memory_bytes=32 << 10,
    max_allocation_bytes=1 << 28,
    compute_units=8,
    device_type="gpu",
    preferred_float_width=1,
)
SMALL = DeviceLimits(
    max_work_group_size=1,
    max_work_item_sizes=(1, 1, 1),
    local_memory_bytes=1 << 10,
    max_allocation_bytes=1 << 24,
    compute_units=1,
    device_type="accelerator",
    preferred_float_width=4,
)
DEVICES = {"cpu": CPU, "gpu": GPU, "small": SMALL}

RELU = Chain((Step("relu"),))
RESIDUAL = Chain((Step("add", operand=0), Step("relu")))
GATED = Chain((Step("hard_swish"), Step("mul", operand=1), Step("sub", operand=0, swapped=True)))

CONVS = {
    "three-channels-strided": ConvProblem(1, 15, 17, 3, 8, (3, 3), (2, 2), (1, 1, 1, 1), bias=True, epilogue=RELU),
    "batch-asymmetric-pads": ConvProblem(2, 9, 7, 5, 24, (3, 3), pads=(0, 1, 2, 1), bias=True, epilogue=RESIDUAL),
    "point-strided": ConvProblem(1, 11, 13, 17, 104, (1, 1), (2, 2)),
    "asymmetric-kernel-and-strides": ConvProblem(1, 12, 11, 24, 17, (5, 3), (1, 2), (2, 0, 1, 1), epilogue=GATED),
    "dilated": ConvProblem(1, 13, 12, 8, 8, (3, 2), pads=(3, 1, 3, 2), dilations=(3, 2), bias=True),
    "groups-of-3-and-13": ConvProblem(2, 7, 6, 24, 104, (3, 3), (1, 1), (1, 1, 1, 1), groups=8, bias=True),
    "groups-of-one-output": ConvProblem(1, 6, 6, 8, 4, (3, 3), groups=4, bias=True),
    "one-pixel": ConvProblem(1, 1, 1, 5, 3, (1, 1), bias=True),
    "kernel-as-large-as-the-map": ConvProblem(1, 7, 7, 16, 10, (7, 7), bias=True),
    "one-channel": ConvProblem(1, 9, 9, 1, 1, (3, 3), (3, 3), (1, 0, 0, 1)),
    "windows-in-the-padding": ConvProblem(1, 2, 2, 3, 20, (3, 3), pads=(4, 4, 4, 4), bias=True),
    "planes-strided": ConvProblem(
        2, 15, 37, 3, 40, (3, 3), (2, 2), (0, 0, 1, 1), bias=True, epilogue=RESIDUAL, layout="NCHW"
    ),
    "planes-asymmetric-dilated": ConvProblem(
        1, 12, 43, 8, 17, (5, 3), (1, 3), (2, 0, 1, 5), (2, 3), epilogue=GATED, layout="NCHW"
    ),
    "planes-in-the-padding": ConvProblem(1, 2, 2, 3, 20, (3, 3), pads=(4, 4, 4, 4), bias=True, layout="NCHW"),
    "one-plane": ConvProblem(3, 9, 9, 1, 1, (3, 3), (3, 3), (1, 0, 0, 1), layout="NCHW"),
}
DEPTHWISE = {
    "strided": DepthwiseProblem(1, 15, 17, 24, (3, 3), (2, 2), (1, 1, 1, 1), bias=True, epilogue=RELU),
    "batch-prime-channels": DepthwiseProblem(2, 9, 7, 17, (5, 5), pads=(2, 2, 2, 2), bias=True, epilogue=RESIDUAL),
    "asymmetric": DepthwiseProblem(1, 12, 11, 104, (5, 3), (1, 2), (2, 0, 1, 1), epilogue=GATED),
    "dilated": DepthwiseProblem(1, 13, 12, 8, (3, 2), pads=(3, 1, 3, 2), dilations=(3, 2), bias=True),
    "dilated-widely": DepthwiseProblem(1, 4, 50, 12, (3, 3), pads=(1, 24, 1, 24), dilations=(1, 24), bias=True),
    "strides-beyond-the-kernel": DepthwiseProblem(1, 10, 13, 5, (1, 2), (3, 4), bias=True),
    "one-channel": DepthwiseProblem(1, 5, 6, 1, (3, 3), (1, 2), (1, 1, 1, 1)),
    "one-pixel": DepthwiseProblem(1, 3, 3, 3, (3, 3), bias=True),
    "pairs": DepthwiseProblem(1, 9, 11, 18, (3, 3), (2, 1), (1, 1, 1, 1), group=2, bias=True, epilogue=RESIDUAL),
    "fours-batch": DepthwiseProblem(2, 7, 13, 20, (3, 5), (1, 2), (1, 2, 1, 2), group=4, bias=True, epilogue=RELU),
    "fours-dilated": DepthwiseProblem(1, 13, 12, 12, (3, 2), pads=(3, 1, 3, 2), dilations=(3, 2), group=4),
    "eights": DepthwiseProblem(1, 10, 9, 40, (3, 3), pads=(1, 1, 1, 1), group=8, epilogue=GATED),
    "eights-one-pixel": DepthwiseProblem(1, 3, 3, 8, (3, 3), group=8, bias=True),
    "eights-one-tap": DepthwiseProblem(1, 5, 6, 16, (1, 1), group=8, bias=True),
    "windows-in-the-padding": DepthwiseProblem(1, 2, 2, 20, (3, 3), pads=(4, 4, 4, 4), bias=True),
}
MATMULS = {
    "one": MatMulProblem(1, 1, 1, bias=True),
    "row": MatMulProblem(1, 200, 2, bias=True),
    "row-long": MatMulProblem(1, 1280, 4),
    "primes": MatMulProblem(7, 13, 17, bias=True, epilogue=RELU),
    "no-reduction": MatMulProblem(5, 1, 3),
    "tall": MatMulProblem(131, 3, 5, bias=True),
    "few-rows": MatMulProblem(3, 31, 104, bias=True, epilogue=RESIDUAL),
    "even": MatMulProblem(32, 64, 128, bias=True),
    "even-parts": MatMulProblem(32, 64, 48, parts=(32, 32)),
    "parts-of-primes": MatMulProblem(49, 45, 17, bias=True, epilogue=RELU, parts=(13, 1, 31)),
    "row-of-parts": MatMulProblem(1, 200, 40, bias=True, parts=(3, 1, 191, 5)),
    "few-rows-of-parts": MatMulProblem(3, 80, 104, bias=True, epilogue=RESIDUAL, parts=(79, 1)),
    "two-operands": MatMulProblem(49, 24, 100, bias=True, epilogue=GATED),
}
CASES = [
    *(("Conv", name, problem) for name, problem in CONVS.items()),
    *(("DepthwiseConv", name, problem) for name, problem in DEPTHWISE.items()),
    *(("MatMul", name, problem) for name, problem in MATMULS.items()),
]
CASE_NAMES = [f"{op}-{name}" for op, name, _ in CASES]


def random_inputs(op: str, problem: Any, seed: int = 0) -> dict[str, Array]:
    """Normal numbers for every input of a problem."""
    rng = np.random.default_rng(seed)
    specs = family_of(op).inputs(problem)
    return {spec.name: rng.standard_normal(spec.shape).astype(spec.dtype) for spec in specs}
