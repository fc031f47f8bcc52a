"""Kill the worker, the daemon, the client, the connection or an agent at random moments of a generation, and compare
the result with an undisturbed generation: nothing that was stored may be lost, and the same variants must win.

    scripts/stress/chaos [--kinds worker,daemon,client,connection,agent] [--kills 20] [--per_run 4] [--seed 1]

The kind "agent" has the device behind an agent, which is started again when it dies.
"""

import argparse
import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tool
from benchmarks.agents.process import AgentProcess
from gputune.client.errors import GputuneError
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.target.connecting import choose_target
from gputune.client.target.transport.credentials import Credentials
from gputune.client.tuning.measuring.runner import TaskRunner
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.task_search import TaskSearch, device_limits, task_key
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import Trial
from gputune.runtime.devices.discovery import AGENT_TOKEN_VARIABLE, find

WORK = tool.ROOT / "build" / "chaos"
KINDS = ("worker", "daemon", "client", "connection", "agent")
SLOWER = 0.05
"""Another variant that is slower side by side by this share, or less, is the same winner within noise."""
SAMPLES = 31
RUN_SECONDS = 600


def small_model(path: Path) -> Path:
    """A convolution and a matrix product, small enough that nearly all time is build and measurement."""
    numbers = np.random.default_rng(1)
    weights = {"w": (16, 8, 3, 3), "g": (16 * 14 * 14, 10)}
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1] * 4, strides=[2, 2]),
        onnx.helper.make_node("Flatten", ["c"], ["f"], name="flatten"),
        onnx.helper.make_node("Gemm", ["f", "g"], ["y"], name="gemm"),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "chaos",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8, 28, 28])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 10])],
        [
            onnx.numpy_helper.from_array(numbers.standard_normal(shape, dtype=np.float32), name)
            for name, shape in weights.items()
        ],
    )
    opset = onnx.helper.make_opsetid("", 13)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


class Service:
    """A daemon that is started again whenever it dies, as an init system would do."""

    def __init__(self, folder: Path, device: str | None, by_agent: bool) -> None:
        self.agent: AgentProcess | None = None
        if by_agent:
            os.environ[AGENT_TOKEN_VARIABLE] = token = secrets.token_hex(16)
            self.agent = AgentProcess(find(device).report, token)
            self.agent.keep()
            device = self.agent.device
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.token = secrets.token_hex(32)
        self._folder = folder
        self._device = device
        self._stopping = False
        self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "gputune.server", "--port", str(self.port), "--log_level", "info"]
        if self._device is not None:
            command += ["--device", self._device]
        with (self._folder / "server.log").open("ab") as log:
            environment = os.environ | {"GPUTUNE_TOKEN": self.token}
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def _keep(self) -> None:
        while not self._stopping:
            self._process.wait()
            if not self._stopping:
                self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def worker(self) -> int | None:
        """The process that runs OpenCL, as long as there is one."""
        with contextlib.suppress(OSError, ValueError):
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            return int(children[0]) if children else None
        return None

    def doing(self) -> str:
        """What the device does, in the server's words; empty when nothing, or when it cannot be asked."""
        with contextlib.suppress(GputuneError):
            credentials = Credentials(token=self.token)
            where = f"127.0.0.1:{self.port}"
            with choose_target(where, {}, credentials=credentials) as target, target.connect() as client:
                return client.status().running
        return ""

    def stop(self) -> None:
        self._stopping = True
        self._process.terminate()
        self._process.wait()
        self._keeper.join()
        if self.agent is not None:
            self.agent.close()


