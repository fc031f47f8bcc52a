"""Define the command `gputune memory-report`."""

from pathlib import Path

import click

from gputune.client.cli.say import print_json, say
from gputune.client.device_errors import device_errors
from gputune.client.errors import ConfigError
from gputune.client.options.files import CONTEXT, CONTEXT_BINARY, OUTPUT
from gputune.client.outputs import check_output
from gputune.client.report.memory import read_memory
from gputune.client.report.writer import write_memory_page


@click.command("memory-report")
@click.option(*CONTEXT_BINARY, type=CONTEXT, required=True, metavar="F", help="Context binary.")
@click.option("--output", type=OUTPUT, metavar="F", help="Page to write, such as memory.html.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the content of the page as JSON for tools, on standard output."
)
def command(context_binary: Path, output: Path | None, as_json: bool) -> None:
    """Write a page that shows where each tensor of a context lies in the arenas, and when. It needs no network.

    For each graph it shows the bytes of its arenas, the bound below which no plan can go, and every tensor with its
    offset and the operations during which it is held. Only the file is read; no device is needed.

    \b
    gputune memory-report --context_binary out/m.bin --output memory.html
    """
    if output is None and not as_json:
        raise ConfigError("nothing to make: give --output memory.html for the page, or --json for its numbers")
    if output is not None:
        check_output(output)
    with device_errors(context_binary):
        report = read_memory(context_binary)
    if output is not None:
        write_memory_page(report, output)
        say(f"wrote {output}", err=as_json)
    if as_json:
        print_json(report.to_dict())
