"""Compare persistent kernels and recorded queues with launches one by one, in turns, alone or next to busy programs."""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import tool
from benchmarks.networks import wanted
from benchmarks.options import add_options
from benchmarks.result import Result, told
from benchmarks.turns import in_turns
from models.tune_models import Model

LAUNCHES = "launches"
FORMS = {
    LAUNCHES: {"persistent_kernels": False, "disable_queue_recording": True},
    "persistent": {"disable_queue_recording": True},
    "recorded": {"persistent_kernels": False},
}
"""Settings of contexts. A loaded context returns to launches where its form is slower."""
SPIN = "import signal, sys\nsignal.alarm(int(sys.argv[1]))\nwhile True: pass"
LONGEST_SPIN_SECONDS = 3600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_options(parser, only="", seconds=60.0, device=None, quick=False)
    parser.add_argument("--others", type=int, default=0, metavar="N", help="busy processes beside (default: 0)")


def run(options: argparse.Namespace) -> Result:
    """Measure untuned networks. Raises DeviceOrContextError."""
    rows, figures = [], {}
    for name, (make, _) in wanted(options).items():
        model = make()
        contexts = {form: _context(model, form, options) for form in FORMS}
        with busy(options.others), in_turns(contexts, options) as turns:
            figures[name] = turns.times
        for form, rounds in turns.times.items():
            speed = told(turns.ratio(LAUNCHES, form), 2)
            rows.append((name, form, tool.milliseconds(statistics.median(rounds)), speed, str(len(rounds))))
    return Result(figures, [(("network", "form", "ms", f"times as fast as {LAUNCHES}", "rounds"), rows)])


def _context(model: Model, form: str, options: argparse.Namespace) -> Path:
    folder = options.work / "forms" / f"{model.path.stem}_{form}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    config = folder.with_suffix(".config.json")
    config.write_text(json.dumps(FORMS[form]), encoding="utf-8")
    more = ("--config_file", config)
    return tool.generate(folder, model.path, model.shapes, "none", *more, device=options.device).context


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute all the time; they end after LONGEST_SPIN_SECONDS whatever happens."""
    command = [sys.executable, "-c", SPIN, str(LONGEST_SPIN_SECONDS)]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        time.sleep(0.5 if count else 0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
