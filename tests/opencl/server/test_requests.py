"""Test a target server on a real device: what it measures, refuses and survives."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.core.batches import Compiled, ProfileKernel
from gputune.core.launches import Launch, Variant, Work
from gputune.runtime.devices.discovery import choose
from gputune.server.protocol.messages import CompileKernel, ExecuteKernel, Progress
from tests.devices import devices
from tests.shared_server import SharedServer
from tests.variants import baseline_beside, numbered
from tests.waiting import PATIENCE_SECONDS, becomes

COUNT = 4096
SOURCE = """
__kernel void twice(__global const float *input, __global float *output, int factor) {
    int i = get_global_id(0);
    output[i] = input[i] * FACTOR * factor;
#ifdef OUTSIDE
    if (i == 0) output[get_global_size(0)] = 1.0f;
#endif
#ifdef WILD
    *(__global int *)(0 * (size_t)factor) = 1;
#endif
#ifdef ENDLESS
    while (i == 0 && ((volatile __global float *)output)[i] < 1e30f) {}
#endif
}
"""


@dataclass
class Running:
    """A server, and the processes that it has started."""

    server: SharedServer

    def connect(self) -> TargetClient:
        return self.server.connect()

    def worker(self) -> int:
        return next(pid for pid in self._children() if not self._compiles(pid))

    def second(self) -> int | None:
        """The process that compiles half of a batch, if there is one."""
        return next(filter(self._compiles, self._children()), None)

    def _children(self) -> list[int]:
        return [
            int(pid) for pid in Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children").read_text().split()
        ]

    @staticmethod
    def _compiles(pid: int) -> bool:
        return "POCL_AFFINITY=0" in Path(f"/proc/{pid}/environ").read_text().split("\0")

    def compiled(self) -> Path:
        """The folder of what the driver compiles."""
        arguments = Path(f"/proc/{self.worker()}/cmdline").read_text().split("\0")
        if "--compiled" not in arguments:
            pytest.skip("there is no room in memory here")
        return Path(arguments[arguments.index("--compiled") + 1])


@pytest.fixture
def running(server: SharedServer) -> Running:
    return Running(server)


@pytest.fixture
def client(running: Running) -> Iterator[TargetClient]:
    with running.connect() as client:
        yield client


def launch(options: str = "-DFACTOR=1", local: int = 64, factor: int = 2) -> Launch:
    arguments = ("input", "output", factor)
    return Launch(SOURCE, "twice", options, (COUNT,), (local,), arguments)


def variant(options: str = "-DFACTOR=1", local: int = 64) -> Variant:
    return Variant({"WPT": local}, (), launch(options, local), {})


def measuring_request(client: TargetClient, *variants: Variant, baseline: Variant | None = None) -> ProfileKernel:
    data = np.random.default_rng(0).random(COUNT, np.float32)
    return ProfileKernel(
        task="twice",
        buffers={"input": client.upload(data)},
        output_bytes=data.nbytes,
        reference=client.upload(data * 2),
        relative=1e-6,
        absolute=0.0,
        dtype="float32",
        variants=numbered(variants),
        baseline=baseline_beside(numbered(variants), baseline),
        best_ns=0.0,
        work=Work(2 * COUNT, 8 * COUNT),
        samples=3,
        sample_ns=100_000,
        warm_up_ns=1_000_000,
        cold=False,
        together=True,
        harvest=True,
    )


def test_the_device_of_the_welcome_is_the_one_that_discovery_chooses(client: TargetClient) -> None:
    identity = choose(devices()).report.identity
    assert identity is not None
    assert client.device == identity.to_dict()
    assert client.server["backend"] == "opencl"


def test_variants_are_verified_and_raced_and_failures_have_names(client: TargetClient) -> None:
    measured = client.measure_kernel(
        measuring_request(
            client,
            variant(),
            variant("-DFACTOR=2"),
            variant("-DFACTOR=1 -DOUTSIDE"),
            variant("-DFACTOR=undefined"),
            variant(local=128),
            variant(local=63),
        )
    )
    statuses = [trial.status for trial in measured.trials]
    assert statuses == ["ok", "correctness", "correctness", "compile", "ok", "constraints"]
    assert all(trial.message for trial in measured.trials if trial.status != "ok")
    right = [measured.trials[0], measured.trials[4]]
    assert all(trial.samples_ns and min(trial.samples_ns) > 0 and trial.measured for trial in right)
    assert right[0].compile_ns > 0
    assert measured.best in (0, 4)
    assert len(measured.binary) > 0


def test_a_worker_that_is_started_again_finds_what_was_compiled(running: Running) -> None:
    with running.connect() as client:
        request = measuring_request(client, *(variant(f"-DFACTOR=1 -DUNUSED={n}") for n in range(2)))
        request = replace(request, harvest=False)  # another one may win
        assert client.measure_kernel(request).best is not None
        folder = running.compiled()
        compiled = sorted(folder.rglob("*.so"))
        assert len(compiled) >= 2 and folder.stat().st_mode & 0o777 == 0o700
        worker = running.worker()
        os.kill(worker, signal.SIGKILL)
        assert client.measure_kernel(request).best is not None
        assert running.worker() != worker and running.compiled() == folder
        assert sorted(folder.rglob("*.so")) == compiled


def test_half_of_a_batch_is_compiled_by_a_second_process_into_the_same_programs(running: Running) -> None:
    with running.connect() as client:
        variants = [variant(f"-DFACTOR=1 -DEIGHT={n}") for n in range(8)]
        running.compiled()
        before = {path.parent for path in running.compiled().glob("*/*/program.bc")}
        measured = client.measure_kernel(replace(measuring_request(client, *variants), harvest=False))
        assert [trial.status for trial in measured.trials] == ["ok"] * 8
        assert all(trial.compile_ns > 0 and trial.first_launch_ns > 0 for trial in measured.trials)
        if (second := running.second()) is None:
            pytest.skip("this machine or driver has no use for a second process")
        made = {path.parent for path in running.compiled().glob("*/*/program.bc")} - before
        kernels = sorted(len(list(program.glob("gputune_*"))) for program in made)
        assert kernels == [4, 4]
        restarts = client.status().worker_restarts
        os.kill(second, signal.SIGKILL)
        again = measuring_request(client, *(variant(f"-DFACTOR=1 -DAGAIN={n}") for n in range(4)))
        assert [trial.status for trial in client.measure_kernel(again).trials] == ["ok"] * 4
        assert client.status().worker_restarts == restarts


def test_execute_computes(client: TargetClient) -> None:
    data = np.arange(COUNT, dtype=np.float32)
    outputs = client.execute_kernel(
        ExecuteKernel((launch(factor=-3),), {"input": client.upload(data)}, {"output": data.nbytes})
    )
    np.testing.assert_array_equal(np.frombuffer(outputs["output"], np.float32), data * -3)


def test_compile_harvests_a_binary(client: TargetClient) -> None:
    heard: list[Compiled] = []
    good = CompileKernel(variant(), {"input": COUNT * 4, "output": COUNT * 4})
    client.compile_kernels([good], lambda place, reply: heard.append(reply))
    assert len(heard[0].binary) > 0 and heard[0].first_launch_ns > 0
    broken = CompileKernel(variant("-DFACTOR=undefined"), {"input": COUNT * 4, "output": COUNT * 4})
    with pytest.raises(TargetError, match=r"undefined.*\[build_failed\]"):
        client.compile_kernels([good, broken, good], lambda place, reply: heard.append(reply))


def test_a_kernel_that_crashes_the_driver_costs_itself_only(running: Running) -> None:
    with running.connect() as client:
        worker = running.worker()
        told: list[Progress] = []
        measured = client.measure_kernel(
            measuring_request(client, variant(), variant("-DFACTOR=1 -DWILD"), variant(local=128), baseline=variant()),
            told.append,
        )
        if measured.trials[1].status != "crash":
            pytest.skip("this device survives a write to address 0")
        assert re.search("SIGSEGV|SIGBUS|SIGABRT", measured.trials[1].message)
        assert [trial.status for trial in measured.trials] == ["ok", "crash", "ok"]
        assert measured.best in (0, 2)
        assert measured.baseline is not None and measured.baseline.samples_ns
        assert (1, measured.trials[1]) in [(progress.variant, progress.trial) for progress in told]
        assert running.worker() != worker


def test_a_kernel_that_never_ends_costs_itself_and_a_limited_time(running: Running) -> None:
    with running.connect() as client:
        request = measuring_request(client, variant(), variant("-DFACTOR=1 -DENDLESS"), variant(local=128))
        known = client.measure_kernel(replace(request, variants=request.variants[:1]))
        measured = client.measure_kernel(replace(request, best_ns=known.trials[0].samples_ns[0]))
        assert [trial.status for trial in measured.trials] == ["ok", "timeout", "ok"]
        assert measured.spent_ns["recover"] < 30e9
        assert client.status().worker_restarts >= 1


def test_only_the_worker_opens_the_driver(running: Running, client: TargetClient) -> None:
    client.upload(b"data")
    assert "libOpenCL" in Path(f"/proc/{running.worker()}/maps").read_text()
    assert "libOpenCL" not in Path(f"/proc/{running.server.pid}/maps").read_text()


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return True


@pytest.mark.own("it ends in the midst of a batch")
@pytest.mark.parametrize("signals", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGKILL,)], ids=["stopped", "killed"])
def test_an_endless_kernel_ends_with_its_server(signals: tuple[signal.Signals, ...]) -> None:
    """The first signal lets the batch end, which takes its time here."""
    server = SharedServer()
    running = Running(server)
    worker, folder = running.worker(), running.compiled()
    assert folder.is_dir()
    with server.connect(0.0) as client:
        request = measuring_request(client, variant("-DFACTOR=1 -DENDLESS"))

        def end() -> None:
            with server.connect() as other:
                assert becomes(lambda: other.status().running)
            for each in signals:
                os.kill(server.pid, each)
                time.sleep(0.5)

        ending = threading.Thread(target=end)
        ending.start()
        with pytest.raises(TargetError, match="not back after"):
            client.measure_kernel(request)
        ending.join(PATIENCE_SECONDS)
    server.stop()
    assert becomes(lambda: ended(worker))
    assert len(signals) == 1 or not folder.exists(), "what was compiled goes with the server"


@pytest.mark.own("it has other settings")
def test_settings_that_change_code_or_time_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    monkeypatch.setenv("POCL_WORK_GROUP_METHOD", "auto")
    monkeypatch.setenv("CL_CONFIG_CPU_VECTORIZER_MODE", "8")
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    server = SharedServer()
    try:
        with server.connect() as client:
            settings = client.server["settings"]
    finally:
        server.stop()
    assert isinstance(settings, dict) and list(settings) == sorted(settings)
    told = {"POCL_AFFINITY": "1", "POCL_WORK_GROUP_METHOD": "auto", "CL_CONFIG_CPU_VECTORIZER_MODE": "8"}
    assert told.items() <= settings.items()
    assert "POCL_CACHE_DIR" not in settings
