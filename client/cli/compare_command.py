"""Define the command `gputune compare`, which compare.py runs."""

from typing import Any

import click

from gputune.cache.record import EFFORTS
from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.files import MODEL, OUTPUT
from gputune.client.options.kinds import file
from gputune.client.options.option import FILES, MAIN, Kind, Option
from gputune.client.options.shared import (
    CONTEXT_OPTION,
    DEVICE_OPTION,
    INPUT_DIMENSIONS,
    INPUT_VALUE,
    LOG_LEVEL,
    SUMMARY_JSON,
    TUNING_EFFORT,
    WAIT_FOR_QUIET,
)

SECONDS = 60.0
"""The longest time of a comparison, unless you give another."""


@click.command("compare", cls=Grouped)
@with_options(
    Option("model", file(MODEL, "FILE"), "ONNX model.", group=MAIN, click={"required": True}),
    CONTEXT_OPTION.having(
        help="Context binary of the model, or the ONNX file of --unsupported host.  [default: tune the model first, "
        "with what is known already]",
        click={},
    ),
    TUNING_EFFORT.having(
        help="How much to measure if the model is tuned first.  [default: normal]",
        click={"type": click.Choice(tuple(name for name in EFFORTS if name != "none"))},
    ),
    INPUT_DIMENSIONS,
    Option(
        "compare_seconds",
        Kind(click={"type": click.FloatRange(min=0, min_open=True), "metavar": "S"}),
        "Longest time to compare, in seconds; it ends earlier when it is certain which contender is faster.",
        group=MAIN,
        shown=SECONDS,
    ),
    INPUT_VALUE,
    DEVICE_OPTION.having(help="Number, or part of the name, of a device in `gputune devices`, or null."),
    WAIT_FOR_QUIET,
    SUMMARY_JSON,
    Option("chart", file(OUTPUT, "FILE.svg"), "Write a chart to this file, as SVG.", group=FILES),
    LOG_LEVEL,
)
def command(**values: Any) -> None:
    """Compare a tuned model with an untuned model and with other engines, on this machine.

    The contenders are the tuned context, a context of effort none, onnxruntime, and OpenVINO if it is installed. If the
    tuned context is a model in parts, so is the untuned context; onnxruntime runs both, with their parts on the device.
    A context that is untuned itself is called so, and has no untuned twin. The command fails if the context's inputs or
    outputs are not the model's, or if it computes something else.
    Contenders take turns in rounds. Each has its own process, which is stopped while another process runs, and ratios
    are of times in the same round. The comparison ends as soon as the result is certain, or when its time is up. The
    other engines run on the CPU, with as many threads as the OpenCL device has cores if it is a CPU, else with a thread
    for each core.

    \b
    gputune compare --model m.onnx --input_dimensions x=1,3,224,224 \\
        --chart gain.svg
    """
    from gputune.client.cli.compare import run_comparison  # which a wrong option does without

    run_comparison(**values)
