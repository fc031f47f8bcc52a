"""Define `gputune farm`, the group of commands for many devices; each loads what runs it when it runs."""

from typing import Any

import click

from gputune.client.cli.groups import CommandGroup
from gputune.client.options import farm
from gputune.client.options.command_line import with_options
from gputune.client.options.shared import JSON


@click.group("farm", cls=CommandGroup)
def command() -> None:
    """Tune many models on many devices.

    \b
    gputune farm scheduler                            # one per farm
    gputune farm worker --device 0                    # one per device
    gputune farm tune --models DIR --output_dir out   # for each set of models
    """


@command.command("init")
@with_options(*farm.INIT)
def init(**values: Any) -> None:
    """Create a certificate authority, and a certificate by which this machine identifies itself in a farm.

    With --member NAME, also write a folder members/NAME for another machine. Copy it there as that machine's
    --farm_dir, readable only for its user.
    """
    from gputune.client.cli.farm.serve import make_certificates

    make_certificates(**values)


@command.command("scheduler")
@with_options(*farm.SERVED)
def scheduler(**values: Any) -> None:
    """Run the scheduler of a farm; workers connect to it."""
    from gputune.client.cli.farm.serve import run_scheduler

    run_scheduler(**values)


@command.command("worker")
@with_options(*farm.WORKER)
def worker(**values: Any) -> None:
    """Add a device to a farm: of this machine, of a target server, or of a phone over adb.

    The device is locked, so that no other farm can take it, and checked by building and running a kernel.
    """
    from gputune.client.cli.farm.serve import run_worker

    run_worker(**values)


@command.command("tune")
@with_options(*farm.TUNE)
def tune(**values: Any) -> None:
    """Tune models on all devices of a farm. Devices of a tier share the work, and tiers work in parallel.

    The result is a package for each model, from which each device takes the context that fits it best. Every
    measurement is in the performance cache before the next begins; --resume continues from there.
    """
    from gputune.client.cli.farm.tune import run_job

    run_job(values)


@command.command("status")
@with_options(*farm.STATUS)
def status(**values: Any) -> None:
    """Show the devices of a farm, and what each device does."""
    from gputune.client.cli.farm.look import show_devices

    show_devices(**values)


@command.command("jobs")
@with_options(JSON, farm.FARM_DIR)
def jobs(**values: Any) -> None:
    """List your jobs: their models, tiers and states."""
    from gputune.client.cli.farm.look import show_jobs

    show_jobs(**values)


@command.command("drain")
@click.argument("name")
@with_options(farm.SCHEDULER, farm.FARM_DIR)
def drain(**values: Any) -> None:
    """Remove a device from the farm when its current batch is done."""
    from gputune.client.cli.farm.look import drain_device

    drain_device(**values)


@command.command("stop")
@with_options(farm.SCHEDULER, farm.FARM_DIR)
def stop(**values: Any) -> None:
    """Stop the scheduler, and remove all devices when their current batches are done."""
    from gputune.client.cli.farm.look import stop_farm

    stop_farm(**values)