class Cable:
    """A TCP forwarder between client and daemon that can be cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                try:
                    other = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    one.close()
                    continue
                self._ends += [one, other]
                for source, sink in ((one, other), (other, one)):
                    threading.Thread(target=_pump, args=(source, sink), daemon=True).start()

    def cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listener.close()
        self.cut()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@dataclass
class Kill:
    """One blow, and what it hit."""

    kind: str
    after_seconds: float
    doing: str
    stored: int
    """Trials in the cache at that moment."""


@dataclass
class Result:
    """What a generation left behind."""

    seconds: float
    trials: list[tuple[int, str, str, str, float | None, float]]
    """Rows of the cache: id, task, configuration, status, median in ns, when it was stored."""
    winners: dict[str, str]
    requests: int
    kills: list[Kill] = field(default_factory=list)
    lost: int = 0

    def batches(self) -> int:
        return len({row[5] for row in self.trials})

    def again(self) -> int:
        """Rows beyond the first of a configuration: finalists, drift, and what a kill made necessary."""
        return len(self.trials) - len({(task, configuration) for _, task, configuration, *_ in self.trials})


def rows_of(cache: Path) -> list[tuple[int, str, str, str, float | None, float]]:
    files = list(cache.glob("*.sqlite"))
    if not files:
        return []
    with contextlib.closing(sqlite3.connect(files[0], timeout=30)) as connection:
        query = (
            "SELECT trial.id, task.digest, configuration, status, median_ns, stored_at "
            "FROM trial JOIN task ON task.id = trial.task ORDER BY trial.id"
        )
        try:
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError:  # the tables are being made
            return []


class Generation:
    """One generation that goes on, whatever is killed, until its context is there."""

    def __init__(self, folder: Path, model: Path, device: str | None, effort: str, by_agent: bool) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder, self.cache = folder, folder / "cache"
        (folder / "config.json").write_text(
            json.dumps({"tuning_mode": True, "performance_cache_dir": str(self.cache)}), encoding="utf-8"
        )
        self.service = Service(folder, device, by_agent)
        self.cable = Cable(self.service.port)
        self._command = [
            *(tool.GPUTUNE, "context-binary-generator", "--model", str(model), "--binary_file", "context"),
            *("--config_file", str(folder / "config.json"), "--output_dir", str(folder), "--tuning_effort", effort),
            *("--summary_json", str(folder / "summary.json"), "--target", f"127.0.0.1:{self.cable.port}"),
        ]

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "client.log").open("ab") as log:
            environment = os.environ | {"GPUTUNE_TOKEN": self.service.token}
            return subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)

    def run(self, blows: list[tuple[str, float]]) -> Result:
        """Runs with kills so many seconds after the device first had work."""
        while not self.service.doing() and not self._listens():
            time.sleep(0.05)
        client = self.start()
        began = time.monotonic()
        kills: list[Kill] = []
        lost = 0
        first: float | None = None
        waiting = sorted(blows, key=lambda blow: blow[1])
        while (code := client.poll()) is None:
            if time.monotonic() - began > RUN_SECONDS:
                raise RuntimeError(f"no end after {RUN_SECONDS} s; see the logs in {self.folder}")
            if first is None:
                first = time.monotonic() if self.service.doing() else None
            elif waiting and time.monotonic() - first >= waiting[0][1]:
                kind, moment = waiting.pop(0)
                before, doing = rows_of(self.cache), self.service.doing()
                kills.append(Kill(kind, moment, doing, len(before)))
                client = self._kill(kind, client)
                known = {row[0] for row in rows_of(self.cache)}
                lost += sum(row[0] not in known for row in before)
            time.sleep(0.01)
        if code != 0:
            raise RuntimeError(f"the generator ended with {code}; see the logs in {self.folder}")
        summary = json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))
        winners = {task["key"]: json.dumps(task["configuration"], sort_keys=True) for task in summary["tasks"]}
        seconds = time.monotonic() - (first or began)
        requests = summary["totals"]["profile_requests"]
        return Result(seconds, rows_of(self.cache), winners, requests, kills, lost)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.service.port), 1):
            return True
        return False

    def _kill(self, kind: str, client: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        match kind:
            case "worker":
                if (worker := self.service.worker()) is not None:
                    os.kill(worker, signal.SIGKILL)
            case "daemon":
                os.kill(self.service.pid, signal.SIGKILL)
            case "agent":
                assert self.service.agent is not None
                self.service.agent.process.kill()
            case "connection":
                self.cable.cut()
            case "client":
                client.kill()
                client.wait()
                return self.start()
        return client

    def close(self) -> None:
        self.cable.close()
        self.service.stop()


@contextlib.contextmanager
def generation(name: str, model: Path, device: str | None, effort: str, by_agent: bool = False) -> Iterator[Generation]:
    made = Generation(WORK / name, model, device, effort, by_agent)
    try:
        yield made
    finally:
        made.close()


def same_winners(calm: Result, disturbed: Result, clock: "Clock") -> list[str]:
    """Where another variant won than in the undisturbed run, and is slower side by side than noise explains."""
    wrong = []
    for task, winner in calm.winners.items():
        other = disturbed.winners[task]
        if other != winner and (ratio := clock.ratio(task, json.loads(other), json.loads(winner))) > 1 + SLOWER:
            wrong.append(f"{task[:10]}: {other} instead of {winner}, {ratio:.2f}x side by side")
    return wrong


class Clock:
    """Times two variants of a task of the model side by side, with many samples in turns."""

    def __init__(self, model: Path, device: str | None) -> None:
        self._tasks = {task_key(task).digest: task for task in lower(read_model(model, {})).tasks}
        self._device = device

    def ratio(self, task: str, one: dict[str, int], other: dict[str, int]) -> float:
        """How long `one` takes of what `other` takes."""
        with choose_target(None, os.environ, self._device) as target, target.connect() as client:
            device = DeviceIdentity.from_dict(client.device)
            search = TaskSearch(self._tasks[task], device, device_limits(device), EFFORTS["full"], {})
            trials: dict[int, Trial] = {}
            bench = TaskRunner(client, search, EFFORTS["full"])
            bench.measure([one, other], SAMPLES, lambda found, _: trials.update(found))
        return statistics.median(trials[0].samples_ns) / statistics.median(trials[1].samples_ns)


def disturb(options: argparse.Namespace) -> dict[str, Any]:
    """The whole experiment. Raises RuntimeError when a generation does not come to its end."""
    model = small_model(WORK / "model.onnx")
    dice = random.Random(options.seed)
    with generation("calm", model, options.device, options.effort) as made:
        calm = made.run([])
    span = calm.seconds - 1.0  # the last second is finalizing
    print(f"undisturbed: {calm.seconds:.1f} s, {len(calm.trials)} trials in {calm.batches()} batches", flush=True)
    clock = Clock(model, options.device)
    report: dict[str, Any] = {"calm_seconds": calm.seconds, "trials": len(calm.trials), "kinds": {}}
    others = []
    for number in range(options.controls):
        with generation(f"control_{number}", model, options.device, options.effort) as made:
            others += same_winners(calm, made.run([]), clock)
    report["controls"] = {"runs": options.controls, "other_winners": others}
    for line in others:
        print(f"another winner without any kill: {line}", flush=True)
    for kind in options.kinds:
        results: list[Result] = []
        kills = 0
        while kills < options.kills:
            moments = [(kind, dice.uniform(0, span)) for _ in range(min(options.per_run, options.kills - kills))]
            name = f"{kind}_{len(results)}"
            with generation(name, model, options.device, options.effort, kind == "agent") as made:
                results.append(made.run(moments))
            kills += len(results[-1].kills)
            told = ", ".join(f"{kill.after_seconds:.1f} s ({kill.doing or 'nothing'})" for kill in results[-1].kills)
            print(f"{kind}: killed at {told}; {results[-1].seconds:.1f} s", flush=True)
        blows = [kill for result in results for kill in result.kills]
        report["kinds"][kind] = {
            "kills": len(blows),
            "while_building_or_measuring": sum(bool(kill.doing) for kill in blows),
            "lost": sum(result.lost for result in results),
            "other_winners": [line for result in results for line in same_winners(calm, result, clock)],
            "crashes_recorded": sum(row[3] in ("crash", "timeout") for result in results for row in result.trials),
            "measured_again": sum(result.again() - calm.again() for result in results),
            "requests_again": sum(result.requests - result.batches() for result in results),
            "median_seconds": statistics.median(result.seconds for result in results),
            "blows": [asdict(kill) for kill in blows],
        }
    return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/stress/chaos", description=__doc__.split("\n\n")[0])
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--kills", type=int, default=20, help="of each kind (default: %(default)s)")
    parser.add_argument("--per_run", type=int, default=4, help="kills in one generation (default: %(default)s)")
    parser.add_argument("--controls", type=int, default=3, help="more undisturbed generations (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--device", help="the device to use, as gputune's --device")
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")
    options = parser.parse_args()
    if unknown := [kind for kind in options.kinds if kind not in KINDS]:
        parser.error(f"--kinds: {unknown[0]!r} is none of {', '.join(KINDS)}")
    report = disturb(options)
    head = ["killed", "times", "in build or measurement", "lost", "crashes recorded", "rows again", "requests again"]
    names = ["kills", "while_building_or_measuring", "lost", "crashes_recorded", "measured_again", "requests_again"]
    rows = [[kind, *(str(found[name]) for name in names)] for kind, found in report["kinds"].items()]
    print("\n" + tool.table(head, rows))
    wrong = [line for found in report["kinds"].values() for line in found["other_winners"]]
    for line in wrong:
        print(f"another winner: {line}")
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    lost = sum(found["lost"] + found["crashes_recorded"] for found in report["kinds"].values())
    return 1 if wrong or lost else 0


if __name__ == "__main__":
    sys.exit(main())
