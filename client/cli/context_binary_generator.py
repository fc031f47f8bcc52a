"""Define the command `gputune context-binary-generator`."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gputune.client.cli.begun import begun
from gputune.client.cli.groups import Themed
from gputune.client.cli.options.common import log_level, summary_json
from gputune.client.cli.options.files import INPUT, OUTPUT, OUTPUT_FOLDER, FileText, files_of_command
from gputune.client.cli.options.generation import GenerationOptions, generation_options
from gputune.client.cli.options.originals import backend_option
from gputune.client.cli.options.power import perf_profile_options
from gputune.client.cli.say import INTERRUPTED
from gputune.client.errors import ConfigError
from gputune.client.generation.config.generator_keys import HOST, WEIGHTS
from gputune.client.memory_types import OPTION, MemoryTypes
from gputune.client.progress import reporting
from gputune.runtime.profiling.log import LOG_NAME
from gputune.runtime.profiling.records import LEVELS, SYNONYMS, level_named

if TYPE_CHECKING:
    from gputune.client.generation.phases import Profiling
    from gputune.runtime.power.profiles.perf_profile import PerfProfile

log = logging.getLogger(__name__)


_THEMES = {
    "Main options": ("--model", "--input_dimensions", "--tuning_effort", "--tuning_budget", "--target"),
    "Files": (
        "--binary_file",
        "--output_dir",
        "--ep_context",
        "--ep_context_embed_mode",
        "--config_file",
        "--report",
        "--summary_json",
        "--profiling_level",
        "--profiling_option",
    ),
    "Model": (
        "--precision_mode",
        "--io_type",
        "--keep_float32",
        "--float64",
        "--quantised",
        "--unsupported",
        "--input_value",
        "--set_output_tensors",
        "--enable_intermediate_outputs",
        f"--{OPTION}",
        "--weights",
        "--op_packages",
    ),
    "Device": (
        "--device",
        "--adb",
        "--adb_python",
        "--adb_agent",
        "--token_file",
        "--tls_ca",
        "--tls_cert",
        "--tls_key",
        "--perf_profile",
        "--perf_config_yaml",
    ),
    "Checks": ("--verify", "--input_list", "--fail_under"),
    "Tuning": (
        "--compare_seconds",
        "--compare_again",
        "--wait_for_quiet",
        "--tuning_strategy",
        "--tasks",
        "--pin",
        "--cold",
        "--retry_failures",
    ),
    "Performance cache": ("--performance_cache_dir", "--device_tier", "--cache_mode"),
}


@click.command("context-binary-generator", cls=Themed, themes=_THEMES)
@click.option(
    "--binary_file",
    required=True,
    type=FileText(),
    metavar="NAME",
    help="Name of the context binary; .bin is appended. An absolute path overrides --output_dir.",
)
@click.option(
    "--output_dir",
    type=OUTPUT_FOLDER,
    default=Path("output"),
    show_default=True,
    help="Folder for the context binary.",
)
@backend_option
@generation_options
@click.option(
    "--verify",
    is_flag=True,
    help="Compare the context with onnxruntime. If they differ, name the first operation on the target that differs.",
)
@click.option(
    "--input_list",
    type=INPUT,
    help="Inputs for --verify, in net-run's format.  [default: random inputs]",
)
@click.option(
    "--ep_context",
    type=OUTPUT,
    metavar="FILE.onnx",
    help="Also write an ONNX file that contains or names the context binary, in ONNX Runtime's EPContext operator. "
    "[with --unsupported host: NAME_ctx.onnx next to the context binary]",
)
@click.option(
    "--ep_context_embed_mode",
    type=click.Choice(["0", "1"]),
    help="0, the default: the file of --ep_context names the context binary, which lies in the same folder or below. "
    "1: the file contains the context binary.",
)
@click.option(
    f"--{OPTION}",
    OPTION,
    default="raw",
    show_default=True,
    metavar="TYPE",
    help="raw: inputs and outputs are arrays, which are copied. memhandle: they are memory handles, and loading "
    "allocates no memory for them. NAME=memhandle,... sets single tensors, GRAPH:NAME a tensor of one graph. The "
    "context runs with either kind in any case.",
)
@click.option(
    "--weights",
    type=click.Choice(WEIGHTS),
    help="packed: store weights as the kernels read them. compact: store them as the model has them, and pack them on "
    "the device when the context is loaded; the file is smaller, and loading takes longer. auto, the default: pack "
    "only those at load that packing makes much larger, if loading takes at most 1.2 times as long. Effort none "
    "measures nothing, so auto is packed.",
)
@click.option(
    "--profiling_level",
    type=click.Choice((*LEVELS, *SYNONYMS)),
    help="Write a schematic for reading profiles, NAME_schematic.bin next to the context binary, and the times of the "
    f"generation's phases to {LOG_NAME} in OUTPUT_DIR/profilelogs, or in ./profilelogs without --output_dir. basic: "
    "whole phases. All other levels: also the parts of each phase.",
)
@click.option(
    "--profiling_option",
    type=click.Choice(("optrace",)),
    help="optrace: write the schematic and the log as --profiling_level does, at level detailed or above.",
)
@perf_profile_options
@log_level
@summary_json
def command(
    asked: GenerationOptions,
    binary_file: str,
    output_dir: Path,
    verify: bool,
    input_list: Path | None,
    ep_context: Path | None,
    ep_context_embed_mode: str | None,
    input_output_tensor_mem_type: str,
    weights: str | None,
    profiling_level: str | None,
    profiling_option: str | None,
    perf_profile: PerfProfile | None,
    log_level: str,
    summary_json: Path | None,
) -> None:
    """Tune an ONNX model on a target, and write its context binary.

    Every kernel is measured on the target, and verified before it can win. Every measurement is kept in a performance
    cache: the same command, after Ctrl-C or next time, does not measure it again.

    \b
    gputune context-binary-generator --model model.onnx --binary_file model \\
        --output_dir output --input_dimensions x=1,3,224,224 --tuning_effort quick
    """
    from gputune.client.generation.ep_context import EpContextFile, default_file
    from gputune.client.generation.generator import generate

    if input_list is not None and not verify:
        raise ConfigError("--input_list gives the inputs for --verify; give --verify, too")
    asked = replace(asked, config=asked.config.having(weights=weights))
    binary = _binary_path(output_dir, binary_file)
    if ep_context is None and asked.config.unsupported == HOST:
        ep_context = default_file(binary)
    if ep_context is None and ep_context_embed_mode is not None:
        raise ConfigError("--ep_context_embed_mode is for the file that --ep_context writes; give --ep_context, too")
    request = asked.request(
        binary,
        summary_json=summary_json,
        ep_context=None if ep_context is None else EpContextFile(ep_context, ep_context_embed_mode == "1"),
        memory_types=MemoryTypes.parse(input_output_tensor_mem_type),
        profiling=_profiling(profiling_level, profiling_option == "optrace", output_dir),
        perf_profile=perf_profile,
        verify=verify,
        input_list=input_list,
        log_level=log_level,
    )
    with reporting(sys.stderr, log_level) as progress:
        try:
            generate(request, os.environ, progress, files=files_of_command(), begun=begun())
        except KeyboardInterrupt:
            log.warning("interrupted; what was measured is kept: the same command resumes")
            raise click.exceptions.Exit(INTERRUPTED) from None


def _profiling(level: str | None, optrace: bool, output_dir: Path) -> Profiling | None:
    """Return what the options ask to record; None for nothing."""
    if level is None and not optrace:
        return None
    from gputune.client.generation.phases import Profiling

    wanted = level_named(level or "detailed")
    unsaid = click.get_current_context().get_parameter_source("output_dir") is ParameterSource.DEFAULT
    folder = Path("profilelogs") if unsaid else output_dir / "profilelogs"
    return Profiling("detailed" if optrace and wanted == "basic" else wanted, folder)


def _binary_path(output_dir: Path, binary_file: str) -> Path:
    """output_dir/NAME.bin; an absolute NAME wins, as pathlib joins paths. Raises ConfigError for no name."""
    if binary_file.removesuffix(".bin").rpartition("/")[2] in ("", ".", ".."):
        raise ConfigError(f"--binary_file {binary_file!r} names no file")
    name = binary_file if binary_file.endswith(".bin") else f"{binary_file}.bin"
    return output_dir / name
