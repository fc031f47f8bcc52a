"""Kill processes that vote for the clocks of a made-up device at random moments, and watch the clocks go back.

    scripts/stress/power_chaos [--kills 200] [--seed N] [--json FILE]

Three processes vote at random on plain files like the files of a phone's GPU, memory and processors. One, two or all of
them are killed by kill -9. The others stop voting before or after that; if none is left, another starts, without a
vote. Within the hysteresis and a second, all files must contain what they did at first, and nothing may be left in the
folder of the votes. The exit code is 1 if a promise was broken.
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tool
from gputune.runtime.power.actuators.base import Actuator, Write
from gputune.runtime.power.arbiter import Arbiter
from gputune.runtime.power.fake_trees import make_tree
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.records import NOTHING
from gputune.runtime.power.steering import Steering, find_actuators
from gputune.runtime.power.voter import Voter
from tests.runtime.power.made_up import MadeUpProfile

WORK = tool.ROOT / "build" / "chaos" / "power"
TREE, VOTES = WORK / "tree", WORK / "votes"
FAMILIES = ("kgsl", "memory", "cpufreq")
PROCESSES = 3
PRESETS = ("burst", "high_performance", "balanced", "high_power_saver", "power_saver", "low_power_saver")
HYSTERESIS_S = 0.1
LIMIT_S = HYSTERESIS_S + 1.0
MOST_VOTING_S = 0.08
"""A round's processes vote for so long at most before the first is killed."""
SLOWEST_WRITE_S = 0.001
VOTE, STOP = b"v", b"s"

Contents = Mapping[Path, bytes]


@dataclass(frozen=True)
class Process:
    """A process that votes: what it is told, and what it answers."""

    number: int
    told: int
    answers: int

    def tell(self, what: bytes) -> None:
        """Returns when it has done so."""
        os.write(self.told, what)
        assert os.read(self.answers, 1) == what

    def kill(self) -> None:
        os.kill(self.number, signal.SIGKILL)
        os.waitpid(self.number, 0)
        os.close(self.told)
        os.close(self.answers)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/stress/power_chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="processes to kill (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")
    options = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    make_tree(TREE, *FAMILIES)
    found = chaos(options.kills, random.Random(options.seed))
    broken = found["broken"]
    rows = [(name, str(value)) for name, value in found.items() if name != "broken"]
    print("\n" + tool.table(["what", "result"], rows), flush=True)
    for line in broken:
        print(f"broken: {line}", file=sys.stderr)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 1 if broken else 0


def chaos(kills: int, chance: random.Random) -> dict[str, Any]:
    """Rounds until so many processes have been killed."""
    originals, raised = contents(), 0
    # Once for all: a plain file is empty between being emptied and written, which no file of a kernel is.
    actuators = find_actuators(None, TREE, slowly)
    broken: list[str] = []
    by_survivors: list[float] = []
    by_next: list[float] = []
    processes: list[Process] = []
    left = kills
    while left > 0:
        processes += [process(actuators, chance.random()) for _ in range(PROCESSES - len(processes))]
        for each in processes:
            each.tell(VOTE)
        time.sleep(chance.uniform(0, MOST_VOTING_S))
        raised += contents() != originals
        chance.shuffle(processes)
        count = min(left, chance.randint(1, PROCESSES))
        killed, processes = processes[:count], processes[count:]
        stop_first = chance.random() < 0.5
        if stop_first:
            stop(processes)
        for each in killed:
            each.kill()
        left -= count
        if not stop_first:
            stop(processes)
        begun = time.monotonic()
        times = by_survivors if processes else by_next
        if not processes:
            processes.append(process(actuators, chance.random()))
        times.append(time_until_back(originals, begun))
        if times[-1] > LIMIT_S:
            broken.append(f"after {kills - left} kills: {difference(originals)} for {times[-1]:.1f} s")
            make_tree(TREE, *FAMILIES)
    for each in processes:
        each.kill()
    return {
        "processes killed": kills,
        "rounds in which a control was changed": raised,
        **summary("brought back by a process left", by_survivors),
        **summary("brought back by the next process", by_next),
        "limit, ms": round(LIMIT_S * 1e3),
        "broken": broken,
    }


def summary(what: str, seconds: list[float]) -> dict[str, Any]:
    """How often, and after which time."""
    shown = f"{statistics.median(seconds) * 1e3:.0f}, {max(seconds) * 1e3:.0f}" if seconds else "-"
    return {what: len(seconds), f"{what}: median and longest ms": shown}


def contents() -> Contents:
    """What the controls contain."""
    return {path: path.read_bytes() for path in (TREE / "sys").rglob("*") if path.is_file()}


def difference(originals: Contents) -> str:
    """What is not as it was, in words; empty where all is."""
    now = contents()
    changed = [f"{path.name} is {now.get(path)!r}" for path, content in originals.items() if now.get(path) != content]
    return ", ".join(changed + [f"{path.name} is left" for path in VOTES.iterdir()])


def time_until_back(originals: Contents, begun: float) -> float:
    """Seconds until nothing is different any more; well beyond the limit where something stays so."""
    while difference(originals) and time.monotonic() < begun + 3 * LIMIT_S:
        time.sleep(0.005)
    return time.monotonic() - begun


def stop(processes: list[Process]) -> None:
    """Has them begin no further inference; the last one's start vote is held for the hysteresis."""
    for each in processes:
        each.tell(STOP)


def slowly(write: Write) -> None:
    """Makes a write take longer, so that many are killed within one."""
    time.sleep(random.uniform(0, SLOWEST_WRITE_S))


def process(actuators: Sequence[Actuator], seed: float) -> Process:
    """A new one, which registers and does not vote yet."""
    told, tell = os.pipe()
    answers, answer = os.pipe()
    number = os.fork()
    if number == 0:
        os.close(tell)
        os.close(answers)
        try:
            vote_at_random(Steering(actuators), told, answer, random.Random(seed))
        finally:
            os._exit(1)
    os.close(told)
    os.close(answer)
    return Process(number, tell, answers)


def vote_at_random(steering: Steering, told: int, answer: int, chance: random.Random) -> None:
    """Makes up inferences of two instances while it is told to, until it is killed."""
    arbiter = Arbiter("made up", steering, VOTES)
    voters = [Voter(profile(chance), lambda: arbiter) for _ in range(2)]
    voting = False
    os.set_blocking(told, False)
    while True:
        if word := read(told):
            voting = word == VOTE
            os.write(answer, word)
        if not voting:
            time.sleep(0.001)
            continue
        voter = chance.choice(voters)
        if chance.random() < 0.1:
            voter.set_profile(profile(chance))
        voter.start("execute")
        time.sleep(chance.uniform(0, 0.003))
        voter.done("execute")


def read(told: int) -> bytes:
    """The last word, if there is one."""
    try:
        return os.read(told, 100)[-1:] or os._exit(0)
    except BlockingIOError:
        return b""


def profile(chance: random.Random) -> MadeUpProfile:
    """A preset's votes while an inference runs, none behind it."""
    start = PerfProfile.from_preset(chance.choice(PRESETS)).vote("execute", "start")
    hysteresis_us = chance.choice((0, round(HYSTERESIS_S * 1e6)))
    return MadeUpProfile(start, NOTHING, hysteresis_us, async_voting=chance.random() < 0.3)


if __name__ == "__main__":
    sys.exit(main())
