"""Define the command `gputune devices`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gputune.client.cli.say import print_json, say
from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.kinds import FLAG
from gputune.client.options.option import Option
from gputune.client.options.shared import DEVICE_OPTION, JSON

if TYPE_CHECKING:
    from gputune.runtime.devices.discovery import DeviceReport


@click.command("devices", cls=Grouped)
@with_options(
    JSON,
    DEVICE_OPTION.having(help="Number, or part of the name, of a device: show which device that chooses."),
    Option("memory", FLAG, "Also show how each device takes an application's memory without a copy."),
    Option("features", FLAG, "Also test what each device has beyond OpenCL 1.2, such as half."),
)
def command(as_json: bool, device: str | None, memory: bool, features: bool) -> None:
    """List the OpenCL devices, test each of them, and show which device gputune chooses.

    The test builds and runs a kernel. Every driver is tried in a process of its own. The exit code is 8 if no device
    works.
    """
    from gputune.client.device_errors import device_errors
    from gputune.core.errors import DeviceNotFound
    from gputune.runtime.devices.discovery import choose, discover, wanted_device

    with device_errors():
        reports = discover()
    try:
        choice = choose(reports, wanted_device(device))
        chosen, lines = choice.report, list(choice.explanation)
    except DeviceNotFound as error:
        chosen, lines = None, [str(error)]
    # A device that was asked for by name and needs no driver is not among those that were found.
    asked = [report for report in (*reports, *([] if chosen in reports else [chosen])) if report and report.usable]
    importers = _importers(asked) if memory else []
    proven = [_features(report) for report in asked] if features else []
    if as_json:
        told: dict[str, Any] = {"devices": [report.to_dict() for report in reports]}
        told |= {"chosen": None if chosen is None else chosen.index, "why": lines}
        print_json(told | ({"memory": importers} if memory else {}) | ({"features": proven} if features else {}))
    else:
        for report in reports:
            say(str(report))
        for line in lines:
            say(line)
        for entry in importers:
            say(entry["reason"] or f"memory without a copy on {entry['device']}, the first that takes it:")
            for one in entry["importers"]:
                say(f"  {one['name']}: {one['reason'] or 'works'}")
        for entry in proven:
            say(f"features of {entry['device']}:")
            for one in entry["features"]:
                say(f"  {one['name']}: {one['reason'] or 'works'}")
    if chosen is None:
        raise click.exceptions.Exit(8)


def _importers(reports: Sequence[DeviceReport]) -> list[dict[str, Any]]:
    """Return how each device takes memory, or why it could not be asked."""
    from gputune.core.errors import DeviceNotFound
    from gputune.runtime.devices.discovery import importers_of

    entries = []
    for report in reports:
        reason, found = "", []
        try:
            found = [{"name": name, "reason": reason} for name, reason in importers_of(report)]
        except DeviceNotFound as error:
            reason = str(error)
        entries.append({"index": report.index, "device": _name(report), "reason": reason, "importers": found})
    return entries


def _features(report: DeviceReport) -> dict[str, Any]:
    """Return which features work on a device, and why not the others."""
    from gputune.runtime.devices.features import features_of

    found = [{"name": name, "reason": reason} for name, reason in sorted(features_of(report, fresh=True).items())]
    return {"index": report.index, "device": _name(report), "features": found}


def _name(report: DeviceReport) -> str:
    return report.title if report.index >= 0 or report.identity is None else report.identity.name
