"""Measure by a loop in C what the host takes for each launch of a network: first uses of a program, and later ones.

The first use of a program in an inference is the dearest part of small networks on NVIDIA, and it is not known why. So
chains differ from SqueezeNet's in one respect: its programs once or twice each in a row, all kernels in one program,
CUDA's modules loaded at once.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.chain import Chain
from gpu.device import cl
from gpu.loop import Launch, Loop
from gpu.phases.models import CONTEXTS
from gpu.record import Record, run, spread
from gputune.runtime.backends import open_backend
from gputune.runtime.context.format import open_context
from gputune.runtime.devices.discovery import choose, discover, wanted_device
from models import classic_models, tune_models

NETWORKS = ("squeezenet", "resnet50", "mobilenet_v2")
UNTUNED, TOGETHER, EAGER = "untuned", "untuned, one program", "untuned, modules loaded at once"
LOADING = {"CUDA_MODULE_LOADING": "EAGER"}
TURNS, REHEARSED_TURNS = 60, 6


def main(record: Record) -> None:
    """Measure the launches of all contexts that there are, then the chains that differ in one respect."""
    loop, turns = Loop(record.folder), REHEARSED_TURNS if record.rehearse else TURNS
    folder = record.folder.parent / CONTEXTS
    for name in NETWORKS:
        if (path := folder / f"{name}.bin").exists() and record.left > 1:
            record.attempt(name, functools.partial(_network, loop, path, turns))
    record.attempt(UNTUNED, lambda: _network(loop, _made(record, folder, UNTUNED, {}), turns))
    record.attempt(EAGER, lambda: _elsewhere(folder / f"{UNTUNED}.bin", turns, LOADING))
    together = {"programs": "one"}
    record.attempt(TOGETHER, lambda: _network(loop, _made(record, folder, TOGETHER, together), turns))
    for name in (*NETWORKS, UNTUNED, EAGER, TOGETHER):
        if (found := record.get(name)) is not None:
            record.say(f"{name}: {found}")


def _made(record: Record, folder: Path, name: str, config: Mapping[str, str]) -> Path:
    """Make an untuned context of SqueezeNet. config: the content of its config file."""
    model = (tune_models.small if record.rehearse else classic_models.squeezenet)()
    asked = folder / f"{name}.json"
    asked.write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "gputune", "context-binary-generator", "--model", str(model.path)]
    command += ["--tuning_effort", "none", "--binary_file", name, "--output_dir", str(folder)]
    subprocess.run([*command, "--config_file", str(asked)], check=True)
    return folder / f"{name}.bin"


def _elsewhere(path: Path, turns: int, variables: Mapping[str, str]) -> Any:
    """As _network, in a process with other variables."""
    program = "import json, sys; from gpu.phases import chains; print(json.dumps(chains.alone(*sys.argv[1:])))"
    command = [sys.executable, "-c", program, str(path), str(turns)]
    done = subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def alone(path: str, turns: str) -> dict[str, Any]:
    """As _network, for a process of its own."""
    return _network(Loop(Path(path).parent), Path(path), int(turns))


def _network(loop: Loop, path: Path, turns: int) -> dict[str, Any]:
    """Run the launches of a network again and again; return what they take together and by use of a program, and what
    each of its programs takes once, and twice in a row."""
    backend = open_backend(choose(discover(), wanted_device(None)).report)
    with open_context(path) as file:
        chain = Chain(backend, file)
    launches = [Launch(one.kernel, one.global_size, one.local_size) for one in chain.launches]
    programs = [one.kernel.program.int_ptr for one in launches]
    once = [one for place, one in enumerate(launches) if programs.index(programs[place]) == place]
    own = {
        "programs": len(once),
        "each program once": _timed(loop, once, turns),
        "each program twice": _timed(loop, [one for each in once for one in (each, each)], turns),
    }
    return {**_timed(loop, launches, turns), **own}


def _timed(loop: Loop, launches: Sequence[Launch], turns: int) -> dict[str, Any]:
    """Return what launches take on the host and in all, and on the host by the use of a program."""
    queue = cl.CommandQueue(launches[0].kernel.context)
    hosts, totals = [], []
    for _ in range(turns):
        queue.finish()
        start = time.perf_counter()
        hosts.append(loop.run(queue, launches))
        queue.finish()
        totals.append((time.perf_counter() - start) * 1e6)
    each = np.median(hosts[1:], axis=0)
    programs = [one.kernel.program.int_ptr for one in launches]
    first = [programs.index(program) == place for place, program in enumerate(programs)]
    uses = {"first use": each[first], "later use": each[np.logical_not(first)]}
    return {
        "enqueue_us": spread([sum(one) for one in hosts[1:]], 1),
        "us": spread(totals[1:], 1),
        **{use: spread(list(map(float, times)), 1) for use, times in uses.items()},
    }


if __name__ == "__main__":
    run(main)
