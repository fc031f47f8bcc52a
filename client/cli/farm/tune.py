"""Run `gputune farm tune`, which tunes models on tiers of devices with one command."""

import getpass
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gputune.client.cli.farm.asked import Asked
from gputune.client.cli.farm.packages import pack
from gputune.client.cli.farm.shared import FarmFolder
from gputune.client.cli.say import say
from gputune.client.errors import ConfigError
from gputune.client.farm.dask_engine import DaskEngine
from gputune.client.farm.engine import Engine, FarmError
from gputune.client.farm.hosts.hosting import hosted
from gputune.client.farm.jobs import PACKAGE, JobPart
from gputune.client.farm.local_engine import LocalEngine
from gputune.client.farm.pool import Pool, TierDevices
from gputune.client.farm.run import Run
from gputune.client.generation.generator import generate
from gputune.client.model.op_packages import in_use, load_packages
from gputune.client.options.files import files_of_command
from gputune.client.outputs import check_output
from gputune.client.progress import LoggedProgress, reporting

log = logging.getLogger(__name__)

PARTS_FAILED = 5
"""Exit code where a model could not be tuned on a tier, or not be packed."""
JOIN_SECONDS = 15.0
_WITH_RESUME = {"resume", "scheduler", "devices", "farm_dir", "log_level"}
"""What may be said with --resume: the rest is the job's."""


def run_job(values: Mapping[str, Any]) -> None:
    """Begin the job that options ask for, or continue one, and tell what came of it. Raises GputuneError."""
    context = click.get_current_context()
    scheduler, devices, resume = values["scheduler"], values["devices"], values["resume"]
    asked, farm = Asked.of(values), FarmFolder.asked(values["farm_dir"])
    _check(context, asked, scheduler, devices, resume)
    if asked is not None:
        asked.tell_files(files_of_command())
        check_output(Path(asked.output_dir), folder=True)
        job = farm.journal.begin(asked.to_dict(), getpass.getuser())
    else:
        job = str(resume)
        asked = Asked.read(farm.journal.again(job).asked)
    say(f"job {job}")
    with ExitStack() as stack:
        stack.enter_context(reporting(sys.stderr, values["log_level"]))
        try:
            parts = _run(stack, asked, job, farm, scheduler, devices)
        except BaseException:
            farm.journal.set_state(job, "failed")
            raise
    _conclude(context, asked, job, parts)


def _check(
    context: click.Context, asked: Asked | None, scheduler: str | None, devices: Sequence[str], resume: str | None
) -> None:
    """Raise ConfigError for options that do not go together."""
    if (resume is None) == (asked is None):
        raise ConfigError("give --models for a new job, or --resume JOB for one that was begun")
    if (scheduler is None) == (not devices):
        raise ConfigError("give --scheduler for the devices of a farm, or --device for those of this machine")
    if resume is None:
        return
    for option in context.command.params:
        said = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if said and option.name not in _WITH_RESUME:
            raise ConfigError(f"{option.opts[0]}: --resume continues the job with its original options; drop it")


def _run(
    stack: ExitStack, asked: Asked, job: str, farm: FarmFolder, scheduler: str | None, devices: Sequence[str]
) -> list[JobPart]:
    requests = asked.requests()
    stack.enter_context(in_use(load_packages(asked.op_packages)))  # by all tiers, the last of which ends last
    engine = _engine(stack, farm, scheduler, devices)
    pool = stack.enter_context(Pool(engine, job, asked.tiers, asked.count))
    if not (tiers := _tiers(pool, 0.0 if scheduler is None else JOIN_SECONDS)):
        there = sorted({one.tier for one in engine.devices().values()})
        raise FarmError(f"no device of tier {', '.join(asked.tiers)}; there are {', '.join(there) or 'none at all'}")
    asked.tell_files(files_of_command(), tiers)
    log.info(f"{len(requests)} models on {len(tiers)} tiers: {', '.join(tiers)}")

    def generated(model: Path, tier: str, group: TierDevices) -> str:
        request = replace(requests[model], binary_file=asked.context(model, tier))
        totals = generate(request, os.environ, LoggedProgress(), group)["totals"]
        return f"{totals['tasks']} tasks, {totals['cache_hits']} known"

    def packed(model: Path, done: Sequence[str]) -> str:
        return pack(asked.package(model), [asked.context(model, tier) for tier in done])

    return Run(pool, farm.journal, list(requests), generated, packed).run(tiers)


def _tiers(pool: Pool, seconds: float) -> list[str]:
    """Return the tiers that are there; the first device is waited for, as it may have been started just now."""
    until = time.monotonic() + seconds
    while not (tiers := pool.tiers()) and time.monotonic() < until:
        with pool.changed:
            pool.changed.wait(1.0)
    return tiers


def _engine(stack: ExitStack, farm: FarmFolder, scheduler: str | None, devices: Sequence[str]) -> Engine:
    if scheduler is not None:
        return stack.enter_context(DaskEngine(farm.place(scheduler)))
    engine = stack.enter_context(LocalEngine())
    for place, device in enumerate(devices):
        engine.add(hosted(f"{device}-{place}", device))
    return engine


def _conclude(context: click.Context, asked: Asked, job: str, parts: Sequence[JobPart]) -> None:
    for part in parts:
        model = Path(part.model)
        what = f"{model.name} on {part.tier}" if part.tier != PACKAGE else str(asked.package(model))
        say(f"{what}: {part.state}: {part.said}")
    failed = sum(part.state != "done" for part in parts)
    if failed:
        say(f"{failed} of {len(parts)} parts failed; gputune farm tune --resume {job} tries again")
        context.exit(PARTS_FAILED)
