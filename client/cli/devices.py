"""gputune devices"""

import click

from gputune.client.cli.device_errors import device_errors
from gputune.client.cli.say import print_json, say
from gputune.core.errors import DeviceNotFound
from gputune.runtime.devices.discovery import choose, discover, wanted_device


@click.command("devices")
@click.option("--json", "as_json", is_flag=True, help="JSON for tools.")
@click.option("--device", metavar="D", help="A name part or number, to see what would be chosen.")
def command(as_json: bool, device: str | None) -> None:
    """List OpenCL devices, whether each one builds and runs a kernel, and which one gputune chooses.

    Every driver is tried in a process of its own. Exits with 8 when no device works.
    """
    with device_errors():
        reports = discover()
    try:
        choice = choose(reports, wanted_device(device))
        chosen, lines = choice.report.index, list(choice.explanation)
    except DeviceNotFound as error:
        chosen, lines = None, [str(error)]
    if as_json:
        print_json({"devices": [r.to_dict() for r in reports], "chosen": chosen, "why": lines})
    else:
        for report in reports:
            say(f"{report.title}: {'works' if report.usable else report.reason}")
        for line in lines:
            say(line)
    if chosen is None:
        raise click.exceptions.Exit(8)
