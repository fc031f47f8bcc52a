"""gputune performance-cache: list and show. Files are opened for reading only."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gputune.cache import CacheError, PerformanceCache, TaskSummary, TrialRecord
from gputune.client.cli.options import default_performance_cache_dir

SUFFIX = ".sqlite"

_folder = click.option(
    "--performance_cache_dir",
    type=click.Path(path_type=Path),
    metavar="D",
    help="The folder of the caches.  [default: gputune/performance in the user's cache folder]",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="JSON for tools.")


@click.group("performance-cache")
def command() -> None:
    """Look into performance caches."""


@command.command("list")
@_folder
@_as_json
def list_files(performance_cache_dir: Path | None, as_json: bool) -> None:
    """List the cache files of a folder: one per device tier."""
    folder = performance_cache_dir or default_performance_cache_dir()
    files = [_file_entry(path) for path in _cache_files(folder)]
    if as_json:
        _print_json({"performance_cache_dir": str(folder), "files": files})
    elif not files:
        click.echo(f"no performance cache in {folder}: tuning a model makes one")
    else:
        table = Table("tier", "device", "tasks", "trials", "size", "last change", title=str(folder))
        for entry in files:
            if "problem" in entry:
                table.add_row(entry["tier"], entry["problem"], "", "", _size(entry["size_bytes"]), "")
                continue
            table.add_row(
                entry["tier"],
                ", ".join(entry["devices"]),
                str(entry["tasks"]),
                str(entry["trials"]),
                _size(entry["size_bytes"]),
                _date(entry["last_change"]),
            )
        _print_table(table)


@command.command("show")
@click.argument("file_or_tier")
@click.option("--task", "prefix", metavar="DIGEST", help="All trials of one task, by the start of its digest.")
@_folder
@_as_json
def show(file_or_tier: str, prefix: str | None, performance_cache_dir: Path | None, as_json: bool) -> None:
    """Show the tasks of a cache file, or all trials of one task."""
    path = _find_file(file_or_tier, performance_cache_dir or default_performance_cache_dir())
    with PerformanceCache.open_readonly(path, warn=lambda text: click.echo(f"warning: {text}", err=True)) as cache:
        summaries = cache.tasks()
        if prefix is None:
            if as_json:
                _print_json({"file": str(path), "tasks": [_task_entry(summary) for summary in summaries]})
            elif not summaries:
                click.echo(f"performance cache {path} holds no measurements")
            else:
                _print_table(_task_table(path, summaries))
            return
        chosen = _choose(summaries, prefix, path)
        trials = [(summary, cache.trials_of(summary.task, summary.validity)) for summary in chosen]
    if as_json:
        entries = [
            {**_task_entry(summary), "all_trials": [_trial_entry(trial) for trial in records]}
            for summary, records in trials
        ]
        _print_json({"file": str(path), "tasks": entries})
    else:
        for summary, records in trials:
            _print_table(_trial_table(summary, records))


def _cache_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX and path.is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CacheError(f"performance cache folder {folder} cannot be read: {error.strerror}") from error


def _find_file(file_or_tier: str, folder: Path) -> Path:
    for path in (Path(file_or_tier), folder / file_or_tier, folder / f"{file_or_tier}{SUFFIX}"):
        if path.is_file():
            return path
    tiers = ", ".join(path.stem for path in _cache_files(folder)) or "none"
    raise CacheError(f"no performance cache {file_or_tier}: not a file, nor a tier in {folder} (there: {tiers})")


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


def _task_table(path: Path, summaries: list[TaskSummary]) -> Table:
    table = Table(
        "task", "op", "problem", "trials", "default", "tuned", "device", "driver", "last change", title=str(path)
    )
    for summary in summaries:
        winner = summary.winner
        table.add_row(
            summary.task.digest[:12],
            summary.task.op,
            _words(summary.task.problem),
            ", ".join(f"{count} {status}" for status, count in summary.trials.items()),
            _time(winner.default_ns if winner else None),
            _time(winner.median_ns if winner else None),
            summary.validity.device_name,
            summary.validity.driver_version,
            _date(summary.last_change.isoformat()),
        )
    return table


def _trial_table(summary: TaskSummary, trials: list[TrialRecord]) -> Table:
    title = f"{summary.task.op} {summary.task.digest[:12]} on {summary.validity.device_name}"
    table = Table("", "configuration", "status", "median", "minimum", "spread", "compile", "message", title=title)
    winner = summary.winner.configuration if summary.winner else None
    for trial in trials:
        table.add_row(
            "winner" if trial.configuration == winner and trial.status == "ok" else "",
            _words(trial.configuration),
            trial.status,
            _time(trial.median_ns),
            _time(trial.minimum_ns),
            "" if trial.spread is None else f"{trial.spread:.1%}",
            _time(trial.compile_ns),
            trial.message,
        )
    return table


def _words(values: Any) -> str:
    """A mapping in a few words; empty values say nothing and are left out."""
    return " ".join(f"{name}={_word(value)}" for name, value in values.items() if value not in ("", [], {}))


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _time(nanoseconds: float | None) -> str:
    if nanoseconds is None:
        return "-"
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= factor:
            return f"{nanoseconds / factor:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1024:.0f} KiB" if size_bytes < 1 << 20 else f"{size_bytes / (1 << 20):.1f} MiB"


def _date(iso: str | None) -> str:
    return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC") if iso else "-"


def _print_table(table: Table) -> None:
    console = Console()
    if not console.is_terminal:  # a pipe has no width to fold to
        console.width = max(console.width, 240)
    console.print(table, markup=False)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(_strict(value), indent=1, allow_nan=False))


def _strict(value: Any) -> Any:
    """value with infinities (the open side of a clip) as text, which JSON proper has no number for."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {name: _strict(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value
