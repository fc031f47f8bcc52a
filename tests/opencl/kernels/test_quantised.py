"""Test that kernels quantise and multiply whole numbers without an error: equal to numpy in every element."""

from typing import Any

import numpy as np
import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import Chain, Step
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.tiling.packing import Quantised
from tests.kernels.quantised import SCALES, quantised, ties
from tests.kernels.recurrent_problems import RECURRENT
from tests.opencl.conftest import KernelBench


@pytest.mark.parametrize("scale", SCALES)
def test_quantising_is_exact(bench: KernelBench, scale: float) -> None:
    values, family = ties(scale), family_of("Elementwise")
    chain, steps = quantised(scale, -119, 136), np.full(1, scale, np.float32)
    chains = {
        "quotient": (chain, values, ()),
        "ratio": (Chain((Step("ratio", operand=0), chain.steps[1])), values, (steps,)),
        "divisor": (Chain((Step("ratio", operand=0, swapped=True), chain.steps[1])), steps, (values,)),
    }
    want = family.reference(ElementwiseProblem(values.shape, (), values.shape, chain), {"input": values})
    for name, (computed, first, others) in chains.items():
        problem = ElementwiseProblem(values.shape, tuple(each.shape for each in others), first.shape, computed)
        inputs = {"input": first, **{f"operand{k}": each for k, each in enumerate(others)}}
        got, wrong = bench.run(family, problem, family.default(problem, bench.limits), inputs)
        assert not wrong
        np.testing.assert_array_equal(got, want, err_msg=name)


def requantised(channels: int) -> Chain:
    return Chain((Step("whole"), Step("mul", operand=0, channels=channels), Step("saturate", (-119, 136))))


PRODUCTS: dict[str, tuple[str, Any]] = {
    "product": ("MatMul", MatMulProblem(13, 150, 37, True, requantised(37))),
    "product by bytes": ("MatMul", MatMulProblem(13, 150, 37, True, requantised(37), quantised=Quantised(8))),
    "product of many rows by bytes with zero points": (
        "MatMul",
        MatMulProblem(37, 150, 37, True, requantised(37), quantised=Quantised(8, 150, zeros=True)),
    ),
    "product of one row": ("MatMul", MatMulProblem(1, 300, 64, True, requantised(64))),
    "3x3": ("Conv", ConvProblem(1, 9, 11, 32, 48, (3, 3), pads=(1, 1, 1, 1), bias=True, epilogue=requantised(48))),
    "3x3 of bytes": (
        "Conv",
        ConvProblem(1, 9, 11, 32, 48, (3, 3), pads=(1, 1, 1, 1), bias=True, epilogue=requantised(48), bytes=True),
    ),
    "planes of bytes": (
        "Conv",
        ConvProblem(1, 9, 11, 3, 21, (3, 3), epilogue=requantised(21), layout="NCHW", bytes=True),
    ),
    "planes": (
        "Conv",
        ConvProblem(1, 9, 11, 3, 21, (3, 3), pads=(1, 1, 1, 1), epilogue=requantised(21), layout="NCHW"),
    ),
    "depthwise": (
        "DepthwiseConv",
        DepthwiseProblem(1, 9, 7, 19, (3, 3), (1, 1), (1, 1, 1, 1), bias=True, epilogue=requantised(19)),
    ),
}


@pytest.mark.parametrize(("op", "problem"), PRODUCTS.values(), ids=PRODUCTS)
def test_products_of_whole_numbers_are_exact(bench: KernelBench, op: str, problem: Any) -> None:
    family = family_of(op)
    inputs = family.sample_inputs(problem, np.random.default_rng(2))
    inputs["operand0"] = np.abs(inputs["operand0"]) / 300
    want = family.reference(problem, inputs)
    tried = [family.default(problem, bench.limits), *family.starters(problem, bench.limits)[:1]]
    bench.build_together(bench.instance(family, problem, one) for one in tried)
    for configuration in tried:
        got, wrong = bench.run(family, problem, configuration, inputs)
        assert not wrong
        np.testing.assert_array_equal(got, want)
    assert len(np.unique(want)) > 20


@pytest.mark.parametrize("name", [name for name, problem in RECURRENT.items() if problem.whole])
def test_states_take_the_steps_of_the_reference(bench: KernelBench, name: str) -> None:
    """A family's tolerance lets a step be missed; here none is, nor is a range."""
    family, problem = family_of("Recurrent"), RECURRENT[name]
    inputs = family.sample_inputs(problem, np.random.default_rng(2))
    want = family.reference(problem, inputs)
    default = family.default(problem, bench.limits)
    for rows in (1, default["MB"]):
        got, wrong = bench.run(family, problem, default | {"MB": rows}, inputs)
        assert not wrong
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
