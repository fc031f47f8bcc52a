"""Measure how much of the time the devices of a farm work: the sum of their time over N times the wall time.

Devices wait instead of computing. Each has two sessions, which send one batch after the other as fast as the farm takes
them, so that what is lost is the engine's.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from farm_processes import TIER, Farm
from gputune.client.farm.dask_engine import DaskEngine
from gputune.client.farm.engine import Engine
from gputune.client.farm.hosts.hosting import hosted
from gputune.client.farm.local_engine import LocalEngine
from gputune.client.farm.pool import Pool
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import choose_target
from gputune.core.launches import Launch, Variant, Work
from gputune.server.protocol.messages import ProfileKernel

VARIANTS, SAMPLES, SAMPLE_NS, WARM_UP_NS = 8, 24, 1_000_000, 400_000_000
WARM_UP_SECONDS = 2.0
ENGINES = ("local", "dask")


@dataclass(frozen=True)
class Efficiency:
    """Of so many devices: the share of their time at work, batches, and the mean device time of one in seconds."""

    engine: str
    devices: int
    share: float
    batches: int
    batch_seconds: float


def efficiency(engine: str, folder: Path, devices: int, seconds: float) -> Efficiency:
    """Batches of about half a second for so long."""
    with opened(engine, folder, devices) as farm, Pool(farm, "bench") as pool:
        clients = pool.group(TIER).connect_all()
        stop, ready = threading.Event(), threading.Barrier(len(clients) + 1)
        arguments = [(client, number, ready, stop) for number, client in enumerate(clients)]
        threads = [threading.Thread(target=_measure, args=each) for each in arguments]
        for thread in threads:
            thread.start()
        ready.wait()
        time.sleep(WARM_UP_SECONDS)
        first, began = _told(farm), time.monotonic()
        time.sleep(seconds)
        last, wall = _told(farm), time.monotonic() - began
        stop.set()
        for thread in threads:
            thread.join()
    busy, batches = (last[what] - first[what] for what in ("busy_seconds", "batches"))
    return Efficiency(engine, devices, busy / (devices * wall), int(batches), busy / max(batches, 1))


def farm_of_one(folder: Path, pairs: int) -> list[float]:
    """Of so many pairs of batches, one after the other, the time through a farm of one device by that of a direct
    target."""
    ratios = []
    with opened("dask", folder, 1) as farm, Pool(farm, "bench") as pool, choose_target(None, {}, "waiting") as target:
        clients = [pool.group(TIER).connect_all()[0], target.connect()]
        requests = [request(client, number) for number, client in enumerate(clients)]
        for number in range(pairs + 1):
            seconds = [0.0, 0.0]
            for one in (0, 1) if number % 2 else (1, 0):
                began = time.monotonic()
                clients[one].measure_kernel(requests[one], lambda progress: None)
                seconds[one] = time.monotonic() - began
            ratios.append(seconds[0] / seconds[1])
        clients[1].close()
    return ratios[1:]


def median(ratios: list[float]) -> str:
    """With the quarter points."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} (quarters {low:.3f} and {high:.3f}, {len(ratios)} pairs)"


@contextmanager
def opened(engine: str, folder: Path, devices: int) -> Iterator[Engine]:
    """A farm of so many waiting devices."""
    names = [f"w{number}" for number in range(devices)]
    with ExitStack() as stack:
        if engine == "local":
            yield stack.enter_context(LocalEngine([hosted(name, "waiting") for name in names]))
            return
        farm = stack.enter_context(closing(Farm(folder)))
        farm.start_scheduler()
        for name in names:
            farm.start_worker(name, wait=False)
        for name in names:
            farm.wait_for(name, "has joined")
        yield stack.enter_context(DaskEngine(farm.place))


def request(client: TargetClient, number: int, warm_up_ns: int = WARM_UP_NS) -> ProfileKernel:
    """A batch, whose input the client has then. No two numbers have programs in common."""
    values = client.upload(np.arange(16, dtype=np.float32))
    launch = Launch(
        "__kernel void copy(__global const float *input, __global float *output) {}",
        entry="copy",
        options="",
        global_size=(16,),
        local_size=(16,),
        arguments=("input", "output"),
    )
    variants = tuple(
        Variant({"N": each}, (), replace(launch, options=f"-DN={number}{each}"), {}, {}, each)
        for each in range(VARIANTS)
    )
    return ProfileKernel(
        task="copy", buffers={"input": values}, output_bytes=64, reference=values, relative=1e-3, absolute=0.0,
        dtype="float32", variants=variants, baseline=None, best_ns=0.0, work=Work(10_000_000, 128), samples=SAMPLES,
        sample_ns=SAMPLE_NS, warm_up_ns=warm_up_ns, cold=False, together=True, harvest=False,
    )  # fmt: skip


def _measure(client: TargetClient, number: int, ready: threading.Barrier, stop: threading.Event) -> None:
    batch = request(client, number)
    ready.wait()
    while not stop.is_set():
        client.measure_kernel(batch)


def _told(engine: Engine) -> Mapping[str, float]:
    """What all hosts have told last, together."""
    reports = [one.report for one in engine.devices().values()]
    return {what: sum(float(str(report[what])) for report in reports) for what in ("busy_seconds", "batches")}
