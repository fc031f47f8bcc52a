"""Provide a made-up performance cache with a context, and the report of both."""

from pathlib import Path

import pytest

from gputune.client.report import write_report
from gputune.client.report.data import Report
from gputune.client.report.writer import read_report


@pytest.fixture(scope="package")
def report(made: tuple[Path, Path]) -> Report:
    return read_report(*made)


@pytest.fixture(scope="package")
def html(made: tuple[Path, Path]) -> str:
    output = made[0].with_name("deep") / "report.html"
    write_report(made[0], output, made[1])
    return output.read_text(encoding="utf-8")
