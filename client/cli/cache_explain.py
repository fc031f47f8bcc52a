"""gputune performance-cache explain: why a generation of a model would measure, before it does."""

import os
import sys
from pathlib import Path

import click

from gputune.cache import PerformanceCache, tier_of
from gputune.client.alternatives import Alternatives
from gputune.client.cli.cache_words import as_json_option, folder_option, print_json, warned
from gputune.client.cli.options import (
    ConnectionOptions,
    connection_options,
    default_performance_cache_dir,
    parse_input_dimensions,
)
from gputune.client.cli.printable import printable
from gputune.client.errors import ConfigError
from gputune.client.explaining import fields_of, lines_of
from gputune.client.importer import read_model
from gputune.client.progress import Reporter
from gputune.client.target import choose_target
from gputune.client.tuning.effort import EFFORTS
from gputune.client.tuning.options import TuningOptions
from gputune.client.tuning.task_search import task_key
from gputune.client.tuning.tuner import Tuner
from gputune.runtime.identity import DeviceIdentity


@click.command("explain")
@click.option("--model", type=click.Path(path_type=Path), required=True, metavar="M", help="The ONNX model.")
@click.option(
    "--input_dimensions",
    metavar="NAME=D0,D1,...",
    multiple=True,
    callback=parse_input_dimensions,
    help="Shape of an input with dynamic dimensions, such as x=1,3,224,224; once per input.",
)
@click.option("--task", "prefix", default="", metavar="DIGEST", help="Only tasks whose digest starts so.")
@click.option("--cold", is_flag=True, help="For measurements with cold caches.")
@connection_options
@click.option("--device", metavar="NAME", help="Device of an embedded server, as `gputune devices` names it.")
@folder_option
@as_json_option
def explain(
    model: Path,
    input_dimensions: tuple[dict[str, tuple[int, ...]], ...],
    prefix: str,
    cold: bool,
    connection: ConnectionOptions,
    device: str | None,
    performance_cache_dir: Path | None,
    as_json: bool,
) -> None:
    """Say of every task of a model whether the cache knows it on this target.

    \b
    hit      a generation uses it and measures nothing
    stale    it was tuned on this device, but something has changed since: what, from what to what
    seeded   it was tuned on other devices, or near ones were: that is measured first
    new      nothing is known of it

    Nothing is measured and nothing is written.
    """
    reporter = Reporter(sys.stderr, "warn" if as_json else "info")
    alternatives = Alternatives(read_model(model, input_dimensions[0] if input_dimensions else {}))
    tasks = [task for task in alternatives.tasks if task_key(task).digest.startswith(prefix.lower())]
    if not tasks:
        raise ConfigError(f"no task of {model} has a digest that starts with {prefix!r}")
    target = choose_target(
        connection.target,
        os.environ,
        device,
        credentials=connection.credentials,
        adb=connection.adb,
        notice=reporter.warn,
        speaker=reporter,
    )
    with target, target.connect() as client:
        identity = DeviceIdentity.from_dict(client.device)
        tier = tier_of(identity.name, identity.compute_units, identity.vendor, identity.device_version)
        path = (performance_cache_dir or default_performance_cache_dir()) / tier.file_name
        with PerformanceCache.open_readonly(path, warn=warned) as cache:
            tuner = Tuner([client], cache, EFFORTS["quick"], reporter, TuningOptions(cold=cold))
            verdicts = tuner.verdicts(tasks)
    if as_json:
        print_json({"file": str(path), "model": str(model), **fields_of(verdicts, alternatives.nodes_of)})
        return
    for line in lines_of(verdicts, alternatives.nodes_of):
        click.echo(printable(line))
