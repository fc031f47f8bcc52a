"""Define the command `gputune tuning-report`."""

from dataclasses import asdict
from pathlib import Path

import click

from gputune.cache import CacheError, cache_files
from gputune.client.cli.say import print_json, say
from gputune.client.errors import ConfigError
from gputune.client.folders import default_performance_cache_dir
from gputune.client.options.caches import read_cache
from gputune.client.options.command_line import Grouped, with_options
from gputune.client.options.shared import (
    CONTEXT_OPTION,
    DEVICE_TIER,
    FOLDER_DEFAULT,
    JSON,
    OUTPUT_FILE,
    PEAKS,
    PERFORMANCE_CACHE_DIR,
)
from gputune.client.outputs import check_output, write_text


@click.command("tuning-report", cls=Grouped)
@with_options(
    CONTEXT_OPTION.having(
        help="Context binary: its launches weight the tasks, and its device selects the file in the folder.", click={}
    ),
    OUTPUT_FILE.having(help="Page to write, such as report.html."),
    *PEAKS,
    PERFORMANCE_CACHE_DIR.having(help=f"Folder of the performance caches, or one file of it.  {FOLDER_DEFAULT}"),
    DEVICE_TIER.having(help="File in the folder: a tier of `gputune performance-cache list`."),
    JSON.having(help="Print the content of the page as JSON for tools, on standard output."),
)
def command(
    performance_cache_dir: Path | None,
    context_binary: Path | None,
    device_tier: str | None,
    output: Path | None,
    peak_gflops: float | None,
    peak_gbps: float | None,
    as_json: bool,
) -> None:
    """Write a page about what tuning has measured. It needs no network and no server.

    For each task it shows the configurations tried and how each ended, the best so far, tuned against default with
    confidence intervals, the distance to the roofline, failures by name, where the time went, and how the task was
    measured.

    \b
    gputune tuning-report --context_binary out/m.bin --output report.html
    """
    from gputune.client.device_errors import device_errors  # what a wrong option does without
    from gputune.client.report.gather import Peak
    from gputune.client.report.sections.report import report_page
    from gputune.client.report.writer import read_report
    from gputune.runtime.context.format import read_header

    if output is None and not as_json:
        raise ConfigError("nothing to make: give --output report.html for the page, or --json for its numbers")
    if output is not None:
        check_output(output)
    with device_errors(context_binary):
        wanted = device_tier or (read_header(context_binary).tier if context_binary else None)
        path = _cache_file(performance_cache_dir or default_performance_cache_dir(), device_tier, wanted)
        read_cache(path, "--performance_cache_dir")
        report = read_report(path, context_binary, Peak(peak_gflops, peak_gbps))
    if output is not None:
        write_text(output, report_page(report))
        say(f"wrote {output}", err=as_json)
    if as_json:
        print_json(asdict(report))
    for note in report.notes:
        say(f"warning: {note}", err=True)


def _cache_file(cache: Path, named: str | None, wanted: str | None) -> Path:
    """Return the file that is meant. `named` is the tier that was asked for, `wanted` that or the context's.

    Raises CacheError, ConfigError.
    """
    if cache.is_file():
        if named is not None and cache.stem != named:
            raise ConfigError(f"--device_tier {named} and {cache} name different files; drop one")
        return cache
    if not cache.exists():
        raise CacheError(f"no performance cache {cache}: tuning a model makes one")
    files = cache_files(cache)
    chosen = [path for path in files if wanted is None or path.stem == wanted]
    if len(chosen) == 1:
        return chosen[0]
    there = f"(there: {', '.join(path.stem for path in files) or 'none'})"
    if not files:
        raise CacheError(f"no performance cache in {cache}; --performance_cache_dir is the folder that tuning wrote to")
    if wanted is not None:
        raise CacheError(f"no performance cache of the tier {wanted} in {cache} {there}")
    raise CacheError(f"several performance caches in {cache} {there}; --device_tier says which")
