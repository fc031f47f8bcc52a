"""Test groups, pipelines and profiles of executors that run in C, on a made-up OpenCL library."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import ArenaTooSmall, ContextClosed, WrongDevice
from gputune.runtime.context.format import open_context
from gputune.runtime.context.packing import write_package
from gputune.runtime.contexts.device import open_report
from gputune.runtime.loading.executors import arenas_on
from gputune.runtime.loading.groups import ContextGroup, load_group
from gputune.runtime.loading.model import load
from gputune.runtime.loading.pipeline import pipeline
from gputune.runtime.profiling.levels import LEVELS, Level
from gputune.runtime.profiling.log import read_log
from gputune.runtime.profiling.profiler import Profiler
from tests.native.conftest import c_compiler, native
from tests.native.fake import CPU, NBYTES, STAGES, Fake, doubling_context, weighted_context
from tests.runtime.contexts.test_executor import REPORT, X, Y, fake

__all__ = ["c_compiler", "fake", "native"]

Load = Callable[..., ContextGroup]


@pytest.fixture(autouse=True)
def _in_c(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts run in C, on the library's device."""
    monkeypatch.setattr("gputune.runtime.loading.devices.recorded_report", lambda made_for: REPORT)


def doubling(folder: Path, name: str, graphs: Sequence[str] = ("main",), apart: int = NBYTES) -> Path:
    return doubling_context(folder / f"{name}.bin", tuple(graphs), device=CPU, apart=apart)


def test_a_group_shares_arenas_and_weights(tmp_path: Path) -> None:
    with load_group([doubling(tmp_path, "a", ("one", "two")), weighted_context(tmp_path / "b.bin", 3)]) as group:
        np.testing.assert_array_equal(group.run("a/two", {"x": X})["y"], Y)
        assert set(group.run("b", {"x": X})["y"]) == {6.0}
        memory = group.memory
        assert (memory.arenas, memory.streams, memory.private) == ((2 * NBYTES,), 1, 4 * NBYTES)
        assert memory.weights > NBYTES
        executor = group["b"]
        group.close("b")
        with pytest.raises(ContextClosed):
            executor.run({"x": X})
        assert group.memory.weights == 0
        np.testing.assert_array_equal(group.run("a", {"x": X})["y"], Y)
        assert group.inferences("a") == 1
    assert group.memory.arenas == ()


def test_instances_with_arenas_of_their_own_hold_weights_once(tmp_path: Path) -> None:
    """As those of throughput-net-run."""
    found = {}
    with open_context(weighted_context(tmp_path / "b.bin", 3)) as file:
        graph = file.header.graphs[0]
        for count in (1, 2, 5):
            device = open_report(REPORT)
            arenas = arenas_on(device, count)
            executors = arenas.load(file, graph, True, 0)
            assert len(executors) == count
            assert all(set(executor.run({"x": X})["y"]) == {6.0} for executor in executors)
            found[count] = arenas.weights, device.allocated_bytes
            for executor in executors:
                executor.close()
            arenas.close()
            assert device.allocated_bytes == 0
    tensors = sum(tensor.nbytes for tensor in (*graph.inputs, *graph.outputs))
    weights, one = found[1]
    assert weights > NBYTES
    assert found == {count: (weights, one + (count - 1) * (tensors + sum(graph.arena_bytes))) for count in found}


def test_one_that_joins_later_fits_or_is_refused_or_arenas_grow(tmp_path: Path) -> None:
    large = doubling(tmp_path, "large", apart=4 * NBYTES)
    with load_group([doubling(tmp_path, "a")]) as group:
        with pytest.raises(ArenaTooSmall, match=r"large\.bin needs arenas of \[1280\] bytes, the group has \[512\]"):
            group.add(large)
        added = group.add(large, grow=True)
        assert group.memory.arenas == (5 * NBYTES,)
        for executor in (added, group["a"]):
            np.testing.assert_array_equal(executor.run({"x": X})["y"], Y)


@pytest.mark.parametrize("streams", [1, 3])
def test_threads_use_all_streams(tmp_path: Path, streams: int) -> None:
    wrong: list[str] = []
    with load_group([doubling(tmp_path, "a"), doubling(tmp_path, "b")], streams=streams) as group:

        def work(factor: int) -> None:
            for turn in range(20):
                name = "ab"[turn % 2]
                if not np.array_equal(group.run(name, {"x": factor * X})["y"], factor * Y):
                    wrong.append(name)

        threads = [threading.Thread(target=work, args=(factor,)) for factor in range(1, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(group.executors("a")) == group.memory.streams == streams
        assert group.inferences("a") == group.inferences("b") == 50
    assert wrong == []


def test_what_is_not_optimal_is_said_and_refused_where_strict(tmp_path: Path) -> None:
    driver, other = replace(CPU, driver_version="2"), replace(CPU, name="Another")
    paths = [doubling_context(tmp_path / f"{number}.bin", device=one) for number, one in enumerate((other, driver))]
    with open_context(paths[0]) as one, open_context(paths[1]) as two:
        write_package(tmp_path / "m.gtpkg", [one, two])
    with pytest.warns(UserWarning) as warned:
        executor = load(tmp_path / "m.gtpkg")
    near = "of 2 in the package: near, distance 1 of 6: made for another driver: driver_version is '1.0'"
    assert near in executor.warnings[0] and len(warned) == 2
    assert executor.warnings[1].startswith("building from source on another device: driver_version")
    executor.close()
    with pytest.raises(WrongDevice, match=r"made for another device: driver_version is '1\.0', not '2'"):
        load(tmp_path / "m.gtpkg", cache_compatibility_mode="strict")


def test_a_pipeline_hands_over_without_a_copy(tmp_path: Path) -> None:
    with pipeline([doubling(tmp_path, "a"), doubling(tmp_path, "b")], links=[{"y": "x"}]) as stages:
        assert (list(stages.inputs), list(stages.outputs)) == (["x"], ["y"])
        for factor in (1, 2):
            np.testing.assert_array_equal(stages.run({"x": factor * X})["y"], factor * Y * 2**STAGES)
        first, second = stages.stages
        assert (first.counters.total["y"].reads, second.counters.total["x"].writes) == (0, 0)
        with pytest.raises(ValueError, match="input 'x' of graph 'main' is linked to another graph"):
            second.run({"x": X})
        with pytest.raises(ValueError, match="output 'y' of graph 'main' is linked to another graph"):
            first.run({"x": X}, {"y": Y.copy()})


@pytest.mark.parametrize("level", LEVELS)
def test_inferences_are_recorded_at_each_level(tmp_path: Path, level: Level) -> None:
    columns = {"basic": 4, "detailed": 2, "qhas": 4}[level]
    with load_group([doubling(tmp_path, "a")]) as group, Profiler(tmp_path / "log", level) as profiler:
        executor = group["a"]
        profiler.profile(executor, lambda: executor.run_timed({"x": X})[1], 3, compared=2)
        profiler.watch(executor)
        np.testing.assert_array_equal(executor.run({"x": X})["y"], Y)
    log = read_log(tmp_path / "log")
    assert log.complete and log.header.device["name"] == CPU.name
    assert [one.number for one in log.inferences] == [0, 1, 2, 0]
    assert len(log.comparisons) == 1
    assert {one.launches.shape for one in log.inferences} == {(0 if level == "basic" else STAGES, columns)}
