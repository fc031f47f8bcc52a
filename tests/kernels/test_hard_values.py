"""Test which values an op must survive, and that verification checks it."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gputune.core.dtypes import FLOAT, FLOATS, HALF
from gputune.kernels import hard_values as hard
from gputune.kernels.catalogue import families, family_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.indexing.moving import Loop
from gputune.kernels.ops import pool, reduce, scatter, typed
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.move import move
from gputune.kernels.ops.pool import PoolProblem
from gputune.kernels.ops.reduce import ReduceProblem
from gputune.runtime.measuring.verification import mismatch

VALUES = np.array([value for _, value in hard.VALUES[FLOAT]], np.float32)


def drawn(values: Any) -> set[str]:
    """The kinds of hard values among others."""
    known = hard.VALUES[values.dtype.name]
    kinds = {float(values.dtype.type(value)).hex(): kind for kind, value in known}
    return {kinds[key] for value in values.reshape(-1) if (key := float(value).hex()) in kinds}


def test_every_stock_op_says_what_it_survives_and_why_not_more() -> None:
    by_problem = {
        "Pool": pool.SURVIVAL,
        "Reduce": reduce.SURVIVAL,
        "Scatter": scatter.SURVIVAL,
        "Typed": typed.SURVIVAL,
    }
    assert set(scatter.SURVIVAL) == set(scatter.REDUCTIONS)
    assert set(reduce.SURVIVAL) == set(reduce.KINDS)
    assert set(pool.SURVIVAL) == set(pool.KINDS)
    for op, family in families().items():
        for one in by_problem[op].values() if op in by_problem else (family.survives,):
            assert one is not hard.UNKNOWN
            assert one.kinds == hard.EVERY or one.reason


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_value_is_of_its_kind_and_of_its_type(dtype: str) -> None:
    finfo: Any = ml_dtypes.finfo
    info = finfo(dtype)
    least, most = float(info.smallest_normal), float(info.max)
    sizes = {
        hard.LARGE: (2e3, most),
        hard.TINY: (least, min(1e-3, 1e12 * least)),
        hard.SUBNORMAL: (float(info.smallest_subnormal), least * (1 - 1e-4)),
        hard.NEGATIVE_ZERO: (0, 0),
        hard.INFINITE: (np.inf, np.inf),
    }
    assert {kind for kind, _ in hard.VALUES[dtype][:5]} == hard.EVERY - {hard.TINY}
    for kind, value in hard.VALUES[dtype]:
        held = float(np.array(value).astype(dtype))
        if kind == hard.NAN:
            assert np.isnan(held)
        else:
            low, high = sizes[kind]
            assert low <= abs(held) <= high, f"{value} is not {kind}"
            assert dtype == FLOAT or held == value


@pytest.mark.parametrize(
    ("op", "problem", "kinds"),
    [
        ("Elementwise", ElementwiseProblem((64, 64), (), (64, 64), Chain((Step("sin"),))), hard.EVERY),
        (
            "Elementwise",
            ElementwiseProblem((64, 64), (), (64, 64), Chain((Step("log"),))),
            hard.EVERY - {hard.SUBNORMAL},
        ),
        ("Pool", PoolProblem("max", 1, 16, 16, 16, (1, 1), (1, 1), (0, 0, 0, 0), (16, 16)), hard.EVERY),
        ("Reduce", ReduceProblem("sum", (4096, 2), (1,)), hard.EVERY - {hard.LARGE}),
        ("Reduce", ReduceProblem("prod", (4096, 2), (1,)), set()),
        ("Reduce", ReduceProblem("max", (2, 4096), (1,)), set()),
        ("Reduce", ReduceProblem("max", (4096, 2), (1,), HALF), hard.EVERY - {hard.LARGE}),
        ("Move", move(4096, 0, [Loop(4096, 1)], dtype=HALF), hard.EVERY),
    ],
)
def test_what_an_op_survives_is_among_its_inputs(op: str, problem: Any, kinds: set[str]) -> None:
    """Where there are many outputs: one of few would be all that is compared."""
    family = family_of(op)
    inputs, tolerance = family.sample_inputs(problem, np.random.default_rng(1)), family.tolerance(problem)
    assert drawn(inputs["input"]) == kinds
    want = family.reference(problem, inputs)
    assert np.isfinite(want).mean() > 0.99
    assert mismatch(want.copy(), want, tolerance.relative, 0) == ""
    wrong = want.copy()
    wrong.flat[np.flatnonzero(np.isfinite(want) & (np.abs(want) < 10))[0]] += 0.01
    assert "1 of" in mismatch(wrong, want, tolerance.relative, tolerance.absolute), (
        "large values do not excuse the others"
    )


@pytest.mark.parametrize(
    ("steps", "lost"),
    [
        ((Step("square"), Step("sqrt")), {3.4e38, -2e38, 1e20}),
        ((Step("ceil"),), {1e-40}),
        ((Step("sign"),), {1e-40, -1e-45}),
        ((Step("add", (1.0,)), Step("sigmoid")), set()),
        ((Step("mul", operand=0),), set()),
        ((Step("mul", operand=0), Step("mul", (1e-3,))), {3.4e38, -2e38}),
        ((Step("mul", operand=0), Step("add", operand=1), Step("mul", operand=2)), {3.4e38, -2e38}),
        (tuple(Step("mul", operand=k) for k in range(9)), {3.4e38, -2e38}),
    ],
)
def test_a_chain_survives_what_has_one_result(steps: tuple[Step, ...], lost: set[float]) -> None:
    kept = hard.defined(Chain(steps), VALUES)
    assert set(VALUES[~kept].tolist()) == {float(np.float32(value)) for value in lost}
