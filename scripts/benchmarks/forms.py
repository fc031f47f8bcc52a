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
from benchmarks.result import Result, told
from gputune.client.compare.comparing import rounds_of
from gputune.client.compare.turns import Contender, Process
from gputune.client.progress import SILENT
from gputune.client.tuning.measuring.intervals import paired_ratio
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
    parser.add_argument("--only", default="", metavar="TEXT,...", help="networks whose names are or hold one of these")
    parser.add_argument("--others", type=int, default=0, metavar="N", help="busy processes beside (default: 0)")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each network (default: %(default)s)")
    parser.add_argument("--device", help="the device to use, as gputune's --device")
    parser.add_argument("--quick", action="store_true", help="only show that everything works: a small model")


def run(options: argparse.Namespace) -> Result:
    """Measure untuned networks. Raises DeviceOrContextError."""
    rows, figures = [], {}
    for name, (make, _) in wanted(options).items():
        model = make()
        contexts = {form: _context(model, form, options) for form in FORMS}
        with Process() as process, busy(options.others):
            arguments = [(form, {"context": str(path), "device": options.device}) for form, path in contexts.items()]
            contenders = [Contender(form, process, "context", given) for form, given in arguments]
            times = figures[name] = rounds_of(contenders, options.seconds, SILENT, whole=True)
        for form, rounds in times.items():
            speed = told(paired_ratio(times[LAUNCHES], rounds), 2)
            rows.append((name, form, tool.milliseconds(statistics.median(rounds)), speed, str(len(rounds))))
    return Result(figures, [(("network", "form", "ms", f"times as fast as {LAUNCHES}", "rounds"), rows)])


def _context(model: Model, form: str, options: argparse.Namespace) -> Path:
    folder = options.work / "forms" / f"{model.path.stem}_{form}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    config = folder.with_suffix(".config.json")
    config.write_text(json.dumps({"tuning_mode": False, **FORMS[form]}), encoding="utf-8")
    arguments: list[str | Path] = [
        "--model",
        model.path,
        "--binary_file",
        "context",
        "--config_file",
        config,
        "--tuning_effort",
        "none",
    ]
    arguments += ["--input_dimensions", model.shapes] if model.shapes else []
    arguments += ["--device", options.device] if options.device else []
    return tool.gputune(folder, "context-binary-generator", *arguments).context


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
