"""Define the command `gputune show-kernel`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputune.client.cli.say import print_json, say
from gputune.client.options.command_line import Grouped, given_of, with_options
from gputune.client.options.files import INPUT
from gputune.client.options.generator import MODEL_OPTION
from gputune.client.options.kinds import file, text
from gputune.client.options.option import MAIN, Option
from gputune.client.options.shared import (
    DEVICE_OPTION,
    DEVICE_TIER,
    DIMENSIONS_OF_MODELS,
    JSON,
    OP_PACKAGES,
    PERFORMANCE_CACHE_DIR,
    PRECISION_MODE,
    QUANTISED,
    VALUES_OF_MODELS,
    connection,
)
from gputune.client.options.tasks import parse_configuration, parse_patterns

if TYPE_CHECKING:
    from gputune.client.generation.kernels import Chosen


@click.command("show-kernel", cls=Grouped)
@click.argument("task", metavar="TASK")
@with_options(
    MODEL_OPTION.having(help="ONNX model.", kind=file(INPUT, "FILE")),
    DIMENSIONS_OF_MODELS,
    Option(
        "configuration",
        text("tuned|default|NAME=VALUE,..."),
        "tuned: the winner in the performance cache, measured alone; without a winner, the default. NAME=VALUE,...: "
        "your own, as in --pin, with a value for every parameter.",
        group=MAIN,
        shown="tuned",
    ),
    VALUES_OF_MODELS,
    PRECISION_MODE.having(
        help="Show kernels for this mode of context-binary-generator.  [default: as the model has floats]"
    ),
    QUANTISED,
    JSON,
    OP_PACKAGES,
    DEVICE_OPTION,
    PERFORMANCE_CACHE_DIR,
    DEVICE_TIER,
    *connection(),
)
def command(task: str, configuration: str, as_json: bool, **values: Any) -> None:
    """Print the OpenCL source of a task's kernels, and how they are launched.

    TASK is a pattern as in --tasks of context-binary-generator: an op (Conv), a title ('Conv 1a2b3c4d5e'), the
    beginning of a digest, or the name of a node. The kernels of all matching tasks are printed. Their options, sizes
    and arguments are comments, so the output is valid OpenCL C. Nothing is measured, and nothing is written.

    \b
    gputune show-kernel /head/conv --model model.onnx
    gputune show-kernel Conv --model model.onnx --configuration default > conv.cl
    """
    from gputune.client.generation.generator import show_kernels
    from gputune.client.generation.kernels import fields_of, lines_of
    from gputune.client.generation.request import requested
    from gputune.client.progress import reporting

    asked = {"model": [values["model"]], "tasks": parse_patterns(task, "TASK")}
    asked["tuning_effort"] = "quick"  # the least that tunes: whatever was tuned is a winner for it
    request = requested({**given_of(values), **asked}, Path(), log_level="warn")
    with reporting(sys.stderr, "warn"):
        kernels = show_kernels(request, os.environ, _chosen(configuration))
    if as_json:
        print_json({"model": str(values["model"]), "kernels": fields_of(kernels)})
        return
    for line in lines_of(kernels):
        say(line)


def _chosen(text: str) -> Chosen:
    """Return what --configuration means. Raises ConfigError."""
    if text == "tuned":
        return "tuned"
    return "default" if text == "default" else parse_configuration(text, "--configuration")
