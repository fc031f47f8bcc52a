"""Test persistent kernels on a real device: each work-item runs once, in its own place, and launches keep their order.

With one group they run on any device. With as many groups as run at the same time, they run if the driver is known to
let them.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from gputune.client.context.persistent import Persistent, in_fewer_launches
from gputune.client.context.resuming import Access
from gputune.core.launches import STANDARDS, built_as
from gputune.core.quirks import DEVICE_FENCE, POCL, Fence, device_fence, groups_at_once, standard_of
from gputune.runtime.backends import Backend
from gputune.runtime.context.records import FLAG, LONGEST, ROUNDS, STATUS_BYTES, BufferRef, LaunchRecord, ProgramRecord

PLACES = """
#define ASK(what) what(0), what(1), what(2)
// Each work-item writes what it knows of its place, and adds one to what lies there.
__kernel __attribute__((reqd_work_group_size(LX, LY, LZ)))
void places(__global int *written, const int step)
{
    const int known[] = { ASK(get_global_id), ASK(get_local_id), ASK(get_group_id), ASK(get_local_size),
                          ASK(get_num_groups), ASK(get_global_size), get_work_dim(), get_global_offset(0) };
    const int row = get_global_id(2) * get_global_size(1) + get_global_id(1);
    const int index = row * get_global_size(0) + get_global_id(0);
    for (int i = 0; i < 20; ++i)
        written[index * 22 + i] = known[i];
    written[index * 22 + 20] += step;
    written[index * 22 + 21] += 1;
}
"""
MIX = """
// y[i] is made of three x, so it is wrong when a group begins before all of the launch before it has ended; the last
// ones take longest.
__kernel void mix(__global const uint *restrict x, __global uint *restrict y, const int shift)
{
    const int i = get_global_id(0);
    uint value = x[i];
    for (int k = 0; k < 20 * i; ++k)
        value = value * 1664525u + 1013904223u;
    y[i] = value + 3u * x[(SIZE - 1 - i + shift) % SIZE] + 5u * x[SIZE - 1];
}
"""
ALONE = """
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void alone(__global float *x)
{
    __local float kept[4];
    kept[get_local_id(0)] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] = 2.0f * kept[0];
}
"""
NOTHING = Access((), ())


LITMUS = """
__kernel void litmus(__global int *written, volatile __global int *arrivals, __global int *wrong, int rounds)
{
    const int me = get_group_id(0), groups = get_num_groups(0), other = (me + 1) % groups;
    int seen = 0, wanted = 0;
    for (int round = 1; round <= rounds; ++round) {
        for (int i = 0; i < 16; ++i)
            written[16 * me + i] = round;
        ARRIVE
        for (int i = 0; i < 16; ++i)
            seen += written[16 * other + i] != round;
        ARRIVE
    }
    wrong[me] = seen;
}
"""
"""The order that groups of a persistent kernel rely on."""
ARRIVE = """
        wanted += groups;
        FENCE;
        atomic_inc(arrivals);
        while (*arrivals < wanted)
            ;
        atomic_add(arrivals, 0);
        FENCE;
"""


def groups_of(backend: Backend) -> int:
    return max(1, groups_at_once(backend.identity))


def fence_of(backend: Backend) -> Fence:
    """The device's fence. A group that is alone needs none, and runs with the one that every device compiles."""
    fence = device_fence(backend.identity) or POCL.fence
    assert fence is not None
    return fence


def whole(index: int, nbytes: int) -> BufferRef:
    return BufferRef("arena", index, 0, nbytes)


