"""Define `gputune performance-cache list` and `show`, which open cache files for reading only."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gputune.cache import CacheError, PerformanceCache, TaskSummary, TrialRecord, cache_files
from gputune.client.cli.cache.shared import TASK, size_words, warned, words
from gputune.client.cli.say import print_json, say, say_wrapped
from gputune.client.options.caches import FOLDER, cache_argument, find_file
from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.shared import JSON
from gputune.client.pages.scales import time_words
from gputune.core.statuses import OK


@click.command("list", cls=Grouped)
@with_options(FOLDER, JSON)
def list_files(performance_cache_dir: Path, as_json: bool) -> None:
    """List the cache files of a folder, one file for each device tier."""
    files = [_file_entry(path) for path in cache_files(performance_cache_dir)]
    if as_json:
        print_json({"performance_cache_dir": str(performance_cache_dir), "files": files})
    elif not files:
        say(f"no performance cache in {performance_cache_dir}: tuning a model makes one")
    else:
        _list_files(performance_cache_dir, files)


@click.command("show", cls=Grouped)
@cache_argument(required=False)
@with_options(TASK.having(help="Show all trials of this task, by the beginning of its digest.", click={}), FOLDER, JSON)
def show(file_or_tier: str | None, prefix: str | None, performance_cache_dir: Path, as_json: bool) -> None:
    """Show the tasks of a cache file, or all trials of one task.

    Without a name, the only file of the folder is shown. Tasks have the names that `gputune model-check` shows.
    """
    path = find_file(file_or_tier, performance_cache_dir)
    with PerformanceCache.open_readonly(path, warn=warned) as cache:
        summaries = cache.tasks()
        if prefix is None:
            if as_json:
                print_json({"file": str(path), "tasks": [_task_entry(summary) for summary in summaries]})
            elif not summaries:
                say(f"performance cache {path} holds no measurements")
            else:
                _show_tasks(path, summaries)
            return
        chosen = _choose(summaries, prefix, path)
        trials = [(summary, cache.trials_of(summary.task, summary.validity)) for summary in chosen]
    if as_json:
        entries = [
            {**_task_entry(summary), "all_trials": [_trial_entry(trial) for trial in records]}
            for summary, records in trials
        ]
        print_json({"file": str(path), "tasks": entries})
    else:
        for number, (summary, records) in enumerate(trials):
            if number:
                say("")
            _show_trials(summary, records)


def _choose(summaries: list[TaskSummary], prefix: str, path: Path) -> list[TaskSummary]:
    """Return the task's summaries: one per validity that it was measured under."""
    chosen = [summary for summary in summaries if summary.task.digest.startswith(prefix)]
    digests = sorted({summary.task.digest for summary in chosen})
    if not prefix or not digests:
        raise CacheError(f"no task in {path} has a digest that starts with {prefix!r}")
    if len(digests) > 1:
        several = ", ".join(digest[:16] for digest in digests)
        raise CacheError(f"several tasks in {path} start with {prefix!r}: {several}")
    return chosen


def _file_entry(path: Path) -> dict[str, Any]:
    size = sum(part.stat().st_size for part in (path, Path(f"{path}-wal")) if part.exists())
    entry: dict[str, Any] = {"file": str(path), "tier": path.stem, "size_bytes": size}
    try:
        with PerformanceCache.open_readonly(path) as cache:
            summaries = cache.tasks()
    except CacheError as error:
        return {**entry, "problem": str(error)}
    changed = max((summary.last_change for summary in summaries), default=None)
    return {
        **entry,
        "families": sorted({summary.tier.family for summary in summaries}),
        "vendors": sorted({summary.tier.vendor for summary in summaries}),
        "devices": sorted({f"{s.validity.device_name}, {s.validity.compute_units} compute units" for s in summaries}),
        "tasks": len({summary.task.digest for summary in summaries}),
        "trials": sum(sum(summary.trials.values()) for summary in summaries),
        "malformed_rows": cache.malformed_rows,
        "last_change": changed and changed.isoformat(timespec="seconds"),
    }


