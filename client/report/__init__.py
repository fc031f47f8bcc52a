"""Report on a tuning: gather data from a performance cache, and write a self-contained page."""

from gputune.client.report.writer import write_report

__all__ = ["write_report"]
