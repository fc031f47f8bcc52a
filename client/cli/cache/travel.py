"""Define `gputune performance-cache export`, `import` and `merge`, which move measurements between files."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gputune.cache import PLACES, CacheError, PerformanceCache, tier_of
from gputune.cache.exchange import from_json, to_json
from gputune.cache.record import Contents, Entry, Merged
from gputune.client.cli.cache.shared import TASK, warned, words
from gputune.client.cli.say import print_json, say
from gputune.client.options.caches import FOLDER, cache_argument, find_file
from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.files import OUTPUT, FileText, InputFile, files_of_command
from gputune.client.options.kinds import choice, file, text
from gputune.client.options.option import Option
from gputune.client.options.shared import JSON, OUTPUT_FILE
from gputune.client.outputs import check_output, write_text, writing
from gputune.core.files import read_file
from gputune.core.version import software_version

SHOWN_CONFLICTS = 10


@click.command("export", cls=Grouped)
@cache_argument()
@with_options(
    OUTPUT_FILE.having(
        kind=text("FILE|DIR", type=FileText()),
        help="JSON file to write; a folder for t4.",
        click={"required": True},
    ),
    Option(
        "format",
        choice("json", "t4"),
        "json: all records, which can be imported. t4: a file for each task, for other tuners' tools.",
        parameter="form",
        shown="json",
    ),
    TASK.having(help="Write only tasks whose digest begins with this."),
    FOLDER,
)
def export(file_or_tier: str, output: str, form: str, prefix: str, performance_cache_dir: Path) -> None:
    """Write a cache file, without compiled programs, as JSON with a format version, or its trials as T4."""
    place = Path(output)
    if form == "json":
        files_of_command().write(place, "--output")
    else:
        files_of_command().write_below(place, "--output")
    path = find_file(file_or_tier, performance_cache_dir)
    check_output(place, folder=form == "t4")
    with PerformanceCache.open_readonly(path, warn=warned) as cache:
        contents = cache.contents()
    if prefix:
        entries = tuple(entry for entry in contents.entries if entry.task.digest.startswith(prefix))
        if not entries:
            raise CacheError(f"no task in {path} has a digest that starts with {prefix!r}")
        contents = Contents(entries, {})
    if form == "t4":
        _export_t4(contents, place)
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write_text(place, to_json(contents, software_version(), now))
    trials = sum(len(entry.trials) for entry in contents.entries)
    say(f"wrote {place}: {len(contents.entries)} tasks, {trials} trials")


def _export_t4(contents: Contents, folder: Path) -> None:
    files = {folder / _t4_name(entry): entry for entry in contents.entries if entry.trials}
    for path in files:
        files_of_command().write(path, "--output")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for path, entry in files.items():
        from gputune.client.report import t4  # loads all kernels

        t4.write(path, t4.of_entry(entry))
    say(f"wrote {len(files)} files to {folder}")


def _t4_name(entry: Entry) -> str:
    """Return the name of a task's file."""
    validity = entry.validity
    tier = tier_of(validity.device_name, validity.compute_units, validity.vendor, validity.device_version)
    kernel = re.sub(r"[^A-Za-z0-9.@-]", "-", f"{entry.task.op}-{entry.task.digest[:10]}")
    return f"{kernel}_{tier.name}-{validity.digest[:8]}_T4.json.gz"


@click.command("import", cls=Grouped)
@click.argument("file", type=InputFile(dir_okay=False))
@with_options(FOLDER, JSON)
def import_(file: Path, performance_cache_dir: Path, as_json: bool) -> None:
    """Import an export: each task into the file of the device that measured it. Compiled programs are not included."""
    try:
        text = read_file(file).decode()
    except OSError as error:
        raise CacheError(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CacheError(
            f"{file} is no export of a performance cache: it is no text; `gputune performance-cache export` writes "
            "exports, and `gputune performance-cache merge` takes cache files"
        ) from None
    contents = from_json(text, str(file))
    results = {}
    parts = _by_file(contents)
    for name in parts:
        files_of_command().write(performance_cache_dir / name, "--performance_cache_dir")
    for name, part in parts.items():
        with PerformanceCache.open(performance_cache_dir / name, warn=warned) as cache:
            results[performance_cache_dir / name] = cache.take_in(part, str(file))
    _report(results, as_json)


@click.command("merge", cls=Grouped)
@cache_argument("files", nargs=-1, required=True, metavar="FILE_OR_TIER...")
@with_options(
    Option("into", file(OUTPUT, "FILE"), "Cache file to add them to.", click={"required": True}), FOLDER, JSON
)
def merge(files: tuple[str, ...], into: Path, performance_cache_dir: Path, as_json: bool) -> None:
    """Add cache files to another cache file, record by record, without compiled programs.

    Each trial is kept once. If two winners of a task were found in the same place, the better supported winner
    stays (more effort, then more trials, then the later winner), and the conflict is listed.
    """
    results = {}
    sources = [find_file(name, performance_cache_dir) for name in files]
    with PerformanceCache.open(into, warn=warned) as cache:
        for path in sources:
            with PerformanceCache.open_readonly(path, warn=warned) as other:
                results[path] = cache.take_in(other.contents(), str(path))
    _report(results, as_json)


def _by_file(contents: Contents) -> dict[str, Contents]:
    """Return the contents by the name of the file of their device tier; chains go where they were compared."""
    entries: dict[str, list[Entry]] = {}
    for entry in contents.entries:
        validity = entry.validity
        tier = tier_of(validity.device_name, validity.compute_units, validity.vendor, validity.device_version)
        entries.setdefault(tier.file_name, []).append(entry)
    parts = {}
    for name, found in entries.items():
        places = {entry.validity.digest for entry in found}
        chains = {
            digest: one
            for digest, one in contents.chains.items()
            if not places.isdisjoint(one[0].measured.get(PLACES, places))  # older records do not say where
        }
        parts[name] = Contents(tuple(found), chains)
    return parts


def _report(results: Mapping[Path, Merged], as_json: bool) -> None:
    if as_json:
        print_json({str(path): _fields(merged) for path, merged in results.items()})
        return
    for path, merged in results.items():
        say(
            f"{path}: {merged.trials} trials added, {merged.known} known already, {merged.winners} winners and "
            f"{merged.chains} choices between whole contexts added, {len(merged.conflicts)} conflicts"
        )
        for conflict in merged.conflicts[:SHOWN_CONFLICTS]:
            kept, dropped = conflict.kept, conflict.dropped
            say(
                f"  {conflict.task.op} {conflict.task.digest[:12]}: kept {words(kept.configuration)} "
                f"({kept.median_ns / 1000:.4g} us, {kept.effort}), dropped {words(dropped.configuration)} "
                f"({dropped.median_ns / 1000:.4g} us, {dropped.effort})"
            )
        if (more := len(merged.conflicts) - SHOWN_CONFLICTS) > 0:
            say(f"  and {more} more; --json lists all")


def _fields(merged: Merged) -> dict[str, Any]:
    conflicts = [
        {
            "task": conflict.task.digest,
            "op": conflict.task.op,
            "validity": conflict.validity.digest,
            "kept": {"configuration": conflict.kept.configuration, "median_ns": conflict.kept.median_ns},
            "dropped": {"configuration": conflict.dropped.configuration, "median_ns": conflict.dropped.median_ns},
        }
        for conflict in merged.conflicts
    ]
    return {**vars(merged), "conflicts": conflicts}
