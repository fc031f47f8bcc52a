"""Define `gputune farm`, the group of commands for many devices."""

import click

from gputune.client.cli.farm import look, serve, tune
from gputune.client.cli.groups import CommandGroup


@click.group("farm", cls=CommandGroup)
def command() -> None:
    """Tune many models on many devices.

    \b
    gputune farm scheduler                            # one per farm
    gputune farm worker --device 0                    # one per device
    gputune farm tune --models DIR --output_dir out   # for each set of models
    """


for each in (
    serve.init,
    serve.scheduler,
    serve.worker,
    tune.tune,
    look.status,
    look.jobs,
    look.drain,
    look.stop,
):
    command.add_command(each)
