"""Define the command `gputune throughput-net-run`, which throughput_net_run.py runs."""

from typing import Any

import click

from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.option import MAIN
from gputune.client.options.run import NAMED
from gputune.client.options.shared import DEVICE_OPTION, LOG_LEVEL, SUMMARY_JSON


@click.command("throughput-net-run", cls=Grouped)
@with_options(
    NAMED["config_file"].having(
        help='JSON file. "contexts" is a list of {"path", "name", "graph", "input_list", "instances", "group", '
        '"priority"}; only "path" is required. Optional: "groups" ({NAME: {"streams": N}}), "device", "duration" and '
        '"warmup".',
        declared=("--config_file", "--config", "config"),
        group=MAIN,
        click={"required": True},
    ),
    NAMED["duration"].having(
        help='How long to run, such as 30 (seconds), 90s, 10m or 1h30m.  [default: "duration" in the config file, else '
        "10 seconds]",
        group=MAIN,
    ),
    DEVICE_OPTION.having(
        help="Number, or part of the name, of a device in `gputune devices`.  [default: as in the config file]",
        group=MAIN,
    ),
    NAMED["cache_compatibility_mode"].having(group=MAIN),
    NAMED["export_times"].having(
        help="Write the beginning and the duration of every inference of each instance, in ns, to this .csv or .json "
        "file.",
    ),
    LOG_LEVEL,
    SUMMARY_JSON,
)
def command(**values: Any) -> None:
    """Run several contexts at the same time, and measure their throughput.

    Instances of a context run in threads of their own; contexts of a group take turns. The output has inferences per
    second, latency percentiles for each instance and each minute, and joules if the machine has a meter. Every result
    must be equal, bit for bit, to the first result on the same inputs; otherwise the exit code is 10.

    \b
    gputune throughput-net-run --config_file contexts.json --duration 10m \\
        --summary_json run.json
    """
    from gputune.client.cli.throughput_net_run import run_instances  # which a wrong option does without

    run_instances(**values)
