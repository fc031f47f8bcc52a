"""Test that contexts that are run through the binding give the bits, warnings, choice and refusals of executors."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.core.errors import WrongDevice
from gputune.core.quirks import groups_at_once
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.package import open_package
from gputune.runtime.context.packing import write_package
from gputune.runtime.context.records import Context
from gputune.runtime.executor import Executor
from gputune.runtime.loading.verdict import open_chosen
from gputune.runtime.native.binding import Device, File, Native
from gputune.runtime.native.memory import Array, Memory
from tests.client import models
from tests.client.model.test_alternatives import two_blocks
from tests.native.compiling import INCLUDE, SOURCES, compiled, environment, opencl_library, sanitizers
from tests.opencl.contexts import contexts, inputs_of, loaded
from tests.opencl.runtime import made
from tests.opencl.runtime.test_context import X, context, expected  # noqa: F401

ELEMENTS, NBYTES = 1024, 4096
Open = Callable[[Path], tuple[File, Device]]


@pytest.fixture
def opened(native: Native, backend: Backend) -> Iterator[Open]:
    """Opens files, and the device that the tests use."""
    kept: list[File | Device] = []

    def open_both(path: Path) -> tuple[File, Device]:
        file = native.open(path)
        device = native.device(file, backend.identity.name)
        kept.extend((device, file))
        return file, device

    yield open_both
    for one in kept:
        one.close()


def bits(outputs: Mapping[str, Array]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outputs.items()}


@pytest.fixture(scope="module")
def paths(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Contexts of different arenas; one has persistent kernels where the driver can run them."""
    folder = tmp_path_factory.mktemp("native")
    found = []
    for model in (two_blocks, models.conv_relu_gemm):
        (folder / model.__name__).mkdir()
        plan = lower(read_model(models.save(model(), folder / model.__name__)))
        found.append(contexts(backend, plan, folder / f"{model.__name__}.bin"))
    return found


def wanted(executor: Executor, seed: int, persistent: bool) -> dict[str, bytes]:
    executor.persistent_kernels = persistent
    return bits(executor.run(inputs_of(executor, seed)))


def test_both_forms_and_groups_compute_the_same_bits(backend: Backend, opened: Open, paths: list[Path]) -> None:
    files = [opened(path) for path in paths]
    device = files[0][1]
    executors = [loaded(backend, path) for path in paths]
    with device.group([file for file, _ in files]) as group:
        assert group.nbytes == max(sum(executor.graph.arena_bytes) for executor in executors)
        graphs = [device.load(file, group=group) for file, _ in files]
        alone = [device.load(file, one_by_one=True) for file, _ in files]
        for seed in range(3):
            for executor, grouped, single in zip(executors, graphs, alone, strict=True):
                inputs = inputs_of(executor, seed)
                assert bits(grouped.run(inputs)) == wanted(executor, seed, persistent=True)
                assert bits(single.run(inputs)) == wanted(executor, seed, persistent=False)
        forms = graphs[0].counters()[0]
        begun = 2 if groups_at_once(backend.identity) else 0  # a busy machine may have the third by launches
        assert begun <= forms["persistent"] + forms["aborted"] <= 3 * bool(begun)
        for graph in (*graphs, *alone):
            assert not graph.warnings
            graph.close()
    for executor in executors:
        executor.close()


@pytest.mark.parametrize("content", ["short", "zeros"])
def test_launches_that_are_loaded_later_do_not_need_the_file(
    backend: Backend, opened: Open, paths: list[Path], tmp_path: Path, content: str
) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(paths[0].read_bytes())
    file, device = opened(path)
    executor = loaded(backend, path)
    inputs = inputs_of(executor, 1)
    with device.load(file) as graph, device.profile(tmp_path / "a.log", level="detailed") as profile:
        path.write_bytes(b"" if content == "short" else bytes(path.stat().st_size))
        graph.record(profile)  # which takes launches one by one
        assert bits(graph.run(inputs)) == wanted(executor, 1, persistent=False)
        assert graph.counters()[1]["launches"] == 1
    executor.close()


def test_gputune_run_warns_as_net_run_does(backend: Backend, paths: list[Path], tmp_path: Path) -> None:
    """On one processor, where persistent kernels cannot wait for each other."""
    if not groups_at_once(backend.identity) or not hasattr(os, "sched_setaffinity"):
        pytest.skip("persistent kernels do not run here, or processors cannot be chosen")
    program = compiled("gputune-run", [INCLUDE.parent / "main.c", *SOURCES], ("-O1", f"-I{INCLUDE}", *sanitizers()))
    executor = loaded(backend, paths[0])
    lines = [f"{name}:={tmp_path / str(place)}.raw" for place, name in enumerate(inputs_of(executor, 1))]
    for place, array in enumerate(inputs_of(executor, 1).values()):
        array.tofile(tmp_path / f"{place}.raw")
    (tmp_path / "list.txt").write_text(" ".join(lines))
    executor.close()
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        executor = loaded(backend, paths[0])
        wanted = list(executor.warnings)
        executor.close()
        options: list[str | Path] = [
            "--context_binary",
            paths[0],
            "--input_list",
            tmp_path / "list.txt",
            "--output_dir",
            tmp_path,
        ]
        environ = environment() | opencl_library() | {"GPUTUNE_DEVICE": backend.identity.name}
        ran = subprocess.run([program, *options], env=environ, capture_output=True, text=True, timeout=300)
    finally:
        os.sched_setaffinity(0, before)
    assert ran.returncode == 0, ran.stderr
    assert [line.removeprefix("warning: ") for line in ran.stderr.splitlines()] == wanted
    assert len(wanted) == (len(before) > 1)


