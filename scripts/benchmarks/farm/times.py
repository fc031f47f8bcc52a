"""Measure how long a farm takes to notice devices that come, die or leave. Devices wait instead of computing."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from benchmarks.farm.efficiency import request
from farm_processes import CLIENT, TIER, Farm, becomes, write_model
from gputune.client.farm.dask_engine import DaskEngine
from gputune.client.farm.engine import Call
from gputune.client.farm.pool import Pool

STOP, KILL = signal.SIGSTOP, signal.SIGKILL
LONGEST_SECONDS = 60.0
LAYERS = 24
LONG_NS = 4_000_000_000
"""Of warm-up, for a batch that something happens to."""


def late_and_dead_client(folder: Path) -> tuple[float, float]:
    """Seconds until a device that joins a job has work, from its joining, and until the devices of a client that was
    killed are free."""
    with closing(Farm(folder)) as farm:
        farm.start_scheduler()
        farm.start_worker("early")
        farm.start_tuning(write_model(folder / "m.onnx", LAYERS), "normal", {"tuning_strategy": "random"})
        with DaskEngine(farm.place) as engine:

            def at_work(name: str) -> bool:
                report = _reports(engine).get(name, {})
                return bool(report.get("running") or report.get("batches"))

            _seconds_until(lambda: at_work("early"))
            farm.start_worker("late")
            late = _seconds_until(lambda: at_work("late"))
            farm.kill(CLIENT)
            return late, _seconds_until(lambda: not any(report["job"] for report in _reports(engine).values()))


def dead_worker(folder: Path, number: int) -> float:
    """Seconds until the batch of a worker is elsewhere: number is the signal that has ended it, or stopped it as if its
    machine were lost."""
    with closing(Farm(folder)) as farm:
        farm.start_scheduler()
        for name in ("a", "b"):
            farm.start_worker(name)
        with DaskEngine(farm.place) as engine, Pool(engine, "bench") as pool:
            client = pool.group(TIER).connect_all()[0]
            batch = request(client, 1, LONG_NS)
            thread = threading.Thread(target=client.measure_kernel, args=(batch,))
            thread.start()
            _seconds_until(lambda: _running(engine))
            (first,) = _running(engine)
            farm.kill(first, number)
            seconds = _seconds_until(lambda: _running(engine) - {first})
            thread.join()
    return seconds


def drain(folder: Path) -> tuple[str, float]:
    """How the batch of a farm's only worker ends that is drained meanwhile, and seconds until the worker has ended
    after that."""
    with closing(Farm(folder)) as farm:
        farm.start_scheduler()
        farm.start_worker("only")
        with DaskEngine(farm.place) as engine, Pool(engine, "bench") as pool:
            client = pool.group(TIER).connect_all()[0]
            ends: list[str] = []
            batch = request(client, 1, LONG_NS)
            thread = threading.Thread(
                target=lambda: ends.extend(trial.status for trial in client.measure_kernel(batch).trials)
            )
            thread.start()
            _seconds_until(lambda: _reports(engine)["only"]["running"])
            engine.call("only", Call("drain"))
            thread.join()
            pool.close()
            process = farm.processes["only"]
            seconds = _seconds_until(lambda: process.poll() is not None)
    return f"{ends.count('ok')} of {len(batch.variants)} variants, exit code {process.returncode}", seconds


def _running(engine: DaskEngine) -> set[str]:
    """The devices that have a batch."""
    return {name for name, report in _reports(engine).items() if report["running"]}


def _reports(engine: DaskEngine) -> Mapping[str, Mapping[str, object]]:
    return {name: one.report for name, one in engine.devices().items()}


def _seconds_until(holds: Callable[[], object]) -> float:
    """Raises RuntimeError where it takes too long."""
    began = time.monotonic()
    if not becomes(lambda: bool(holds()), LONGEST_SECONDS):
        raise RuntimeError(f"nothing has happened for {LONGEST_SECONDS:g} s")
    return time.monotonic() - began
