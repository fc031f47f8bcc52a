"""Test both loops that enqueue launches, in C and in Python, on a real device."""

from collections.abc import Iterator

import numpy as np
import pytest

from gputune.core.errors import LimitExceeded
from gputune.runtime.backends import Backend
from gputune.runtime.native.building import native_part
from gputune.runtime.queues.loop import loop

SIZE, TIMES = 64, 9
SOURCE = """
__kernel void scaled(__global int *x, int factor) { x[get_global_id(0)] = x[get_global_id(0)] * factor + 1; }
"""


@pytest.fixture(params=["C", "Python"], autouse=True)
def _loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "Python":
        monkeypatch.setenv("GPUTUNE_CC", "none")
    for known in (native_part, loop):
        known.cache_clear()
    if request.param == "C" and isinstance(loop(), str):
        pytest.skip(str(loop()))
    yield
    for known in (native_part, loop):
        known.cache_clear()


def test_launches_run_in_their_order_each_time(backend: Backend) -> None:
    program = backend.build(SOURCE, "")
    want = np.arange(SIZE, dtype=np.int32)
    buffer = backend.upload(want)
    bounds = [backend.bind(program, "scaled", (SIZE,), (4,), [buffer, factor]) for factor in range(2, 2 + TIMES)]
    bounds[-1].before = (backend.bind(program, "scaled", (SIZE,), (1,), [buffer, 3]),)
    start = backend.in_order(bounds)
    for _ in range(2):
        start()
        for factor in (*range(2, 1 + TIMES), 3, 1 + TIMES):
            want = want * np.int32(factor) + 1
    backend.finish()
    assert (backend.read(buffer).view(np.int32) == want).all()
    other = backend.upload(np.zeros(SIZE, np.int32))
    for bound in bounds:
        backend.set_buffer(bound, 0, other)
    backend.set_buffer(bounds[-1].before[0], 0, other)
    start()
    assert backend.read(other).view(np.int32).any(), "launches use the memory that they are given later"


def test_a_launch_that_the_driver_refuses_is_named(backend: Backend) -> None:
    program = backend.build(SOURCE, "")
    bound = backend.bind(program, "scaled", (SIZE,), (4,), [backend.upload(np.zeros(SIZE, np.int32)), 2])
    bound.local_size = (SIZE * backend.identity.max_work_group_size,)
    with pytest.raises(LimitExceeded, match=r"WORK_GROUP_SIZE|WORK_ITEM_SIZE"):
        backend.in_order([bound])()
