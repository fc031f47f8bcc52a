"""gputune performance-cache: the group of commands that look into caches, move measurements and tidy up."""

import click

from gputune.client.cli import cache_explain, cache_look, cache_travel, cache_upkeep


@click.group("performance-cache")
def command() -> None:
    """Look into performance caches, move what they hold, and tidy up."""


for each in (
    cache_explain.explain,
    cache_look.list_files,
    cache_look.show,
    cache_travel.export,
    cache_travel.import_,
    cache_travel.merge,
    cache_upkeep.stats,
    cache_upkeep.verify,
    cache_upkeep.diff,
    cache_upkeep.prune,
):
    command.add_command(each)
