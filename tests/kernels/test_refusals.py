"""Test that problems without a meaning are refused, and that the message says what is wrong."""

from dataclasses import replace
from typing import Any

import pytest

from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.arg import ArgProblem
from gputune.kernels.ops.concat import ConcatProblem
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.conv_transpose import ConvTransposeProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.gather import GatherProblem
from gputune.kernels.ops.lrn import LrnProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.move import MoveProblem
from gputune.kernels.ops.normalise import NormaliseProblem
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.kernels.ops.resample import ResampleProblem
from gputune.kernels.ops.resize import ResizeProblem
from gputune.kernels.ops.scan import ScanProblem
from gputune.kernels.ops.scatter import at_points
from gputune.kernels.ops.separable import SeparableProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.ops.top import TopProblem
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.kernels.ops.typed import TypedProblem

from .attention_problems import ATTENTIONS
from .batched_problems import BATCHED
from .inverted_residual_problems import INVERTED
from .one_of_each import ONE_OF_EACH
from .problems import RELU, RESIDUAL
from .recurrent_problems import GRU, LSTM, RECURRENT, TANH

ADD = Chain((Step("add", operand=0),))
NO_PADS = (0, 0, 0, 0)


def lying(**places: Any) -> dict[str, Any]:
    """Return computed factors that lie somewhere else."""
    return {"places": replace(BATCHED["primes"].lies, **places)}


