"""Define a made-up kernel family whose space holds every way in which a variant can fail."""

from collections.abc import Mapping
from dataclasses import dataclass

from gputune.kernels.family import Array, DeviceLimits, Instance, KernelFamily, Launch, TensorSpec, Tolerance, Work
from gputune.kernels.space import Configuration, Parameter, TuningSpace

DEFAULT, WRONG, OUTSIDE, FASTEST, ENDLESS, SEGFAULT, LOCAL_MEMORY, NO_COMPILE = range(8)
STATUSES = {
    DEFAULT: "ok",
    WRONG: "correctness",
    OUTSIDE: "correctness",
    FASTEST: "ok",
    ENDLESS: "timeout",
    SEGFAULT: "crash",
    LOCAL_MEMORY: "device_limits",
    NO_COMPILE: "compile",
}
"""What must become of each variant."""

SOURCE = """
__kernel void doubled(__global const float *restrict input, __global float *restrict output)
{
    const int i = get_global_id(0);
#if PLANT == 1   // wrong, and fast: it does a part of the work
    if (i < SIZE / 64) output[i] = 2.0f * input[i];
#elif PLANT == 2 // right, but writes behind its output as well
    output[i] = 2.0f * input[i];
    if (i == SIZE - 1) output[SIZE + 3] = 1.0f;
#elif PLANT == 4 // never ends, on one core
    volatile int going = i == 0;
    while (going) output[i] = 2.0f * input[i];
#elif PLANT == 5 // writes to an address outside of all buffers
    ((volatile __global float *)(size_t)8)[i] = 2.0f * input[i];
#elif PLANT == 6 // asks for more local memory than any device has
    __local float all[1 << 26];
    all[i] = input[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    output[i] = 2.0f * all[SIZE - 1 - i];
#elif PLANT == 7 // is no OpenCL C
    output[i] = 2.0f * inpt[i];
#else            // right, and slow
    float x = input[i];
    for (int k = 0; k < 16 * (PLANT == 0 ? 16 : 1); ++k) x = fma(x, 1.0001f, 0.0f) / 1.0001f;
    output[i] = 2.0f * input[i] + 0.0f * x;
#endif
}
"""


@dataclass(frozen=True)
class Doubled:
    """output[i] = 2 * input[i]"""

    size: int = 65536
    dtype: str = "float32"


class PlantedFamily(KernelFamily):
    """A right and slow default, a right and faster variant, and some that must never win: `plants` says which."""

    op = "Planted"
    problem_type = Doubled

    def __init__(self, plants: tuple[int, ...] = tuple(STATUSES)) -> None:
        self._plants = plants

    def inputs(self, problem: Doubled) -> tuple[TensorSpec, ...]:
        return (TensorSpec("input", (problem.size,)),)

    def output(self, problem: Doubled) -> TensorSpec:
        return TensorSpec("output", (problem.size,))

    def space(self, problem: Doubled, limits: DeviceLimits) -> TuningSpace:
        return TuningSpace((Parameter("PLANT", self._plants, "which one"),), ())

    def default(self, problem: Doubled, limits: DeviceLimits) -> dict[str, int]:
        return {"PLANT": DEFAULT}

    def guesses(self, problem: Doubled, limits: DeviceLimits) -> list[dict[str, int]]:
        return []

    def render(self, problem: Doubled, configuration: Configuration) -> Instance:
        options = f"-DSIZE={problem.size} -DPLANT={configuration['PLANT']}"
        return Instance(Launch(SOURCE, "doubled", options, (problem.size,), (64,), ("input", "output")))

    def reference(self, problem: Doubled, inputs: Mapping[str, Array]) -> Array:
        return 2 * inputs["input"]

    def work(self, problem: Doubled) -> Work:
        return Work(problem.size, 8 * problem.size)

    def tolerance(self, problem: Doubled) -> Tolerance:
        return Tolerance(1e-6, 0.0)
