"""Start a farm of processes on this machine, for benchmarks and stress: a scheduler, workers of simulated devices, a
job.

Every process writes to its own log in the farm's folder. Requires the extra gputune[farm].
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

import tool
from gputune.client.farm.certificates import Certificates
from gputune.client.farm.dask_engine import Place
from gputune.client.farm.jobs import Job, Journal

START_SECONDS = 60.0
SCHEDULER, CLIENT = "scheduler", "client"
TIER = "waiting-cu1"


@dataclass
class Farm:
    """The processes of a farm by name: "scheduler", those of workers, and "client". They end when it is closed.

    tls: the farm has certificates, and all of its members use them.
    """

    folder: Path
    tls: bool = False
    port: int = field(default_factory=lambda: free_port())
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self.tls:
            self._ran("init")

    @property
    def farm_dir(self) -> Path:
        """Where the certificates and the journal are."""
        return self.folder / "farm"

    @property
    def address(self) -> str:
        """Of the scheduler, as --scheduler takes it."""
        return f"{'tls://' if self.tls else ''}127.0.0.1:{self.port}"

    @property
    def place(self) -> Place:
        """The same for an engine in this process."""
        return Place.parse(self.address, Certificates(self.farm_dir))

    @property
    def journal_path(self) -> Path:
        """Where the jobs are."""
        return self.farm_dir / "jobs.sqlite"

    @property
    def journal(self) -> Journal:
        """The jobs."""
        return Journal(self.journal_path)

    @property
    def job(self) -> Job:
        """The newest job. Raises IndexError where there is none."""
        return self.journal.jobs()[0]

    def start_scheduler(self, wait: bool = True) -> None:
        """Starts it, and waits until it listens."""
        self._start(SCHEDULER, "scheduler", "--port", str(self.port), *(["--tls"] if self.tls else []))
        if wait:
            self.wait_for(SCHEDULER, "listening")

    def start_worker(self, name: str, device: str = "waiting", wait: bool = True) -> None:
        """Starts one, and waits until it has joined."""
        self._start(name, "worker", "--scheduler", self.address, "--device", device, "--name", name)
        if wait:
            self.wait_for(name, "has joined")

    def start_client(self, *arguments: str | Path) -> None:
        """Starts `gputune farm tune` with these arguments beside those that say where."""
        self._start(CLIENT, "tune", "--scheduler", self.address, *map(str, arguments))

    def start_tuning(self, model: Path, effort: str, config: Mapping[str, object] | None = None) -> None:
        """Starts a new job: the model, from whatever is in the farm's folder of performance caches."""
        settings = self.folder / "config.json"
        settings.write_text(json.dumps({"tuning_mode": True, **(config or {})}))
        self.start_client(
            "--models", model, "--tuning_effort", effort, "--output_dir", self.folder / "out",
            "--performance_cache_dir", self.cache_dir, "--config_file", settings,
        )  # fmt: skip

    @property
    def cache_dir(self) -> Path:
        """Of the performance caches."""
        return self.folder / "cache"

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Sends a process a signal and returns its id; it has ended where that was kill -9."""
        process = self.processes[name]
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
        if number == signal.SIGKILL:
            process.wait()
        return process.pid

    def kill_children(self, name: str) -> None:
        """Kills what a process has started first: of a worker, its target server."""
        for child in children(self.processes[name].pid)[:1]:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def log(self, name: str) -> str:
        """What a process has written since the farm was made, those of that name before it included."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, name: str, words: str) -> None:
        """Waits until a process that was just started writes some words. Raises RuntimeError where it does not."""
        path, process = self.folder / f"{name}.log", self.processes[name]
        begin = self._begins[name]
        if not becomes(
            lambda: words in path.read_text(errors="replace")[begin:] or process.poll() is not None, START_SECONDS
        ):
            raise RuntimeError(f"{name} does not say {words!r} for {START_SECONDS:g} s: {self.log(name)[begin:]}")
        if process.poll() is not None and words not in path.read_text(errors="replace")[begin:]:
            raise RuntimeError(f"{name} ended with exit code {process.returncode}: {self.log(name)[begin:]}")

    def close(self) -> None:
        """Kills all processes; what they have started ends by itself."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    _begins: dict[str, int] = field(default_factory=dict)

    def _start(self, name: str, *arguments: str) -> None:
        path = self.folder / f"{name}.log"
        self._begins[name] = len(self.log(name))
        with path.open("ab") as log:
            self.processes[name] = subprocess.Popen(self._command(*arguments), stdout=log, stderr=log, cwd=tool.ROOT)

    def _ran(self, *arguments: str) -> None:
        subprocess.run(self._command(*arguments), check=True, stdout=subprocess.DEVNULL, cwd=tool.ROOT)

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "gputune", "farm", *arguments, "--farm_dir", str(self.farm_dir)]


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def becomes(holds: Callable[[], bool], seconds: float, every: float = 0.02) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(every)
    return found


def children(parent: int) -> list[int]:
    """The processes that a process has started, those of its threads included."""
    found = []
    for file in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(one) for one in file.read_text().split()]
    return found


def write_model(path: Path, layers: int, side: int = 48) -> Path:
    """A row of convolutions, no two alike."""
    nodes, weights, channels, tensor = [], [], 16, "x"
    values = np.random.default_rng(0)
    for number in range(layers):
        out = 16 + 4 * (number % 23)
        weights.append(onnx.numpy_helper.from_array(
            values.standard_normal((out, channels, 3, 3)).astype(np.float32) / 10, f"w{number}"))  # fmt: skip
        nodes.append(onnx.helper.make_node("Conv", [tensor, f"w{number}"], [f"y{number}"], pads=[1, 1, 1, 1]))
        tensor, channels = f"y{number}", out
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 16, side, side]), (tensor, None))
    ]
    graph = onnx.helper.make_graph(nodes, path.stem, ends[:1], ends[1:], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path
