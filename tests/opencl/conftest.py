"""Run kernels on a real device: between guard regions on poisoned memory, and compare them with their reference."""

import random
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import onnxruntime
import pyopencl as cl
import pytest

from gputune.client.folders import default_performance_cache_dir
from gputune.client.tuning.search.task_search import device_limits
from gputune.kernels.family import Array, DeviceLimits, KernelFamily, Launch
from gputune.kernels.offset_arguments import ARRAY_ALIGNMENT
from gputune.kernels.space import Configuration
from gputune.runtime.backends import Backend, Bound, Buffer, ProgramCache, open_backend
from gputune.runtime.backends.merging import groups
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.measuring.launching import Launcher
from gputune.runtime.measuring.verification import guarded, mismatch
from gputune.runtime.measuring.watcher import UNWATCHED, Course
from gputune.runtime.onnxruntime import LIBRARY, devices, ep_name
from tests.devices import device, few_rounds
from tests.onnxruntime.sessions import plugin
from tests.shared_server import SharedServer

MOST_LISTED = 20_000
DRIVERS_LOCAL_BYTES = 1024
MOST_BETWEEN_ARRAYS = 2 * (ARRAY_ALIGNMENT - 1)


@dataclass(frozen=True)
class KernelBench:
    """Runs configurations of a family's problems on the device that the tests use."""

    programs: ProgramCache
    limits: DeviceLimits

    @property
    def backend(self) -> Backend:
        return self.programs.backend

    def run(
        self, family: KernelFamily, problem: Any, configuration: Configuration, inputs: Mapping[str, Array]
    ) -> tuple[Array, str]:
        """The output of a configuration, and what it did outside the buffers it may write (empty: nothing)."""
        instance = family.rendered(problem, configuration, self.limits)
        output = family.output(problem)
        launcher = Launcher(self.programs, Course(UNWATCHED))
        names = {**instance.packed, **instance.scratch, "output": output.nbytes}
        written = {name: guarded(self.backend, nbytes) for name, nbytes in names.items()}
        buffers = {name: self.backend.upload(np.ascontiguousarray(value)) for name, value in inputs.items()}
        buffers |= {name: buffer.inner for name, buffer in written.items()}
        for launch in instance.prepare:  # all configurations share what rearranges weights
            launcher.run(launcher.build(launch, buffers, harvested=False).bound)
        bound = launcher.build(instance.main, buffers, shared=True).bound
        self._check_needs(instance.main, bound)
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

    def check(self, family: KernelFamily, problem: Any, sampled: int = 2, turn: int | None = None) -> None:
        """The default, the starters and some configurations of the space, on the family's own sample inputs. turn: the
        place of the problem among those of its family, which share the starters; without it all are tried."""
        space = family.space(problem, self.limits)
        starters = list(family.starters(problem, self.limits))
        if turn is not None and starters:
            starters = [starters[turn % len(starters)]]
        tried = [family.default(problem, self.limits), *starters]
        listed = list(islice(space.configurations(), MOST_LISTED))
        tried += random.Random(repr(problem)).sample(listed, min(sampled, len(listed)))
        assert [space.violations(configuration) for configuration in tried] == [[]] * len(tried)
        self.compare(family, problem, tried, family.sample_inputs(problem, np.random.default_rng(1)))

    def compare(
        self,
        family: KernelFamily,
        problem: Any,
        configurations: Sequence[Configuration],
        inputs: Mapping[str, Array],
    ) -> None:
        """Every configuration computes the reference and leaves the memory around its buffers alone."""
        want, tolerance = family.reference(problem, inputs), family.tolerance(problem)
        self.build_together(family, [(problem, configuration) for configuration in configurations])
        for configuration in configurations:
            got, damage = self.run(family, problem, configuration, inputs)
            wrong = damage or mismatch(got, want, tolerance.relative, tolerance.absolute)
            assert not wrong, f"{configuration} of {problem}: {wrong}"

    def build_together(self, family: KernelFamily, tried: Iterable[tuple[Any, Configuration]]) -> None:
        """Builds configurations of problems in as few programs as a target server does, where the driver takes its time
        for each program; `run` finds them there. Every group must go together, as it does on a target."""
        if self.programs.merges:
            launches = [family.rendered(problem, each, self.limits).main for problem, each in tried]
            for group in groups(launches):
                assert self.programs.build_together(group), f"{group[0].entry} does not go together: {group}"


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
