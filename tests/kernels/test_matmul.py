"""Test matrix product: the reference, what a problem refuses, and how the reduction is split."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.matmul import FAMILY, MatMulProblem

from .problems import CPU, GPU, MATMULS, random_inputs


@pytest.mark.parametrize("name", MATMULS)
def test_reference_agrees_with_onnxruntime(name: str) -> None:
    problem = MATMULS[name]
    inputs = random_inputs("MatMul", problem)
    if problem.parts:
        inputs["a"] = np.concatenate([inputs[f"a{k}"] for k in range(len(problem.parts))], axis=1)
    names = ["a", "b", "bias"][: 3 if problem.bias else 2]
    graph = helper.make_graph(
        [helper.make_node("Gemm", names, ["output"])],
        "gemm",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, inputs[name].shape) for name in names],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, {name: inputs[name] for name in names})[0]
    want = problem.epilogue.apply_to(want, inputs)
    got = FAMILY.reference(problem, inputs)
    assert got.dtype == np.float32
    assert got.shape == (problem.m, problem.n)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_problem_refuses_what_has_no_meaning() -> None:
    with pytest.raises(ValueError, match="m=0"):
        MatMulProblem(0, 1, 1)
    with pytest.raises(ValueError, match="float64"):
        MatMulProblem(1, 1, 1, dtype="float64")
    with pytest.raises(ValueError, match="32 bits"):
        MatMulProblem(1 << 16, 8, 1 << 15)
    for parts, said in (((8,), "2 to 4"), ((2, 2, 2, 1, 1), "2 to 4"), ((5, 2), "k=8"), ((9, -1), "positive")):
        with pytest.raises(ValueError, match=said):
            MatMulProblem(4, 8, 4, parts=parts)


def test_parts_are_inputs_of_their_own_and_change_nothing_else() -> None:
    whole, parted = MatMulProblem(5, 8, 7, bias=True), MatMulProblem(5, 8, 7, bias=True, parts=(3, 1, 4))
    names = {spec.name: spec.shape for spec in FAMILY.inputs(parted)}
    assert names == {"a0": (5, 3), "a1": (5, 1), "a2": (5, 4), "b": (8, 7), "bias": (7,)}
    assert FAMILY.work(parted) == FAMILY.work(whole)
    one, other = (FAMILY.render(problem, FAMILY.default(whole, CPU)) for problem in (whole, parted))
    assert (one.prepare, one.packed) == (other.prepare, other.packed)
    assert other.main.arguments == ("a0", "a1", "a2", "packed", "output")


def test_work_counts_every_product_and_every_byte_once() -> None:
    work = FAMILY.work(MatMulProblem(3, 5, 7, bias=True))
    assert work.flops == 3 * 7 * (2 * 5 + 1)
    assert work.bytes == 4 * (15 + 35 + 7 + 21)


def test_the_reduction_is_split_only_for_few_rows() -> None:
    def splits(rows: int) -> set[int]:
        space = FAMILY.space(MatMulProblem(rows, 256, 64), CPU)
        return {configuration["KA"] for configuration in space.configurations()}

    assert splits(1) == {1, 2, 3, 4, 6, 8}
    assert splits(64) == {1}


def test_only_cpus_prefetch_and_only_what_their_first_cache_cannot_hold() -> None:
    def ahead(problem: MatMulProblem, limits: DeviceLimits) -> set[int]:
        return {one["PF"] for one in FAMILY.space(problem, limits).configurations()}

    large, small = (
        MatMulProblem(8, 512, 16),
        MatMulProblem(8, 511, 16),
    )  # rows of 64 bytes, and the bias
    assert ahead(large, CPU) == {64}
    assert ahead(small, CPU) == {0}
    assert ahead(large, GPU) == {0}
