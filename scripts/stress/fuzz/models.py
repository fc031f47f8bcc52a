"""Import hostile and broken models: each is refused in one line or lowered, within limits of time and memory.

    scripts/fuzz models [--seed N] [--count 300] [--save FOLDER]

Each model has a process of its own. What ends otherwise is printed with the place of the error, and its file is kept.
"""

import argparse
import collections
import itertools
import os
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import tool

sys.path.append(str(tool.ROOT))
from gputune.client.errors import ModelError
from gputune.client.generation.model_check import check_model
from tests.client.hostile_models import Hostile, hostile_models

MOST_SECONDS = 60
"""Of processor time, for one model."""
MOST_BYTES = 6 << 30
"""Of address space, for one model: folding may take 1 GiB, and numpy computes with copies."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `scripts/fuzz models`."""
    parser.add_argument("--count", type=int, default=300, help="how many models (default: %(default)s)")
    parser.add_argument("--save", type=Path, default=Path(tempfile.gettempdir()), help="folder for those that fail")


def run(options: argparse.Namespace) -> int:
    """Imports the models and says how they ended; 1 where one ended as none may."""
    ends: collections.Counter[str] = collections.Counter()
    worst_mb = 0
    for number, model in enumerate(itertools.islice(hostile_models(options.seed), options.count)):
        said, megabytes = imported(model)
        worst_mb = max(worst_mb, megabytes)
        end = said.partition(":")[0]
        ends[end] += 1
        if end not in ("refused", "lowered"):
            path = options.save / f"hostile-{options.seed}-{number}.onnx"
            path.write_bytes(model.content)
            print(f"{path} ({model.kind}): {said}", flush=True)
    print(f"{dict(ends)}, at most {worst_mb} MB")
    return int(bool(ends.keys() - {"refused", "lowered"}))


def imported(model: Hostile) -> tuple[str, int]:
    """How the import of a model ended, in a process of its own, and how much memory that took at most, in MB."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reader)
        said = _import(model)
        os.write(writer, said.encode(errors="replace")[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status, usage = os.wait4(child, 0)
    if status:
        said = f"died: {signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else status}"
    return said, usage.ru_maxrss >> 10


def _import(model: Hostile) -> str:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.content)
        try:
            checked = check_model(path, {})
        except ModelError as error:
            return "refused" if "\n" not in error.message else f"several lines: {error.message}"
        except BaseException as error:
            places = reversed(traceback.extract_tb(error.__traceback__)[-4:])
            where = " < ".join(f"{Path(place.filename).name}:{place.lineno}" for place in places)
            return f"raised: {type(error).__name__}: {str(error)[:200]} at {where}"
        return "lowered" if checked.runs_wholly else "refused"
