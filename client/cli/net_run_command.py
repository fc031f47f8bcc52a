"""Define the command `gputune net-run`, which net_run.py runs."""

from typing import Any

import click

from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.run import ALL


@click.command("net-run", cls=Grouped)
@with_options(*ALL)
def command(**values: Any) -> None:
    """Run context binaries and write their outputs.

    They run on the target of --target or --adb, on the agent of --device, else on this machine's own device, even if
    TARGET_SERVER_SOCKET is set. Times are measured on the machine with the device; what a target adds is
    reported separately.

    \b
    echo "x:=page.raw" > inputs.txt
    gputune net-run --retrieve_context output/model.bin --input_list inputs.txt \\
        --output_dir results --num_inferences 100 --summary_json run.json
    """
    from gputune.client.cli.net_run import run_contexts  # which a wrong option does without

    run_contexts(values)
