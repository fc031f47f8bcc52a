"""The report of a tuning: gathered from a performance cache, written as one page that needs nothing but itself."""

from gputune.client.report.writer import write_report

__all__ = ["write_report"]
