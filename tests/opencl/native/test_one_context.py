"""Test that C runs in an open cl_context of the application, which stays the application's."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from gputune.runtime.backends import Backend
from gputune.runtime.contexts.device import beside
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.native.binding import Graph, Native
from tests.native.compiling import library
from tests.native.conftest import native as tested
from tests.opencl.contexts import contexts, inputs_of, loaded, plan

__all__ = ["plan", "tested"]

Bits = dict[str, bytes]


@pytest.fixture(scope="module")
def native(tested: object) -> Native:
    """Return the library as the product binds it, once the tests' own is compiled."""
    return Native(library())


class Application:
    """Hold a cl_context and compute in it, as an application that uses OpenCL itself."""

    def __init__(self, backend: Backend) -> None:
        (self.device,) = (
            each
            for platform in cl.get_platforms()
            for each in platform.get_devices()
            if (platform.name.strip(), each.name.strip()) == (backend.identity.platform, backend.identity.name)
        )
        self.context = cl.Context([self.device])
        self.program = cl.Program(
            self.context, "__kernel void twice(__global int *x) { x[get_global_id(0)] *= 2; }"
        ).build()

    @property
    def given(self) -> tuple[int, int]:
        """Return the addresses that the binding takes."""
        return self.context.int_ptr, self.device.int_ptr

    def computes(self) -> bool:
        """Return whether its context works."""
        queue = cl.CommandQueue(self.context)
        x = np.arange(64, dtype=np.int32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffer = cl.Buffer(self.context, flags, hostbuf=x)
        cl.Kernel(self.program, "twice")(queue, x.shape, None, buffer)
        got = np.empty_like(x)
        cl.enqueue_copy(queue, got, buffer)
        return bool((got == 2 * x).all())


@pytest.fixture
def application(backend: Backend) -> Application:
    return Application(backend)


@pytest.fixture
def made(backend: Backend, plan: Any, tmp_path: Path) -> Iterator[tuple[Path, dict[str, np.ndarray], Bits, int]]:
    """Return a context's file, inputs, what it gives for them beside a backend, and the bytes that it holds."""
    path = contexts(backend, plan, tmp_path / "model.bin")
    before = beside(backend).allocated_bytes
    executor = loaded(backend, path)
    inputs = inputs_of(executor, 0)
    wanted = {name: array.tobytes() for name, array in executor.run(inputs).items()}
    yield path, inputs, wanted, executor.device_bytes - before
    executor.close()


def run(graph: Graph, inputs: dict[str, np.ndarray]) -> Bits:
    outputs = {one.name: np.zeros(one.shape, one.dtype) for one in graph.info.outputs}
    graph.run(inputs, outputs)
    return {name: array.tobytes() for name, array in outputs.items()}


def test_it_computes_the_same_bits_in_an_open_context_and_by_the_number_of_discovery(
    native: Native,
    application: Application,
    report: DeviceReport,
    made: tuple[Path, dict[str, np.ndarray], Bits, int],
) -> None:
    path, inputs, wanted, _ = made
    name, platform = application.device.name.strip(), application.device.platform.name.strip()
    wishes: list[dict[str, Any]] = [
        {"given": application.given},
        {"name": name},
        {"name": name, "platform": platform, "ordinal": report.position},
    ]
    for options in wishes:
        with native.device(**options) as opened, native.open(path) as file, opened.load(file) as graph:
            assert opened.name == name
            assert run(graph, inputs) == wanted
            assert application.computes() and not opened.lost
    assert application.computes()


def test_as_many_bytes_are_held_in_each_context(
    native: Native, application: Application, made: tuple[Path, dict[str, np.ndarray], Bits, int]
) -> None:
    path, _, _, held = made
    with native.device(given=application.given) as device, native.open(path) as file:
        assert device.nbytes == 0
        with device.load(file):
            assert device.nbytes == held
        assert device.nbytes == 0


def test_all_close_in_any_order(
    native: Native, backend: Backend, made: tuple[Path, dict[str, np.ndarray], Bits, int]
) -> None:
    """What stands on something that was closed goes on; the device keeps the application's context, too."""
    path, inputs, wanted, _ = made
    for order in itertools.permutations(["file", "device", "graph", "context"]):
        application = Application(backend)
        file, device = native.open(path), native.device(given=application.given)
        opened = {"file": file, "device": device, "graph": device.load(file)}
        for name in order:
            if name == "context":
                assert application.computes()
                del application
            else:
                opened.pop(name).close()
            if isinstance(graph := opened.get("graph"), Graph):
                assert run(graph, inputs) == wanted, order
