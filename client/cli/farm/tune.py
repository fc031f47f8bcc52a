"""gputune farm tune: models on tiers of devices, in one command."""

import getpass
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from gputune.client.cli.farm.shared import FarmFolder, farm_dir_option
from gputune.client.cli.options.caches import folder_option
from gputune.client.cli.options.common import default_performance_cache_dir, log_level
from gputune.client.cli.say import say
from gputune.client.errors import ConfigError, ModelError
from gputune.client.farm.dask_engine import DaskEngine
from gputune.client.farm.engine import Engine, FarmError
from gputune.client.farm.hosts.hosting import hosted
from gputune.client.farm.jobs import Part
from gputune.client.farm.local_engine import LocalEngine
from gputune.client.farm.pool import Group, Pool
from gputune.client.farm.run import Run
from gputune.client.generation.config import read_config
from gputune.client.generation.generator import generate
from gputune.client.generation.request import GenerationRequest
from gputune.client.model.model_files import ModelFile
from gputune.client.progress import LoggedProgress, reporting
from gputune.client.tuning.search.effort import EFFORTS

log = logging.getLogger(__name__)

PARTS_FAILED = 5
"""Exit code where a model could not be tuned on a tier."""


@dataclass(frozen=True)
class _Asked:
    """What a job is; kept in the journal, so that it can be resumed."""

    models: tuple[str, ...]
    tiers: tuple[str, ...]
    count: int | None
    effort: str
    output_dir: str
    performance_cache_dir: str
    config_file: str | None

    @classmethod
    def read(cls, plain: Mapping[str, object]) -> "_Asked":
        """Raises FarmError for what this version has not written."""
        try:
            found = cls(**{**plain, "models": tuple(plain["models"]), "tiers": tuple(plain["tiers"])})  # type: ignore[arg-type]
        except (KeyError, TypeError) as error:
            raise FarmError(f"what the job asked for cannot be read: {error}; begin a new one") from None
        if found.effort not in EFFORTS or not all(isinstance(one, str) for one in (*found.models, *found.tiers)):
            raise FarmError("what the job asked for cannot be read; begin a new one")
        return found


@click.command("tune")
@click.option("--models", "models", metavar="DIR|FILE", multiple=True, help="ONNX models, or folders of them; several "
    "times, or with commas between.")  # fmt: skip
@click.option("--tiers", default="*", show_default=True, metavar="GLOB[,...]", help="Which tiers of devices, by "
    "the name that `gputune farm status` shows.")  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), help="How many devices of each tier at most; all by default.")
@click.option("--tuning_effort", type=click.Choice(tuple(EFFORTS)), default="normal", show_default=True)
@click.option("--output_dir", type=click.Path(path_type=Path), default=Path("output"), show_default=True,
    help="Folder for context binaries, MODEL.TIER.bin.")  # fmt: skip
@click.option("--config_file", type=click.Path(path_type=Path), help="As for context-binary-generator.")
@click.option("--scheduler", metavar="HOST:PORT", help="Use the devices of this farm.")
@click.option("--device", "devices", multiple=True, metavar="D", help="Without a scheduler: use this device of this "
    "machine; several times for several.")  # fmt: skip
