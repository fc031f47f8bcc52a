"""List difficult problems of every family: odd and prime sizes, one element, borders, groups, ends of no vector."""

from collections.abc import Mapping
from typing import Any

from gputune.kernels.chain import EMPTY, Chain, Step
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops.arg import ArgProblem
from gputune.kernels.ops.concat import ConcatProblem
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.conv_transpose import ConvTransposeProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.gather import GatherProblem
from gputune.kernels.ops.grid_sample import PADDINGS, TAPS, GridSampleProblem
from gputune.kernels.ops.lrn import LrnProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.move import BORDERS, move
from gputune.kernels.ops.normalise import NormaliseProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.pool_indices import PoolIndicesProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.resample import ResampleProblem
from gputune.kernels.ops.resize import ResizeProblem
from gputune.kernels.ops.scan import ScanProblem
from gputune.kernels.ops.scatter import along, at_points
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.ops.top import TopProblem
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.kernels.ops.typed import TypedProblem

from .attention_problems import ATTENTIONS
from .batched_problems import BATCHED, TILES
from .inverted_residual_problems import INVERTED
from .problems import CONVS, DEPTHWISE, GATED, MATMULS, RELU, RESIDUAL
from .recurrent_problems import RECURRENT
from .separable_problems import SEPARABLE

ADD = Chain((Step("add", operand=0),))
ADD_MUL = Chain((Step("add", operand=0), Step("hard_swish"), Step("mul", operand=1)))
MUL_ADD = Chain((Step("mul", operand=0), Step("relu"), Step("add", (0.5,))))
SUB_MUL = Chain((Step("sub", operand=0, swapped=True), Step("relu"), Step("mul", operand=1)))
SAME, NO_PADS = (1, 1, 1, 1), (0, 0, 0, 0)

