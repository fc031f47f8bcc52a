"""Define `gputune performance-cache stats`, `verify`, `diff` and `prune`.

They count what a file holds, check that it is intact, compare files, and remove what is no longer needed.
"""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gputune.cache import PerformanceCache, TaskSummary
from gputune.cache.file import COMPANIONS
from gputune.cache.upkeep import Difference, beyond_size, differences, not_changed_for, of_drivers
from gputune.client.cli.cache.shared import size_words, warned, words
from gputune.client.cli.say import print_json, say, say_wrapped
from gputune.client.errors import ConfigError
from gputune.client.generation.cache_secret import known_secret
from gputune.client.options.caches import FOLDER, cache_argument, find_file
from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.kinds import FLAG, text
from gputune.client.options.option import Kind, Option
from gputune.client.options.shared import JSON
from gputune.client.pages.scales import time_words

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
NOT_WHOLE = 1
"""Exit code of verify where something is wrong."""


@click.command("stats", cls=Grouped)
@cache_argument(required=False)
@with_options(FOLDER, JSON)
def stats(file_or_tier: str | None, performance_cache_dir: Path, as_json: bool) -> None:
    """Count the content of a file: tasks, trials by status, winners, drivers, bytes per trial, and sources."""
    path = find_file(file_or_tier, performance_cache_dir)
    with PerformanceCache.open_readonly(path, warn=warned) as cache:
        summaries, origins, chains = cache.tasks(), cache.origins(), len(cache.contents_of_chains())
    trials: Counter[str] = Counter()
    for summary in summaries:
        trials.update(summary.trials)
    size, count = _bytes(path), sum(trials.values())
    found: dict[str, Any] = {
        "file": str(path),
        "size_bytes": size,
        "tasks": len({summary.task.digest for summary in summaries}),
        "winners": sum(summary.winner is not None for summary in summaries),
        "chains": chains,
        "trials": dict(trials),
        "bytes_per_trial": size / count if count else None,
        "drivers": dict(Counter(summary.validity.driver_version for summary in summaries)),
        "taken_in": [
            {"source": one.source, "trials": one.trials, "at": one.taken_at.isoformat(timespec="seconds")}
            for one in origins
        ],
    }
    if as_json:
        print_json(found)
        return
    per_trial = f", {size / count:.0f} bytes for each trial" if count else ""
    say(f"{path}: {size_words(size)}{per_trial}")
    say(f"{found['tasks']} tasks, {found['winners']} winners, {chains} choices between whole contexts")
    say(f"trials: {', '.join(f'{number} {status}' for status, number in trials.items()) or 'none'}")
    for driver, number in found["drivers"].items():
        say(f"driver {driver}: {number} tasks")
    for one in origins:
        say(f"{one.trials} trials were taken in from {one.source} on {one.taken_at:%Y-%m-%d %H:%M UTC}")


@click.command("verify", cls=Grouped)
@cache_argument(required=False)
@with_options(FOLDER, JSON)
@click.pass_context
def verify(context: click.Context, file_or_tier: str | None, performance_cache_dir: Path, as_json: bool) -> None:
    """Check a whole file: pages, rows, digests, compiled programs. The exit code is 1 if anything is wrong.

    Compiled programs of other installations are not a problem: they are not used, and are compiled again when needed.
    """
    path = find_file(file_or_tier, performance_cache_dir)
    with PerformanceCache.open_readonly(path, secret=known_secret()) as cache:
        problems, makers = cache.problems(), cache.makers()
    if damaged := makers["damaged"]:
        problems.append(f"performance cache {path}: {damaged} compiled programs are damaged and not used")
    own, foreign = makers["own"], makers["foreign"]
    if as_json:
        print_json({"file": str(path), "problems": problems, "programs": {"own": own, "foreign": foreign}})
    else:
        for problem in problems:
            say(problem)
        say(f"{path}: {f'{len(problems)} problems' if problems else 'all is well'}")
        say(f"compiled programs: {own} of this installation, {foreign} of others, which are not used")
    context.exit(NOT_WHOLE if problems else 0)


