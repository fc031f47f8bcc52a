"""Define the command `gputune show-kernel`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputune.client.cli.say import print_json, say
from gputune.client.folders import default_performance_cache_dir
from gputune.client.input_values import Value
from gputune.client.options.command_line import Grouped, given_of, with_options
from gputune.client.options.config import AskedPrecision, Config
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
from gputune.client.options.tuning import TuningOptions
from gputune.core.precision import EXACT

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
        click={"default": "tuned", "show_default": True},
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
def command(
    task: str,
    model: Path,
    input_dimensions: tuple[tuple[str, tuple[int, ...]], ...],
    input_value: Mapping[str, Value],
    precision_mode: str | None,
    quantised: str | None,
    configuration: str,
    as_json: bool,
    op_packages: tuple[str, ...],
    device: str | None,
    performance_cache_dir: Path | None,
    device_tier: str | None,
    **connection: Any,
) -> None:
    """Print the OpenCL source of a task's kernels, and how they are launched.

    TASK is a pattern as in --tasks of context-binary-generator: an op (Conv), a title ('Conv 1a2b3c4d5e'), the
    beginning of a digest, or the name of a node. The kernels of all matching tasks are printed. Their options, sizes
    and arguments are comments, so the output is valid OpenCL C. Nothing is measured, and nothing is written.

    \b
    gputune show-kernel /head/conv --model model.onnx
    gputune show-kernel Conv --model model.onnx --configuration default > conv.cl
    """
    from gputune.client.generation.generator import GenerationRequest, show_kernels
    from gputune.client.generation.kernels import fields_of, lines_of
    from gputune.client.model.model_files import model_files
    from gputune.client.progress import reporting
    from gputune.client.target.connecting import asked_connection
    from gputune.client.tuning.search.effort import EFFORTS

    asked = asked_connection(given_of(connection))
    request = GenerationRequest(
        models=model_files([model], input_dimensions, dict(input_value)),
        binary_file=Path(),
        config=Config(precision=AskedPrecision(precision_mode, quantised=quantised or EXACT)),
        effort=EFFORTS["quick"],  # the least that tunes: whatever was tuned is a winner for it
        performance_cache_dir=performance_cache_dir or default_performance_cache_dir(),
        target=asked.target,
        device=device,
        device_tier=device_tier,
        credentials=asked.credentials,
        adb=asked.adb,
        tuning=TuningOptions(only=parse_patterns(task, "TASK")),
        op_packages=op_packages,
        log_level="warn",
    )
    with reporting(sys.stderr, "warn"):
        kernels = show_kernels(request, os.environ, _chosen(configuration))
    if as_json:
        print_json({"model": str(model), "kernels": fields_of(kernels)})
        return
    for line in lines_of(kernels):
        say(line)


def _chosen(text: str) -> Chosen:
    """Return what --configuration means. Raises ConfigError."""
    if text == "tuned":
        return "tuned"
    return "default" if text == "default" else parse_configuration(text, "--configuration")
