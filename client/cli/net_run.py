"""gputune net-run"""

import sys
import warnings
from pathlib import Path
from typing import Literal

import click

from gputune.client import net_run
from gputune.client.cli.device_errors import device_errors
from gputune.client.cli.options import log_level, summary_json
from gputune.client.outputs import check_output
from gputune.client.progress import Reporter
from gputune.client.summary import write_json
from gputune.runtime import load


@click.command("net-run")
@click.option("--retrieve_context", type=click.Path(path_type=Path), required=True, help="The context binary.")
@click.option(
    "--input_list",
    type=click.Path(path_type=Path),
    required=True,
    help="One inference a line: NAME:=FILE NAME2:=FILE; raw values, or .npy files.",
)
@click.option(
    "--output_dir",
    type=click.Path(path_type=Path),
    default=Path("output"),
    show_default=True,
    help="Folder for Result_N/NAME.raw, N counting the lines of the input list.",
)
@click.option(
    "--num_inferences",
    type=click.IntRange(min=1),
    help="How many inferences; starts over in the list when it is used up, writing nothing new. "
    "[default: one per line]",
)
@click.option("--npy", is_flag=True, help="Write NAME.npy beside NAME.raw.")
@click.option("--device", metavar="D", help="A name part or number of `gputune devices`; else the context's own.")
@click.option("--graph", metavar="NAME", help="Which graph of the context; the first otherwise.")
@click.option(
    "--cache_compatibility_mode",
    type=click.Choice(["permissive", "strict"]),
    default="permissive",
    show_default=True,
    help="On another device or driver: build from source with a warning, or refuse.",
)
@log_level
@summary_json
def command(
    retrieve_context: Path,
    input_list: Path,
    output_dir: Path,
    num_inferences: int | None,
    npy: bool,
    device: str | None,
    graph: str | None,
    cache_compatibility_mode: Literal["permissive", "strict"],
    log_level: str,
    summary_json: Path | None,
) -> None:
    """Run a context binary on this machine's device and write its outputs.

    \b
    echo "x:=page.raw" > inputs.txt
    gputune net-run --retrieve_context output/model.bin --input_list inputs.txt \\
        --output_dir results --num_inferences 100 --summary_json run.json
    """
    reporter = Reporter(sys.stderr, log_level)
    check_output(output_dir, folder=True)
    if summary_json is not None:
        check_output(summary_json)
    with device_errors(retrieve_context), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are said below, once, in the reporter's form
        executor = load(retrieve_context, device=device, cache_compatibility_mode=cache_compatibility_mode, graph=graph)
    for text in executor.warnings:
        reporter.warn(f"{retrieve_context}: {text}")
    if not executor.computes:
        reporter.warn("the null device computes nothing: outputs are zeros, not results")
    lines = net_run.read_input_list(input_list, executor.graph.inputs)
    count = num_inferences or len(lines)
    inference_ns: list[int] = []
    with reporter, device_errors(retrieve_context):
        reporter.begin("inference", count)
        for number, outputs, elapsed_ns in net_run.run(executor, lines, count):
            inference_ns.append(elapsed_ns)
            if number < len(lines):
                net_run.write_result(output_dir / f"Result_{number}", outputs, npy)
            reporter.advance(1, executor.graph.name)
    summary = net_run.summarise(executor, inference_ns)
    reporter.info(
        f"{count} inferences on {executor.device.name}: load {executor.load_ns / 1e6:.1f} ms, "
        f"first {inference_ns[0] / 1e6:.2f} ms, median {summary['median_inference_ns'] / 1e6:.2f} ms"
    )
    if summary_json is not None:
        write_json(summary_json, summary)
