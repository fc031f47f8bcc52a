"""Define the command `gputune throughput-net-run`."""

import logging
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from gputune.client.device_errors import device_errors
from gputune.client.errors import WrongResults
from gputune.client.input_lists import files_named
from gputune.client.named_files import context_files
from gputune.client.options.files import files_of_command
from gputune.client.outputs import check_output, write_summary
from gputune.client.progress import Progress, reporting
from gputune.client.run.inferences import check_export, export_times
from gputune.client.run.throughput.config import Plan, read_plan
from gputune.client.run.throughput.contexts import Loaded, load
from gputune.client.run.throughput.meters import Energy, find_meters
from gputune.client.run.throughput.nvml import find_gpus
from gputune.client.run.throughput.running import Throughput
from gputune.client.run.throughput.summary import lines_of, slower_minutes, summarise
from gputune.runtime.devices.discovery import replayed_files
from gputune.runtime.loading.verdict import Compatibility

log = logging.getLogger(__name__)


def run_instances(
    config: Path,
    duration: float | None,
    device: str | None,
    cache_compatibility_mode: Compatibility,
    export_times: Path | None,
    log_level: str,
    summary_json: Path | None,
) -> None:
    """Run contexts as `gputune throughput-net-run` asks for it. Raises GputuneError."""
    plan = _asked(read_plan(config), duration, device)
    _tell_inputs(plan)
    if export_times is not None:
        check_export(export_times, "--export_times")
    for file in (summary_json, export_times):
        if file is not None:
            check_output(file)
    with reporting(sys.stderr, log_level) as progress, ExitStack() as stack:
        with device_errors():
            loaded = load(plan, stack, cache_compatibility_mode)
        _warn(loaded)
        _measure(plan, loaded, progress, summary_json, export_times)


def _asked(plan: Plan, duration: float | None, device: str | None) -> Plan:
    """Return the plan with the command line's wishes, which go first."""
    return replace(plan, seconds=plan.seconds if duration is None else duration, device=device or plan.device)


def _tell_inputs(plan: Plan) -> None:
    """Tell the files that a plan names, and those that they name."""
    files = files_of_command()
    for context in plan.contexts:
        for path in (context.path, *context_files(context.path)):
            files.read(path, "a context of --config_file,")
        for path in [] if context.input_list is None else (context.input_list, *files_named(context.input_list)):
            files.read(path, "an input of --config_file,")
    for path in replayed_files(plan.device):
        files.read(path, "--device")


def _warn(loaded: Loaded) -> None:
    for context in loaded.contexts.values():
        for text in context.warnings:
            log.warning(f"{context.plan.path}: {text}")
    if not loaded.computes:
        log.warning("the null device computes nothing: outputs are zeros, not results")


def _measure(plan: Plan, loaded: Loaded, progress: Progress, summary_json: Path | None, times: Path | None) -> None:
    """Run it and tell what came out, also of a run that has failed or was interrupted. Raises WrongResults,
    DeviceOrContextError, KeyboardInterrupt."""
    run = Throughput(loaded.instances, plan.seconds, plan.warmup, _energy())
    run.run(progress)
    _tell(summary := summarise(loaded, run))
    if summary_json is not None:
        write_summary(summary_json, summary)
    if times is not None and run.inferences:
        export_times(times, {counted.instance.name: counted.times for counted in run.counted})
    _raise(run)


def _raise(run: Throughput) -> None:
    """Raise what ends the command with an exit code of its own, if anything does."""
    if run.failure is not None:
        with device_errors(run.failure.instance.context.path):
            raise run.failure.error
    if wrong := next((counted.first_wrong for counted in run.counted if counted.wrong), ""):
        total = sum(counted.wrong for counted in run.counted)
        raise WrongResults(f"{total} results differ from the first result on the same inputs; {wrong}")
    if run.interrupted:
        raise KeyboardInterrupt


def _energy() -> Energy:
    files, gpus = find_meters(), find_gpus()
    energy = Energy([*files.meters, *gpus.meters], [*files.problems, *gpus.problems])
    if not energy.meters and not energy.problems:
        energy.problems.append("no energy meter found (RAPL, hwmon, battery, NVML)")
    return energy


def _tell(summary: dict[str, Any]) -> None:
    for text in slower_minutes(summary):
        log.warning(text)
    for line in lines_of(summary):
        log.info(line)
