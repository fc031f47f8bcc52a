"""Show what a farm is doing, and end it: `gputune farm status`, `jobs`, `drain` and `stop`."""

import time
from contextlib import closing
from pathlib import Path

from gputune.client.cli.farm.shared import FarmFolder
from gputune.client.cli.say import print_json, say
from gputune.client.cli.tables import print_block
from gputune.client.errors import ConfigError
from gputune.client.farm.dask_engine import DaskEngine
from gputune.client.farm.engine import Call, DeviceGone, FarmError
from gputune.client.farm.status import devices_table, farm_page, jobs_table
from gputune.client.outputs import write_text


def show_devices(scheduler: str, as_json: bool, html: Path | None, every: float | None, farm_dir: Path | None) -> None:
    """Print or write the devices of a farm. Raises ConfigError, FarmError."""
    farm = FarmFolder.asked(farm_dir)
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


def show_jobs(as_json: bool, farm_dir: Path | None) -> None:
    """Print the jobs of this user. Raises FarmError."""
    found = FarmFolder.asked(farm_dir).journal.jobs()
    if as_json:
        print_json({"jobs": [{**vars(job), "parts": [vars(part) for part in job.parts]} for job in found]})
        return
    print_block(jobs_table(found))


def drain_device(name: str, scheduler: str, farm_dir: Path | None) -> None:
    """Have a device leave the farm. Raises FarmError."""
    with closing(DaskEngine(FarmFolder.asked(farm_dir).place(scheduler))) as engine:
        if name not in engine.devices():
            raise FarmError(f"there is no device {name}; there are {', '.join(sorted(engine.devices())) or 'none'}")
        _drain(engine, name)
    say(f"{name} leaves when its batch is done")


def stop_farm(scheduler: str, farm_dir: Path | None) -> None:
    """Have all devices leave, and stop the scheduler. Raises FarmError."""
    with closing(DaskEngine(FarmFolder.asked(farm_dir).place(scheduler))) as engine:
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
