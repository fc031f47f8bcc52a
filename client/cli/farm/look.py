"""Define `gputune farm status`, `jobs`, `drain` and `stop`, which show what a farm is doing and end it."""

import time
from contextlib import closing
from pathlib import Path

import click

from gputune.client.cli.farm.shared import FarmFolder, farm_dir_option, scheduler_option
from gputune.client.cli.say import print_json, say
from gputune.client.cli.tables import print_block
from gputune.client.errors import ConfigError
from gputune.client.farm.dask_engine import DaskEngine
from gputune.client.farm.engine import Call, DeviceGone, FarmError
from gputune.client.farm.status import devices_table, farm_page, jobs_table
from gputune.client.options.command_line import click_option
from gputune.client.options.files import OUTPUT
from gputune.client.options.shared import JSON
from gputune.client.outputs import write_text


@click.command("status")
@scheduler_option()
@click_option(JSON)
@click.option("--html", type=OUTPUT, metavar="FILE", help="Write a page about the farm and its jobs.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.5),
    metavar="SECONDS",
    help="Write the page again after each interval, in seconds, until interrupted. A browser that shows the page "
    "reloads it.",
)
@farm_dir_option
def status(scheduler: str, as_json: bool, html: Path | None, every: float | None, farm: FarmFolder) -> None:
    """Show the devices of a farm, and what each device does."""
    if every is not None and html is None:
        raise ConfigError("--every says how often a page is written; give --html, too")
    with closing(DaskEngine(farm.place(scheduler))) as engine:
        while html is not None:
            write_text(html, farm_page(engine.devices(), farm.journal.jobs(), scheduler, every or 0.0))
            if every is None:
                say(f"wrote {html}")
                return
            time.sleep(every)
        devices = engine.devices()
    if as_json:
        print_json({name: {**one.to_dict(), "report": dict(one.report)} for name, one in devices.items()})
        return
    print_block(devices_table(devices))
    say(f"{len(devices)} devices of {len({one.tier for one in devices.values()})} tiers")


@click.command("jobs")
@click_option(JSON)
@farm_dir_option
def jobs(as_json: bool, farm: FarmFolder) -> None:
    """List your jobs: their models, tiers and states."""
    found = farm.journal.jobs()
    if as_json:
        print_json({"jobs": [{**vars(job), "parts": [vars(part) for part in job.parts]} for job in found]})
        return
    print_block(jobs_table(found))


@click.command("drain")
@click.argument("name")
@scheduler_option()
@farm_dir_option
def drain(name: str, scheduler: str, farm: FarmFolder) -> None:
    """Remove a device from the farm when its current batch is done."""
    with closing(DaskEngine(farm.place(scheduler))) as engine:
        if name not in engine.devices():
            raise FarmError(f"there is no device {name}; there are {', '.join(sorted(engine.devices())) or 'none'}")
        _drain(engine, name)
    say(f"{name} leaves when its batch is done")


@click.command("stop")
@scheduler_option()
@farm_dir_option
def stop(scheduler: str, farm: FarmFolder) -> None:
    """Stop the scheduler, and remove all devices when their current batches are done."""
    with closing(DaskEngine(farm.place(scheduler))) as engine:
        names = sorted(engine.devices())
        for name in names:
            _drain(engine, name)
        engine.stop_scheduler()
    say(f"stopped: {len(names)} devices leave when their batches are done")


def _drain(engine: DaskEngine, name: str) -> None:
    try:
        engine.call(name, Call("drain"))
    except DeviceGone as error:
        raise FarmError(str(error)) from None
