"""Kills workers, target servers, scheduler and client of a farm at random moments of tuning.

    scripts/stress/farm_chaos [--kills 10] [--workers 2] [--roles worker,server,scheduler,client] [--layers 24]
                              [--effort normal] [--seconds 600] [--seed N] [--json F]

For each role a model is tuned on waiting devices while processes of that role are killed with kill -9, so many times,
each time after something new was measured, and started again as a person would: a client with --resume. A job that is
done before follows another one, from an empty performance cache. After each kill every trial that was in the cache must
still be there; no variant may have been blamed; beyond what an undisturbed job measures twice, at its end, no more
configurations may be in the cache twice than there were kills; and the jobs must be done. Needs the extra
gputune[farm]. Exit code 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import tool
from farm_processes import CLIENT, SCHEDULER, Farm, becomes, write_model

WORK = tool.ROOT / "build" / "chaos" / "farm"
ROLES = ("worker", "server", SCHEDULER, CLIENT)
CALM = "nothing"
PAUSE_SECONDS = (0.0, 1.5)
NEWS_SECONDS = 60.0
"""So long something new is waited for after a kill; the job has stopped when nothing comes."""

Trials = dict[int, tuple[str, str]]
"""By number: the task and configuration of a trial, and its status."""


@dataclass
class Chaos:
    """What a role's kills did. lost: finished trials that were gone; again: configurations that are in the cache twice,
    but for those of an undisturbed job; state: of the last job."""

    kills: int = 0
    jobs: int = 0
    trials: int = 0
    lost: int = 0
    again: int = 0
    blamed: int = 0
    state: str = ""
    seconds: float = 0.0

    @property
    def broken(self) -> bool:
        """Whether a promise was."""
        return bool(self.lost or self.blamed or self.again > self.kills or self.state != "done")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/stress/farm_chaos", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=10, help="of each role (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--roles", default=",".join(ROLES), help="which are killed (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=24, help="of the model (default: %(default)s)")
    parser.add_argument("--effort", default="normal", help="of tuning (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=600.0, help="no kills after so long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")
    options = parser.parse_args()
    if unknown := set(options.roles.split(",")) - set(ROLES):
        parser.error(f"no role: {', '.join(sorted(unknown))}")
    calm = chaos(CALM, options)
    twice = calm.again
    results = {CALM: calm} | {role: chaos(role, options) for role in options.roles.split(",")}
    for result in results.values():
        result.again -= result.jobs * twice
    plain = {role: asdict(result) for role, result in results.items()}
    rows = [(role, *map(str, result.values())) for role, result in plain.items()]
    print("\n" + tool.table(["killed", *asdict(Chaos())], rows), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(plain, indent=1))
    return int(any(result.broken for result in results.values()))


def chaos(role: str, options: argparse.Namespace) -> Chaos:
    """Kills processes of a role."""
    chance, found, began = random.Random(options.seed), Chaos(), time.monotonic()
    workers = [f"w{number}" for number in range(options.workers)]
    with closing(Farm(WORK / f"{role}{options.seed}")) as farm:
        model = write_model(farm.folder / "m.onnx", options.layers)
        farm.start_scheduler()
        for name in workers:
            farm.start_worker(name)
        while not found.jobs or (
            role != CALM and found.kills < options.kills and time.monotonic() - began < options.seconds
        ):
            for file in farm.cache_dir.glob("*"):
                file.unlink()
            farm.start_tuning(model, options.effort, {"tuning_strategy": "random"})
            found.jobs += 1
            job(farm, role, workers, chance, found, lambda: time.monotonic() - began < options.seconds, options.kills)
            if found.state != "done":
                break
    found.seconds = round(time.monotonic() - began, 1)
    return found


def job(
    farm: Farm, role: str, workers: list[str], chance: random.Random, found: Chaos, going: Callable[[], bool], most: int
) -> None:
    """One job, with kills in it."""
    while role != CALM and found.kills < most and going() and news(farm):
        time.sleep(chance.uniform(*PAUSE_SECONDS))
        if farm.processes[CLIENT].poll() is not None:
            break
        before = trials(farm)
        kill(farm, role, chance.choice(workers))
        found.kills += 1
        found.lost += len(before.keys() - trials(farm).keys())
    farm.processes[CLIENT].wait()
    measured = trials(farm)
    statuses = [status for _, status in measured.values()]
    found.trials += len(measured)
    found.again += len(measured) - len({what for what, _ in measured.values()})
    found.blamed += sum(status in ("crash", "timeout") for status in statuses)
    found.state = farm.job.state


def news(farm: Farm) -> bool:
    """Waits until something more was measured; whether the job goes on."""
    before = len(trials(farm))
    client = farm.processes[CLIENT]
    becomes(lambda: client.poll() is not None or len(trials(farm)) > before, NEWS_SECONDS, 0.2)
    return client.poll() is None


def kill(farm: Farm, role: str, worker: str) -> None:
    """Kills one process and starts it again."""
    if role == "server":
        farm.kill_children(worker)
    elif role == "worker":
        farm.kill(worker)
        farm.start_worker(worker, wait=False)
    elif role == SCHEDULER:
        farm.kill(SCHEDULER)
        farm.start_scheduler(wait=False)
    else:
        farm.kill(CLIENT)
        with closing(sqlite3.connect(farm.journal_path)) as journal, journal:
            journal.execute("UPDATE jobs SET heard = 0")  # as if half a minute had passed
        farm.start_client("--resume", farm.job.name)


def trials(farm: Farm) -> Trials:
    """What the performance cache holds."""
    files = list(farm.cache_dir.glob("*.sqlite"))
    if not files:
        return {}
    with closing(sqlite3.connect(f"file:{files[0]}?mode=ro", uri=True, timeout=10)) as cache:
        try:
            rows = cache.execute("SELECT id, task || configuration, status FROM trial").fetchall()
        except sqlite3.OperationalError:  # nothing is in there yet
            return {}
    return {number: (what, status) for number, what, status in rows}


if __name__ == "__main__":
    sys.exit(main())
