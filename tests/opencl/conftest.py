"""Run kernels on a real device: between guard regions on poisoned memory, and compare them with their reference."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnxruntime
import pyopencl as cl
import pytest

from gputune.client.folders import default_performance_cache_dir
from gputune.client.tuning.search.task_search import device_limits
from gputune.kernels.family import Array, DeviceLimits, Instance, KernelFamily, Launch
from gputune.kernels.offset_arguments import ARRAY_ALIGNMENT
from gputune.kernels.space import Configuration
from gputune.runtime.backends import Backend, Bound, Buffer, ProgramCache, open_backend
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.measuring.launching import Launcher
from gputune.runtime.measuring.verification import guarded, mismatch
from gputune.runtime.measuring.watcher import UNWATCHED, Course
from gputune.runtime.onnxruntime import LIBRARY, devices, ep_name
from tests.devices import device, few_rounds
from tests.onnxruntime.sessions import plugin
from tests.opencl.declared import ARGUMENT_INFO, check_arguments, types_of
from tests.shared_server import SharedServer

TOGETHER = 16
"""Launches of a program, where programs are dear: twice as many as a server has, whose first one would wait."""
DRIVERS_LOCAL_BYTES = 1024
MOST_BETWEEN_ARRAYS = 2 * (ARRAY_ALIGNMENT - 1)


def with_options(instance: Instance, options: str) -> Instance:
    """Return an instance whose programs are built with other options beside their own."""
    main, *prepare = (
        replace(launch, options=f"{launch.options} {options}".rstrip()) for launch in (instance.main, *instance.prepare)
    )
    return replace(instance, main=main, prepare=tuple(prepare))


@dataclass(frozen=True)
class KernelBench:
    """Runs configurations of a family's problems on the device that the tests use. options: of every program, beside
    those of its launch."""

    programs: ProgramCache
    limits: DeviceLimits
    options: str = ""

    @property
    def backend(self) -> Backend:
        return self.programs.backend

    def instance(self, family: KernelFamily, problem: Any, configuration: Configuration) -> Instance:
        """Return what runs of a configuration."""
        return with_options(family.rendered(problem, configuration, self.limits), self.options)

    def run(
        self, family: KernelFamily, problem: Any, configuration: Configuration, inputs: Mapping[str, Array]
    ) -> tuple[Array, str]:
        """The output of a configuration, and what it did outside the buffers it may write (empty: nothing)."""
        instance = self.instance(family, problem, configuration)
        self.build_together([instance])
        output = family.output(problem)
        launcher = Launcher(self.programs, Course(UNWATCHED))
        names = {**instance.packed, **instance.scratch, "output": output.nbytes}
        written = {name: guarded(self.backend, nbytes) for name, nbytes in names.items()}
        buffers = {name: self.backend.upload(np.ascontiguousarray(value)) for name, value in inputs.items()}
        buffers |= {name: buffer.inner for name, buffer in written.items()}
        for launch in instance.prepare:  # elsewhere all configurations share what rearranges weights
            bound = launcher.build(launch, buffers, harvested=self.programs.merges, shared=True).bound
            launcher.run(bound)
            self._check_arguments(family, problem, launch, bound)
        bound = launcher.build(instance.main, buffers, shared=True).bound
        self._check_needs(instance.main, bound)
        self._check_arguments(family, problem, instance.main, bound)
        before = self._read(buffers)
        for kernel, one in zip(instance.main.sequence, bound.sequence, strict=True):
            launcher.run(replace(one, before=()))
            after = self._read(buffers)
            changed = {name for name in after if not np.array_equal(before[name], after[name])}
            assert changed == set(kernel.writes or changed), f"{kernel.entry} writes {changed}"
            before = after
        contents = {name: buffer.read(self.backend) for name, buffer in written.items()}
        damage = "; ".join(f"{name} {wrong}" for name, (_, wrong) in contents.items() if wrong)
        return contents["output"][0].view(output.dtype).reshape(output.shape), damage

    def _read(self, buffers: Mapping[str, Buffer]) -> dict[str, Array]:
        return {name: self.backend.read(buffer) for name, buffer in buffers.items()}

    def _check_needs(self, launch: Launch, bound: Bound) -> None:
        """What a family declares of its kernels is what the driver knows of them."""
        for kernel, built in zip(launch.sequence, bound.sequence, strict=True):
            if kernel.needs is None:  # of an op package
                continue
            used = built.kernel.get_work_group_info(
                cl.kernel_work_group_info.LOCAL_MEM_SIZE, *built.kernel.context.devices
            )
            own = used - kernel.needs.local_bytes  # a driver may keep some for itself, and not count what pads arrays
            least = -MOST_BETWEEN_ARRAYS if kernel.needs.local_bytes else 0
            assert least <= own <= DRIVERS_LOCAL_BYTES, f"{kernel.entry} uses {used} bytes of local memory"

    def _check_arguments(self, family: KernelFamily, problem: Any, launch: Launch, bound: Bound) -> None:
        if ARGUMENT_INFO in launch.options and self.limits.argument_form != "offsets":
            types = types_of(family, problem)
            for kernel, built in zip(launch.sequence, bound.sequence, strict=True):
                check_arguments(kernel, built.kernel, types)

    def compare(
        self,
        family: KernelFamily,
        problem: Any,
        configurations: Iterable[Configuration],
        inputs: Mapping[str, Array],
        want: Array | None = None,
    ) -> None:
        """Every configuration computes the reference, or what is wanted exactly, and leaves the memory around its
        buffers alone."""
        tried, tolerance = list(configurations), family.tolerance(problem)
        self.build_together(self.instance(family, problem, configuration) for configuration in tried)
        exact = want is not None
        want = np.asarray(family.reference(problem, inputs)) if want is None else want
        for configuration in tried:
            got, wrong = self.run(family, problem, configuration, inputs)
            if exact:
                np.testing.assert_array_equal(got, want, err_msg=f"{configuration} of {problem}")
            else:
                wrong = wrong or mismatch(got, want, tolerance.relative, tolerance.absolute)
            assert not wrong, f"{configuration} of {problem}: {wrong}"

    def build_together(self, instances: Iterable[Instance], ahead: Iterable[Instance] = ()) -> None:
        """Builds instances in few programs, where the driver takes its time for each program; `run` finds them there.
        All launches go together, also those of several sources. ahead: is built with them, unless all are there."""
        if self.programs.merges and (missing := self._missing(instances)):
            missing = list(dict.fromkeys([*missing, *self._missing(ahead)]))
            for some in (missing[first : first + TOGETHER] for first in range(0, len(missing), TOGETHER)):
                assert self.programs.build_together(some), f"{[each.entry for each in some]} do not go together"

    def _missing(self, instances: Iterable[Instance]) -> list[Launch]:
        launches = dict.fromkeys(launch for each in instances for launch in (*each.prepare, each.main))
        return [launch for launch in launches if not self.programs.has_program(launch)]


@pytest.fixture(scope="module", autouse=True)
def _few_rounds() -> Iterator[None]:
    with few_rounds():
        yield


@pytest.fixture(scope="session")
def report() -> DeviceReport:
    return device()


@pytest.fixture(scope="session")
def backend(report: DeviceReport) -> Backend:
    """One for all tests: every backend that is opened loads the driver's compiler library again."""
    return open_backend(report)


@pytest.fixture(scope="session")
def programs(backend: Backend) -> ProgramCache:
    return ProgramCache(backend)


@pytest.fixture(scope="session")
def bench(programs: ProgramCache) -> KernelBench:
    return KernelBench(programs, device_limits(programs.backend.identity))


@pytest.fixture(scope="session")
def shared_server() -> Iterator[SharedServer]:
    """The only server with the device in this process, for fixtures that stay."""
    server = SharedServer()
    yield server
    server.stop()


@pytest.fixture
def server(shared_server: SharedServer) -> Iterator[SharedServer]:
    """A server with the device and nothing of another test."""
    yield shared_server
    shared_server.reset()


@pytest.fixture
def _plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let onnxruntime in this process use the plugin that all tests share, and take it away again."""
    monkeypatch.setenv(LIBRARY, str(plugin()))
    yield
    if devices():
        onnxruntime.unregister_execution_provider_library(ep_name())


@pytest.fixture
def _reached(server: SharedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find the server, and no performance cache of another test."""
    shutil.rmtree(default_performance_cache_dir(), ignore_errors=True)
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
