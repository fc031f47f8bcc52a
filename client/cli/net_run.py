"""gputune net-run"""

import logging
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import click

from gputune.client.cli.device_errors import device_errors
from gputune.client.cli.options.common import ConnectionOptions, connection_options, log_level, summary_json
from gputune.client.errors import ConfigError
from gputune.client.input_lists import NO_INPUTS, InputLine, read_input_list, read_inputs
from gputune.client.outputs import check_output, write_json
from gputune.client.progress import reporting
from gputune.client.run import net_run
from gputune.client.target.connecting import choose_target
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.runtime import Executor
from gputune.runtime.execution.loading import open_executor

log = logging.getLogger(__name__)


@click.command("net-run")
@click.option("--retrieve_context", type=click.Path(path_type=Path), required=True, help="The context binary.")
@click.option(
    "--input_list",
    type=click.Path(path_type=Path),
    help="One inference a line: NAME:=FILE NAME2:=FILE; raw values, or .npy files. What has blanks stands in double "
    "quotes. Not needed for a graph without inputs.",
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
@click.option(
    "--shared_buffer",
    is_flag=True,
    help="Inputs and outputs are memory handles, which the device uses as they lie: nothing is copied. --summary_json "
    "has counters that prove it, or say why something was.",
)
@click.option("--device", metavar="D", help="A name part or number of `gputune devices`; else the context's own.")
@click.option("--graph", metavar="NAME", help="Which graph of the context; the first otherwise.")
@click.option(
    "--cache_compatibility_mode",
    type=click.Choice(["permissive", "strict"]),
    default="permissive",
    show_default=True,
    help="On another device or driver: build from source with a warning, or refuse.",
)
@click.option(
    "--profile",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Then time as many inferences on the first line's inputs, operation by operation, and write that as JSON.",
)
@connection_options(otherwise="else this machine's own device is used")
@log_level
@summary_json
def command(
    retrieve_context: Path,
    input_list: Path | None,
    output_dir: Path,
    num_inferences: int | None,
    npy: bool,
    shared_buffer: bool,
    device: str | None,
    graph: str | None,
    cache_compatibility_mode: Literal["permissive", "strict"],
    profile: Path | None,
    connection: ConnectionOptions,
    log_level: str,
    summary_json: Path | None,
) -> None:
    """Run a context binary and write its outputs: with --target or --adb on that target, otherwise on this
    machine's own device, whatever TARGET_SERVER_SOCKET says.

    Times are those of the machine with the device; what a target adds to them is reported beside them.

    \b
    echo "x:=page.raw" > inputs.txt
    gputune net-run --retrieve_context output/model.bin --input_list inputs.txt \\
        --output_dir results --num_inferences 100 --summary_json run.json
    """
    check_output(output_dir, folder=True)
    for file in (summary_json, profile):
        if file is not None:
            check_output(file)
    if shared_buffer and profile is not None:
        raise ConfigError("--shared_buffer: a profile is of inferences with copies; leave one of the two away")
    strict = cache_compatibility_mode == "strict"
    with reporting(sys.stderr, log_level) as progress, ExitStack() as stack:
        executor: net_run.AnyExecutor
        if connection.target is None and connection.adb is None:
            _refuse_unused(connection)
            executor = local = _local(retrieve_context, device, cache_compatibility_mode, graph, profile is not None)
            infer = net_run.in_place(local) if shared_buffer else local.run_timed
        elif shared_buffer:
            raise ConfigError("--shared_buffer: a target's memory is not this machine's; leave it away")
        else:
            executor = _remote(stack, connection, device, retrieve_context, graph, strict)
            infer = executor.run_timed
        loading = len(executor.warnings)
        for text in executor.warnings:
            log.warning(f"{retrieve_context}: {text}")
        if not executor.computes:
            log.warning("the null device computes nothing: outputs are zeros, not results")
        lines = _lines(input_list, executor)
        count = num_inferences or len(lines)
        inference_ns: list[int] = []
        with progress.running("inference", count), device_errors(retrieve_context):
            for number, outputs, elapsed_ns in net_run.run(infer, executor.graph.inputs, lines, count):
                inference_ns.append(elapsed_ns)
                if number < len(lines):
                    net_run.write_result(output_dir / f"Result_{number}", outputs, npy)
                progress.advance(1, executor.graph.name)
        for text in [*executor.warnings[loading:], net_run.mostly_by_launches(executor)]:
            if text:
                log.warning(text)
        summary = net_run.summarise(executor, inference_ns)
        log.info(_in_short(executor, summary))
        if summary_json is not None:
            write_json(summary_json, summary)
        if profile is not None:
            inputs = read_inputs(lines[0], executor.graph.inputs)
            with device_errors(retrieve_context):
                content = net_run.profile(executor, inputs, count)
            write_json(profile, content)
            for line in net_run.profile_table(content):
                log.info(line)


def _lines(input_list: Path | None, executor: net_run.AnyExecutor) -> list[InputLine]:
    """The inferences that are asked for."""
    inputs = executor.graph.inputs
    if input_list is not None:
        return read_input_list(input_list, inputs)
    if inputs:
        names = ", ".join(repr(tensor.name) for tensor in inputs)
        raise ConfigError(f"--input_list: graph {executor.graph.name!r} has inputs ({names}); name their files")
    return [NO_INPUTS]


def _refuse_unused(connection: ConnectionOptions) -> None:
    if connection.credentials.options:
        names = " and ".join(connection.credentials.options)
        raise ConfigError(f"{names}: for a target, and none is named; give --target, too")


def _local(
    path: Path, device: str | None, mode: Literal["permissive", "strict"], graph: str | None, profiling: bool
) -> Executor:
    with device_errors(path):
        return open_executor(path, device, mode, graph, profiling)


def _remote(
    stack: ExitStack,
    connection: ConnectionOptions,
    device: str | None,
    path: Path,
    graph: str | None,
    strict: bool,
) -> RemoteExecutor:
    """Loaded on the target of the command line; `stack` closes the connection and stops a server of our own."""
    target = stack.enter_context(
        choose_target(
            connection.target,
            os.environ,
            device,
            credentials=connection.credentials,
            adb=connection.adb,
            notice=log.warning,
        )
    )
    for line in target.explanation:
        log.info(line)
    client = stack.enter_context(target.connect())
    with device_errors(path):
        return RemoteExecutor(client, path, graph, strict)


def _in_short(executor: net_run.AnyExecutor, summary: dict[str, Any]) -> str:
    times = [
        ("load", summary["load_ns"]),
        ("first", summary["first_inference_ns"]),
        ("median", summary["median_inference_ns"]),
    ]
    if "median_round_trip_ns" in summary:
        times.append(("round trip", summary["median_round_trip_ns"]))
    said = ", ".join(f"{name} {ns / 1e6:.2f} ms" for name, ns in times)
    return f"{len(summary['inference_ns'])} inferences on {executor.device.name}: {said}"
