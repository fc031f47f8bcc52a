"""List products whose weights stay whole numbers with scales: odd and prime sizes, one element, uneven blocks."""

from dataclasses import replace

from gputune.core.dtypes import HALF
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.tiling.packing import Quantised

from .problems import RELU, RESIDUAL

BYTES, NIBBLES = Quantised(8, 32), Quantised(4, 32)
SHAPES = {
    "one element": MatMulProblem(1, 1, 1, quantised=Quantised(8, 1)),
    "one element of 4 bits": MatMulProblem(1, 1, 1, bias=True, quantised=Quantised(4, 1, zeros=True)),
    "one column": MatMulProblem(3, 97, 1, quantised=NIBBLES),
    "a scale for each column": MatMulProblem(1, 83, 131, bias=True, epilogue=RELU, quantised=Quantised(8, 83)),
    "one row of blocks": MatMulProblem(1, 256, 192, quantised=BYTES),
    "one row of blocks of 4 bits": MatMulProblem(1, 256, 192, bias=True, quantised=NIBBLES),
    "uneven blocks": MatMulProblem(5, 101, 67, bias=True, epilogue=RESIDUAL, quantised=Quantised(8, 16, zeros=True)),
    "uneven blocks of 4 bits": MatMulProblem(7, 101, 37, epilogue=RESIDUAL, quantised=Quantised(4, 7, zeros=True)),
    "many rows": MatMulProblem(37, 128, 72, bias=True, quantised=Quantised(8, 128)),
    "many rows of 4 bits": MatMulProblem(33, 130, 70, bias=True, quantised=Quantised(4, 64, zeros=True)),
    "whole numbers": MatMulProblem(2, 59, 43, bias=True, quantised=Quantised(8)),
    "whole numbers of 4 bits": MatMulProblem(19, 64, 48, quantised=Quantised(4)),
}
PRODUCTS = SHAPES | {
    f"{name} in half": replace(SHAPES[name], dtype=HALF) for name in ("uneven blocks", "one row of blocks of 4 bits")
}
