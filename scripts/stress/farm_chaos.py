"""Kill workers, target servers, scheduler and client of a farm at random moments of tuning.

    scripts/stress/farm_chaos [--kills 10] [--workers 2] [--roles worker,server,scheduler,client] [--layers 24]
                              [--effort normal] [--seconds 600] [--seed N] [--device waiting] [--model M] [--json F]

For each role, a model is tuned on waiting devices while processes of that role are killed with kill -9, --kills times.
Each kill follows a new measurement, and the process is restarted as a person would: a client with --resume. If a job is
done before the last kill, another starts from an empty performance cache.

After each kill, every trial that was in the cache must still be there, and no variant may have been blamed. The cache
may hold at most as many configurations twice as there were kills, not counting finalists, which each job measures again
side by side. The jobs must be done. The variants of a batch are timed in turns and end together, so a loss also costs
the variants in progress. These are counted for workers, target servers and schedulers, which the client reports.

Devices that replay a recording report times that do not depend on the machine. With effort full, each task must then
get the configuration that it gets undisturbed. With less effort, tasks share a budget of trials, and the order in which
devices answer decides which gets more. With effort quick, undisturbed jobs differ by some percent among themselves.

    scripts/recording/record --model M --sample 60 --output FOLDER
    scripts/stress/farm_chaos --model M --device replay:FOLDER --effort full

Requires the extra gputune[farm]. The exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tool
from farm_processes import CLIENT, SCHEDULER, Farm, becomes, write_model

WORK = tool.ROOT / "build" / "chaos" / "farm"
ROLES = ("worker", "server", SCHEDULER, CLIENT)
CALM = "nothing"
PAUSE_SECONDS = (0.0, 1.5)
NEWS_SECONDS = 60.0
"""So long something new is waited for after a kill; the job has stopped when nothing comes."""

BATCH_LOST = re.compile(r" with a batch of (\d+) variants; connecting again")

AGAIN = """
SELECT COUNT(*) - COUNT(DISTINCT task || configuration) FROM trial WHERE json_extract(measured, '$.batch') < (
    SELECT MAX(json_extract(measured, '$.batch')) FROM trial AS other WHERE other.task = trial.task
)
"""
"""How many configurations were measured again, but for those in the last batch of a task: its finalists."""

Trials = dict[int, tuple[str, str]]
"""By number: the task and configuration of a trial, and its status."""
Winners = dict[str, tuple[str, float]]
"""By task: the configuration that won, and its median in ns."""


@dataclass
class Chaos:
    """What a role's kills did. lost: finished trials that were gone; again: configurations that were measured twice,
    but for finalists; under_way: unfinished variants of lost batches; state: of the last job."""

    kills: int = 0
    jobs: int = 0
    trials: int = 0
    lost: int = 0
    again: int = 0
    under_way: int = 0
    blamed: int = 0
    others: int = 0
    slower: float = 0.0
    state: str = ""
    seconds: float = 0.0

    def broken(self, same: bool) -> bool:
        """Whether a promise was; same: winners must be those of the undisturbed job."""
        wrong = self.lost or self.blamed or self.again > self.kills or self.state != "done"
        return bool(wrong or (same and self.others))


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/stress/farm_chaos", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=10, help="of each role (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--roles", default=",".join(ROLES), help="which are killed (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=24, help="of the model (default: %(default)s)")
    parser.add_argument("--effort", default="normal", help="of tuning (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=600.0, help="no kills after so long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="waiting", help="of each worker (default: %(default)s)")
    parser.add_argument("--model", type=Path, help="what is tuned (default: a row of so many convolutions)")
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")
    options = parser.parse_args()
    if unknown := set(options.roles.split(",")) - set(ROLES):
        parser.error(f"no role: {', '.join(sorted(unknown))}")
    usual: Winners = {}
    calm = chaos(CALM, options, usual)
    results = {CALM: calm} | {role: chaos(role, options, usual) for role in options.roles.split(",")}
    plain = {role: asdict(result) for role, result in results.items()}
    rows = [(role, *map(str, result.values())) for role, result in plain.items()]
    print("\n" + tool.table(["killed", *asdict(Chaos())], rows), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(plain, indent=1))
    same = options.effort == "full" and options.device.startswith("replay:")
    return int(any(result.broken(same) for result in results.values()))


def chaos(role: str, options: argparse.Namespace, usual: Winners) -> Chaos:
    """Kills processes of a role. usual: the winners of the undisturbed job, which fills it in."""
    chance, found, began = random.Random(options.seed), Chaos(), time.monotonic()
    workers = [f"w{number}" for number in range(options.workers)]
    with closing(Farm(WORK / f"{role}{options.seed}")) as farm:
        model = options.model or write_model(farm.folder / "m.onnx", options.layers)
        farm.start_scheduler()
        for name in workers:
            farm.start_worker(name, options.device)
        while not found.jobs or (
            role != CALM and found.kills < options.kills and time.monotonic() - began < options.seconds
        ):
            for file in farm.cache_dir.glob("*"):
                file.unlink()
            farm.start_tuning(model, options.effort, {"tuning_strategy": "random"})
            found.jobs += 1
            killer = Killer(farm, role, workers, options.device)
            job(killer, chance, found, lambda: time.monotonic() - began < options.seconds, options.kills)
            if found.state != "done":
                break
            own = winners(farm)
            usual |= own if role == CALM else {}
            found.others += sum(own[task][0] != usual[task][0] for task in usual)
            times_ns = [sum(median_ns for _, median_ns in one.values()) for one in (own, usual)]
            found.slower = max(found.slower, round(times_ns[0] / times_ns[1], 4))
        found.under_way = sum(map(int, BATCH_LOST.findall(farm.log(CLIENT))))
    found.seconds = round(time.monotonic() - began, 1)
    return found


@dataclass
class Killer:
    """Kills processes of a role, and starts them again. device: of the workers."""

    farm: Farm
    role: str
    workers: list[str]
    device: str

    def kill(self, chance: random.Random) -> None:
        """Kills one process."""
        worker = chance.choice(self.workers)
        if self.role == "server":
            self.farm.kill_children(worker)
        elif self.role == "worker":
            self.farm.kill(worker)
            self.farm.start_worker(worker, self.device, wait=False)
        elif self.role == SCHEDULER:
            self.farm.kill(SCHEDULER)
            self.farm.start_scheduler(wait=False)
        else:
            self.farm.kill(CLIENT)
            with closing(sqlite3.connect(self.farm.journal_path)) as journal, journal:
                journal.execute("UPDATE jobs SET heard = 0")  # as if half a minute had passed
            self.farm.start_client("--resume", self.farm.job.name)


def job(killer: Killer, chance: random.Random, found: Chaos, going: Callable[[], bool], most: int) -> None:
    """One job, with kills in it."""
    farm = killer.farm
    while killer.role != CALM and found.kills < most and going() and news(farm):
        time.sleep(chance.uniform(*PAUSE_SECONDS))
        if farm.processes[CLIENT].poll() is not None:
            break
        before = trials(farm)
        killer.kill(chance)
        found.kills += 1
        found.lost += len(before.keys() - trials(farm).keys())
    farm.processes[CLIENT].wait()
    measured = trials(farm)
    statuses = [status for _, status in measured.values()]
    found.trials += len(measured)
    found.again += sum(twice for (twice,) in cached(farm, AGAIN))
    found.blamed += sum(status in ("crash", "timeout") for status in statuses)
    found.state = farm.job.state


def news(farm: Farm) -> bool:
    """Waits until something more was measured; whether the job goes on."""
    before = len(trials(farm))
    client = farm.processes[CLIENT]
    becomes(lambda: client.poll() is not None or len(trials(farm)) > before, NEWS_SECONDS, 0.2)
    return client.poll() is None


def trials(farm: Farm) -> Trials:
    """What the performance cache holds."""
    rows = cached(farm, "SELECT id, task || configuration, status FROM trial")
    return {number: (what, status) for number, what, status in rows}


def winners(farm: Farm) -> Winners:
    """What has won for each task."""
    rows = cached(farm, "SELECT digest, configuration, median_ns FROM winner JOIN task ON task.id = winner.task")
    return {task: (configuration, median_ns) for task, configuration, median_ns in rows}


def cached(farm: Farm, query: str) -> list[tuple[Any, ...]]:
    """What a query of the performance cache finds: nothing where nothing is in there yet."""
    files = list(farm.cache_dir.glob("*.sqlite"))
    if not files:
        return []
    with closing(sqlite3.connect(f"file:{files[0]}?mode=ro", uri=True, timeout=10)) as cache:
        try:
            return cache.execute(query).fetchall()
        except sqlite3.OperationalError:  # its tables are about to be made
            return []


if __name__ == "__main__":
    sys.exit(main())
