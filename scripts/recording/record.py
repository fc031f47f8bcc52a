"""Record how long a task's configurations take on a target, for `--device replay:FILE` and `scripts/bench search`.

    scripts/recording/record --op MatMul --problem '{"m": 64, "k": 64, "n": 64}' --output matmul.jsonl.gz
    scripts/recording/record --model model.onnx --task '/head/*' --sample 200 --output recordings/

The whole space is measured, or a sample of it in addition to the default and the starters. If interrupted, the same
command continues. A folder gets one file for each task, and can be replayed as a whole: `--device replay:recordings`.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

import tool
from gputune.client.errors import ConfigError, GputuneError
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.plan import Task
from gputune.client.options.tuning import TuningOptions
from gputune.client.progress import Progress, reporting
from gputune.client.report.problems import problem_of
from gputune.client.target.connecting import choose_target
from gputune.client.target.transport.credentials import read_credentials
from gputune.client.tuning.search.task_search import task_key
from gputune.client.tuning.tuner import names_of
from gputune.core.json_text import json_value, numbers
from gputune.core.logs import LEVELS
from gputune.kernels.catalogue import families
from gputune.runtime.devices import recording
from recording.recorder import Recorder, Way
from recording.t4 import write_t4

log = logging.getLogger("gputune.record")


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    result = tool.parser("scripts/recording/record", __doc__)
    what = result.add_argument_group("what is recorded")
    what.add_argument("--op", choices=tuple(families()), help="kind of kernel; --problem says which")
    what.add_argument(
        "--problem", metavar="JSON", help="the problem's fields; those with a usual value may be left out"
    )
    what.add_argument("--model", type=Path, help="record tasks of this ONNX model")
    what.add_argument(
        "--task", metavar="PATTERN[,..]", help="which of the model's tasks: op, node or first digits of key"
    )
    what.add_argument(
        "--input_dimensions", action="append", default=[], metavar="NAME=D0,D1,...", help="a dynamic input's shape"
    )
    what.add_argument("--sample", type=_count, metavar="N", help="so many configurations at random (default: all)")
    where = result.add_argument_group("where")
    where.add_argument("--target", metavar="HOST:PORT", help="the target server (default: as the generator finds it)")
    where.add_argument("--device", metavar="D", help="device of an embedded server")
    where.add_argument("--token_file", type=Path, metavar="F", help="file with the target server's token")
    how = result.add_argument_group("how it is measured")
    how.add_argument("--samples", type=_count, default=16, help="of a finalist of a batch (default: %(default)s)")
    how.add_argument("--sample_ns", type=_count, default=1_000_000, help="least of a sample (default: %(default)s)")
    how.add_argument("--warm_up_ns", type=_count, default=100_000_000, help="of a batch (default: %(default)s)")
    how.add_argument("--cold", action="store_true", help="every launch finds the device's caches without its data")
    result.add_argument(
        "--output", type=Path, required=True, metavar="F", help=f"a new file *{recording.SUFFIX}, or a folder"
    )
    result.add_argument("--t4", type=Path, metavar="F", help="write the recording as T4 as well (one task only)")
    result.add_argument("--log_level", choices=LEVELS, default="info", help="(default: %(default)s)")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Records; returns the exit code."""
    options = parser().parse_args(arguments)
    with reporting(sys.stderr, options.log_level) as progress:
        try:
            tasks = _tasks(options)
            paths = _outputs(options, tasks)
            _record(options, tasks, paths, progress)
        except GputuneError as error:
            print(f"scripts/recording/record: error: {error}", file=sys.stderr)
            return error.exit_code
        except OSError as error:
            print(f"scripts/recording/record: error: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            log.warning("interrupted; what was measured is kept: the same command goes on")
            return 130
    return 0


def _record(options: argparse.Namespace, tasks: Sequence[Task], paths: Sequence[Path], progress: Progress) -> None:
    credentials = read_credentials({}, options.token_file)
    way = Way(options.sample, options.samples, options.sample_ns, options.warm_up_ns, options.cold)
    target = choose_target(
        options.target,
        os.environ,
        options.device,
        log_level=options.log_level,
        credentials=credentials,
        notice=log.warning,
    )
    with target, target.connect() as client:
        for line in target.explanation:
            log.info(line)
        recorders = [Recorder(client, task, path, way, progress) for task, path in zip(tasks, paths, strict=True)]
        with progress.running("recording", sum(len(recorder.left) for recorder in recorders)):
            for recorder, path in zip(recorders, paths, strict=True):
                recorder.run()
                log.info(f"wrote {path}: {len(recorder.chosen)} of {recorder.header.space_size} configurations")
    if options.t4 is not None:
        write_t4(options.t4, recording.read(paths[0]))
        log.info(f"wrote {options.t4}")


def _tasks(options: argparse.Namespace) -> list[Task]:
    """The tasks that are asked for. Raises ConfigError, ModelError."""
    if (options.op is None) == (options.model is None):
        raise ConfigError("give either --op with --problem, or --model")
    if options.op is not None:
        for name in ("task", "input_dimensions"):
            if getattr(options, name):
                raise ConfigError(f"--{name} is for --model, and --op is given")
        return [Task(options.op, _problem(options.op, options.problem), 1)]
    if options.problem is not None:
        raise ConfigError("--problem is for --op, and --model is given")
    plan = lower(read_model(options.model, dict(map(_dimensions, options.input_dimensions))))
    wanted = TuningOptions(only=() if options.task is None else tuple(options.task.split(",")))
    names = {task: names_of(task, plan.nodes_of.get(task, ())) for task in plan.tasks}
    wanted.check_bound(list(names.values()))
    return [task for task in plan.tasks if wanted.wants(names[task])]


def _problem(op: str, text: str | None) -> object:
    try:
        fields = numbers(json_value(text or ""))
    except ValueError as error:
        raise ConfigError(f"--problem is no JSON: {error}") from None
    problem = problem_of(op, fields) if isinstance(fields, dict) else None
    if problem is None:
        names = [field.name for field in dataclasses.fields(get_type_hints(families()[op].work)["problem"])]
        raise ConfigError(f"--problem: {text} is no problem of {op}; its fields are {', '.join(names)}")
    return problem


def _outputs(options: argparse.Namespace, tasks: Sequence[Task]) -> list[Path]:
    """A new file for each task. Raises ConfigError, OSError."""
    one_file = options.output.name.endswith(recording.SUFFIX)
    if len(tasks) > 1 and (one_file or options.t4 is not None):
        option = "--output" if one_file else "--t4"
        raise ConfigError(f"{option} names one file for {len(tasks)} tasks; choose one by --task")
    folder = options.output.parent if one_file else options.output
    folder.mkdir(parents=True, exist_ok=True)
    paths = [options.output if one_file else folder / _file_name(task) for task in tasks]
    for path in paths:
        if path.exists():
            raise ConfigError(f"{path} is there already; delete it to record it again")
    return paths


def _file_name(task: Task) -> str:
    return f"{task.op.lower()}_{task_key(task).digest[:10]}{recording.SUFFIX}"


def _dimensions(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, shape = text.rpartition("=")
    try:
        return name, tuple(_count(size) for size in shape.split(","))
    except argparse.ArgumentTypeError:
        raise ConfigError(f"--input_dimensions: {text!r} is not of the form NAME=1,3,224,224") from None


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
