"""Test the agent of other processors in an emulator, where its compiler and qemu are installed, on a made-up device."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from gputune.runtime.backends import Backend, Batch, Bounds, Reference, Zone
from gputune.runtime.context.format import context_of
from gputune.runtime.devices import load
from gputune.runtime.devices.discovery import AGENT_TOKEN_VARIABLE
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server.agent.backend import AgentBackend
from gputune.server.agent.contexts import AgentContext
from gputune.server.agent.opening import find_device, open_device
from gputune.server.agent.votes import AgentPower
from tests.native.fake import DEVICE, ELEMENTS, HERE, SOURCE, STAGES, doubling_context

pytestmark = pytest.mark.night

ROOT = Path(__file__).parents[3]
TOKEN = "a token that only tests know"
PROCESSORS = {"aarch64-linux-gnu": "qemu-aarch64", "arm-linux-gnueabihf": "qemu-arm"}


@pytest.fixture(scope="module", params=PROCESSORS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentBackend]:
    triple, folder = request.param, tmp_path_factory.mktemp("agent")
    compiler, emulator = shutil.which(f"{triple}-gcc"), shutil.which(PROCESSORS[triple])
    if compiler is None or emulator is None:
        pytest.skip(f"there is no {triple}-gcc, or no {PROCESSORS[triple]}")
    program = folder / "gputune-agent"
    build = [ROOT / "scripts" / "build-target", "--agent", triple, "--output", program]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    assert program.stat().st_size <= 400_000
    library = folder / "libOpenCL.so"
    flags = ("-std=c11", "-shared", "-fPIC")
    subprocess.run([compiler, *flags, str(HERE / "fake_opencl.c"), "-o", str(library)], check=True)
    environment = {**os.environ, "GPUTUNE_TOKEN": TOKEN, "GPUTUNE_OPENCL_LIBRARY": str(library)}
    command = [emulator, "-L", f"/usr/{triple}", str(program), "--listen", "0"]
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process,
        pytest.MonkeyPatch.context() as patched,
    ):
        assert process.stdout is not None
        patched.setenv(AGENT_TOKEN_VARIABLE, TOKEN)
        address = process.stdout.readline().split()[-1]
        backend = open_device(find_device(f"agent:{address}").report)
        assert isinstance(backend, AgentBackend)
        with closing(backend):
            yield backend
        process.terminate()


def test_its_device_is_known_and_its_machine_is_read(opened: Backend) -> None:
    assert opened.identity.name == DEVICE.name
    assert opened.identity.max_allocation_bytes == DEVICE.max_allocation_bytes
    assert opened.state()[load.PROCESSORS] >= 1


def test_data_that_do_not_fit_into_one_piece_arrive(opened: Backend) -> None:
    values = np.random.default_rng(3).integers(0, 256, (5 << 20) + 3, np.uint8)
    np.testing.assert_array_equal(opened.read(opened.upload(values)), values)


def test_launches_run_and_outputs_are_compared(opened: Backend) -> None:
    values = np.arange(ELEMENTS, dtype=np.float32)
    source, target = opened.upload(values), opened.allocate(values.nbytes)
    bound = opened.bind(opened.build(SOURCE, ""), "twice", (ELEMENTS,), (4,), [source, target])
    assert opened.first_launch(bound, lambda: None).wall_ns > 0
    assert len(opened.time_pass([Batch(bound, 3)])[0].times) == 3
    reference = Reference(2 * values, Bounds(1e-6, 1e3, 0.0, 0.0))
    zone = Zone(target, 0, target.nbytes)
    assert opened.compare(zone, reference) == Backend.compare(opened, zone, reference)
    wrong = Reference(values, reference.bounds)
    assert opened.compare(zone, wrong) == Backend.compare(opened, zone, wrong)
    assert opened.checksum([zone]) == Backend.checksum(opened, [zone])


def test_contexts_run(opened: AgentBackend, tmp_path: Path) -> None:
    content = memoryview(doubling_context(tmp_path / "context.bin").read_bytes())
    context = AgentContext(opened, context_of(content, "a context"), None, True)
    values = np.arange(ELEMENTS, dtype=np.float32)
    outputs, elapsed_ns = context.run_timed({"x": values}, {})
    np.testing.assert_array_equal(outputs["y"], values * 2**STAGES)
    assert elapsed_ns > 0
    context.close()


def test_votes_are_cast(opened: AgentBackend) -> None:
    power = AgentPower(PerfProfile.from_preset("burst"), opened._address, 0)
    power.start("execute")
    power.done("execute")
    power.close()
