"""Matrix product with a constant right side, bias and a fused chain: register tiles in matmul_tiled.cl.

output[m, n] = epilogue(sum over k of a[m, k] * b[k, n] + bias[n])
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gputune.kernels.chain import Chain
from gputune.kernels.family import Array, TensorSpec, Tolerance, Work


@dataclass(frozen=True)
class MatMulProblem:
    """a[m, k] x b[k, n] + bias[n]; b and bias are constant, the epilogue's operands are [m, n]."""

    m: int
    k: int
    n: int
    bias: bool = False
    epilogue: Chain = Chain()
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if min(self.m, self.k, self.n) < 1:
            raise ValueError(f"MatMul needs positive sizes, not m={self.m} k={self.k} n={self.n}")
        if self.dtype != "float32":
            raise ValueError(f"MatMul knows dtype float32, not {self.dtype}")


class MatMul:
    op = "MatMul"
    problem_type = MatMulProblem

    def inputs(self, problem: MatMulProblem) -> tuple[TensorSpec, ...]:
        bias = (TensorSpec("bias", (problem.n,), constant=True),) if problem.bias else ()
        return (
            TensorSpec("a", (problem.m, problem.k)),
            TensorSpec("b", (problem.k, problem.n), constant=True),
            *bias,
            *(TensorSpec(f"operand{i}", (problem.m, problem.n)) for i in range(problem.epilogue.operands)),
        )

    def output(self, problem: MatMulProblem) -> TensorSpec:
        return TensorSpec("output", (problem.m, problem.n))

    def reference(self, problem: MatMulProblem, inputs: Mapping[str, Array]) -> Array:
        total = inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64)
        if problem.bias:
            total += inputs["bias"]
        operands = [inputs[f"operand{i}"] for i in range(problem.epilogue.operands)]
        return problem.epilogue.apply(total, operands).astype(np.float32)
