"""Test a real worker process with kernels that hang or crash: what its page says about them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pytest

from gputune.core.launches import Launch, Variant, Work, source_sha256
from gputune.runtime.devices.discovery import DeviceReport
from gputune.server.protocol import codec, framing
from gputune.server.protocol.messages import Done, Limits, Profiled, ProfileKernel, Progress
from gputune.server.worker.heartbeat_page import Doing, HeartbeatPage
from gputune.server.worker.link import FROM_WORKER, LINK_LIMITS, PutBuffer, PutSources, WorkerReady
from tests.variants import numbered
from tests.waiting import PATIENCE_SECONDS

SIZE = 1024
VALUES = np.arange(SIZE, dtype=np.float32)
SOURCE = """
__kernel void copy(__global const float *x, __global float *output) {
    output[get_global_id(0)] = x[get_global_id(0)];
}
__kernel void endless(__global const float *x, __global float *output) {
    volatile int going = get_global_id(0) == 0;  // one core is enough
    while (going) output[get_global_id(0)] = x[get_global_id(0)];
}
__kernel void crash(__global const float *x, __global float *output) {
    volatile __global int *nowhere = (volatile __global int *)64;
    *nowhere = 1;
    output[get_global_id(0)] = x[get_global_id(0)];
}
"""


@dataclass
class Worker:
    """A worker process, its page, and the daemon's end of its link."""

    process: subprocess.Popen[bytes]
    page: HeartbeatPage
    link: socket.socket
    reader: framing.FrameReader

    def send(self, message: object) -> None:
        for buffer in framing.encode(codec.pack(message, 0)):
            self.link.sendall(buffer)

    def receive(self) -> list[Any]:
        """The next messages; none when the worker has hung up."""
        messages: list[Any] = []
        while not messages and (count := self.link.recv_into(self.reader.space())):
            messages += [codec.unpack(f.header, f.blobs, FROM_WORKER)[1] for f in self.reader.filled(count)]
        return messages

    def begin(self, *entries: str) -> None:
        """Asks for a batch of kernels; their source goes before it, as everything that a request names."""
        self.send(PutSources({source_sha256(SOURCE): SOURCE}))
        assert self.receive() == [Done()]
        self.send(batch(*entries))

    def wait_for(self, wanted: Callable[[Doing], bool]) -> Doing:
        """What the page says once it is what is wanted."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not wanted(doing := self.page.read()):
            assert time.monotonic() < give_up and self.process.poll() is None, doing
            time.sleep(0.001)
        return doing


@pytest.fixture
def worker(report: DeviceReport) -> Iterator[Worker]:
    """A worker on the device of the tests with an input, buffer 1, that is the reference too."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_SECONDS)
    page = HeartbeatPage.create()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "gputune.server.worker"),
            *("--link", str(theirs.fileno()), "--page", str(page.descriptor)),
            *("--device", json.dumps(report.to_dict()), "--limits", json.dumps(asdict(Limits()))),
        ],
        pass_fds=[theirs.fileno(), page.descriptor],
        env={**os.environ, **report.environment()},
    )
    theirs.close()
    worker = Worker(process, page, ours, framing.FrameReader(LINK_LIMITS))
    (ready,) = worker.receive()
    assert isinstance(ready, WorkerReady)
    worker.send(PutBuffer(1, VALUES.data))
    worker.receive()
    yield worker
    process.kill()
    process.wait()
    ours.close()
    page.detach()


def batch(*entries: str) -> ProfileKernel:
    variants = numbered(
        Variant({}, (), Launch("", entry, "", (SIZE,), (16,), ("x", "output"), source_sha256=source_sha256(SOURCE)), {})
        for entry in entries
    )
    return ProfileKernel(
        task="copy",
        buffers={"x": 1},
        output_bytes=VALUES.nbytes,
        reference=1,
        relative=0.0,
        absolute=0.0,
        dtype="float32",
        variants=variants,
        baseline=None,
        best_ns=0.0,
        work=Work(0, 8 * SIZE),
        samples=3,
        sample_ns=100_000,
        warm_up_ns=100_000,
        cold=False,
        together=True,
        harvest=True,
    )


def test_an_endless_loop_is_launching_with_a_limit_that_the_others_have_set(worker: Worker) -> None:
    worker.begin("copy", "endless")
    doing = worker.wait_for(lambda doing: doing.variant == 1 and doing.step == "launching")
    assert doing.deadline_ns - time.monotonic_ns() <= doing.allowed_ns == 1_500_000_000
    told = worker.receive()
    assert [(m.variant, m.trial.status) for m in told if isinstance(m, Progress) and m.trial] == [(0, "ok")]
    assert worker.page.read() == doing, "no step hides that it hangs"
    worker.link.close()  # as when the daemon dies
    assert worker.process.wait(PATIENCE_SECONDS) == 0


def test_an_endless_loop_that_comes_first_has_the_longest_limit(worker: Worker) -> None:
    worker.begin("endless", "copy")
    doing = worker.wait_for(lambda doing: doing.step == "launching")
    assert doing.variant == 0 and doing.allowed_ns == Limits().launch_seconds * 10**9


def test_a_crash_leaves_its_variant_on_the_page(worker: Worker) -> None:
    worker.begin("copy", "crash", "copy")
    while worker.receive():
        pass
    assert worker.process.wait(PATIENCE_SECONDS) in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)
    doing = worker.page.read()
    assert doing.variant == 1 and doing.step in ("starting", "launching")


def test_generating_code_at_the_first_launch_has_the_compilers_limit(worker: Worker) -> None:
    worker.begin("copy")
    doing = worker.wait_for(lambda doing: doing.step == "starting")
    assert doing.allowed_ns == Limits().compile_seconds * 10**9
    messages: list[Any] = []
    while not (messages and isinstance(messages[-1], Profiled)):
        messages += worker.receive()
    assert messages[-1].trials[0].status == "ok" and messages[-1].best == 0
    assert worker.page.read().step is None