@click.option("--resume", metavar="JOB", help="Go on with a job that has ended or was lost.")
@folder_option
@farm_dir_option
@log_level
@click.pass_context
def tune(
    context: click.Context,
    models: tuple[str, ...],
    tiers: str,
    count: int | None,
    tuning_effort: str,
    output_dir: Path,
    config_file: Path | None,
    scheduler: str | None,
    devices: tuple[str, ...],
    resume: str | None,
    performance_cache_dir: Path | None,
    farm: FarmFolder,
    log_level: str,
) -> None:
    """Tune models on all devices of a farm: those of a tier share the work, tiers work side by side.

    Every measurement is in the performance cache before the next one; --resume goes on from there.
    """
    if (resume is None) == (not models):
        raise ConfigError("give --models for a new job, or --resume JOB for one that was begun")
    if (scheduler is None) == (not devices):
        raise ConfigError("give --scheduler for the devices of a farm, or --device for those of this machine")
    if resume is None:
        folder = performance_cache_dir or default_performance_cache_dir()
        patterns = tuple(part.strip() for part in tiers.split(",") if part.strip())
        found = tuple(str(path.resolve()) for path in _models(models))
        config = None if config_file is None else str(config_file.resolve())
        asked = _Asked(found, patterns, count, tuning_effort, str(output_dir.resolve()), str(folder.resolve()), config)
        job = farm.journal.begin(vars(asked), getpass.getuser())
    else:
        job, asked = resume, _Asked.read(farm.journal.again(resume).asked)
    say(f"job {job}")
    with ExitStack() as stack:
        stack.enter_context(reporting(sys.stderr, log_level))
        try:
            parts = _run(stack, asked, job, farm, scheduler, devices)
        except BaseException:
            farm.journal.set_state(job, "failed")
            raise
    _conclude(context, job, parts)


def _run(
    stack: ExitStack, asked: _Asked, job: str, farm: FarmFolder, scheduler: str | None, devices: Sequence[str]
) -> list[Part]:
    engine = _engine(stack, farm, scheduler, devices)
    pool = stack.enter_context(Pool(engine, job, asked.tiers, asked.count))
    if not (tiers := pool.tiers()):
        there = sorted({one.tier for one in engine.devices().values()})
        raise FarmError(f"no device of tier {', '.join(asked.tiers)}; there are {', '.join(there) or 'none at all'}")
    log.info(f"{len(asked.models)} models on {len(tiers)} tiers: {', '.join(tiers)}")
    models = [Path(model) for model in asked.models]
    return Run(pool, farm.journal, models, _generating(asked)).run(tiers)


def _engine(stack: ExitStack, farm: FarmFolder, scheduler: str | None, devices: Sequence[str]) -> Engine:
    if scheduler is not None:
        return stack.enter_context(DaskEngine(farm.place(scheduler)))
    engine = stack.enter_context(LocalEngine())
    for place, device in enumerate(devices):
        engine.add(hosted(f"{device}-{place}", device))
    return engine


def _generating(asked: _Asked) -> Callable[[Path, str, Group], str]:
    config = read_config(None if asked.config_file is None else Path(asked.config_file))

    def generated(model: Path, tier: str, group: Group) -> str:
        request = GenerationRequest(
            models=[ModelFile(model)],
            binary_file=Path(asked.output_dir) / f"{model.stem}.{tier}.bin",
            config=config,
            effort=EFFORTS[asked.effort],
            performance_cache_dir=Path(asked.performance_cache_dir),
            tuning=config.tuning,
        )
        totals = generate(request, os.environ, LoggedProgress(), group)["totals"]
        return f"{totals['tasks']} tasks, {totals['cache_hits']} known"

    return generated


def _models(given: Sequence[str]) -> list[Path]:
    """The files that are named, and those in folders. Raises ModelError, ConfigError."""
    found: list[Path] = []
    for text in (part.strip() for value in given for part in value.split(",") if part.strip()):
        path = Path(text)
        inside = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
        if not inside or not all(one.is_file() for one in inside):
            raise ModelError(f"there is no ONNX model at {path}")
        found += inside
    stems = [path.stem for path in found]
    if twice := {stem for stem in stems if stems.count(stem) > 1}:
        raise ConfigError(f"two models are called {', '.join(sorted(twice))}; their contexts would be one file")
    return found


def _conclude(context: click.Context, job: str, parts: Sequence[Part]) -> None:
    for part in parts:
        say(f"{Path(part.model).name} on {part.tier}: {part.state}: {part.said}")
    failed = sum(part.state != "done" for part in parts)
    if failed:
        say(f"{failed} of {len(parts)} parts failed; gputune farm tune --resume {job} tries again")
        context.exit(PARTS_FAILED)
