"""Make contexts of two kernels whose tensors and arenas have chosen sizes: x is doubled into the arena, and y is the
content of the arena plus one. With a small x, each element fills and is taken from its share of a large arena."""

from pathlib import Path

import numpy as np

from gputune.core.identity import DeviceIdentity
from gputune.core.launches import Work
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import (
    BufferRef,
    Context,
    GraphRecord,
    LaunchRecord,
    MemoryType,
    ProgramRecord,
    TensorRecord,
)

CONFIGURATION = {"op_packages": list[str]()}  # no foreign kernels
LOCAL = 64
VECTOR = 4  # floats
SOURCE = """__kernel void spread(__global const float *x, __global float4 *arena) {
    const size_t i = get_global_id(0), n = get_global_size(0);
    const float4 value = 2.0f * vload4(i, x);
    for (int k = 0; k < SHARE; k++)
        arena[i + k * n] = value;
}
__kernel void gather(__global const float4 *arena, __global float4 *y) {
    const size_t i = get_global_id(0), n = get_global_size(0);
    float4 least = arena[i];
    for (int k = 1; k < SHARE; k++)
        least = min(least, arena[i + k * n]);
    y[i] = least + 1.0f;
}"""


def expected(x: np.ndarray) -> np.ndarray:
    """What a context makes of an input."""
    result: np.ndarray = 2 * x + 1
    return result


def write(
    path: Path,
    backend: Backend,
    elements: int,
    arena_bytes: int,
    memory_type: MemoryType = "raw",
    device: DeviceIdentity | None = None,
) -> Path:
    """A context for x and y of so many floats; arena_bytes must be a multiple of theirs. device: for which it says that
    it was made, by default the backend's."""
    nbytes, items = 4 * elements, elements // VECTOR
    if arena_bytes % nbytes or items % LOCAL:
        raise ValueError(f"an arena of {arena_bytes} bytes for tensors of {nbytes}")
    options = f"-DSHARE={arena_bytes // nbytes}"
    program = backend.build(SOURCE, options)
    x, arena, y = (backend.allocate(size) for size in (nbytes, arena_bytes, nbytes))
    for entry, arguments in (("spread", [x, arena]), ("gather", [arena, y])):
        backend.enqueue(backend.bind(program, entry, (items,), (LOCAL,), arguments, Work(1, 1)))
    backend.finish()
    whole = BufferRef("arena", 0, 0, arena_bytes)
    launches = tuple(
        LaunchRecord(entry, "", 0, entry, (items,), (LOCAL,), refs)
        for entry, refs in (
            ("spread", (BufferRef("input", 0, 0, nbytes), whole)),
            ("gather", (whole, BufferRef("output", 0, 0, nbytes))),
        )
    )
    tensors = [TensorRecord(name, (elements,), "float32", memory_type) for name in "xy"]
    graph = GraphRecord("made", (tensors[0],), (tensors[1],), launches, (arena_bytes,), arena_bound_bytes=arena_bytes)
    write_context(
        path,
        Context(
            graphs=(graph,),
            programs=(ProgramRecord(backend.harvest(program), SOURCE, options),),
            weights=(),
            device=(device or backend.identity).to_dict(),
            tier="made",
            configuration=CONFIGURATION,
            versions={},
            computes=backend.computes,
        ),
    )
    return path
