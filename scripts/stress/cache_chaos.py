"""Kill writers of a performance cache at random instants, and let many generations share one file.

    scripts/stress/cache_chaos [--kills 200] [--generations 8] [--seed N]

Every batch that a writer reported as stored must be there after kill -9, once and complete. Generations of different
models on the null device write one file at once. None may fail or mention locks, and the file must hold exactly what
their summaries say was measured. The exit code is 1 if a promise was broken.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import onnx

import tool
from gputune.cache import PerformanceCache, TaskKey, TrialRecord
from models.tune_models import small_network
from stress.made_up_cache import VALIDITY

WORK = tool.ROOT / "build" / "chaos" / "cache"
BATCH = 4
MOST_SECONDS = 0.25
"""A writer is killed within so much time after its first batch."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/stress/cache_chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="writers to kill (default: %(default)s)")
    parser.add_argument("--generations", type=int, default=8, help="at once (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write(options.write, options.seed)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    killed = kill_writers(options.kills, random.Random(options.seed))
    shared = share(options.generations)
    broken = killed.pop("broken") + shared.pop("broken")
    rows = [(name, str(value)) for name, value in {**killed, **shared}.items()]
    print("\n" + tool.table(["what", "result"], rows), flush=True)
    for line in broken:
        print(f"broken: {line}", file=sys.stderr)
    return 1 if broken else 0


def write(path: Path, first: int) -> None:
    """Stores batch after batch and says the number of each that is stored, until the process is ended."""
    with PerformanceCache.open(path) as cache:
        for number in range(first, sys.maxsize):
            cache.store_trials(TASK, VALIDITY, [trial(number)] * BATCH)
            print(number, flush=True)


def kill_writers(kills: int, chance: random.Random) -> dict[str, Any]:
    """Writers of one file, one after the other, each killed at a random instant."""
    path, said, broken = WORK / "killed.sqlite", 0, []
    for turn in range(kills):
        first = turn * 1_000_000
        command = [*tool.module("stress.cache_chaos"), "--write", str(path), "--seed", str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=tool.environment()) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline()]
            time.sleep(chance.uniform(0, MOST_SECONDS))
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.readlines()
        acknowledged = [int(line) for line in lines if line.endswith("\n")]
        said += len(acknowledged)
        with PerformanceCache.open(path) as cache:
            stored = [record.configuration["N"] for record in cache.trials_of(TASK, VALIDITY)]
            broken += [f"kill {turn}: {warning}" for warning in cache.warnings]
        new = [number for number in stored if number >= first]
        whole = [number for number in dict.fromkeys(new) for _ in range(BATCH)]
        if new != whole:
            broken.append(f"kill {turn}: a batch is there in part, or twice")
        if not set(acknowledged) <= set(new) or len(set(new)) > len(acknowledged) + 1:
            broken.append(f"kill {turn}: {len(acknowledged)} batches were acknowledged, {len(set(new))} are there")
    with PerformanceCache.open(path) as cache:
        broken += cache.problems()
    return {"writers killed": kills, "batches acknowledged": said, "batches lost": 0 if not broken else "see below",
            "broken": broken}  # fmt: skip


def share(count: int) -> dict[str, Any]:
    """Generations of different models at once on the null device, with one performance cache."""
    folder = WORK / "shared"
    folder.mkdir()
    config = folder / "config.json"
    config.write_text(json.dumps({"tuning_mode": True, "performance_cache_dir": str(folder / "cache")}))
    begun = time.monotonic()
    running = []
    for number in range(count):
        onnx.save(small_network(8, 8 + number, 16, stride=2), model := folder / f"{number}.onnx")
        words = [
            sys.executable, "-m", "gputune.client.cli.main", "context-binary-generator",
            "--model", model,
            "--binary_file", f"m{number}", "--output_dir", folder, "--config_file", config, "--device", "null",
            "--tuning_effort", "quick", "--summary_json", folder / f"{number}.json",
        ]  # fmt: skip
        process = subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True)
        running.append(process)
    broken, measured = [], 0
    for number, process in enumerate(running):
        _, errors = process.communicate()
        if process.returncode or "lock" in errors:
            broken.append(f"generation {number} ended with {process.returncode}: {errors.strip().splitlines()[-1:]}")
            continue
        summary = json.loads((folder / f"{number}.json").read_text())
        measured += sum(sum(task["trials"].values()) for task in summary["tasks"])
    seconds = time.monotonic() - begun
    (file,) = (folder / "cache").glob("*.sqlite")
    with PerformanceCache.open(file) as cache:
        broken += cache.problems()
        tasks = cache.tasks()
        rows = cache.contents().entries
    configurations = sum(len({str(stored.trial.configuration) for stored in entry.trials}) for entry in rows)
    if configurations != measured:
        broken.append(f"{measured} configurations were measured, {configurations} are stored")
    if unfinished := [task for task in tasks if task.winner is None]:
        broken.append(f"{len(unfinished)} tasks have no winner")
    return {"generations at once": count, "seconds": round(seconds, 1), "tasks": len(tasks),
            "configurations measured and stored": measured, "broken": broken}  # fmt: skip


TASK = TaskKey(op="Made up", problem={"n": 1})


def trial(number: int) -> TrialRecord:
    """A made-up trial."""
    return TrialRecord({"N": number}, "ok", [1000.0 + number % 7, 900.0, 1200.0], compile_ns=1e8)


if __name__ == "__main__":
    sys.exit(main())