@click.command("diff", cls=Grouped)
@cache_argument("left")
@cache_argument("right")
@with_options(FOLDER, JSON)
def diff(left: str, right: str, performance_cache_dir: Path, as_json: bool) -> None:
    """Compare the winners of two files and their times, not their bytes."""
    sides = []
    for name in (left, right):
        with PerformanceCache.open_readonly(find_file(name, performance_cache_dir), warn=warned) as cache:
            sides.append(cache.tasks())
    found = differences(*sides)
    if as_json:
        print_json({"tasks": [_difference(one) for one in found]})
        return
    for one in found:
        if not one.same_choice:
            _show_difference(one)
    both = sum(one.left is not None and one.right is not None for one in found)
    say(f"{sum(one.same_choice for one in found)} of {both} tasks that both know have the same winner")


def _show_difference(one: Difference) -> None:
    """Show a task that two files choose differently for, in 80 columns."""
    from gputune.client.report.problems import title  # loads all kernels

    say_wrapped(f"{one.task.digest[:12]} {title(one.task.op, one.task.problem)}")
    for side, winner in (("left", one.left), ("right", one.right)):
        known = f"{time_words(winner.median_ns):>9}  {words(winner.configuration)}" if winner else "        –"
        say_wrapped(f"{side:<5} {known}", "  ")
    if one.left and one.right and not one.same_place:
        say_wrapped("measured in different places", "  ")
    say("")


def _size(text: str, name: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise ConfigError(f"{name} {text!r} is not a size; give bytes, or a number followed by K, M or G")
    return int(found[1]) * UNITS[found[2].upper()]


@click.command("prune", cls=Grouped)
@cache_argument()
@with_options(
    Option(
        "older_than",
        Kind(click={"type": click.FloatRange(min=0), "metavar": "DAYS"}),
        "Remove tasks with no addition for this many days.",
    ),
    Option(
        "driver",
        text("VERSION", multiple=True),
        "Remove what was measured with this driver version. Repeat it for each version.",
        parameter="drivers",
    ),
    Option(
        "most_size",
        Kind(_size, click={"metavar": "SIZE"}),
        "Remove the oldest tasks until the file has about this size, such as 200M.",
    ),
    Option("dry_run", FLAG, "Show what would be removed, and remove nothing."),
    FOLDER,
)
def prune(
    file_or_tier: str,
    older_than: float | None,
    drivers: Sequence[str],
    most_size: int | None,
    dry_run: bool,
    performance_cache_dir: Path,
) -> None:
    """Remove measurements that are no longer needed, whole tasks at a time.

    With --most_size, compiled programs go before any measurement, since they can be compiled again.
    """
    if older_than is None and not drivers and most_size is None:
        raise ConfigError("nothing to prune: give --older_than, --driver or --most_size")
    path = find_file(file_or_tier, performance_cache_dir)
    with PerformanceCache.open(path, warn=warned) as cache:
        summaries = cache.tasks()
        goes: list[TaskSummary] = []
        if older_than is not None:
            goes += not_changed_for(summaries, older_than, datetime.now(UTC))
        goes += of_drivers(summaries, drivers)
        rest = [summary for summary in summaries if summary not in goes]
        programs = 0
        if most_size is not None:
            size, kept = _bytes(path), cache.program_bytes()
            programs = min(kept, max(size - most_size, 0))
            goes += beyond_size(rest, size - programs, most_size)
        chosen = list({(one.task.digest, one.validity.digest): one for one in goes}.values())
        trials = sum(sum(one.trials.values()) for one in chosen)
        if not dry_run:
            if programs:
                cache.forget_programs(kept - programs)
            trials = cache.forget(chosen)
    did = "would go" if dry_run else "are gone"
    if programs:
        say(f"{path}: {size_words(programs)} of compiled programs {did}")
    say(f"{path}: {len(chosen)} of {len(summaries)} tasks with {trials} trials {did}; {size_words(_bytes(path))}")


def _bytes(path: Path) -> int:
    """Return the bytes of the file and its log."""
    parts = [path, *(Path(f"{path}{suffix}") for suffix in COMPANIONS[:1])]
    return sum(part.stat().st_size for part in parts if part.exists())


def _difference(one: Difference) -> dict[str, Any]:
    def side(winner: Any) -> dict[str, Any] | None:
        return None if winner is None else {"configuration": winner.configuration, "median_ns": winner.median_ns}

    return {
        "task": one.task.digest,
        "op": one.task.op,
        "left": side(one.left),
        "right": side(one.right),
        "same_choice": one.same_choice,
        "same_place": one.same_place,
    }
