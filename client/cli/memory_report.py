"""Define the command `gputune memory-report`."""

from pathlib import Path

import click

from gputune.client.cli.say import print_json, say
from gputune.client.errors import ConfigError
from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.shared import CONTEXT_OPTION, JSON, OUTPUT_FILE
from gputune.client.outputs import check_output, write_text


@click.command("memory-report", cls=Grouped)
@with_options(
    CONTEXT_OPTION,
    OUTPUT_FILE.having(help="Page to write, such as memory.html."),
    JSON.having(help="Print the content of the page as JSON for tools, on standard output."),
)
def command(context_binary: Path, output: Path | None, as_json: bool) -> None:
    """Write a page that shows where each tensor of a context lies in the arenas, and when. It needs no network.

    For each graph it shows the bytes of its arenas, the bound below which no plan can go, and every tensor with its
    offset and the operations during which it is held. Only the file is read; no device is needed.

    \b
    gputune memory-report --context_binary out/m.bin --output memory.html
    """
    from gputune.client.device_errors import device_errors  # what a wrong option does without
    from gputune.client.report.memory import read_memory
    from gputune.client.report.sections.memory import memory_page

    if output is None and not as_json:
        raise ConfigError("nothing to make: give --output memory.html for the page, or --json for its numbers")
    if output is not None:
        check_output(output)
    with device_errors(context_binary):
        report = read_memory(context_binary)
    if output is not None:
        write_text(output, memory_page(report))
        say(f"wrote {output}", err=as_json)
    if as_json:
        print_json(report.to_dict())
