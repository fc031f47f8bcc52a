"""Define the options that say how many inferences to run and what to keep of them."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gputune.client.durations import parse_duration
from gputune.client.errors import ConfigError
from gputune.client.options.command_line import click_option
from gputune.client.options.files import OUTPUT
from gputune.client.options.shared import WAIT_FOR_QUIET


@dataclass(frozen=True)
class InferenceOptions:
    """What a command line says about its inferences. count, seconds: how many, or how long; at most one of the two.
    keep_outputs: of how many inferences results are written at most, None for all lines of the input list.
    wait_for_quiet: the minutes to wait at most before, if other programs keep the machine busy."""

    count: int | None = None
    seconds: float | None = None
    warmup: int = 0
    keep_outputs: int | None = None
    export_times: Path | None = None
    wait_for_quiet: int | None = None


def inference_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them as `inferences`, an InferenceOptions."""

    @functools.wraps(command)
    def with_inferences(
        *arguments: Any,
        num_inferences: int | None,
        duration: str | None,
        warmup: int,
        keep_num_outputs: int | None,
        export_times: Path | None,
        wait_for_quiet: int | None,
        **options: Any,
    ) -> Any:
        if num_inferences is not None and duration is not None:
            raise ConfigError("--duration and --num_inferences both say when a run ends; give one of them")
        seconds = None if duration is None else parse_duration(duration, "--duration")
        wanted = InferenceOptions(
            num_inferences, seconds, warmup, keep_num_outputs, export_times, wait_for_quiet=wait_for_quiet
        )
        return command(*arguments, inferences=wanted, **options)

    added: Callable[..., Any] = with_inferences
    for option in reversed(_OPTIONS):
        added = option(added)
    return added


_OPTIONS = (
    click.option(
        "--num_inferences",
        type=click.IntRange(min=1),
        help="Number of inferences of each context. After the last line of the input list, it starts over and writes "
        "no more outputs.  [default: one per line]",
    ),
    click.option(
        "--duration",
        metavar="SECONDS",
        help="Instead of a number, the time in which inferences of each context begin, such as 30 (seconds), 90s, 10m "
        "or 1h30m.",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="N",
        help="Number of inferences to run first; they are neither counted nor written.",
    ),
    click_option(WAIT_FOR_QUIET),
    click.option(
        "--keep_num_outputs",
        type=click.IntRange(min=0),
        metavar="N",
        help="Write the outputs of the first N inferences only; 0 writes none.  [default: one per line]",
    ),
    click.option(
        "--export_times",
        type=OUTPUT,
        metavar="F",
        help="Write the beginning and the duration of every inference, in ns, to this .csv or .json file.",
    ),
)