WINOGRAD = {
    "odd-channels-and-pads": ConvProblem(2, 9, 11, 17, 23, (3, 3), (1, 1), (0, 1, 2, 1), bias=True, epilogue=GATED),
    "odd-channels-strided": ConvProblem(2, 12, 9, 21, 37, (3, 3), (2, 2), (2, 0, 1, 2), epilogue=RESIDUAL),
    "no-pads-strided": ConvProblem(1, 11, 10, 32, 16, (3, 3), (2, 2), bias=True),
    "one-tile": ConvProblem(1, 4, 4, 16, 40, (3, 3), pads=SAME, epilogue=RELU),
    "map-in-the-padding": ConvProblem(3, 1, 2, 16, 16, (3, 3), pads=(3, 4, 5, 4), bias=True),
    "channel-chunks": ConvProblem(1, 7, 5, 144, 48, (3, 3), pads=SAME, bias=True),
}
"""Convolutions of maps that no tile of Winograd's algorithms divides."""
LOCAL_CONVS = {
    "whole-tiles": ConvProblem(1, 14, 14, 64, 64, (3, 3), pads=SAME, bias=True, epilogue=RELU),
    "strided-odd": ConvProblem(2, 15, 13, 36, 41, (3, 3), (2, 2), SAME, bias=True, epilogue=RESIDUAL),
    "seven-by-seven": ConvProblem(1, 23, 21, 3, 32, (7, 7), (2, 2), (3, 3, 3, 3), bias=True, epilogue=RELU),
    "dilated-asymmetric": ConvProblem(1, 13, 12, 10, 17, (3, 2), (1, 2), (3, 1, 0, 2), (3, 2)),
    "line-of-sixteen-taps": ConvProblem(1, 1, 70, 6, 24, (1, 16), (1, 1), (0, 9, 0, 3)),
    "more-windows-in-the-padding": ConvProblem(1, 3, 3, 8, 20, (3, 3), pads=(5, 5, 5, 5), bias=True),
}
LOCAL_MATMULS = {
    "whole-tiles": MatMulProblem(64, 64, 64),
    "larger-primes": MatMulProblem(67, 61, 37, bias=True, epilogue=RESIDUAL),
    "parts": MatMulProblem(33, 136, 72, bias=True, epilogue=RELU, parts=(68, 4, 64)),
    "four-parts": MatMulProblem(19, 96, 41, parts=(31, 1, 53, 11)),
    "one-step": MatMulProblem(17, 1, 16, epilogue=GATED),
    "long-reduction": MatMulProblem(16, 1027, 20, bias=True),
}
FEW_ROWS = {
    "dot-product": MatMulProblem(1, 3001, 1, epilogue=RELU),
    "column": MatMulProblem(5, 260, 1, bias=True),
    "row-of-eights": MatMulProblem(1, 512, 72, bias=True, epilogue=RESIDUAL),
    "odd": MatMulProblem(3, 127, 129, bias=True, epilogue=GATED),
    "thirteen": MatMulProblem(13, 61, 37, bias=True),
    "no-sum": MatMulProblem(16, 1, 20, bias=True),
    "long": MatMulProblem(2, 20_000, 8),
    "two-parts": MatMulProblem(7, 260, 40, bias=True, epilogue=RELU, parts=(128, 132)),
    "nine-of-parts": MatMulProblem(9, 45, 17, epilogue=RESIDUAL, parts=(13, 1, 31)),
    "most-rows": MatMulProblem(16, 384, 96, bias=True),
}
BORDERED = {
    "rows": [Loop(9, 7, 1, 5), Loop(12, 1, 2, 7)],
    "far": [Loop(40, 17, 15, 3), Loop(17, 1)],
    "near": [Loop(5, 3, 2, 1), Loop(3, 1)],
    "backwards": [Loop(50, -1, 3, 35)],
}
MOVES = {
    "permuted": move(7 * 5 * 33, 0, [Loop(33, 1), Loop(7, 5 * 33), Loop(5, 33)]),
    "rows kept": move(7 * 5 * 33, 0, [Loop(5, 33), Loop(7, 5 * 33), Loop(33, 1)], epilogue=RESIDUAL),
    "backwards": move(101, 100, [Loop(34, -3)]),
    "spread": move(19, 0, [Loop(13, 0), Loop(19, 1), Loop(37, 0)]),
    "one": move(1, 0, [Loop(1, 1)]),
    "all border": move(2, 0, [Loop(3, 2, 4, 1), Loop(2, 1)], fill=2.5),
} | {
    f"{border} {name}": move(51, 34 if name == "backwards" else 0, loops, border, fill=-1.5)
    for name, loops in BORDERED.items()
    for border in BORDERS
}
POOLS = {
    "one": PoolProblem("max", 1, 1, 1, 1, (1, 1), (1, 1), NO_PADS, (1, 1)),
    "whole": PoolProblem("max", 1, 14, 14, 32, (2, 2), (2, 2), NO_PADS, (7, 7)),
    "prime": PoolProblem("max", 2, 13, 17, 19, (3, 5), (2, 3), (1, 2, 1, 1), (7, 6)),
    "average": PoolProblem("average", 2, 13, 17, 3, (3, 5), (2, 3), (1, 2, 1, 1), (7, 6), True, ADD_MUL),
    "average-pads": PoolProblem("average", 1, 7, 10, 17, (3, 4), (3, 3), (0, 1, 0, 2), (3, 4)),
    "average-all-pads": PoolProblem("average", 1, 6, 6, 5, (3, 3), (2, 2), SAME, (4, 4), True),
    "average-low": PoolProblem("average", 1, 7, 6, 5, (3, 3), (2, 2), (0, 1, 2, 1), (4, 3), True),
    "average-right": PoolProblem("average", 1, 6, 7, 5, (3, 3), (2, 2), (1, 0, 1, 2), (3, 4), True),
    "average-of-all": PoolProblem("average", 3, 7, 5, 37, (7, 5), (1, 1), NO_PADS, (1, 1)),
    "average-wide": PoolProblem("average", 2, 15, 13, 19, (13, 11), (2, 3), (4, 3, 4, 1), (6, 3), True, ADD_MUL),
    "norm-of-all": PoolProblem("lp", 1, 12, 11, 3, (12, 11), (1, 1), NO_PADS, (1, 1), norm=2),
    "line": PoolProblem("max", 1, 31, 1, 8, (31, 1), (1, 1), NO_PADS, (1, 1), epilogue=ADD_MUL),
    "dilated": PoolProblem("max", 2, 11, 17, 7, (3, 4), (2, 3), (1, 2, 1, 1), (4, 4), dilations=(3, 2)),
    "average-dilated": PoolProblem(
        "average", 1, 9, 13, 19, (3, 5), (1, 2), (2, 1, 2, 3), (9, 4), True, ADD_MUL, (2, 3)
    ),
    "average-line": PoolProblem("average", 1, 1, 23, 5, (1, 3), (1, 4), (0, 2, 0, 2), (1, 6), dilations=(1, 5)),
    "norm": PoolProblem("lp", 2, 7, 9, 17, (3, 2), (2, 2), (1, 0, 1, 1), (4, 5), norm=1),
    "norm-chain": PoolProblem("lp", 1, 8, 7, 3, (4, 3), (1, 2), (1, 1, 0, 1), (6, 4), epilogue=ADD_MUL, norm=2),
    "cubes": PoolProblem("lp", 1, 5, 7, 33, (5, 7), (1, 1), NO_PADS, (1, 1), norm=3),
    "with-hard-values": PoolProblem("average", 1, 18, 18, 11, (3, 3), (1, 1), SAME, (18, 18)),
}

