"""Define the command `gputune show-kernel`."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from gputune.client.cli.options.caches import device_tier_option, folder_option
from gputune.client.cli.options.common import ConnectionOptions, connection_options, json_option, op_packages
from gputune.client.cli.options.files import INPUT
from gputune.client.cli.options.generation import embedded_device, input_dimensions, input_values
from gputune.client.cli.options.generation import quantised as quantised_option
from gputune.client.cli.say import print_json, say
from gputune.client.folders import default_performance_cache_dir
from gputune.client.generation.config import Config
from gputune.client.generation.config.precision import MODE
from gputune.client.generation.generator import GenerationRequest, show_kernels
from gputune.client.generation.kernels import Chosen, fields_of, lines_of
from gputune.client.model.graph import PRECISION_MODES
from gputune.client.model.importer import Value
from gputune.client.model.model_files import model_files
from gputune.client.progress import reporting
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.options import TuningOptions, parse_configuration, parse_patterns


@click.command("show-kernel")
@click.argument("task", metavar="TASK")
@click.option("--model", type=INPUT, metavar="FILE", required=True, help="ONNX model.")
@input_dimensions
@input_values
@click.option(
    f"--{MODE}",
    type=click.Choice(PRECISION_MODES),
    help="Show kernels for this mode of context-binary-generator.  [default: as the model has floats]",
)
@quantised_option
@click.option(
    "--configuration",
    default="tuned",
    show_default=True,
    metavar="tuned|default|NAME=VALUE,...",
    help="tuned: the winner in the performance cache, measured alone; without a winner, the default. NAME=VALUE,...: "
    "your own, as in --pin, with a value for every parameter.",
)
@json_option
@op_packages
@connection_options
@embedded_device
@folder_option
@device_tier_option
def command(
    task: str,
    model: Path,
    input_dimensions: tuple[tuple[str, tuple[int, ...]], ...],
    input_values: Mapping[str, Value],
    precision_mode: str | None,
    quantised: str | None,
    configuration: str,
    as_json: bool,
    op_packages: tuple[str, ...],
    connection: ConnectionOptions,
    device: str | None,
    performance_cache_dir: Path | None,
    device_tier: str | None,
) -> None:
    """Print the OpenCL source of a task's kernels, and how they are launched.

    TASK is a pattern as in --tasks of context-binary-generator: an op (Conv), a title ('Conv 1a2b3c4d5e'), the
    beginning of a digest, or the name of a node. The kernels of all matching tasks are printed. Their options, sizes
    and arguments are comments, so the output is valid OpenCL C. Nothing is measured, and nothing is written.

    \b
    gputune show-kernel /head/conv --model model.onnx
    gputune show-kernel Conv --model model.onnx --configuration default > conv.cl
    """
    request = GenerationRequest(
        models=model_files([model], input_dimensions, input_values),
        binary_file=Path(),
        config=Config().having(precision_mode=precision_mode, quantised=quantised),
        effort=EFFORTS["quick"],  # the least that tunes: whatever was tuned is a winner for it
        performance_cache_dir=performance_cache_dir or default_performance_cache_dir(),
        target=connection.target,
        device=device,
        device_tier=device_tier,
        credentials=connection.credentials,
        adb=connection.adb,
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
