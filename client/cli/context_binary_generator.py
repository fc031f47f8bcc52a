"""Define the command `gputune context-binary-generator`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gputune.client.cli.begun import begun
from gputune.client.cli.say import INTERRUPTED
from gputune.client.errors import ConfigError
from gputune.client.options.command_line import Grouped, given_of, with_options
from gputune.client.options.files import files_of_command
from gputune.client.options.generator import GENERATOR
from gputune.client.options.power import asked_profile
from gputune.runtime.profiling.levels import level_named

if TYPE_CHECKING:
    from gputune.client.generation.phases import Profiling

log = logging.getLogger(__name__)


@click.command("context-binary-generator", cls=Grouped)
@with_options(*GENERATOR)
def command(**values: Any) -> None:
    """Tune an ONNX model on a target, and write its context binary.

    Every kernel is measured on the target, and verified before it can win. Every measurement is kept in a performance
    cache: the same command, after Ctrl-C or next time, does not measure it again.

    \b
    gputune context-binary-generator --model model.onnx --binary_file model \\
        --output_dir output --input_dimensions x=1,3,224,224 --tuning_effort quick
    """
    from gputune.client.generation.generator import generate
    from gputune.client.generation.request import requested
    from gputune.client.progress import reporting

    given = given_of(values)
    binary = _binary_path(values["output_dir"], values["binary_file"])
    request = requested(given, binary, profiling=_profiling(given), perf_profile=asked_profile(given))
    with reporting(sys.stderr, request.log_level) as progress:
        try:
            generate(request, os.environ, progress, files=files_of_command(), begun=begun())
        except KeyboardInterrupt:
            log.warning("interrupted; what was measured is kept: the same command resumes")
            raise click.exceptions.Exit(INTERRUPTED) from None


def _profiling(given: Mapping[str, Any]) -> Profiling | None:
    """Return what the options ask to record; None for nothing."""
    level, optrace = given.get("profiling_level"), "profiling_option" in given
    if level is None and not optrace:
        return None
    from gputune.client.generation.phases import Profiling

    wanted = level_named(level or "detailed")
    unsaid = click.get_current_context().get_parameter_source("output_dir") is ParameterSource.DEFAULT
    folder = Path("profilelogs") if unsaid else given["output_dir"] / "profilelogs"
    return Profiling("detailed" if optrace and wanted == "basic" else wanted, folder)


def _binary_path(output_dir: Path, binary_file: str) -> Path:
    """output_dir/NAME.bin; an absolute NAME wins, as pathlib joins paths. Raises ConfigError for no name."""
    if binary_file.removesuffix(".bin").rpartition("/")[2] in ("", ".", ".."):
        raise ConfigError(f"--binary_file {binary_file!r} names no file")
    name = binary_file if binary_file.endswith(".bin") else f"{binary_file}.bin"
    return output_dir / name