DIFFICULT: Mapping[str, Mapping[str, Any]] = {
    "ArgMax": {
        "place": ArgProblem(3, 101, 1, dtype="int8"),
        "across": ArgProblem(2, 5, 7, largest=False, last=True, dtype="uint8"),
        "hardmax": ArgProblem(2, 5, 11, one_hot=True),
        "long": ArgProblem(3, 1003, 1, last=True),
        "long-hardmax": ArgProblem(3, 101, 7, one_hot=True),
    },
    "Attention": ATTENTIONS,
    "Concat": {
        "even": ConcatProblem(35, (24, 24, 24, 24)),
        "odd": ConcatProblem(17, (3, 1, 64)),
        "one-row": ConcatProblem(1, (1000, 17)),
        "many": ConcatProblem(300, (5, 16, 7, 1, 2, 9, 33, 8, 4)),
    },
    "Conv": CONVS | WINOGRAD | LOCAL_CONVS,
    "ConvTranspose": {
        "even": ConvTransposeProblem(2, 5, 7, 24, 24, (2, 2), (2, 2), (10, 14), bias=True, epilogue=RELU),
        "one-output": ConvTransposeProblem(1, 9, 13, 24, 1, (2, 2), (2, 2), (18, 26), bias=True, epilogue=RELU),
        "odd": ConvTransposeProblem(2, 5, 6, 7, 5, (5, 5), (2, 2), (10, 11), (3, 2), bias=True, epilogue=ADD_MUL),
        "dilated": ConvTransposeProblem(1, 4, 3, 6, 6, (3, 2), (2, 3), (11, 13), (0, 0), (2, 3), bias=True),
        "gaps": ConvTransposeProblem(1, 3, 3, 4, 9, (2, 2), (3, 3), (9, 9), bias=True, epilogue=ADD_MUL),
        "infinite": ConvTransposeProblem(1, 5, 7, 6, 19, (3, 3), (1, 1), (5, 7), (1, 1), finite=False),
        "infinite-dilated": ConvTransposeProblem(
            1, 4, 3, 6, 6, (3, 2), (2, 3), (11, 13), (0, 0), (2, 3), bias=True, finite=False
        ),
        "groups": ConvTransposeProblem(
            2, 4, 5, 6, 24, (3, 4), (2, 2), (7, 10), (1, 1), groups=3, bias=True, epilogue=ADD_MUL
        ),
        "depthwise": ConvTransposeProblem(1, 3, 7, 7, 7, (4, 4), (2, 2), (6, 13), (1, 2), groups=7, bias=True),
    },
    "DepthwiseConv": DEPTHWISE,
    "Elementwise": {
        "one": ElementwiseProblem((), ((),), (), ADD),
        "scalar": ElementwiseProblem((31,), ((1,),), (31,), ADD),
        "whole": ElementwiseProblem((1, 13, 7, 24), ((1, 13, 7, 24),), (1, 13, 7, 24), ADD),
        "channels": ElementwiseProblem((2, 5, 7, 19), ((19,), (2, 1, 1, 19)), (2, 5, 7, 19), SUB_MUL),
        "wider": ElementwiseProblem((2, 5, 7, 3), ((7, 1), (2, 1, 1, 1)), (5, 1, 3), SUB_MUL),
        "one-to-all": ElementwiseProblem((3, 4, 5), ((3, 1, 1), (5,)), (1,), SUB_MUL),
        "copied": ElementwiseProblem((6, 1, 17), (), (17,), EMPTY),
    },
    "Gather": {
        "rows": GatherProblem(7 * 33, 5, (5,), (0,), (1,), (7,), (33,), 33),
        "inside": GatherProblem(3 * 7 * 5, 6, (3, 6), (35, 0), (0, 1), (7,), (5,), 5, "int32", "int8"),
        "pairs": GatherProblem(2 * 4 * 3 * 17, 2 * 6 * 2, (2, 6), (204, 0), (12, 2), (4, 3), (51, 17), 17),
        "elements": GatherProblem(60, 24, (2, 4, 3), (20, 5, 1), (12, 3, 1), (3,), (1,), 1, dtype="int64"),
        "one": GatherProblem(1, 1, (1,), (0,), (0,), (1,), (1,), 1, dtype="bool"),
    },
    "GridSample": {
        f"{kind} {padding}{' aligned' * aligned}": GridSampleProblem(2, 5, 7, 3, (4, 3), kind, padding, aligned)
        for kind in TAPS
        for padding in PADDINGS
        for aligned in (False, True)
    }
    | {"channels": GridSampleProblem(1, 6, 5, 19, (7, 11))},
    "InvertedResidual": INVERTED,
    "LRN": {
        "row": LrnProblem(3, 19, 1, 5, 0.5, 0.75, 2.0),
        "across": LrnProblem(2, 5, 7, 4, 0.5, 0.7, 2.0),
        "few": LrnProblem(2, 3, 1, 9),
    }
    | {f"power {beta}": LrnProblem(1, 5, 1, 3, 0.5, beta, 2.0) for beta in (0.25, 1.0, 1.5, 4.0)},
    "MatMul": MATMULS
    | LOCAL_MATMULS
    | FEW_ROWS
    | {f"{rows} rows": MatMulProblem(rows, 67, 45, bias=True) for rows in range(1, 17)}
    | {f"computed {name}": problem for name, problem in (BATCHED | TILES).items()},
    "Move": MOVES | {"with-hard-values": move(4095, 0, [Loop(63, 1), Loop(65, 63)])},
    "Normalise": {
        "rows": NormaliseProblem("deviation", (5, 37), (1,), (1,), True, True, 1e-5, RESIDUAL),
        "channels": NormaliseProblem("deviation", (2, 33, 19), (1,), (2,), True, True, 1e-5, RESIDUAL),
        "channels-first": NormaliseProblem("rms", (2, 7, 35), (2,), (1,), True),
        "groups": NormaliseProblem("deviation", (2, 9, 3, 5), (1, 3), (2, 3), True, True, 1e-5),
        "norm": NormaliseProblem("l1", (1, 1), (0,)),
        "long": NormaliseProblem("deviation", (3, 1003), (1,), (1,), True, True),
        "across": NormaliseProblem("l2", (3, 101, 7), (1,)),
    },
    "Pool": POOLS,
    "PoolIndices": {
        "rows": PoolIndicesProblem(2, 7, 5, 19, (3, 2), (2, 1), (1, 1, 2, 0), (4, 5)),
        "columns": PoolIndicesProblem(1, 11, 9, 3, (2, 3), (3, 2), (1, 2, 1, 1), (4, 4), (3, 2), by_columns=True),
    },
    "Recurrent": RECURRENT,
    "Reduce": {
        "one": ReduceProblem("sum", (), ()),
        "rows": ReduceProblem("l2", (17, 37), (1,), epilogue=MUL_ADD),
        "across": ReduceProblem("variance", (2, 49, 19), (1,), epilogue=MUL_ADD),
        "two-rows": ReduceProblem("log_sum_exp", (3, 5, 7, 13), (1, 3)),
        "two-rows-across": ReduceProblem("max", (3, 5, 7, 3), (0, 2), "bool"),
        "whole-numbers": ReduceProblem("l1", (3, 33), (1,), "int64"),
        "long": ReduceProblem("variance", (3, 1003), (1,)),
        "long-across": ReduceProblem("log_sum_exp", (3, 101, 7), (1,)),
        "with-hard-values": ReduceProblem("log_sum_exp", (3, 5, 1100), (1,)),
    },
    "Resample": {
        "linear": ResampleProblem(2, 5, 7, 19, (10, 13), (2, 2), epilogue=RESIDUAL),
        "cubic line": ResampleProblem(3, 1, 11, 1, (1, 17), (1, 4)),
        "many taps": ResampleProblem(1, 29, 31, 3, (3, 5), (7, 9), outside=2.5),
    },
    "Resize": {
        "twice": ResizeProblem(2, 5, 7, 24, (10, 14), (1, 1), (2, 2), epilogue=ADD_MUL),
        "eightfold": ResizeProblem(1, 5, 7, 19, (40, 21), (1, 1), (8, 3)),
        "smaller": ResizeProblem(2, 9, 12, 5, (4, 8), (9, 3), (4, 2), (-3, 1)),
        "shifted": ResizeProblem(1, 6, 5, 3, (11, 9), (12, 10), (22, 18), (-30, 40), epilogue=RELU),
    },
    "Scan": {
        "across": ScanProblem(2, 5, 7, exclusive=True, reverse=True),
        "line": ScanProblem(3, 6, 1, product=True, reverse=True, dtype="int32"),
    },
    "Scatter": {
        "lines": along((3, 5, 7), (2, 4, 3), 1, reduction="add"),
        "rows": along((40, 19), (83, 17), 0, reduction="add"),
        "last-axis": along((3, 4, 5), (2, 3, 60), 2, reduction="mul"),
        "maps": along((2, 5, 3, 7), (2, 9, 3, 7), 1, reduction="max"),
        "points": at_points((4, 3, 19), (6, 2), dtype="int32"),
        "points-of-many": at_points((37, 21), (200, 1), reduction="add"),
        "a-line": at_points((257,), (1000, 1), reduction="add"),
        "few-updates": at_points((1000, 3), (2, 1), reduction="min"),
    },
    "SeparableConv": SEPARABLE,
    "Softmax": {
        "x".join(map(str, shape)): SoftmaxProblem(*shape)
        for shape in (
            (1, 1, 1), (1, 4, 1), (3, 1000, 1), (17, 37, 1), (2, 1, 5), (2, 13, 19), (3, 100, 2), (1, 5, 64),
            (3, 101, 1), (3, 21, 7),
        )
    }
    | {"with-hard-values": SoftmaxProblem(3, 5, 1100, log=True)},
    "TopK": {
        "one": TopProblem(1, 1, 1, 1),
        "row": TopProblem(3, 101, 1, 7),
        "all": TopProblem(2, 67, 5, 67, largest=False),
        "int8": TopProblem(2, 70, 3, 9, dtype="int8"),
        "uint64": TopProblem(1, 33, 1, 33, largest=False, dtype="uint64"),
    },
    "Transpose": {
        f"{'x'.join(map(str, shape))} {source}": TransposeProblem(*shape, source, target)
        for source, target in (("NCHW", "NHWC"), ("NHWC", "NCHW"))
        for shape in (
            (1, 3, 13, 17), (2, 1, 5, 7), (1, 24, 1, 1), (3, 37, 5, 7), (1, 16, 8, 8), (35, 4, 1, 29), (17, 2, 2, 5),
        )
    },
    "Typed": {
        "where": TypedProblem(
            "where", (2, 5, 7, 3), ((2, 1, 7, 1), (2, 5, 7, 3), ()), ("bool", "float32", "float32"), "float32"
        ),
        **{
            f"where-{dtype}": TypedProblem(
                "where", (6, 1, 17), ((17,), (6, 1, 1), (6, 1, 17)), ("bool", dtype, dtype), dtype
            )
            for dtype in ("int64", "float16")
        },
        "equal": TypedProblem("equal", (3, 31), ((31,), (3, 1)), ("int16", "int16"), "bool"),
        "less-half": TypedProblem("less", (3, 31), ((31,), (3, 1)), ("float16", "float16"), "bool"),
        "to-int64": TypedProblem("cast", (1, 13, 7, 24), ((1, 13, 7, 24),), ("float32",), "int64"),
        "from-int64": TypedProblem("cast", (1009,), ((1009,),), ("int64",), "float32"),
        "from-half": TypedProblem("cast", (3, 31), ((31,),), ("float16",), "float32"),
        "to-half": TypedProblem("cast", (2, 5, 16), ((5, 1),), ("float32",), "float16"),
        "one": TypedProblem("copy", (), ((),), ("bool",), "bool"),
    },
}  # fmt: skip
"""Of each family, by names."""

