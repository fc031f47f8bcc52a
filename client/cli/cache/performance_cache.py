"""Define `gputune performance-cache`, the group of commands that inspect caches, move measurements and tidy up."""

import click

from gputune.client.cli.cache import explain, look, travel, upkeep
from gputune.client.cli.groups import CommandGroup


@click.group("performance-cache", cls=CommandGroup)
def command() -> None:
    """Show, move and clean up performance caches."""


for each in (
    explain.explain,
    look.list_files,
    look.show,
    travel.export,
    travel.import_,
    travel.merge,
    upkeep.stats,
    upkeep.verify,
    upkeep.diff,
    upkeep.prune,
):
    command.add_command(each)
