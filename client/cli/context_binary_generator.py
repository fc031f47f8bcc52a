"""gputune context-binary-generator"""

import os
import sys
from pathlib import Path

import click

from gputune.client.cli.cache_words import folder_option
from gputune.client.cli.options import (
    ConnectionOptions,
    connection_options,
    default_performance_cache_dir,
    log_level,
    op_packages,
    parse_input_dimensions,
    summary_json,
)
from gputune.client.cli.tuning_options import TuningWishes, tuning_options
from gputune.client.config import SUPPORTED, Config, choose_effort, read_config
from gputune.client.errors import ConfigError
from gputune.client.generator import GenerationRequest, generate
from gputune.client.progress import Reporter
from gputune.client.tuning.effort import EFFORTS


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
    help=f"JSON with any of {', '.join(SUPPORTED)}. An option comes before the key that says the same.",
)
@connection_options(several="Several with the same device, with a comma between them, share the tuning.")
@click.option(
    "--device",
    metavar="D",
    help="Device of the embedded server: a name part or number of `gputune devices`, null, or replay:FILE for a "
    "recording.",
)
@folder_option
@click.option(
    "--device_tier",
    metavar="NAME",
    help="Keep measurements in this tier's performance cache file instead of the device's own.",
)
@click.option(
    "--tuning_effort",
    type=click.Choice(tuple(EFFORTS)),
    help="How much is measured; normal unless the config file turns tuning off.",
)
@tuning_options
@click.option(
    "--input_dimensions",
    metavar="NAME=D0,D1,...",
    multiple=True,
    callback=parse_input_dimensions,
    help="Shape of an input with dynamic dimensions, such as x=1,3,224,224; once per input. Several, as in "
    "'x=1,3,48,320;x=1,3,48,640', make a graph for each.",
)
@op_packages
@click.option("--verify", is_flag=True, help="Compare the context with onnxruntime; on a miss, name the first tensor.")
@click.option(
    "--input_list",
    type=click.Path(path_type=Path),
    help="Inputs for --verify, as net-run takes them; random ones otherwise.",
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
    performance_cache_dir: Path | None,
    device_tier: str | None,
    tuning_effort: str | None,
    wishes: TuningWishes,
    input_dimensions: tuple[dict[str, tuple[int, ...]], ...],
    op_packages: tuple[str, ...],
    verify: bool,
    input_list: Path | None,
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
    if input_list is not None and not verify:
        raise ConfigError("--input_list has the inputs of --verify; give --verify, too")
    config = read_config(config_file)
    effort = choose_effort(config, tuning_effort)
    given = (*wishes.given, *(["--performance_cache_dir"] if performance_cache_dir else []))
    if given and effort.name == "none":
        raise ConfigError(
            f"{' and '.join(given)}: tuning is off, and this is about tuning; drop it, or choose another "
            "--tuning_effort"
        )
    reporter = Reporter(sys.stderr, log_level)
    try:
        generate(
            GenerationRequest(
                model=model,
                input_dimensions=input_dimensions,
                binary_file=_binary_path(output_dir, binary_file),
                config=config,
                effort=effort,
                performance_cache_dir=(
                    performance_cache_dir or config.performance_cache_dir or default_performance_cache_dir()
                ),
                target=_target(config, connection, device),
                device=device,
                device_tier=device_tier,
                credentials=connection.credentials,
                adb=connection.adb,
                tuning=wishes.over(config.tuning),
                summary_json=summary_json,
                op_packages=op_packages,
                verify=verify,
                input_list=input_list,
            ),
            os.environ,
            reporter,
        )
    except KeyboardInterrupt:
        reporter.warn("interrupted; what was measured is kept: the same command resumes")
        raise


def _target(config: Config, connection: ConnectionOptions, device: str | None) -> str | None:
    """What --target says, else the config file. Raises ConfigError where another option means another server."""
    if connection.target is not None or config.target is None:
        return connection.target
    for option, value in (("--device", device), ("--adb", connection.adb)):
        if value is not None:
            raise ConfigError(f"{option} contradicts the target {config.target} in the config file; drop one of them")
    return config.target


def _binary_path(output_dir: Path, binary_file: str) -> Path:
    """output_dir/NAME.bin; an absolute NAME wins, as pathlib joins paths."""
    name = binary_file if binary_file.endswith(".bin") else f"{binary_file}.bin"
    return output_dir / name
