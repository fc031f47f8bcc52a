"""Make batches to measure: copies, which any device does right, and kernels that crash or never end."""

import itertools
from dataclasses import replace

from gputune.core.batches import ProfileKernel
from gputune.core.launches import Launch, Variant, Work

COPY = "output[get_global_id(0)] = input[get_global_id(0)];"
CRASH = "output[get_global_id(0)] = *(__global volatile float *)(size_t)16;"
HANG = "volatile int on = 1; while (on) {} output[get_global_id(0)] = input[get_global_id(0)];"
FLOATS = 1024
DATA = bytes(range(256)) * (FLOATS * 4 // 256)
_numbers = itertools.count()


def variant(body: str = COPY) -> Variant:
    """A kernel that takes `input` to `output`; its options make it another program than any before it."""
    source = f"__kernel void copy(__global const float *input, __global float *output) {{ {body} }}\n"
    number = next(_numbers)
    launch = Launch(source, "copy", f"-DN={number}", (FLOATS,), (64,), ("input", "output"))
    return Variant({"N": number}, (), launch, {})


def batch(data: int, variants: tuple[Variant, ...]) -> ProfileKernel:
    """Variants that copy the uploaded DATA, which is input and reference at once."""
    return ProfileKernel(
        task="copy",
        buffers={"input": data},
        output_bytes=len(DATA),
        reference=data,
        relative=0.0,
        absolute=0.0,
        dtype="float32",
        variants=tuple(replace(each, number=number) for number, each in enumerate(variants)),
        baseline=None,
        best_ns=0.0,
        work=Work(0, 2 * len(DATA)),
        samples=3,
        sample_ns=10_000,
        warm_up_ns=10_000,
        cold=False,
        together=True,
        harvest=True,
    )


def copies(data: int, count: int) -> ProfileKernel:
    """A batch of so many copies that work."""
    return batch(data, tuple(variant() for _ in range(count)))
