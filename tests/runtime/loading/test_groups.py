"""Test groups of contexts on the null device: what they allocate, read and refuse."""

import dataclasses
import gc
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputune.core.errors import ArenaTooSmall, ContextClosed, ContextError, FileChanged, LimitExceeded
from gputune.runtime import load_group
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.context.format import ContextFile, write_context
from gputune.runtime.context.records import Context
from gputune.runtime.loading.groups import ContextGroup
from tests.runtime.context.test_memory_need import block_of, with_block

X = np.zeros((2, 4), np.float32)
Make = Callable[..., Path]
ARENAS = st.lists(st.integers(2, 9), min_size=1, max_size=3)


@pytest.fixture
def make(context: Context, tmp_path: Path) -> Make:
    """Writes a context whose graphs have these arenas."""

    def write(name: str, *arenas: Sequence[int], weights: int = 0) -> Path:
        main = context.graphs[0]
        graphs = [dataclasses.replace(main, name=f"g{n}", arena_bytes=tuple(sizes)) for n, sizes in enumerate(arenas)]
        values = np.arange(40, dtype=np.float32) + weights
        write_context(tmp_path / name, dataclasses.replace(context, graphs=tuple(graphs), weights=(values,)))
        return tmp_path / name

    return write


@pytest.fixture
def allocated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each allocation of the null device, in order."""
    sizes: list[int] = []
    plain = NullBackend._allocate

    def noting(self: NullBackend, nbytes: int) -> Any:
        sizes.append(nbytes)
        return plain(self, nbytes)

    monkeypatch.setattr(NullBackend, "_allocate", noting)
    return sizes


def test_arenas_are_as_large_as_the_largest_in_each_place_wherever_it_stands(make: Make) -> None:
    paths = [make("a.bin", (512,)), make("b.bin", (4096, 256), (256, 2048)), make("c.bin", (1024, 1024, 128))]
    with load_group(paths, "null") as group:
        tensors_and_weights = 32 * 2 * 4 + 160  # inputs and outputs of four graphs, weights once
        assert group["a"].device_bytes == 4096 + 2048 + 128 + tensors_and_weights
        memory = group.memory
        assert (memory.arenas, memory.streams, memory.weights) == ((4096, 2048, 128), 1, 160)
        assert memory.private == 512 + 4352 + 2304 + 2176
        assert set(group) == {"a", "b", "c", "a/g0", "b/g0", "b/g1", "c/g0"}
        assert group["b"] is group["b/g0"] is not group["b/g1"]
        for name in group:
            assert not group.run(name, {"x": X})["y"].any()


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(st.lists(st.integers(2, 9), min_size=1, max_size=3), min_size=1, max_size=3), min_size=1, max_size=4
    )
)
def test_the_bytes_are_the_largest_of_each_place(make: Make, sizes: list[list[list[int]]]) -> None:
    contexts = [[[128 * size for size in graph] for graph in graphs] for graphs in sizes]
    paths = [make(f"{number}.bin", *graphs) for number, graphs in enumerate(contexts)]
    with load_group(paths, "null") as group:
        graphs = [graph for context in contexts for graph in context]
        places = range(max(map(len, graphs)))
        want = tuple(max(graph[place] for graph in graphs if place < len(graph)) for place in places)
        assert group.memory.arenas == want
        assert group.memory.private == sum(map(sum, graphs))


def test_equal_weights_are_held_once_and_different_ones_apart(make: Make, allocated: list[int]) -> None:
    paths = [make("a.bin", (256,)), make("b.bin", (256,)), make("c.bin", (256,), weights=1)]
    with load_group(paths, "null") as group:
        assert group.memory.weights == 320
        assert (allocated.count(160), allocated.count(256)) == (2, 1)


def test_one_that_joins_later_fits_or_is_refused_with_both_sizes_or_arenas_grow(
    make: Make, allocated: list[int]
) -> None:
    with load_group([make("a.bin", (512,))], "null") as group:
        group.add(make("b.bin", (256,)))
        large = make("c.bin", (256, 1024))
        with pytest.raises(ArenaTooSmall, match=r"c\.bin needs arenas of \[256, 1024\] bytes, the group has \[512\]"):
            group.add(large)
        assert "c" not in group
        group.add(large, grow=True)
        assert group.memory.arenas == (512, 1024)
        with pytest.raises(ValueError, match="the group has a context 'c' already"):
            group.add(large)
        assert not group.run("a", {"x": X})["y"].any()


def test_every_stream_has_arenas_of_its_own(make: Make, allocated: list[int]) -> None:
    with load_group([make("a.bin", (512,)), make("b.bin", (1024,))], "null", streams=3) as group:
        assert allocated[:3] == [1024] * 3
        assert allocated.count(160) == 1  # weights
        assert group.memory.streams == 3
        assert allocated.count(512) == 0


@pytest.mark.parametrize("streams", [1, 2])
def test_as_many_run_at_a_time_as_there_are_streams(make: Make, streams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, lock = 0, 0, threading.Lock()
    running = threading.Barrier(streams)

    def enqueue(self: NullBackend, bound: object) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        running.wait(20)
        with lock:
            inside -= 1

    group = load_group([make("a.bin", (512,)), make("b.bin", (1024,))], "null", streams=streams)
    monkeypatch.setattr(NullBackend, "enqueue", enqueue)
    with ThreadPoolExecutor(8) as threads:  # they share the runs, so the last one of all is not left alone
        list(threads.map(lambda name: group.run(name, {"x": X}), ["a", "b"] * 80))
    assert (most, inside) == (streams, 0)
    group.close()


def test_what_is_closed_is_gone_and_the_others_stay(make: Make) -> None:
    group = load_group([make("a.bin", (512,)), make("b.bin", (256,))], "null")
    a, b = group["a"], group["b"]
    group.close("a")
    with pytest.raises(KeyError, match="no graph 'a'; there are"):
        group.run("a", {"x": X})
    with pytest.raises(ContextClosed):
        a.run({"x": X})
    assert not group.run("b", {"x": X})["y"].any()
    group.add(make("a.bin", (512,)))
    group.close()
    group.close()
    with pytest.raises(ContextClosed):
        b.run({"x": X})
    with pytest.raises(ContextClosed, match="the group was closed"):
        group["b"]


def test_a_group_whose_contexts_come_and_go_does_not_grow(make: Make) -> None:
    a, b, c = make("a.bin", (256,)), make("b.bin", (256,)), make("c.bin", (256,), weights=1)
    with load_group([a, b], "null", streams=2) as group:
        before = group["a"].device_bytes
        for _ in range(2):
            group.add(c)
            assert group.memory.weights == 320
            group.close("c")
            gc.collect()
            assert (group.memory.weights, group["a"].device_bytes) == (160, before)
        group.close("a")
        assert group.memory.weights == 160, "b has the same"
        assert not group.run("b", {"x": X})["y"].any()
        group.close("b")
        gc.collect()
        assert group.memory.weights == 0
        assert not group.add(a).run({"x": X})["y"].any()


def test_names_are_the_callers_or_the_files(make: Make, tmp_path: Path) -> None:
    path = make("a.bin", (512,))
    with load_group([path, path], "null", names=["one", "two"]) as group:
        assert set(group) == {"one", "two", "one/g0", "two/g0"}
    with pytest.raises(ValueError, match="two are called 'a'"):
        load_group([path, path], "null")
    with pytest.raises(ValueError, match="1 contexts and 2 names"):
        load_group([path], "null", names=["a", "b"])
    with pytest.raises(ValueError, match="0 contexts"):
        load_group([], "null")
    with pytest.raises(ValueError, match="must not be empty or have a slash"):
        load_group([path], "null", names=["a/b"])
    with pytest.raises(ValueError, match="streams is 0"):
        load_group([path], "null", streams=0)


@pytest.mark.parametrize("arenas", [[1 << 50], [1 << 60], [0], [-1], [128], [512, 512]])
def test_hostile_sizes_are_refused_by_name(make: Make, arenas: list[int]) -> None:
    path = make("a.bin", (256,))
    block = block_of(path)
    block["graphs"][0][1] = arenas
    with_block(path, msgpack.packb(block))
    with pytest.raises((ContextError, LimitExceeded)):
        load_group([make("b.bin", (256,)), path], "null")


def test_a_file_that_changes_while_it_is_loaded_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = make("a.bin", (256,)), make("b.bin", (4096,), weights=1)
    plain = ContextGroup.load

    def exchanged(self: ContextGroup, name: str, file: ContextFile) -> None:
        small.write_bytes(large.read_bytes())
        plain(self, name, file)

    monkeypatch.setattr(ContextGroup, "load", exchanged)
    with pytest.raises(FileChanged):
        load_group([small], "null")


def test_nothing_joins_a_group_that_was_closed(make: Make, allocated: list[int]) -> None:
    group = load_group([make("a.bin", (512,))], "null")
    group.close()
    allocated.clear()
    with pytest.raises(ContextClosed, match="the group was closed"):
        group.add(make("b.bin", (4096,)), grow=True)
    assert allocated == []


@pytest.mark.parametrize("streams", [1, 2])
def test_a_group_that_cannot_grow_stays_as_it_is(make: Make, monkeypatch: pytest.MonkeyPatch, streams: int) -> None:
    with load_group([make("a.bin", (512,))], "null", streams=streams) as group:
        plain, left = NullBackend._allocate, streams - 1

        def short(self: NullBackend, nbytes: int) -> Any:
            nonlocal left
            if nbytes == 4096:
                left -= 1
                if left < 0:
                    raise LimitExceeded("no memory is left")
            return plain(self, nbytes)

        monkeypatch.setattr(NullBackend, "_allocate", short)
        large = make("b.bin", (4096,))
        with pytest.raises(LimitExceeded):
            group.add(large, grow=True)
        assert group.memory.arenas == (512,)
        left = streams
        group.add(large, grow=True)
        assert group.memory.arenas == (4096,)
        assert not group.run("a", {"x": X})["y"].any()


def test_contexts_that_join_at_once_all_fit(make: Make) -> None:
    sizes = [512 * (1 + number % 5) for number in range(10)]
    paths = [make(f"{number}.bin", (size,)) for number, size in enumerate(sizes)]
    group = load_group([make("first.bin", (256,))], "null")
    threads = [threading.Thread(target=group.add, args=(path,), kwargs={"grow": True}) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert group.memory.arenas == (max(sizes),)
    assert {str(number) for number in range(10)} <= set(group)
    group.close()
