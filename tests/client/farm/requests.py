"""Provide requests that the null device answers."""

from gputune.core.batches import ProfileKernel
from gputune.core.launches import Launch, Variant, Work


def copying(given: int, reference: int) -> ProfileKernel:
    """A batch of one variant, which copies 16 numbers."""
    launch = Launch(
        "__kernel void copy(__global const float *input, __global float *output) {}",
        entry="copy",
        options="",
        global_size=(16,),
        local_size=(16,),
        arguments=("input", "output"),
    )
    return ProfileKernel(
        task="copy",
        buffers={"input": given},
        output_bytes=64,
        reference=reference,
        relative=1e-3,
        absolute=0.0,
        dtype="float32",
        variants=(Variant({}, (), launch, {}),),
        baseline=None,
        best_ns=0.0,
        work=Work(16, 128),
        samples=3,
        sample_ns=1000,
        warm_up_ns=1000,
        cold=False,
        together=True,
        harvest=False,
    )