def _list_files(folder: Path, files: Sequence[Mapping[str, Any]]) -> None:
    """Show the files of a folder: the tier in full, as other commands take it, and what there is of it, in 80
    columns."""
    say(f"{folder}: {len(files)} {'file' if len(files) == 1 else 'files'}")
    for entry in files:
        say("")
        say(entry["tier"])
        size = size_words(entry["size_bytes"])
        if "problem" in entry:
            say_wrapped(f"{size}; {entry['problem']}", "  ")
            continue
        say_wrapped("; ".join(entry["devices"]), "  ")
        counts = ", ".join(f"{entry[name]} {name}" for name in ("tasks", "trials"))
        say_wrapped(f"{counts}, {size}, last change {_date(entry['last_change'])}", "  ")


def _task_entry(summary: TaskSummary) -> dict[str, Any]:
    winner = summary.winner
    return {
        "key": summary.task.digest,
        **summary.task.to_dict(),
        "measured_on": summary.validity.to_dict(),
        "tier": summary.tier.name,
        "family": summary.tier.family,
        "vendor": summary.tier.vendor,
        "trials": summary.trials,
        "configuration": winner and dict(winner.configuration),
        "default_ns": winner and winner.default_ns,
        "tuned_ns": winner and winner.median_ns,
        "effort": winner and winner.effort,
        "rendered_sha256": winner and winner.rendered_sha256,
        "last_change": summary.last_change.isoformat(timespec="seconds"),
    }


def _trial_entry(trial: TrialRecord) -> dict[str, Any]:
    return {**vars(trial), "samples_ns": list(trial.samples_ns)}


def _show_tasks(path: Path, summaries: Sequence[TaskSummary]) -> None:
    """Show the tasks of a file by the device and driver that they were measured on: two lines each, in 80 columns."""
    from gputune.client.report.problems import title  # loads all kernels

    say(f"{path}: {len(summaries)} {'task' if len(summaries) == 1 else 'tasks'}")
    by_place: dict[str, list[TaskSummary]] = {}
    for summary in summaries:
        by_place.setdefault(_place(summary), []).append(summary)
    for place, own in by_place.items():
        say("")
        say_wrapped(place)
        say(f"{'task':<12} {'default':>9} {'tuned':>9} {'gain':>7} {'trials':>7} {'failed':>7}  last change")
        for summary in own:
            winner = summary.winner
            default_ns, tuned_ns = (winner.default_ns, winner.median_ns) if winner else (None, None)
            gain = f"{default_ns / tuned_ns:.2f}x" if default_ns and tuned_ns else "-"
            trials = sum(summary.trials.values())
            say(
                f"{summary.task.digest[:12]} {time_words(default_ns):>9} {time_words(tuned_ns):>9} {gain:>7} "
                f"{trials:>7} {trials - summary.trials.get(OK, 0):>7}  {_date(summary.last_change.isoformat())}"
            )
            say_wrapped(title(summary.task.op, summary.task.problem), "  ")


def _show_trials(summary: TaskSummary, trials: Sequence[TrialRecord]) -> None:
    """All trials of a task, the fastest first, the winner's marked: times and status in one line, then the
    configuration, and what a failure said."""
    from gputune.client.report.problems import title  # loads all kernels

    say_wrapped(f"{summary.task.digest[:12]} {title(summary.task.op, summary.task.problem)}")
    say_wrapped(_place(summary))
    say(f"{'':<6} {'median':>9} {'minimum':>9} {'spread':>7} {'build':>9}  status")
    won = _winner_of(summary, trials)
    for trial in sorted(trials, key=lambda one: math.inf if one.median_ns is None else one.median_ns):
        spread = "-" if trial.spread is None or len(trial.samples_ns) < 2 else f"{trial.spread:.1%}"
        say(
            f"{'winner' if trial is won else '':<6} {time_words(trial.median_ns):>9} {time_words(trial.minimum_ns):>9} "
            f"{spread:>7} {time_words(trial.compile_ns):>9}  {trial.status}"
        )
        for line in (words(trial.configuration), trial.message):
            say_wrapped(line, "       ")


def _winner_of(summary: TaskSummary, trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the trial whose time the winner has: the last of its configuration, with its median where one has that."""
    if (winner := summary.winner) is None:
        return None
    own = [trial for trial in trials if trial.status == OK and trial.configuration == winner.configuration]
    return next(reversed([trial for trial in own if trial.median_ns == winner.median_ns] or own), None)


def _place(summary: TaskSummary) -> str:
    return f"on {summary.validity.device_name}, driver {summary.validity.driver_version}"


def _date(iso: str | None) -> str:
    return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC") if iso else "-"
