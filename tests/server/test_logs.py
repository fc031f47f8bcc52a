"""Test that what a kernel prints is a line of the log, and nothing more."""

import json
import logging

import pytest

from gputune.server.logs import FORMATTERS, LinesToLog

PRINTED = b"\r\x1b[2K\x1b[1;31mERROR gputune.server: token leaked\x1b[0m\nnext"


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_printed_gives_a_terminal_no_orders(form: str, caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("gputune.test")
    with caplog.at_level(logging.WARNING, log.name):
        lines = LinesToLog(log)
        lines.data_received(PRINTED)
        lines.connection_lost(None)
    written = [FORMATTERS[form].format(record) for record in caplog.records]  # type: ignore[index]
    assert len(written) == 2
    assert all(line.isprintable() and "\n" not in line for line in written)
    assert "token leaked" in written[0]
    if form == "text":
        assert written[0].startswith("WARNING gputune.test: ")
    else:
        assert json.loads(written[1])["message"] == "next"


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("a\x1bb")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "a\ndefect", (), (ValueError, error, error.__traceback__))
    text = FORMATTERS["text"].format(record)
    assert text.startswith("ERROR x: a defect\nTraceback (most recent call last):\n")
    assert text.endswith("\nValueError: a?b")
