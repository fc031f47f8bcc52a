"""Build textbook kernels: a work-item for each element of the output, a loop, nothing else."""

import math
from collections.abc import Mapping, Sequence

from gputune.client.model.plan import Plan
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.runtime.backends import Backend, Bound

GROUP = 64
KNOWN = (MatMulProblem, ConvProblem, DepthwiseProblem)
Sizes = Mapping[str, int]

SOURCES = {
    "matmul": """
__kernel void naive(__global const float *a, __global const float *b, __global float *c) {
    const int i = get_global_id(0);
    if (i >= M * N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += a[i / N * K + k] * b[k * N + i % N];
    c[i] = sum;
}
""",
    "conv": """
__kernel void naive(__global const float *input, __global const float *weight, __global float *output) {
    const int i = get_global_id(0);
    if (i >= O * HO * WO) return;
    const int o = i / (HO * WO), y = i / WO % HO * SH - PT, x = i % WO * SW - PL;
    float sum = 0.0f;
    for (int c = 0; c < C; ++c)
        for (int ky = 0; ky < KH; ++ky)
            for (int kx = 0; kx < KW; ++kx)
                if (y + ky >= 0 && y + ky < H && x + kx >= 0 && x + kx < W)
                    sum += input[((o / (O / G) * C + c) * H + y + ky) * W + x + kx]
                         * weight[((o * C + c) * KH + ky) * KW + kx];
    output[i] = sum;
}
""",
}


def launches_of(plan: Plan) -> list[tuple[str, dict[str, int]]]:
    """The convolutions and matrix products of a plan of single maps, none dilated, each as (name of a source, sizes);
    what else there is costs the naive kernels nothing."""
    problems = (operation.task.problem for operation in plan.operations)
    return [launch_of(problem) for problem in problems if isinstance(problem, KNOWN)]


def launch_of(problem: MatMulProblem | ConvProblem | DepthwiseProblem) -> tuple[str, dict[str, int]]:
    """One of them, channels first."""
    if isinstance(problem, MatMulProblem):
        return "matmul", {"M": problem.m, "N": problem.n, "K": problem.k}
    if isinstance(problem, ConvProblem):
        return "conv", _conv(problem, problem.group_inputs, problem.out_channels, problem.groups)
    return "conv", _conv(problem, problem.group, problem.channels, problem.channels // problem.group)


def _conv(problem: ConvProblem | DepthwiseProblem, inputs: int, outputs: int, groups: int) -> dict[str, int]:
    (out_height, out_width), (kernel_height, kernel_width) = problem.output_size, problem.kernel
    return {
        "C": inputs,
        "O": outputs,
        "G": groups,
        "H": problem.height,
        "W": problem.width,
        "HO": out_height,
        "WO": out_width,
        "KH": kernel_height,
        "KW": kernel_width,
        "SH": problem.strides[0],
        "SW": problem.strides[1],
        "PT": problem.pads[0],
        "PL": problem.pads[1],
    }


def bound(backend: Backend, launches: Sequence[tuple[str, Sizes]]) -> Bound:
    """A launch that runs all of these one after the other, on zeros. Raises DeviceError."""
    *before, last = (_launch(backend, name, sizes) for name, sizes in launches)
    return Bound(last.kernel, last.global_size, last.local_size, last.held, tuple(before))


def _launch(backend: Backend, name: str, sizes: Sizes) -> Bound:
    *_, items = counts = _elements(name, sizes)
    buffers = [backend.allocate(4 * count) for count in counts]
    for buffer in buffers:
        backend.fill(buffer, 0)
    group = min(GROUP, backend.identity.max_work_group_size)
    program = backend.build(SOURCES[name], " ".join(f"-D{size}={value}" for size, value in sizes.items()))
    return backend.bind(program, "naive", (-(-items // group) * group,), (group,), buffers)


def _elements(name: str, sizes: Sizes) -> list[int]:
    """Of both inputs and the output."""
    if name == "matmul":
        names = ["MK", "KN", "MN"]
        return [math.prod(sizes[letter] for letter in each) for each in names]
    return [
        math.prod(sizes[size] for size in each)
        for each in (("C", "G", "H", "W"), ("O", "C", "KH", "KW"), ("O", "HO", "WO"))
    ]
