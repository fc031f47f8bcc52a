"""gputune performance-cache list and show. Files are opened for reading only."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from gputune.cache import CacheError, PerformanceCache, TaskSummary, TrialRecord, cache_files
from gputune.client.cli.cache.shared import as_json_option, size_words, time_words, warned, words
from gputune.client.cli.options.caches import find_file, folder_option
from gputune.client.cli.say import print_json, say
from gputune.client.cli.tables import add_row, print_table
from gputune.client.folders import default_performance_cache_dir


@click.command("list")
@folder_option
@as_json_option
def list_files(performance_cache_dir: Path | None, as_json: bool) -> None:
    """List the cache files of a folder: one per device tier."""
    folder = performance_cache_dir or default_performance_cache_dir()
    files = [_file_entry(path) for path in cache_files(folder)]
    if as_json:
        print_json({"performance_cache_dir": str(folder), "files": files})
    elif not files:
        say(f"no performance cache in {folder}: tuning a model makes one")
    else:
        table = Table("tier", "device", "tasks", "trials", "size", "last change", title=str(folder))
        for entry in files:
            if "problem" in entry:
                add_row(table, (entry["tier"], entry["problem"], "", "", size_words(entry["size_bytes"]), ""))
                continue
            add_row(
                table,
                (
                    entry["tier"],
                    ", ".join(entry["devices"]),
                    str(entry["tasks"]),
                    str(entry["trials"]),
                    size_words(entry["size_bytes"]),
                    _date(entry["last_change"]),
                ),
            )
        print_table(table)


@click.command("show")
@click.argument("file_or_tier")
@click.option("--task", "prefix", metavar="DIGEST", help="All trials of one task, by the start of its digest.")
@folder_option
@as_json_option
def show(file_or_tier: str, prefix: str | None, performance_cache_dir: Path | None, as_json: bool) -> None:
    """Show the tasks of a cache file, or all trials of one task."""
    path = find_file(file_or_tier, performance_cache_dir or default_performance_cache_dir())
    with PerformanceCache.open_readonly(path, warn=warned) as cache:
        summaries = cache.tasks()
        if prefix is None:
            if as_json:
                print_json({"file": str(path), "tasks": [_task_entry(summary) for summary in summaries]})
            elif not summaries:
                say(f"performance cache {path} holds no measurements")
            else:
                print_table(_task_table(path, summaries))
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
        for summary, records in trials:
            print_table(_trial_table(summary, records))


def _choose(summaries: list[TaskSummary], prefix: str, path: Path) -> list[TaskSummary]:
    """The task's summaries: one per validity that it was measured under."""
    chosen = [summary for summary in summaries if summary.task.digest.startswith(prefix.lower())]
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


TASK_COLUMNS = ("task", "op", "problem", "trials", "default", "tuned", "device", "driver", "last change")


def _task_table(path: Path, summaries: list[TaskSummary]) -> Table:
    table = Table(*TASK_COLUMNS, title=str(path))
    for summary in summaries:
        winner = summary.winner
        add_row(
            table,
            (
                summary.task.digest[:12],
                summary.task.op,
                words(summary.task.problem),
                ", ".join(f"{count} {status}" for status, count in summary.trials.items()),
                time_words(winner.default_ns if winner else None),
                time_words(winner.median_ns if winner else None),
                summary.validity.device_name,
                summary.validity.driver_version,
                _date(summary.last_change.isoformat()),
            ),
        )
    return table


def _trial_table(summary: TaskSummary, trials: list[TrialRecord]) -> Table:
    title = f"{summary.task.op} {summary.task.digest[:12]} on {summary.validity.device_name}"
    table = Table("", "configuration", "status", "median", "minimum", "spread", "compile", "message", title=title)
    winner = summary.winner.configuration if summary.winner else None
    for trial in trials:
        add_row(
            table,
            (
                "winner" if trial.configuration == winner and trial.status == "ok" else "",
                words(trial.configuration),
                trial.status,
                time_words(trial.median_ns),
                time_words(trial.minimum_ns),
                "" if trial.spread is None else f"{trial.spread:.1%}",
                time_words(trial.compile_ns),
                trial.message,
            ),
        )
    return table


def _date(iso: str | None) -> str:
    return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC") if iso else "-"
