"""Write the profile of net-run: a log of inferences on the first line of an input list, here or on a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gputune.client.errors import ConfigError, TargetError
from gputune.client.input_lists import read_inputs
from gputune.client.outputs import writing
from gputune.client.progress import Progress
from gputune.client.run.net_run import GraphRun, InPlace, median_ns
from gputune.client.run.steps import Steps
from gputune.client.target.remote_executor import RemoteExecutor, Values
from gputune.client.viewer.analysis.forms import Forms, forms_of
from gputune.client.viewer.profile import graph_profile
from gputune.core.errors import MalformedLog
from gputune.runtime import Executor
from gputune.runtime.loading.in_parts import ModelInParts
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.profiling.levels import LOG_NAME, Level, level_named
from gputune.runtime.profiling.log import Log, read_log
from gputune.runtime.profiling.profiler import Profiler
from gputune.runtime.profiling.records import no_times_inside

COMPARED = 25
"""Inferences that take turns with such that are not recorded, so that the log says what recording costs."""
FOLDER = "profilelogs"
TABLE_ROWS = 10


def level_of(level: str | None, option: str | None, profile: bool) -> Level | None:
    """Return the level that options ask for, None for none: optrace, as the original tools call it, needs every
    timestamp of each launch. Raises ConfigError for options that contradict each other."""
    if option is not None:
        if level is not None and level_named(level) == "basic":
            raise ConfigError("--profiling_option optrace: needs launches, which --profiling_level basic does not time")
        return "qhas"
    if level is not None:
        return level_named(level)
    return "detailed" if profile else None


def log_path(output_dir: Path | None) -> Path:
    """Return where the log lies: in a folder of the output folder, where one was asked for, else of the current one."""
    return (output_dir or Path()) / FOLDER / LOG_NAME


def record(jobs: Mapping[str, GraphRun], level: Level, path: Path, progress: Progress, most_events: int = 0) -> Log:
    """Record as many inferences of each job as it has, on the inputs of its first line, and read the log.
    most_events: how many inferences and launches are recorded at most, 0 for any number. Raises OutputError,
    ConfigError, also where not one inference of each job may be recorded, and as the executors do."""
    if most_events:
        jobs = _within(jobs, level, most_events)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with progress.running("profiling", sum(job.extent.count for job in jobs.values())):
            first = next(iter(jobs.values()))
            if isinstance(first.executor, RemoteExecutor):
                path.write_bytes(_from_target(first, level))
            elif isinstance(first.executor, ModelInParts):
                _record_parts(first, first.executor, level, path, progress)
            else:
                _record_here(jobs, level, path, progress)
        return _read(path)


def _within(jobs: Mapping[str, GraphRun], level: Level, most_events: int) -> dict[str, GraphRun]:
    """Return the jobs with as many inferences as have so many events together, each job with the same share of them."""
    each = most_events // len(jobs)
    fewer = {}
    for name, job in jobs.items():
        executor = job.executor
        graphs = executor.parts if isinstance(executor, ModelInParts) else (executor.graph,)
        events = sum(1 + (0 if level == "basic" else len(graph.launches)) for graph in graphs)
        if each < events:
            raise ConfigError(
                f"num_max_events: {most_events} for {len(jobs)} contexts is too few: one inference of graph "
                f"{job.executor.graph.name!r} has {events} events at level {level}"
            )
        extent = replace(job.extent, count=min(job.extent.count, each // events))
        fewer[name] = replace(job, extent=extent)
    return fewer


def _record_here(jobs: Mapping[str, GraphRun], level: Level, path: Path, progress: Progress) -> None:
    with Profiler(path, level) as profiler:
        for job in jobs.values():
            assert isinstance(job.executor, Executor)
            inputs = read_inputs(job.lines[0], job.inputs, job.axes)

            def infer(job: GraphRun = job, inputs: Any = inputs) -> int:
                if job.begin is not None:
                    job.begin()
                return job.infer(inputs)[1]

            def after(done: int) -> None:
                progress.advance(1, "")

            profiler.profile(
                job.executor, infer, job.extent.count, after, min(COMPARED, job.extent.count), job.path.name
            )


def _record_parts(job: GraphRun, model: ModelInParts, level: Level, path: Path, progress: Progress) -> None:
    """Of each part, in a session of its own, because a session records all of its inferences or none."""
    inputs = read_inputs(job.lines[0], model.graph.inputs)
    with model.recording((level, path)) as recording:
        for _ in range(job.extent.count):
            recording.run(inputs)
            progress.advance(1, "")


def _from_target(job: GraphRun, level: Level) -> memoryview:
    executor = job.executor
    assert isinstance(executor, RemoteExecutor)
    inputs = read_inputs(job.lines[0], job.inputs)
    given: tuple[Values, Mapping[str, MemHandle]] = inputs, {}
    state = job.infer.memory if isinstance(job.infer, Steps) else None
    if isinstance(job.infer, InPlace):
        job.infer.fill(inputs)
        given = job.infer.inputs, job.infer.outputs
    compared = min(COMPARED, job.extent.count)
    return executor.profile(given[0], job.extent.count, level, compared, job.path.name, given[1], state)


def _read(path: Path) -> Log:
    try:
        return read_log(path)
    except MalformedLog as error:  # of a target, whose bytes these are
        raise TargetError("bad_message", str(error)) from None


def forms_in(log: Log, place: int) -> Forms | None:
    """Return how the forms of a graph compare, None if they did not take turns."""
    return forms_of([one for one in log.comparisons if one.graph == place])


def content_of(log: Log, place: int) -> dict[str, Any]:
    """Return the content of --profile: times of whole inferences, and each operation's by the device's clock, in the
    order of the graph. `share` is an operation's mean by that of whole inferences, and `operations_ns` the sum of the
    medians. `inside`: of inferences by persistent kernels that mark their launches, or why there are none."""
    profile = graph_profile(log, place)
    graph, comparisons, marked = profile.graph, profile.comparisons, profile.marked
    operations = profile.operations if profile.timed else []
    forms = forms_in(log, place)
    inference_ns = [one.elapsed_ns for one in profile.inferences]
    return {
        "device": log.header.device.get("name"),
        "computes": graph.computes,
        "graph": graph.name,
        "level": log.header.level,
        "state_bytes": graph.state_bytes,
        "inferences": len(inference_ns),
        "inference_ns": inference_ns,
        "median_inference_ns": median_ns(inference_ns),
        "mean_inference_ns": profile.timed_ns / len(profile.timed) if profile.timed else None,
        "operations_ns": sum(one.median_ns for one in operations),
        "operations": [
            {
                "operation": one.name,
                "median_ns": one.median_ns,
                "mean_ns": one.mean_ns,
                "minimum_ns": int(one.times_ns.min()),
                "share": profile.share(one.total_ns),
            }
            for one in operations
        ],
        "comparison": forms.to_dict() if forms else None,
        "inside": {
            "inferences": len(marked),
            "given_up": max(0, sum(len(each.profiled_ns) for each in comparisons) - len(marked)) if marked else 0,
            "median_inference_ns": median_ns([one.elapsed_ns for one in marked]) if marked else None,
            "launches_ns": float(np.median([one.took_ns() for one in marked], axis=0).sum()) if marked else None,
            "unmarked": graph.unmarked,
        },
    }


def lines_of(content: Mapping[str, Any], forms: Forms | None) -> list[str]:
    """Return a profile in lines for people: the slowest operations, and what recording has cost. forms: of the same
    graph."""
    slowest = sorted(content["operations"], key=lambda entry: -entry["mean_ns"])
    lines = [f"{'mean':>12} {'share':>6}  operation"] if slowest else []
    lines += [_row(entry["mean_ns"], entry["share"], entry["operation"]) for entry in slowest[:TABLE_ROWS]]
    if rest := slowest[TABLE_ROWS:]:
        lines.append(_row(*_together(rest), f"{len(rest)} others together"))
    if slowest:
        ns, share = _together(slowest)
        lines.append(_row(ns, share, "all operations; the rest is queue, gaps, copies and the host"))
        lines.append(_row(content["mean_inference_ns"], 1.0, "an inference, by which shares are counted"))
    if forms is not None:
        lines += filter(None, (forms.recording(), forms.usually()))
    inside = content["inside"]
    if inside["inferences"]:
        took_ms, launches_ms = inside["median_inference_ns"] / 1e6, inside["launches_ns"] / 1e6
        lines.append(
            f"inside persistent kernels launches take {launches_ms:.3f} ms together, in {inside['inferences']} "
            f"inferences of {took_ms:.3f} ms that marked them; {inside['given_up']} others were given up"
        )
    elif inside["unmarked"]:
        lines.append(no_times_inside(inside["unmarked"]))
    return lines


def _together(entries: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the ns and the share of several operations."""
    return sum(entry["mean_ns"] for entry in entries), sum(entry["share"] for entry in entries)


def _row(ns: float, share: float, words: str) -> str:
    return f"{ns / 1e3:>9.1f} us {share:>6.1%}  {words}"
