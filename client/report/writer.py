"""Read, gather and write a report: the functions that commands call."""

from datetime import UTC, datetime
from pathlib import Path

from gputune.cache import PerformanceCache
from gputune.client.outputs import write_text
from gputune.client.report.data import Report
from gputune.client.report.gather import Peak, gather
from gputune.client.report.sections.report import report_page
from gputune.client.report.uses import uses_of
from gputune.runtime.context.format import read_header


def read_report(cache_path: Path, context: Path | None = None, peak: Peak | None = None) -> Report:
    """Return what is known of the tasks in a performance cache file, weighed by a context binary when one is given.

    Raises CacheError, ContextError; OSError where the context cannot be read.
    """
    uses = None if context is None else uses_of(read_header(context), context.name)
    with PerformanceCache.open_readonly(cache_path) as cache:
        return gather(cache, uses, peak or Peak(), datetime.now(UTC))


def write_report(cache_path: Path, output: Path, context: Path | None = None) -> None:
    """Write the report of a performance cache file as one page. Raises as read_report does; OutputError."""
    write_text(output, report_page(read_report(cache_path, context)))
