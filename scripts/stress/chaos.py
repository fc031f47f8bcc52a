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
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

import tool
from benchmarks.agents.process import AgentProcess, Kept, Relay
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
from models.tune_models import small_network

WORK = tool.ROOT / "build" / "chaos"
KINDS = ("worker", "daemon", "client", "connection", "agent")
SLOWER = 0.05
"""Another variant that is slower side by side by this share, or less, is the same winner within noise."""
SAMPLES = 31
RUN_SECONDS = 600


class Service(Kept):
    """A daemon that is started again whenever it dies."""

    def __init__(self, folder: Path, device: str | None, by_agent: bool) -> None:
        self.agent: AgentProcess | None = None
        if by_agent:
            os.environ[AGENT_TOKEN_VARIABLE] = token = secrets.token_hex(16)
            self.agent = AgentProcess(find(device).report, token)
            self.agent.keep()
            device = self.agent.device
        self.port = tool.free_port()
        self.token = secrets.token_hex(32)
        command = [sys.executable, "-m", "gputune.server", "--port", str(self.port), "--log_level", "info"]
        command += [] if device is None else ["--device", device]
        super().__init__(command, os.environ | {"GPUTUNE_TOKEN": self.token}, folder / "server.log")
        self.keep()

    def worker(self) -> int | None:
        """The process that runs OpenCL, as long as there is one."""
        with contextlib.suppress(OSError, ValueError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
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

    def close(self) -> None:
        super().close()
        if self.agent is not None:
            self.agent.close()


@dataclass
class Result:
    """What a generation left behind. kills: what the device did at each; lost: trials that were stored and are gone."""

    seconds: float
    trials: list[tuple[int, str]]
    """Rows of the cache: id, status."""
    winners: dict[str, str]
    kills: list[str]
    lost: int


def rows_of(cache: Path) -> list[tuple[int, str]]:
    """Return the trials of a cache, as far as it is there."""
    files = list(cache.glob("*.sqlite"))
    if not files:
        return []
    with contextlib.closing(sqlite3.connect(files[0], timeout=30)) as connection:
        try:
            return connection.execute("SELECT id, status FROM trial").fetchall()
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
        self.cable = Relay(f"127.0.0.1:{self.service.port}")
        self.cable.keep()
        self._command = [
            *(tool.GPUTUNE, "context-binary-generator", "--model", str(model), "--binary_file", "context"),
            *("--config_file", str(folder / "config.json"), "--output_dir", str(folder), "--tuning_effort", effort),
            *("--summary_json", str(folder / "summary.json"), "--target", self.cable.address),
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
        kills: list[str] = []
        lost = 0
        first: float | None = None
        waiting = sorted(blows, key=lambda blow: blow[1])
        while (code := client.poll()) is None:
            if time.monotonic() - began > RUN_SECONDS:
                raise RuntimeError(f"no end after {RUN_SECONDS} s; see the logs in {self.folder}")
            if first is None:
                first = time.monotonic() if self.service.doing() else None
            elif waiting and time.monotonic() - first >= waiting[0][1]:
                kind, _ = waiting.pop(0)
                before = rows_of(self.cache)
                kills.append(self.service.doing())
                client = self._kill(kind, client)
                known = {row[0] for row in rows_of(self.cache)}
                lost += sum(row[0] not in known for row in before)
            time.sleep(0.01)
        if code != 0:
            raise RuntimeError(f"the generator ended with {code}; see the logs in {self.folder}")
        summary = json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))
        winners = {task["key"]: json.dumps(task["configuration"], sort_keys=True) for task in summary["tasks"]}
        seconds = time.monotonic() - (first or began)
        return Result(seconds, rows_of(self.cache), winners, kills, lost)

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
                self.service.process.kill()
            case "agent":
                assert self.service.agent is not None
                self.service.agent.process.kill()
            case "connection":
                self.cable.process.kill()
            case "client":
                client.kill()
                client.wait()
                return self.start()
        return client

    def close(self) -> None:
        self.cable.close()
        self.service.close()


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


def disturb(options: argparse.Namespace, model: Path, calm: Result, kind: str, dice: random.Random) -> list[Result]:
    """Kill processes of a kind in generations until that was done often enough; return these."""
    results: list[Result] = []
    while (left := options.kills - sum(len(result.kills) for result in results)) > 0:
        span = calm.seconds - 1.0  # the last second is finalizing
        moments = [(kind, dice.uniform(0, span)) for _ in range(min(options.per_run, left))]
        with generation(f"{kind}_{len(results)}", model, options.device, options.effort, kind == "agent") as made:
            results.append(made.run(moments))
        told = ", ".join(doing or "nothing" for doing in results[-1].kills)
        print(f"{kind}: killed while the device did {told}; {results[-1].seconds:.1f} s", flush=True)
    return results


def main() -> int:
    """Run an undisturbed generation and those with kills; return 1 if anything was lost, blamed or chosen otherwise."""
    parser = argparse.ArgumentParser(prog="scripts/stress/chaos", description=__doc__.split("\n\n")[0])
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--kills", type=int, default=20, help="of each kind (default: %(default)s)")
    parser.add_argument("--per_run", type=int, default=4, help="kills in one generation (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--device", help="the device to use, as gputune's --device")
    options = parser.parse_args()
    if unknown := [kind for kind in options.kinds if kind not in KINDS]:
        parser.error(f"--kinds: {unknown[0]!r} is none of {', '.join(KINDS)}")
    WORK.mkdir(parents=True, exist_ok=True)
    onnx.save(small_network(8, 28, 16, stride=2), model := WORK / "model.onnx")
    with generation("calm", model, options.device, options.effort) as made:
        calm = made.run([])
    print(f"undisturbed: {calm.seconds:.1f} s, {len(calm.trials)} trials", flush=True)
    dice, clock = random.Random(options.seed), Clock(model, options.device)
    rows, wrong = [], 0
    for kind in options.kinds:
        results = disturb(options, model, calm, kind, dice)
        others = [line for result in results for line in same_winners(calm, result, clock)]
        blows = [doing for result in results for doing in result.kills]
        lost = sum(result.lost for result in results)
        blamed = sum(status in ("crash", "timeout") for result in results for _, status in result.trials)
        print(*(f"another winner: {line}" for line in others), sep="\n", end="")
        rows.append([kind, *map(str, (len(blows), sum(map(bool, blows)), lost, blamed, len(others)))])
        wrong += lost + blamed + len(others)
    head = ["killed", "times", "in build or measurement", "lost", "crashes recorded", "other winners"]
    print("\n" + tool.table(head, rows))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
