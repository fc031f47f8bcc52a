"""Test random sequences of operations on memory handles on a real device: no abort, no leak, and right results."""

import gc
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gputune.core.errors import CannotImport, MemoryClosed, MemoryInUse
from gputune.runtime.backends import Backend, Bound
from gputune.runtime.contexts.device import beside
from gputune.runtime.contexts.imported import Imported
from gputune.runtime.memory.handles import PAGE, MemHandle
from tests.opencl.runtime.test_memory import buffer_of

T = TypeVar("T")
COUNT = 1024
SOURCE = "__kernel void add(__global const int *x, __global int *y) { y[get_global_id(0)] += x[get_global_id(0)] + 1; }"


@settings(max_examples=60)
@given(offset=st.integers(0, PAGE // 4).map(lambda quarter: 4 * quarter), nbytes=st.integers(1, 2 * PAGE))
def test_any_range_is_imported_where_it_is_aligned(backend: Backend, offset: int, nbytes: int) -> None:
    aligned = offset % backend.identity.base_address_alignment_bytes == 0
    with MemHandle.allocate(4 * PAGE) as room:
        with MemHandle.from_fd(room.fileno(), offset, nbytes) as handle:
            try:
                imported = beside(backend).import_memory(handle)
            except CannotImport as error:
                assert not aligned or "memory of its own" in str(error)
                return
            assert aligned
            backend.fill(buffer_of(imported), 7)
            backend.finish()
            beside(backend).begin_host_access(imported)
            assert handle.view(np.uint8, (nbytes,)).min() == 7
            beside(backend).end_host_access(imported)
            del imported
        content = room.view(np.uint8, (4 * PAGE,))
        assert content.sum(dtype=int) == 7 * nbytes and content[offset : offset + nbytes].min() == 7


def one_of(data: st.DataObject, values: list[T]) -> T:
    """By its number, because what strategies are made of outlives the draw."""
    return values[data.draw(st.integers(0, len(values) - 1))]


class Sequences(RuleBasedStateMachine):
    """Handles with the values that they must hold, imports of them, and launches that hold imports."""

    backend: Backend

    def __init__(self) -> None:
        super().__init__()
        self.program = self.backend.build(SOURCE, "")
        self.handles: list[MemHandle] = []
        self.values: dict[MemHandle, int] = {}
        self.imports: list[Imported] = []
        self.launches: list[tuple[Bound, Imported, Imported]] = []

    @initialize()
    def begin(self) -> None:
        self.allocate(shared=False)

    @rule(shared=st.booleans())
    def allocate(self, shared: bool) -> None:
        handle = MemHandle.allocate(4 * COUNT) if shared else beside(self.backend).allocate_handle(4 * COUNT)
        self.handles.append(handle)
        self.values[handle] = 0
        handle.view(np.int32, (COUNT,))[:] = 0

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        handle = one_of(data, self.handles)
        try:
            self.imports.append(beside(self.backend).import_memory(handle))
        except CannotImport:
            assert handle.kind == "memfd"
        except MemoryClosed:
            assert handle.closed

    @precondition(lambda self: len({one.handle for one in self.imports}) > 1)
    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        x, y = one_of(data, self.imports), one_of(data, self.imports)
        if x.handle is not y.handle:
            bound = self.backend.bind(self.program, "add", (COUNT,), (64,), [buffer_of(x), buffer_of(y)])
            self.launches.append((bound, x, y))

    @precondition(lambda self: self.launches)
    @rule(data=st.data())
    def run(self, data: st.DataObject) -> None:
        bound, x, y = one_of(data, self.launches)
        self.backend.enqueue(bound)
        self.backend.finish()
        self.values[y.handle] += self.values[x.handle] + 1

    @precondition(lambda self: self.imports)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        imported = one_of(data, self.imports)
        beside(self.backend).begin_host_access(imported)
        imported.handle.view(np.int32, (COUNT,))[:] = 5
        beside(self.backend).end_host_access(imported)
        self.values[imported.handle] = 5

    @precondition(lambda self: self.imports)
    @rule(data=st.data())
    def drop_an_import(self, data: st.DataObject) -> None:
        self.imports.remove(one_of(data, self.imports))

    @precondition(lambda self: self.launches)
    @rule(data=st.data())
    def drop_a_launch(self, data: st.DataObject) -> None:
        self.launches.remove(one_of(data, self.launches))

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        handle = one_of(data, self.handles)
        held = any(one.handle is handle for one in self.imports)
        held |= any(handle in (x.handle, y.handle) for _, x, y in self.launches)
        try:
            handle.close()
            assert not held
        except MemoryInUse:
            assert held

    @invariant()
    def values_are_right(self) -> None:
        for imported in self.imports:
            beside(self.backend).begin_host_access(imported)
            values = imported.handle.view(np.int32, (COUNT,))
            assert values[0] == values[-1] == np.int64(self.values[imported.handle]).astype(np.int32)
            beside(self.backend).end_host_access(imported)

    def teardown(self) -> None:
        self.launches.clear()
        self.imports.clear()
        for handle in self.handles:
            handle.close()


@pytest.mark.night
def test_random_sequences_neither_abort_nor_leak(backend: Backend) -> None:
    Sequences.backend = backend
    beside(backend).importers()
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    run_state_machine_as_test(Sequences, settings=settings(max_examples=30, stateful_step_count=40, deadline=None))
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
