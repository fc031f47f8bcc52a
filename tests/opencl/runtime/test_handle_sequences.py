"""Test random sequences of an application's calls on handles and a loaded graph: no abort, right results, no leak.

GPUTUNE_SEQUENCES asks for more of them than the suite runs.
"""

import gc
import os
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gputune.core.errors import ContextClosed, MemoryInUse
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context
from gputune.runtime.context.records import MemoryType
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.memory.handles import PAGE, MemHandle
from tests.opencl.runtime import made

ELEMENTS = 1024
NBYTES = 4 * ELEMENTS
SEQUENCES = int(os.environ.get("GPUTUNE_SEQUENCES", "25"))
KINDS = ("memfd", "array", "misaligned", "own", "part")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def array(offset: int) -> np.ndarray:
    """An array that begins so many bytes behind a page."""
    memory = np.zeros(NBYTES + 2 * PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE + offset
    return memory[start : start + NBYTES]


class HandleSequences(RuleBasedStateMachine):
    """Handles that are known, which of them are registered, and the values that their memory should hold."""

    backend: ClassVar[Backend]
    paths: ClassVar[list[Path]]

    @initialize(which=st.integers(0, 1))
    def load(self, which: int) -> None:
        with open_context(self.paths[which]) as file:
            self.executor = executor_on(self.backend, file, None, strict=True)
        self.handles: list[MemHandle] = []
        self.registered: dict[str, MemHandle] = {}
        self.closed = False
        self.number = 0

    @rule(kind=st.sampled_from(KINDS))
    def allocate(self, kind: str) -> None:
        if len(self.handles) > 6:
            return
        if kind == "memfd":
            handle = MemHandle.allocate(NBYTES)
        elif kind == "array":
            handle = MemHandle.from_array(array(0))
        elif kind == "misaligned":
            handle = MemHandle.from_array(array(16))  # which is copied
        elif kind == "own":
            handle = self.executor.backend.allocate_handle(NBYTES)
        else:
            with MemHandle.allocate(4 * NBYTES) as whole:
                handle = MemHandle.from_fd(whole.fileno(), NBYTES, NBYTES)
        self.handles.append(handle)

    @precondition(lambda self: self.handles and not self.closed)
    @rule(data=st.data(), name=st.sampled_from("xy"))
    def register(self, data: st.DataObject, name: str) -> None:
        handle = data.draw(st.sampled_from(self.handles))
        other = self.registered.get("y" if name == "x" else "x")
        if other is handle:
            with pytest.raises(ValueError, match="would share memory"):
                self.executor.register(name, handle)
            return
        self.executor.register(name, handle)
        self.registered[name] = handle

    @precondition(lambda self: not self.closed)
    @rule(name=st.sampled_from("xy"))
    def unregister(self, name: str) -> None:
        self.executor.unregister(name)
        self.registered.pop(name, None)

    @precondition(lambda self: not self.closed)
    @rule(data=st.data())
    def run(self, data: st.DataObject) -> None:
        """With arrays and handles mixed, or with what is registered."""
        self.number += 1
        x = np.full(ELEMENTS, self.number, np.float32)
        free = [handle for handle in self.handles if handle not in self.registered.values()]
        inputs: dict[str, Any] = {"x": x}
        outputs: dict[str, Any] = {}
        if "x" in self.registered and data.draw(st.booleans()):
            self.registered["x"].view("float32", (ELEMENTS,))[...] = x
            inputs = {}
        elif len(free) and data.draw(st.booleans()):
            given = data.draw(st.sampled_from(free))
            free.remove(given)
            inputs = {"x": given}
            given.view("float32", (ELEMENTS,))[...] = x
        how = data.draw(st.sampled_from(["new", "array", "handle"]))
        if how == "array":
            outputs = {"y": np.empty(ELEMENTS, np.float32)}
        elif how == "handle" and free:
            outputs = {"y": data.draw(st.sampled_from(free))}
        found = self.executor.run(inputs, outputs)["y"]
        np.testing.assert_array_equal(found, made.expected(x))
        where = outputs.get("y", self.registered.get("y"))
        if isinstance(where, MemHandle):
            np.testing.assert_array_equal(where.view("float32", (ELEMENTS,)), made.expected(x))

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), release=st.booleans())
    def free(self, data: st.DataObject, release: bool) -> None:
        """Closes a handle, which is refused as long as the graph has it."""
        handle = data.draw(st.sampled_from(self.handles))
        if release and not self.closed:
            self.executor.release(handle)
        try:
            handle.close()
        except MemoryInUse:
            assert not self.closed
            assert not release or handle in self.registered.values()
        else:
            assert handle not in self.registered.values()
            self.handles.remove(handle)

    @rule()
    def close(self) -> None:
        self.executor.close()
        self.registered.clear()
        self.closed = True
        with pytest.raises(ContextClosed):
            self.executor.run({"x": np.zeros(ELEMENTS, np.float32)})

    @invariant()
    def copies_are_counted(self) -> None:
        if getattr(self, "executor", None) is not None and not self.closed:
            for counted in self.executor.counters.last.values():
                assert (counted.bytes_copied == 0) == (counted.reads + counted.writes == 0)

    def teardown(self) -> None:
        if getattr(self, "executor", None) is None:
            return
        self.executor.close()
        for handle in self.handles:
            handle.close()


@pytest.fixture
def machine(backend: Backend, tmp_path: Path) -> type[HandleSequences]:
    """The sequences on this device, of graphs that are prepared for arrays and for handles."""
    kinds: tuple[MemoryType, ...] = ("raw", "memhandle")
    paths = [made.write(tmp_path / f"{kind}.bin", backend, ELEMENTS, NBYTES, kind) for kind in kinds]
    return type("Sequences", (HandleSequences,), {"backend": backend, "paths": paths})


def test_no_sequence_aborts_or_leaves_anything_behind(machine: Any) -> None:
    warnings.simplefilter("ignore")  # of memory that is copied or allocated late
    gc.collect()
    before = descriptors()
    bounds = settings(max_examples=SEQUENCES, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(machine, settings=bounds)
    gc.collect()
    assert descriptors() == before