def run_persistently(
    backend: Backend,
    launches: Sequence[LaunchRecord],
    programs: Sequence[ProgramRecord],
    contents: Sequence[np.ndarray],
    times: int = 1,
) -> list[np.ndarray]:
    """What the arenas hold after one persistent kernel has stood for all launches, so many times."""
    groups = groups_of(backend)
    (kernel,) = in_fewer_launches(launches, programs, groups, [NOTHING] * len(launches), fence_of(backend))
    assert isinstance(kernel, Persistent)
    program = backend.build(kernel.source, kernel.options)
    counters = backend.upload(np.zeros(kernel.counter_bytes, np.uint8))
    patient = np.zeros(STATUS_BYTES // 4, np.int32)
    patient[ROUNDS] = (1 << 31) - 1
    status = backend.upload(patient)
    arenas = [backend.upload(content) for content in contents]
    buffers = [arenas[index] for _, index in kernel.buffers]
    bound = backend.bind(program, kernel.entry, (groups,), (1,), [counters, status, *buffers])
    for _ in range(times):
        backend.enqueue(bound)
    backend.finish()
    assert not backend.read(counters).any(), "ready for the next run"
    return [backend.read(arena).view(content.dtype) for arena, content in zip(arenas, contents, strict=True)]


@pytest.mark.parametrize("complete", range(1, 5))
def test_groups_leave_when_one_does_not_come(backend: Backend, complete: int) -> None:
    """One group is launched where two are waited for, the other one of which has arrived behind all but the last of the
    complete launches; and then as many as there are, while the flag is still up."""
    ref = whole(0, 36)
    launches = [LaunchRecord(f"{n}", "", 0, "alone", (9,), (1,), (ref,)) for n in range(5)]
    (kernel,) = in_fewer_launches(launches, [ProgramRecord(b"", ALONE, "")], 2, [NOTHING] * 5, fence_of(backend))
    assert isinstance(kernel, Persistent)
    program = backend.build(kernel.source, kernel.options)
    content = np.zeros(STATUS_BYTES // 4, np.int32)
    content[ROUNDS] = 1000
    arrivals = np.zeros(kernel.counter_bytes // 4, np.int32)
    arrivals[0] = complete - 1
    counters, status = backend.upload(arrivals), backend.upload(content)
    arena = backend.upload(np.ones(9, np.float32))
    for groups in (1, groups_of(backend)):
        backend.enqueue(backend.bind(program, kernel.entry, (groups,), (1,), [counters, status, arena]))
        backend.finish()
        assert backend.read(status).view(np.int32)[FLAG] == 1 + complete, "the launches are to go on behind these"
        assert backend.read(arena).view(np.float32).tolist() == [2.0**complete] * 9, "and nothing behind them has run"


def test_the_longest_wait_is_told(backend: Backend) -> None:
    """A group that comes last waits for none; with two, the other one waits while the last portion of each launch is
    computed."""
    groups, size, steps = groups_of(backend), 97, 10
    launches = [
        LaunchRecord(f"{n}", "", 0, "mix", (size,), (1,), (whole(n % 2, 4 * size), whole(1 - n % 2, 4 * size), n))
        for n in range(steps)
    ]
    programs = [ProgramRecord(b"", MIX, f"-DSIZE={size}")]
    (kernel,) = in_fewer_launches(launches, programs, groups, [NOTHING] * steps, fence_of(backend))
    assert isinstance(kernel, Persistent)
    content = np.zeros(STATUS_BYTES // 4, np.int32)
    content[ROUNDS] = (1 << 31) - 1
    status = backend.upload(content)
    buffers = [backend.upload(np.zeros(nbytes, np.uint8)) for nbytes in (kernel.counter_bytes, 4 * size, 4 * size)]
    bound = backend.bind(
        backend.build(kernel.source, kernel.options), kernel.entry, (groups,), (1,), [buffers[0], status, *buffers[1:]]
    )
    for _ in range(20):
        backend.enqueue(bound)
    backend.finish()
    after = backend.read(status).view(np.int32)
    assert after[FLAG] == 0
    assert (after[LONGEST] > 0) == (groups > 1)


def ids(sizes: Iterable[int]) -> list[tuple[int, ...]]:
    """All places of a grid, the first dimension innermost."""
    return [place[::-1] for place in itertools.product(*map(range, reversed(tuple(sizes))))]


@pytest.mark.parametrize(
    ("global_size", "local_size"),
    [((1,), (1,)), ((13,), (1,)), ((97,), (97,)), ((1000,), (8,)), ((5, 6), (1, 3)), ((4, 6, 10), (2, 3, 5)),
     ((1, 1, 31), (1, 1, 1))],
)  # fmt: skip
def test_each_work_item_runs_once_in_its_own_place(
    backend: Backend, global_size: tuple[int, ...], local_size: tuple[int, ...]
) -> None:
    whole_size, group_size = ((*sizes, 1, 1)[:3] for sizes in (global_size, local_size))
    counts = [a // b for a, b in zip(whole_size, group_size, strict=True)]
    number = math.prod(whole_size)
    options = " ".join(f"-DL{axis}={size}" for axis, size in zip("XYZ", group_size, strict=True))
    ref = whole(0, number * 88)
    first = LaunchRecord("a", "", 0, "places", global_size, local_size, (ref, -3))
    second = LaunchRecord("b", "", 0, "places", global_size, local_size, (ref, 10))
    programs = [ProgramRecord(b"", PLACES, options)]
    (written,) = run_persistently(backend, [first, second], programs, [np.zeros(number * 22, np.int32)], times=3)
    for place, row in zip(ids(whole_size), written.reshape(number, 22).tolist(), strict=True):
        item = [at % size for at, size in zip(place, group_size, strict=True)]
        group = [at // size for at, size in zip(place, group_size, strict=True)]
        assert row == [*place, *item, *group, *group_size, *counts, *whole_size, len(global_size), 0, 21, 6]


def test_a_launch_begins_when_all_of_the_one_before_has_ended(backend: Backend) -> None:
    size, steps = 97, 40
    arenas = [whole(0, 4 * size), whole(1, 4 * size)]
    launches = [
        LaunchRecord(f"{n}", "", 0, "mix", (size,), (1,), (arenas[n % 2], arenas[1 - n % 2], n)) for n in range(steps)
    ]
    start = np.random.default_rng(0).integers(0, 1 << 32, size, np.uint32)
    programs = [ProgramRecord(b"", MIX, f"-DSIZE={size}")]
    got, _ = run_persistently(backend, launches, programs, [start, np.zeros_like(start)], times=20)
    places = np.arange(size)
    factor, summand = np.ones(size, np.uint32), np.zeros(size, np.uint32)  # what 20 * i steps make of a value
    for k in range(20 * size):
        more = k < 20 * places
        factor = np.where(more, factor * np.uint32(1664525), factor)
        summand = np.where(more, summand * np.uint32(1664525) + np.uint32(1013904223), summand)
    want = start
    for n in [*range(steps)] * 20:
        want = factor * want + summand + 3 * want[(size - 1 - places + n) % size] + 5 * want[-1:]
    np.testing.assert_array_equal(got, want)


def test_groups_of_one_may_have_local_memory_and_barriers(backend: Backend) -> None:
    launches = [LaunchRecord(f"{n}", "", 0, "alone", (9,), (1,), (whole(0, 36),)) for n in range(3)]
    (got,) = run_persistently(backend, launches, [ProgramRecord(b"", ALONE, "")], [np.ones(9, np.float32)])
    assert got.tolist() == [8.0] * 9


@pytest.mark.parametrize("fence", ["", "device's", "of OpenCL C 3.0"])
def test_atomic_functions_order_what_groups_write_and_read(fence: str, backend: Backend) -> None:
    chosen = {"": Fence(""), "device's": fence_of(backend), "of OpenCL C 3.0": DEVICE_FENCE}[fence]
    if STANDARDS.index(chosen.standard) > STANDARDS.index(standard_of(backend.identity)):
        pytest.skip("the device compiles OpenCL C 1.2")
    groups = groups_of(backend)
    written, arrivals = (backend.upload(np.zeros(16 * groups, np.int32)) for _ in range(2))
    wrong = backend.upload(np.full(groups, -1, np.int32))
    source = LITMUS.replace("ARRIVE", ARRIVE).replace("FENCE", chosen.statement)
    program = backend.build(source, built_as("", chosen.standard))
    backend.enqueue(backend.bind(program, "litmus", (groups,), (1,), [written, arrivals, wrong, 500]))
    backend.finish()
    assert not backend.read(wrong).any()
