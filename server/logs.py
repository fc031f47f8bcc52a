"""Format the server's log lines: text for people, or JSON for programs, one object a line."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from typing import Any, TextIO

from gputune.core.logs import LEVELS, printable
from gputune.server.options import LogFormat

LINES_AT_MOST = 1000  # of one worker process: a kernel can print without end
_LINE_BYTES = 4096


class TextFormatter(logging.Formatter):
    """Write one line for people; the traceback of a defect follows in lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


class JsonFormatter(logging.Formatter):
    """Write one JSON object a line: time (UTC, ISO 8601), level, logger, message and, for a defect, its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)


FORMATTERS: Mapping[LogFormat, logging.Formatter] = {
    "text": TextFormatter("%(levelname)s %(name)s: %(message)s"),
    "json": JsonFormatter(),
}


def set_up(level: str, form: LogFormat, stream: TextIO) -> None:
    """Send the log of this process to the stream, from this level of LEVELS on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(FORMATTERS[form])
    logging.basicConfig(level=LEVELS[level], handlers=[handler])


class LinesToLog(asyncio.Protocol):
    """Read a pipe that another process prints to: its lines become warnings."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._rest = b""
        self._left = LINES_AT_MOST

    def data_received(self, data: bytes) -> None:
        if not self._left:
            return  # a kernel that prints without end shall cost as little as possible
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._write(line)

    def connection_lost(self, error: Exception | None) -> None:
        self._write(self._rest)

    def _write(self, line: bytes) -> None:
        text = line[:_LINE_BYTES].decode(errors="replace").rstrip()
        if text and self._left:
            self._left -= 1
            self._log.warning("%s", text if self._left else "it prints without end; no more of it is shown")
