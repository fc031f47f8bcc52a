"""Measure by a loop in C what the host takes for each launch of a network: first uses of a program, and later ones.

The first use of a program in an inference is the dearest part of small networks on NVIDIA, and it is not known why.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import time
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
UNTUNED = "untuned"


def main(record: Record) -> None:
    """Measure the launches of all contexts that there are."""
    loop = Loop(record.folder)
    for name, path in _contexts(record).items():
        if record.left > 1:
            record.attempt(name, functools.partial(_network, record, loop, name, path))


def _contexts(record: Record) -> dict[str, Path]:
    """Return the contexts that an earlier phase has left; an untuned one if it has left none."""
    folder = record.folder.parent / CONTEXTS
    found = {name: folder / f"{name}.bin" for name in NETWORKS if (folder / f"{name}.bin").exists()}
    if found:
        return found
    model = (tune_models.small if record.rehearse else classic_models.squeezenet)()
    command = [sys.executable, "-m", "gputune", "context-binary-generator", "--model", str(model.path)]
    command += ["--tuning_effort", "none", "--binary_file", UNTUNED, "--output_dir", str(folder)]
    subprocess.run(command, check=True)
    return {UNTUNED: folder / f"{UNTUNED}.bin"}


def _network(record: Record, loop: Loop, name: str, path: Path) -> dict[str, Any]:
    """Run the launches of a network again and again; return what they take together and by use of a program."""
    backend = open_backend(choose(discover(), wanted_device(None)).report)
    with open_context(path) as file:
        chain = Chain(backend, file)
    launches = [Launch(one.kernel, one.global_size, one.local_size) for one in chain.launches]
    queue = cl.CommandQueue(launches[0].kernel.context)
    hosts, totals = [], []
    for _ in range(6 if record.rehearse else 60):
        queue.finish()
        start = time.perf_counter()
        hosts.append(loop.run(queue, launches))
        queue.finish()
        totals.append((time.perf_counter() - start) * 1e6)
    each = np.median(hosts[1:], axis=0)
    programs = [one.kernel.program.int_ptr for one in launches]
    first = [programs.index(program) == place for place, program in enumerate(programs)]
    uses = {"first use": each[first], "later use": each[np.logical_not(first)]}
    found = {
        "enqueue_us": spread([sum(one) for one in hosts[1:]], 1),
        "us": spread(totals[1:], 1),
        **{use: spread(list(map(float, times)), 1) for use, times in uses.items()},
    }
    record.say(f"{name}: {found}")
    return found


if __name__ == "__main__":
    run(main)
