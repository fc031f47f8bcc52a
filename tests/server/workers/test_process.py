"""Test real worker processes: how their end is noticed, what ends with them, and what a failed start leaves."""

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.server.agent.agent_connection import LOST
from gputune.server.protocol.limits import Limits
from gputune.server.worker.link import DEVICE_LOST, Forget
from gputune.server.workers.process import DeviceUnavailable, WorkerEnded, WorkerProcess
from tests.server.conftest import gone
from tests.server.descriptors import own_descriptors

HELPER = f"""
import os, subprocess, sys
from gputune.server.worker import __main__ as worker
ending = worker._end_with_the_link
def helped(descriptor):
    os.set_inheritable(descriptor, True)  # as after a fork without exec
    helper = subprocess.Popen([{sys.executable!r}, "-c", "import time; time.sleep(60)"], close_fds=False,
                              start_new_session="detached" in sys.argv)
    open({{path!r}}, "w").write(str(helper.pid))
    ending(descriptor)
worker._end_with_the_link = helped
"""


def with_worker(work: Callable[[WorkerProcess], Awaitable[None]]) -> None:
    async def run() -> None:
        worker = await WorkerProcess.start(NULL_REPORT, Limits())
        try:
            await work(worker)
        finally:
            await worker.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    used = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes workers start a helper that holds their link open; the file will have its number."""
    (tmp_path / "sitecustomize.py").write_text("")
    path = tmp_path / "helper"
    (tmp_path / "helped.py").write_text(HELPER.format(path=str(path)) + "sys.exit(worker.main())\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {tmp_path / "helped.py"} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr("gputune.server.workers.process.sys.executable", str(python))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_dead_worker_is_noticed_though_a_helper_holds_its_link(helper: Path, number: int) -> None:
    async def work(worker: WorkerProcess) -> None:
        os.kill(worker.pid, number)
        assert await asyncio.wait_for(asyncio.shield(worker.ended), 5) == -number
        worker.kill("it is dead already")
        with pytest.raises(WorkerEnded, match=signal.Signals(number).name):
            await worker.ask(Forget((), ()))
        assert await asyncio.to_thread(gone, int(helper.read_text()))

    with_worker(work)


@pytest.mark.slow
def test_helpers_end_with_a_worker_that_is_killed(helper: Path) -> None:
    async def work(worker: WorkerProcess) -> None:
        worker.kill("it is late")
        with pytest.raises(WorkerEnded, match="the worker was ended: it is late"):
            await worker.ask(Forget((), ()))
        assert await asyncio.to_thread(gone, int(helper.read_text()))

    with_worker(work)


def test_a_worker_leaves_no_descriptor_to_what_it_starts_and_goes_first_without_memory() -> None:
    async def work(worker: WorkerProcess) -> None:
        given = []
        for name in os.listdir(f"/proc/{worker.pid}/fdinfo"):  # noqa: PTH208
            target = os.readlink(f"/proc/{worker.pid}/fd/{name}")  # noqa: PTH115
            if "socket" in target or "gputune-heartbeat" in target:
                text = Path(f"/proc/{worker.pid}/fdinfo/{name}").read_text()
                given.append(int(text.partition("flags:")[2].split()[0], 8) & os.O_CLOEXEC)
        assert len(given) >= 2 and all(given)
        assert Path(f"/proc/{worker.pid}/oom_score_adj").read_text() == "1000\n"

    with_worker(work)


async def failed_start() -> str:
    """Return why a worker does not start."""
    try:
        await WorkerProcess.start(NULL_REPORT, Limits())
    except DeviceUnavailable as error:
        return str(error)
    raise AssertionError("it has started")


@pytest.mark.slow
async def test_without_descriptors_a_worker_is_refused_and_nothing_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is started ends at once."""
    monkeypatch.setattr("gputune.server.workers.process.sys.executable", "/bin/false")
    said = [await failed_start()]  # whatever is opened once is open now
    gc.collect()
    before = len(own_descriptors())
    for more in range(1, 10):
        with few_descriptors(more):
            said.append(await failed_start())
        await asyncio.sleep(0.05)
    gc.collect()  # pages
    for _ in range(100):
        if len(own_descriptors()) <= before:
            break
        await asyncio.sleep(0.05)
    assert len(own_descriptors()) <= before
    assert all("cannot be started" in each or "exit code 1 while it opened" in each for each in said)
    assert "exit code 1" in said[0]


def test_a_worker_whose_device_was_lost_says_so() -> None:
    assert str(WorkerEnded(DEVICE_LOST)) == "the worker ended with a lost device"
    assert str(WorkerEnded(LOST)) == "the worker ended with a lost agent" and WorkerEnded(LOST).agent_lost
    assert str(WorkerEnded(3)) == "the worker ended with exit code 3"


def test_a_driver_that_keeps_what_it_compiles_is_told_not_to_while_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []

    async def spawn(*command: str, env: dict[str, str], **options: Any) -> Any:
        given.append(env)
        raise OSError("not started")

    async def started(value: str | None) -> str | None:
        with monkeypatch.context() as changed:
            changed.setattr(asyncio, "create_subprocess_exec", spawn)
            changed.delenv("CUDA_CACHE_DISABLE", raising=False)
            if value is not None:
                changed.setenv("CUDA_CACHE_DISABLE", value)
            with pytest.raises(DeviceUnavailable):
                await WorkerProcess.start(nvidia, Limits())
        return given[-1].get("CUDA_CACHE_DISABLE")

    assert NULL_REPORT.identity is not None
    nvidia = replace(NULL_REPORT, identity=replace(NULL_REPORT.identity, platform="NVIDIA CUDA"))
    assert asyncio.run(started(None)) == "1"
    assert asyncio.run(started("0")) == "0", "what the user has set stays"
