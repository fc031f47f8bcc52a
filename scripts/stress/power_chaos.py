"""Kill processes that vote for clocks, in Python and in C together, and look whether all controls go back.

    scripts/stress/power_chaos [--kills 500] [--seed N]

Two processes in C and two in Python vote by random presets on the controls of a made-up tree. They are killed at random
instants, one after the other or all together, and others take their places. Whenever none is left, what they changed
must come back, and no file may stay. The exit code is 1 if a promise was broken.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import tool
from gputune.runtime.native.power import Controls, Votes, preset_of, restore
from gputune.runtime.power.fake_trees import make_tree
from gputune.runtime.power.profiles.presets import PRESETS
from tests.native.compiling import environment
from tests.native.voting import contents, files, identity, voting_program

WORK = tool.ROOT / "build" / "chaos" / "power"
FAMILIES = ("kgsl", "memory")
"""One kind of device, so that all processes and `restore` have the same controls."""
DEVICE = ("gpu", "QUALCOMM", "Adreno 740")
NAMES = [name for name in PRESETS if name != "system_settings"]
MOST_SECONDS = 0.2
"""A process is killed within so much time after the others."""
TOGETHER = 0.15
"""The share of times at which all are killed."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/stress/power_chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=500, help="processes to kill (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True, mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(WORK)
    root = make_tree(WORK / "root", *FAMILIES)
    before, chance = contents(root), random.Random(options.seed)
    start: list[Callable[[random.Random, Path], int]] = [begin_in_c, begin_in_python]
    voters = [start[place % 2](chance, root) for place in range(4)]
    broken, changed, kills = [], 0, 0
    while kills < options.kills:
        time.sleep(chance.uniform(0, MOST_SECONDS))
        changed += contents(root) != before
        ends = chance.random() < TOGETHER or kills + 4 >= options.kills
        killed = range(4) if ends else [chance.randrange(4)]
        for place in killed:
            os.kill(voters[place], signal.SIGKILL)
            os.waitpid(voters[place], 0)
        kills += len(killed)
        if ends and (lines := wrong(root, before)):
            broken.append(f"after {kills} kills: {lines}")
        for place in killed if kills < options.kills else ():
            voters[place] = start[place % 2](chance, root)
    rows = [("kills", str(options.kills)), ("with changed controls", str(changed)), ("broken", str(len(broken)))]
    print("\n" + tool.table(["what", "result"], rows), flush=True)
    for line in broken:
        print(f"broken: {line}", file=sys.stderr)
    return 1 if broken else 0


def wrong(root: Path, before: Mapping[str, bytes]) -> list[str]:
    """Restore what killed processes have left, and return what is not as before, which is mended."""
    lines = restore(root)
    after = contents(root)
    found = [f"{path} is {after.get(path)!r}" for path, content in before.items() if after.get(path) != content]
    found += [f"{path.name} stays" for path in files(WORK)]
    if found:
        shutil.rmtree(WORK / "gputune-power", ignore_errors=True)
        make_tree(root, *FAMILIES)
    return [*found, *(f"restore said: {line}" for line in lines)] if found else []


def begin_in_c(chance: random.Random, root: Path) -> int:
    """Begin a process that votes in C; return its number."""
    process = subprocess.Popen(
        [voting_program(()), *DEVICE], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    words = [f"power 0 {root}", "open 0 balanced"]
    for _ in range(500):
        words += [f"set 0 {chance.choice(NAMES)}", "begin 0 execute", "end 0 execute"]
    process.stdin.write("\n".join(words) + "\n")
    process.stdin.flush()
    KEPT[process.pid] = process
    return process.pid


KEPT: dict[int, subprocess.Popen[str]] = {}
"""The processes in C, whose input stays open."""


def begin_in_python(chance: random.Random, root: Path) -> int:
    """Begin a fork that votes in Python; return its number."""
    seed, child = chance.random(), os.fork()
    if child:
        return child
    try:
        own = random.Random(seed)
        controls = Controls(identity(DEVICE), root)
        votes = Votes(controls, preset_of("balanced"))
        while True:
            votes.change(preset_of(own.choice(NAMES)))
            for act in (votes.begin, votes.end):
                act("execute")
                time.sleep(own.uniform(0, 0.01))
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