def damaged(context: Context, part: str) -> Context:  # noqa: F811
    """A context whose binaries this driver refuses, or that says that it is of another one."""
    if part == "binaries":
        return replace(context, programs=[replace(one, binary=b"nothing") for one in context.programs])
    return replace(context, device={**context.device, "driver_version": "another"})


@pytest.mark.parametrize("part", ["binaries", "driver"])
def test_another_drivers_programs_are_built_from_source_or_refused(
    context: Context,  # noqa: F811
    opened: Open,
    tmp_path: Path,
    part: str,
) -> None:
    write_context(tmp_path / "other.bin", damaged(context, part))
    file, device = opened(tmp_path / "other.bin")
    with device.load(file) as graph:
        told = "building it from source" if part == "binaries" else "', not 'another'"
        assert [told in line for line in graph.warnings] == [True] * (
            len(context.programs) if part == "binaries" else 1
        )
        np.testing.assert_allclose(graph.run({"x": X})["y"], expected(X), rtol=1e-5)
    with pytest.raises(WrongDevice):
        device.load(file, strict=True)


@pytest.mark.parametrize(
    "held", [("null", "phone", "wider", "here"), ("null", "phone", "wider"), ("phone",), ("null",)]
)
def test_a_packages_context_is_chosen_as_in_python(
    context: Context,  # noqa: F811
    backend: Backend,
    opened: Open,
    tmp_path: Path,
    held: tuple[str, ...],
) -> None:
    here = context.device
    devices = {
        "here": here,
        "null": here,
        "wider": {**here, "compute_units": here["compute_units"] + 1},
        "phone": {**here, "name": "Adreno 740", "vendor": "QUALCOMM", "platform": "QUALCOMM", "driver": "q.icd"},
    }
    for name in held:
        one = replace(context, device=devices[name], tier=name, computes=name != "null")
        write_context(tmp_path / f"{name}.bin", one)
    write_package(tmp_path / "m.gtpkg", [open_context(tmp_path / f"{name}.bin") for name in held])
    file, device = opened(tmp_path / "m.gtpkg")
    with open_package(tmp_path / "m.gtpkg") as package:
        try:
            chosen = open_chosen(package, backend.identity, computes=True)
        except WrongDevice as error:
            with pytest.raises(WrongDevice, match="made by the null device"):
                device.load(file)
            assert "made by the null device" in str(error)
            return
        assert chosen.choice is not None
        with device.load(file) as graph:
            assert graph.choice.split(" is ")[0] == str(chosen.choice).split(" is ")[0].replace('"', "'")
            np.testing.assert_allclose(graph.run({"x": X})["y"], expected(X), rtol=1e-5)
        chosen.close()


def test_memory_that_was_given_once_stays_as_it_was(backend: Backend, opened: Open, tmp_path: Path) -> None:
    """Where the device uses memory as it lies: an inference that is given none must write to none."""
    file, device = opened(made.write(tmp_path / "made.bin", backend, ELEMENTS, NBYTES))
    one = np.arange(ELEMENTS, dtype=np.float32)
    with device.load(file) as graph, device.allocate(NBYTES) as x, device.allocate(NBYTES) as y:
        given, written = (memory.array("float32", one.shape) for memory in (x, y))
        for times in (1, 2):
            given[...] = times * one
            graph.run({"x": x}, {"y": y})
            np.testing.assert_array_equal(written, made.expected(times * one))
            graph.run({"x": 5 * one}, {})  # whose output is wanted nowhere
            np.testing.assert_array_equal(written, made.expected(times * one))
            np.testing.assert_array_equal(graph.run({"x": 7 * one})["y"], made.expected(7 * one))
            np.testing.assert_array_equal(written, made.expected(times * one))
            np.testing.assert_array_equal(given, times * one)


def test_wrong_values_are_refused_by_name(backend: Backend, opened: Open, tmp_path: Path) -> None:
    file, device = opened(made.write(tmp_path / "made.bin", backend, ELEMENTS, NBYTES))
    x = np.zeros(ELEMENTS, np.float32)
    with device.load(file) as graph, device.allocate(NBYTES) as memory, device.allocate(NBYTES - 4) as small:
        cases: list[tuple[dict[str, Array | Memory], dict[str, Array | Memory], str]] = [
            ({}, {}, "needs the input 'x'"),
            ({"z": x}, {}, "has no input 'z'"),
            ({"x": x}, {"z": x}, "has no output 'z'"),
            ({"x": small}, {}, "needs memory of 4096 bytes"),
            ({"x": memory}, {"y": memory}, "would share memory"),
        ]
        for inputs, outputs, message in cases:
            with pytest.raises(ValueError, match=message):
                graph.run(inputs, outputs or {"y": x.copy()})
        np.testing.assert_array_equal(graph.run({"x": x})["y"], made.expected(x))
        empty = np.zeros((1, 0), np.float32)  # an input that the graph would have if it had elements
        np.testing.assert_array_equal(graph.run({"past": empty, "x": x})["y"], made.expected(x))
        with pytest.raises(ValueError, match="needs either data or memory"):
            graph.run({"x": x[:0]})
    for shapes in ({"x": (ELEMENTS + 1,)}, {"past": (1, 2)}, {"x": (0,)}):
        with pytest.raises(ValueError, match="there is no graph"):
            device.load(file, shapes=shapes)
    with device.load(file, shapes={"past": (1, 0), "x": (ELEMENTS,)}) as graph:
        assert graph.info.name == "made"