TILE_NAMES = ("MR", "NV", "VW", "KU", "LM", "LN", "ORDER")
UNEVEN: tuple[tuple[str, str, Any, tuple[dict[str, int], ...]], ...] = (
    (
        "Conv",
        "maps",
        ConvProblem(1, 30, 29, 48, 80, (3, 3), pads=SAME, bias=True, epilogue=RELU),
        (
            dict(zip(TILE_NAMES, (7, 3, 16, 4, 4, 2, 1), strict=True)),
            dict(zip(TILE_NAMES, (16, 1, 1, 8, 2, 32, 0), strict=True)),
        ),
    ),
    (
        "Conv",
        "planes",
        ConvProblem(1, 30, 59, 3, 80, (3, 3), (1, 2), SAME, bias=True, epilogue=RELU, layout="NCHW"),
        (
            dict(zip(TILE_NAMES, (7, 3, 16, 2, 4, 2, 1), strict=True)),
            dict(zip(TILE_NAMES, (16, 1, 1, 1, 2, 32, 0), strict=True)),
        ),
    ),
    (
        "DepthwiseConv",
        "maps",
        DepthwiseProblem(1, 29, 30, 83, (3, 3), pads=SAME, bias=True, epilogue=RELU),
        (
            {"MR": 7, "VW": 16, "REUSE": 1, "LM": 4, "LN": 4, "ORDER": 1},
            {"MR": 16, "VW": 1, "REUSE": 0, "LM": 2, "LN": 32, "ORDER": 0},
        ),
    ),
    *(
        (
            "MatMul",
            name,
            MatMulProblem(301, 99, 150, bias=True, epilogue=RELU, parts=parts),
            (
                dict(zip(TILE_NAMES, (7, 3, 16, 4, 4, 2, 1), strict=True)) | {"KA": 1, "PF": 64},
                dict(zip(TILE_NAMES, (2, 2, 2, 3, 2, 32, 0), strict=True)) | {"KA": 4, "PF": 0},
            ),
        )
        for name, parts in (("whole", ()), ("parts", (65, 1, 12, 21)))
    ),
    (
        "MatMul",
        "row-of-parts",
        MatMulProblem(1, 99, 40, parts=(50, 49)),
        (
            dict(zip(TILE_NAMES, (1, 1, 16, 4, 1, 2, 0), strict=True)) | {"KA": 6, "PF": 64},
            dict(zip(TILE_NAMES, (1, 3, 4, 4, 1, 1, 1), strict=True)) | {"KA": 4, "PF": 0},
        ),
    ),
    *(
        (
            "MatMul",
            f"computed {name}",
            TILES[name],
            tuple(
                dict(zip(TILE_NAMES, values, strict=True)) | {"PACK": packs}
                for values in ((7, 3, 16, 4, 4, 2, 1), (16, 1, 1, 2, 2, 32, 0), (4, 2, 8, 8, 1, 4, 0))
                for packs in ((1, 0) if name == "odd" else (1,))
            ),
        )
        for name in ("odd", "odd-turned")
    ),
)  # fmt: skip
"""Problems with tiles and work-groups that divide nothing; some are in no space, since they do not pay."""
