"""Test contexts that a worker runs by the C runtime: each costs itself only, and all else goes on meanwhile."""

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import BufferRef, Context, GraphRecord, LaunchRecord, ProgramRecord, TensorRecord
from gputune.runtime.contexts.device import beside, lost
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.drivers import loaded_library
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import ContextExecuted, ContextLoaded, ExecuteContext, LoadContext
from gputune.server.worker.link import PutContext
from gputune.server.workers import process
from gputune.server.workers.process import WorkerEnded, WorkerProcess
from tests.client.commands import Generate, Gputune
from tests.native.compiling import library
from tests.server.conftest import serving
from tests.shared_server import SharedServer
from tests.waiting import PATIENCE_SECONDS, becomes

from .test_without_c import target_options

ELEMENTS = 64
NBYTES = 4 * ELEMENTS
DOUBLED, WILD, ENDLESS = (np.full(ELEMENTS, what, np.float32) for what in range(3))
"""Inputs, by what the kernel does with them."""
SOURCE = """
__kernel void twice(__global const float *x, __global float *y) {
    int i = get_global_id(0);
    if (x[0] == 1.0f) *(__global volatile int *)(size_t)(x[0] - 1.0f) = 1;
    while (((volatile __global const float *)x)[0] == 2.0f) {}
    y[i] = 2.0f * x[i];
}
"""
LIMITS = Limits(request_seconds=15)

pytestmark = pytest.mark.own("it runs contexts in C, for a limited time")


@pytest.fixture(scope="module", autouse=True)
def _in_c() -> Iterator[None]:
    """Workers run contexts by the library that the tests have compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUTUNE_RUNTIME_LIBRARY", str(library()))
        patch.setenv("GPUTUNE_TRUSTED_FOLDERS", str(library().parent))
        yield


def doubling_context(report: DeviceReport, folder: Path) -> bytes:
    """Return a context for another version of the driver, so that its program is built from source."""
    assert report.identity is not None
    path = folder / "twice.bin"
    refs = BufferRef("input", 0, 0, NBYTES), BufferRef("output", 0, 0, NBYTES)
    launch = LaunchRecord("op", "0" * 64, 0, "twice", (ELEMENTS,), (ELEMENTS,), refs)
    inputs, outputs = ((TensorRecord(name, (ELEMENTS,)),) for name in "xy")
    made_for = replace(report.identity, driver_version="another")
    programs = (ProgramRecord(b"none", SOURCE, ""),)
    graph = GraphRecord("twice", inputs, outputs, (launch,), ())
    write_context(path, Context((graph,), programs, (), made_for.to_dict(), "test", {}, {}, True))
    return path.read_bytes()


@pytest.fixture(scope="module")
def context(report: DeviceReport, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return doubling_context(report, tmp_path_factory.mktemp("twice"))


@pytest.fixture(scope="module")
def server(report: DeviceReport) -> Iterator[tuple[str, int]]:
    with serving(LIMITS, report=report) as (_, address):
        yield address


@pytest.fixture
def client(server: tuple[str, int]) -> Iterator[TargetClient]:
    with TargetClient.connect(*server) as client:
        yield client


def doubled(client: TargetClient, handle: int) -> bool:
    outputs = client.execute_context(handle, {"x": DOUBLED + 3}).outputs
    return bool((np.frombuffer(outputs["y"], np.float32) == 6).all())


def test_it_runs(client: TargetClient, context: bytes) -> None:
    loaded = client.load_context(context, "", strict=False)
    assert doubled(client, loaded.context)
    assert "building from source" in loaded.warnings[0]
    assert client.why_no_contexts == ""


@pytest.mark.parametrize(
    ("values", "name", "words"),
    [
        pytest.param(WILD, "worker_died", "SIGSEGV|SIGBUS|SIGABRT", id="crashes"),
        pytest.param(ENDLESS, "worker_timeout", "request_seconds", id="never ends", marks=pytest.mark.night),
    ],
)
def test_a_context_that_fails_is_charged_alone(
    server: tuple[str, int], client: TargetClient, context: bytes, values: Any, name: str, words: str
) -> None:
    with TargetClient.connect(*server) as other:
        own, others = (one.load_context(context, "", strict=False).context for one in (client, other))
        before = client.status().worker_restarts
        with pytest.raises(TargetError, match=words) as refused:
            client.execute_context(own, {"x": values})
        assert refused.value.name == name
        assert doubled(other, others) and doubled(client, own), "both are loaded again, and run"
        assert client.status().worker_restarts == before + 1


@pytest.mark.night
def test_a_client_lives_and_cancels_while_an_inference_runs(
    server: tuple[str, int], client: TargetClient, context: bytes
) -> None:
    handle = client.load_context(context, "", strict=False).context
    over = threading.Event()

    def ask() -> None:
        with TargetClient.connect(*server) as other:
            assert becomes(lambda: other.status().running)
            other.ping()
        over.set()

    asking = threading.Thread(target=ask)
    asking.start()
    with client.giving_up(over.is_set), pytest.raises(TargetError) as refused:
        client.execute_context(handle, {"x": ENDLESS})
    asking.join(PATIENCE_SECONDS)
    assert over.is_set() and refused.value.name == "cancelled"
    assert doubled(client, handle)


def test_other_threads_of_a_worker_go_on_while_an_inference_runs(
    report: DeviceReport, context: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them ends the process when the daemon hangs up; else it would be killed later."""
    monkeypatch.setattr(process, "STOP_SECONDS", PATIENCE_SECONDS)

    async def run() -> int:
        worker = await WorkerProcess.start(report, LIMITS)
        loaded = await worker.ask(PutContext(1, LoadContext(1, "", False), context))
        assert isinstance(loaded, ContextLoaded), loaded
        assert str(library()) in Path(f"/proc/{worker.pid}/maps").read_text(), "it runs in C"
        ran = await worker.ask(ExecuteContext(1, {"x": DOUBLED.tobytes()}))
        assert isinstance(ran, ContextExecuted), ran
        worker.page.rest()
        asking = asyncio.ensure_future(worker.ask(ExecuteContext(1, {"x": ENDLESS.tobytes()})))
        until = time.monotonic() + PATIENCE_SECONDS
        while worker.page.read().step != "launching":
            assert time.monotonic() < until
            await asyncio.sleep(0.01)
        await worker.stop()
        with pytest.raises(WorkerEnded):
            await asking
        return worker.ended.result()

    assert asyncio.run(run()) == 0