REFUSED: list[tuple[Any, list[tuple[dict[str, Any], str]]]] = [
    (ArgProblem(1, 2, 1), [({"outer": 0}, "positive"), ({"one_hot": True, "dtype": "int8"}, "not int8")]),
    (
        BATCHED["primes"],
        [
            ({"k": 0}, "positive"),
            (lying(a_steps=(91, 13)), "3 steps per tensor"),
            (lying(b_steps=(221, 17, -1)), "none negative"),
            (lying(elements=(272, 663)), "beyond the 272 elements of a"),
            (lying(elements=(273, 662)), "beyond the 662 elements of b"),
            (lying(starts=(1, 0)), "beyond the 273 elements of a"),
            (lying(starts=(0, -1)), "beyond the 663 elements of b"),
            (lying(output_steps=(119, 17, 2)), "each element once"),
            (lying(output_steps=(0, 17, 1)), "each element once"),
            (lying(operand_steps=((119, 17, 1),)), "0 operands"),
            ({"bias": True}, "only if its right side is constant"),
            ({"parts": (6, 7)}, "only if its right side is constant"),
        ],
    ),
    (
        ConcatProblem(1, (1, 2)),
        [
            ({"rows": 0}, "positive sizes"),
            ({"parts": ()}, "positive sizes"),
            ({"parts": (1, 0)}, "positive sizes"),
            ({"parts": (1,) * 65}, "up to 64 tensors, not 65"),
            ({"rows": 1 << 20, "parts": (1 << 10, 1 << 10)}, "32 bits"),
        ],
    ),
    (
        ConvProblem(1, 8, 8, 4, 4, (3, 3)),
        [
            ({"groups": 3}, "3 groups do not divide"),
            ({"in_channels": 0}, "positive"),
            ({"strides": (0, 1)}, "positive"),
            ({"pads": (0, -1, 0, 0)}, "not negative"),
            ({"kernel": (9, 9)}, "9x9 window .* does not fit"),
            ({"dilations": (4, 4)}, "does not fit"),
            ({"layout": "NC4HW4"}, "not NC4HW4"),
            ({"layout": "NCHW", "groups": 2}, "not 4 in 2"),
            ({"layout": "NCHW", "in_channels": 9}, "not 9 in 1"),
            ({"height": 60000, "width": 60000}, "32 bits"),
            ({"layout": "NCHW", "planes_dtype": "float32"}, "Conv reads planes of float32 for maps of float16"),
            ({"dtype": "float16", "planes_dtype": "float32"}, "Conv reads planes of float32 for maps of float16"),
        ],
    ),
    (
        ConvTransposeProblem(1, 4, 4, 8, 8, (2, 2), (2, 2), (8, 8)),
        [
            ({"in_channels": 0}, "positive sizes"),
            ({"groups": 3}, "3 groups do not divide 8"),
            ({"pads": (0, -1)}, "not negative"),
            ({"strides": (0, 2)}, "positive sizes"),
            ({"dtype": "int8"}, "int8"),
            ({"layout": "NCHW"}, "NCHW"),
            ({"out_channels": 1 << 25}, "32 bits"),
        ],
    ),
    (
        DepthwiseProblem(1, 4, 4, 18, (3, 3)),
        [
            ({"channels": 0}, "positive batch and channels"),
            ({"layout": "NCHW"}, "NCHW"),
            *(({"group": group}, f"no groups of {group} of 18 channels") for group in (0, 4, 16)),
            ({"group": 3}, "no groups of 3 of 18 channels"),
            ({"height": 2}, "does not fit"),
        ],
    ),
    (
        ElementwiseProblem((2, 4), ((4,),), (2, 4), ADD),
        [
            ({"input_shape": (3,)}, r"shape \(3,\) does not broadcast to \(2, 4\)"),
            ({"input_shape": (1, 2, 4)}, "does not broadcast"),
            ({"operand_shapes": ()}, "the chain reads 1 operands, 0 shapes"),
            ({"operand_shapes": ((2, 2),)}, "does not broadcast"),
            ({"constant_operands": (1,)}, "names an operand that is not there"),
            ({"shape": (2, 0)}, "positive sizes"),
            ({"dtype": "int32"}, "int32"),
            ({"shape": (1 << 16, 1 << 16), "input_shape": (), "operand_shapes": ((),)}, "32 bits"),
        ],
    ),
    (
        GatherProblem(35, 6, (6,), (0,), (1,), (7,), (5,), 5),
        [
            ({"elements": 34}, "reaches 35 elements and 6 indices of 34 and 6"),
            ({"indices": 5}, "reaches 35 elements and 6 indices of 35 and 5"),
            ({"index_dtype": "int8"}, "int32 and int64, not int8"),
            ({"steps": (0, 0)}, "two steps for each size"),
        ],
    ),
    (
        INVERTED["batch-residual"],
        [
            ({"in_channels": 0}, "positive input channels"),
            ({"out_channels": 0}, "positive batch and channels"),
            ({"layout": "NCHW"}, "NCHW"),
            ({"expand_epilogue": RESIDUAL}, "expansion without operands"),
            ({"depthwise_epilogue": RESIDUAL}, "depthwise epilogue without operands"),
            ({"height": 1, "pads": NO_PADS}, "does not fit"),
        ],
    ),
    (
        LrnProblem(1, 2, 3, 3),
        [({"size": 0}, "positive"), ({"alpha": float("inf")}, "alpha"), ({"dtype": "int8"}, "not int8")],
    ),
    (
        MatMulProblem(4, 8, 4),
        [
            ({"m": 0}, "m=0"),
            ({"m": 1 << 16, "n": 1 << 15}, "32 bits"),
            ({"parts": (8,)}, "2 to 4"),
            ({"parts": (2, 2, 2, 1, 1)}, "2 to 4"),
            ({"parts": (5, 2)}, "k=8"),
            ({"parts": (9, -1)}, "positive"),
        ],
    ),
    (
        MoveProblem(4, 0, (4,), (1,), (0,), (4,)),
        [
            ({"sizes": (0,), "extents": (1,)}, "positive sizes"),
            ({"before": (-1,)}, "not negative"),
            ({"steps": (2,)}, "reads elements 0 to 6 of 4"),
            ({"start": 1}, "reads elements 1 to 4 of 4"),
            ({"steps": (-1,)}, "reads elements -3 to 0 of 4"),
            ({"steps": (1, 1)}, "for every loop"),
            ({"border": "mirror"}, "constant, edge, reflect, wrap, not 'mirror'"),
            ({"fill": float("nan")}, "NaN"),
            ({"dtype": "int8", "epilogue": RELU}, "with an epilogue knows dtype float32, float16, bfloat16, not"),
            ({"elements": 1 << 31}, "32 bits"),
        ],
    ),
    (
        NormaliseProblem("l2", (2, 2), (1,)),
        [
            ({"kind": "l3"}, "knows the kinds .*'l3'"),
            ({"shape": (0, 2)}, "positive sizes"),
            ({"axes": (1, 0)}, "in order, not .1, 0"),
            ({"varies": (2,)}, "in order, not .2,"),
            ({"kind": "rms", "epsilon": -1.0}, "epsilon"),
            ({"kind": "rms", "dtype": "int8"}, "not int8"),
        ],
    ),
    (
        PoolProblem("max", 1, 6, 6, 4, (2, 2), (2, 2), NO_PADS, (3, 3)),
        [
            ({"kind": "median"}, "max, average, lp, not 'median'"),
            ({"kind": "lp"}, "positive norm for lp"),
            ({"norm": 2}, "none for others"),
            ({"dilations": (0, 1)}, "positive sizes"),
            ({"dilations": (1, 7), "pads": (0, 1, 0, 1), "output": (3, 1)}, "nothing but padding along axis 2"),
            ({"layout": "NCHW"}, "not NCHW"),
            ({"channels": 0}, "positive sizes"),
            ({"pads": (2, 0, 0, 0)}, "nothing but padding along axis 1"),
            ({"output": (3, 9)}, "nothing but padding along axis 2"),
            ({"height": 1 << 16, "width": 1 << 16}, "32 bits"),
        ],
    ),
    (
        RECURRENT["lstm"],
        [
            ({"cell": "QRNN"}, "not a forward QRNN"),
            ({"direction": "sideways"}, "not a sideways LSTM"),
            ({"steps": 0}, "positive sizes, not steps=0"),
            ({"activations": LSTM[:2]}, "3 activations"),
            ({"outputs": ("Y_h", "Y")}, "in this order"),
            ({"outputs": ()}, "some of Y, Y_h, Y_c"),
            ({"after_reset": True}, "no reset gate"),
            ({"cell": "GRU", "activations": GRU, "outputs": ("Y_c",), "initial_c": False}, "some of Y, Y_h in"),
            ({"cell": "RNN", "activations": (TANH,), "outputs": ("Y",)}, "no c"),
            ({"hidden": 30_000}, "32 bits"),
        ],
    ),
    (
        ReduceProblem("sum", (2, 2), (0,)),
        [
            ({"kind": "median"}, "knows the kinds .*'median'"),
            ({"shape": (0, 2)}, "positive"),
            ({"axes": (2,)}, "each once and in order"),
            ({"kind": "l2", "dtype": "int32"}, "no l2 of int32"),
            ({"dtype": "bool"}, "no sum of bool"),
            ({"dtype": "int8", "epilogue": RELU}, "with an epilogue knows dtype float32"),
        ],
    ),
    (
        ResampleProblem(1, 4, 4, 8, (8, 8), (2, 2)),
        [({"taps": (0, 1)}, "one tap"), ({"outside": float("inf")}, "finite"), ({"dtype": "int8"}, "not int8")],
    ),
    (
        ResizeProblem(1, 4, 4, 8, (8, 8), (1, 1), (2, 2)),
        [
            ({"channels": 0}, "positive sizes"),
            ({"divisors": (1, 0)}, "positive sizes and divisors"),
            ({"steps": (-1, 1)}, "not negative"),
            ({"steps": (1 << 30, 1)}, "32 bits"),
            ({"offsets": (0, -1 << 31)}, "32 bits"),
            ({"output": (1 << 16, 1 << 15)}, "32 bits"),
            ({"layout": "NCHW"}, "NCHW"),
            ({"epilogue": RELU, "dtype": "int8"}, "int8"),
        ],
    ),
    (ScanProblem(1, 2, 1), [({"axis": 0}, "positive"), ({"dtype": "bool"}, "no sums of bool")]),
    (
        at_points((4, 3, 19), (6, 2)),
        [
            ({"updates": 113}, "reaches 114 updates of 113"),
            ({"indices": 11}, "reaches 12 indices of 11"),
            ({"step": 20}, "reaches 239 elements of 228"),
            ({"reduction": "mean"}, "not 'mean'"),
            ({"takes": (0, 1)}, "three steps and a bound for each size"),
            ({"takes": (2,)}, "neighbouring elements and updates"),
        ],
    ),
    (
        SeparableProblem(1, 4, 4, 8, 8, (3, 3)),
        [
            ({"out_channels": 0}, "positive batch and channels"),
            ({"layout": "NCHW"}, "NCHW"),
            ({"height": 2}, "does not fit"),
            ({"depthwise_epilogue": RESIDUAL}, "without operands that is defined everywhere"),
            ({"depthwise_epilogue": Chain((Step("sqrt"),))}, "without operands that is defined everywhere"),
        ],
    ),
    (
        ATTENTIONS["mask-of-keys"],
        [
            ({"rows": 0}, "positive sizes"),
            ({"scores": Chain((Step("relu"),))}, "steps for 0 operands"),
            ({"keys": 19}, "beyond the 1152 elements of key"),
            *(
                ({"places": replace(ATTENTIONS["mask-of-keys"].places, **change)}, why)
                for change, why in (
                    ({"query_steps": (1, 1, 1)}, "4 steps per tensor, none negative"),
                    ({"value_steps": (864, 24, 48, 2)}, "side by side"),
                    ({"operand_steps": ((18, 0, 0, 2),)}, "along keys"),
                    ({"zeroed_steps": (1, 1)}, "3 steps to know which rows are zero"),
                    ({"output_steps": (480, 24, 24, 1)}, "do not reach each element once"),
                )
            ),
        ],
    ),
    (SoftmaxProblem(1, 2, 3), [({"outer": 0}, "positive")]),
    (TopProblem(2, 5, 3, 1), [({"k": 0}, "0 of"), ({"k": 6}, "6 of")]),
    (
        TransposeProblem(1, 2, 3, 4, "NCHW", "NHWC"),
        [
            ({"target": "NCHW"}, "not NCHW to NCHW"),
            ({"target": "NCHWc"}, "not NCHW to NCHWc"),
            ({"channels": 0}, "positive sizes"),
        ],
    ),
]
TYPED: list[tuple[str, tuple[str, ...], str, str]] = [
    ("swoosh", ("int32",), "int32", "unknown function 'swoosh'"),
    ("not", ("int32",), "bool", "not takes numbers that are bool, not int32"),
    ("add", ("int32", "int64"), "int32", "operands of one type, not of int32, int64"),
    ("add", ("float32", "float32"), "float32", "add takes numbers that are whole"),
    ("add", ("int32",), "int32", "add takes 2 inputs, not 1"),
    ("add", ("int32", "int32"), "int64", "add of int32 gives int32, not int64"),
    ("where", ("int8", "int32", "int32"), "int32", "chooses by a bool, not by int8"),
    ("shift_left", ("bool", "bool"), "bool", "whole, not bool"),
    ("equal", ("int8", "int8"), "int8", "gives bool"),
    ("bit_cast", ("int16",), "float32", "gives numbers as wide, not float32"),
    ("bit_cast", ("int8",), "bool", "not bool"),
    ("cast", ("int8",), "float64", "knows .*, not float64"),
]
REFUSED += [
    (
        TypedProblem("add", (3,), ((3,), (3,)), ("int8", "int8"), "int8"),
        [
            *(
                (
                    {
                        "function": function,
                        "input_shapes": ((3,),) * len(dtypes),
                        "input_dtypes": dtypes,
                        "dtype": dtype,
                    },
                    message,
                )
                for function, dtypes, dtype, message in TYPED
            ),
            ({"input_shapes": ((2,), (3,))}, r"shape \(2,\) does not broadcast to \(3,\)"),
            ({"shape": (1 << 31,), "input_shapes": ((1 << 31,),) * 2}, "32 bits"),
        ],
    )
]
CASES = [(problem, change, message) for problem, changes in REFUSED for change, message in changes]


@pytest.mark.parametrize(("problem", "change", "message"), CASES, ids=[f"{type(p).__name__}-{c}" for p, c, _ in CASES])
def test_a_wrong_problem_says_what_is_wrong(problem: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(problem, **change)


@pytest.mark.parametrize("op", ONE_OF_EACH)
def test_every_family_knows_its_types(op: str) -> None:
    problem: Any = ONE_OF_EACH[op]
    with pytest.raises(ValueError, match="float64"):
        replace(problem, dtype="float64")
