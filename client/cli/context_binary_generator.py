"""gputune context-binary-generator"""

import os
import sys
from pathlib import Path

import click

from gputune.cache import STATUSES
from gputune.client.cli.options import (
    ConnectionOptions,
    connection_options,
    default_performance_cache_dir,
    log_level,
    parse_input_dimensions,
    summary_json,
)
from gputune.client.config import choose_effort, read_config
from gputune.client.errors import ConfigError
from gputune.client.generator import GenerationRequest, generate
from gputune.client.progress import Reporter
from gputune.client.tuning.effort import EFFORTS

FAILURES = tuple(status for status in STATUSES if status != "ok")


def _statuses(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Callback of --retry_failures."""
    if text is None:
        return ()
    wanted = FAILURES if text == "all" else tuple(part.strip() for part in text.split(","))
    for status in wanted:
        if status not in FAILURES:
            raise click.BadParameter(f"{status!r} is not one of {', '.join(FAILURES)}, or all")
    return wanted


@click.command("context-binary-generator")
@click.option("--model", type=click.Path(path_type=Path), required=True, help="The ONNX model.")
@click.option(
    "--binary_file",
    required=True,
    metavar="NAME",
    help="Name of the context binary; .bin is appended. An absolute path is taken as it is.",
)
@click.option(
    "--output_dir",
    type=click.Path(path_type=Path),
    default=Path("output"),
    show_default=True,
    help="Folder for the context binary.",
)
@click.option(
    "--config_file",
    type=click.Path(path_type=Path),
    help="JSON with tuning_mode, performance_cache_dir, invalidate_performance_cache.",
)
@connection_options
@click.option(
    "--device", metavar="D", help="Device of the embedded server: a name part or number of `gputune devices`."
)
@click.option(
    "--tuning_effort",
    type=click.Choice(tuple(EFFORTS)),
    help="How much is measured; normal unless the config file turns tuning off.",
)
@click.option(
    "--retry_failures",
    is_flag=False,
    flag_value="all",
    metavar="[STATUS,...]",
    callback=_statuses,
    help="Measure again what failed before, also where tuning had come to an end: all of it, or what has one of these "
    f"statuses: {', '.join(FAILURES)}.",
)
@click.option(
    "--input_dimensions",
    metavar="NAME=D0,D1,...",
    multiple=True,
    callback=parse_input_dimensions,
    help="Shape of an input with dynamic dimensions, such as x=1,3,224,224; once per input.",
)
@log_level
@summary_json
def command(
    model: Path,
    binary_file: str,
    output_dir: Path,
    config_file: Path | None,
    connection: ConnectionOptions,
    device: str | None,
    tuning_effort: str | None,
    retry_failures: tuple[str, ...],
    input_dimensions: dict[str, tuple[int, ...]],
    log_level: str,
    summary_json: Path | None,
) -> None:
    """Tune a model on a target and write its context binary.

    Every kernel is measured on the target and verified before it may win; every measurement is kept in a performance
    cache, so that the same command after Ctrl-C, or next time, does not measure again.

    \b
    gputune context-binary-generator --model model.onnx --binary_file model \\
        --output_dir output --input_dimensions x=1,3,224,224 --tuning_effort quick
    """
    config = read_config(config_file)
    effort = choose_effort(config, tuning_effort)
    if retry_failures and effort.name == "none":
        raise ConfigError("--retry_failures measures, and tuning is off: drop it, or choose another --tuning_effort")
    reporter = Reporter(sys.stderr, log_level)
    try:
        generate(
            GenerationRequest(
                model=model,
                input_dimensions=input_dimensions,
                binary_file=_binary_path(output_dir, binary_file),
                config=config,
                effort=effort,
                performance_cache_dir=config.performance_cache_dir or default_performance_cache_dir(),
                target=connection.target,
                device=device,
                credentials=connection.credentials,
                adb=connection.adb,
                retry_failures=retry_failures,
                summary_json=summary_json,
            ),
            os.environ,
            reporter,
        )
    except KeyboardInterrupt:
        reporter.warn("interrupted; what was measured is kept: the same command resumes")
        raise


def _binary_path(output_dir: Path, binary_file: str) -> Path:
    """output_dir/NAME.bin; an absolute NAME wins, as pathlib joins paths."""
    name = binary_file if binary_file.endswith(".bin") else f"{binary_file}.bin"
    return output_dir / name