@pytest.fixture
def target() -> Iterator[SharedServer]:
    server = SharedServer()
    yield server
    server.stop()


def runs_in_c(target: SharedServer) -> bool:
    """Return whether a worker of the target has loaded a context by the C runtime."""
    workers = Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split()
    return any(str(library()) in Path(f"/proc/{worker}/maps").read_text() for worker in workers)


@pytest.mark.night
@pytest.mark.parametrize("way", ["tuning", "--verify", "net-run"])
def test_all_that_runs_contexts_on_a_target_runs_c(
    target: SharedServer, capfd: pytest.CaptureFixture[str], tmp_path: Path, way: str
) -> None:
    gputune, where = Gputune(capfd), target_options(target, tmp_path)
    generate = Generate(gputune, tmp_path, where)
    ran = generate()
    assert ran.code == 0, ran.err
    assert not runs_in_c(target), "what is not compared is not run"
    if way == "net-run":
        np.save(tmp_path / "x.npy", np.ones(ran.header.graphs[0].inputs[0].shape, np.float32))
        (tmp_path / "inputs.txt").write_text(f"{tmp_path / 'x.npy'}\n")
        run = "--retrieve_context", ran.context, "--input_list", tmp_path / "inputs.txt"
        other = gputune("net-run", *run, "--output_dir", tmp_path / "results", *where)
    elif way == "tuning":
        other = generate(effort="quick", compare_seconds=1)
        assert "end to end" in other.err
    else:
        other = generate(way)
    assert other.code == 0, other.err
    assert runs_in_c(target)


def test_a_device_is_lost_if_contexts_have_lost_it(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    native = beside(backend)
    assert "libOpenCL" in str(loaded_library()), "both use the same one"
    assert not lost(backend)
    monkeypatch.setattr(native, "lost", lambda: True)
    assert lost(backend)
