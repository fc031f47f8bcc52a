"""Load pages in a headless Chromium and report what happened: errors, requests, values, pictures.

Chromium is controlled over two pipes (--remote-debugging-pipe), so nothing listens on a port and no library is needed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ANSWER_SECONDS = 60.0
"""A browser that has not answered after this long is ended."""

_FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--disable-dev-shm-usage",
)  # fmt: skip

_START = """
import os, sys
from fcntl import F_DUPFD_CLOEXEC, fcntl
reads, writes = (fcntl(int(number), F_DUPFD_CLOEXEC, 10) for number in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""  # Chromium reads commands from file 3 and writes answers to file 4


def find_chromium() -> str | None:
    """The path of a Chromium on this machine; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a running Chromium. Raises RuntimeError when it does not do what it is told."""

    def __init__(self, commands: BinaryIO, answers: BinaryIO) -> None:
        """The browser's ends of both pipes; commands must not be buffered."""
        self._commands, self._answers = commands, answers
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def look(self, width: int, height: int = 900, dark: bool = False) -> None:
        """The size of the window in pixels, and whether the reader prefers dark pages."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def load(self, address: str) -> None:
        """Goes to a page and waits until it is there."""
        self._events.clear()
        if problem := self._call("Page.navigate", url=address).get("errorText"):
            raise RuntimeError(f"{address} cannot be loaded: {problem}")
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._receive()

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is on this page, as JSON knows it."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails'].get('exception', answer)}")
        return answer["result"].get("value")

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was gone to."""
        self.value("0")  # so that all events before have arrived
        return [event["params"]["request"]["url"] for event in self._of("Network.requestWillBeSent")]

    def complaints(self) -> list[str]:
        """What the console would show: exceptions, refused requests, everything that is logged."""
        self.value("0")
        thrown = [event["params"]["exceptionDetails"] for event in self._of("Runtime.exceptionThrown")]
        said = [event["params"]["args"] for event in self._of("Runtime.consoleAPICalled")]
        logged = [event["params"]["entry"]["text"] for event in self._of("Log.entryAdded")]
        return [json.dumps(one) for one in (*thrown, *said, *logged)]

    def wrong(self, address: str, width: int) -> list[str]:
        """What no page may do that was gone to in a window of this width, in words."""
        wide = self.value("document.documentElement.scrollWidth")
        return [
            *([f"the page is {wide} pixels wide, its window {width}"] if wide > width else []),
            *(f"the console says {text}" for text in self.complaints()),
            *(f"asked for {asked}" for asked in self.requests() if asked != address),
        ]

    def picture(self, path: Path, whole: bool = True) -> None:
        """A PNG of the page, or of what the window shows of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _of(self, method: str) -> list[dict[str, Any]]:
        return [event for event in self._events if event["method"] == method]

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        try:
            self._commands.write(json.dumps(message).encode() + b"\0")
        except BrokenPipeError:
            raise RuntimeError("Chromium has ended") from None
        while (answer := self._receive()).get("id") != self._number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def _receive(self) -> dict[str, Any]:
        """The next message; events are kept."""
        received = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("Chromium has ended, or was ended because it did not answer")
            received += byte
        message: dict[str, Any] = json.loads(received)
        if "method" in message:
            self._events.append(message)
        return message


@contextlib.contextmanager
def chromium(path: str, seconds: float = ANSWER_SECONDS) -> Iterator[Browser]:
    """Runs Chromium with a profile of its own, which is gone afterwards. It is ended after so many seconds."""
    commands_end, commands = os.pipe()
    answers, answers_end = os.pipe()
    flags = [*_FLAGS, "--no-sandbox"] if os.geteuid() == 0 else list(_FLAGS)  # its sandbox refuses root

    with tempfile.TemporaryDirectory(prefix="gputune-page-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _START,
                str(commands_end),
                str(answers_end),
                path,
                *flags,
                f"--user-data-dir={profile}",
            ],
            pass_fds=(commands_end, answers_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_end)
        os.close(answers_end)
        guard = threading.Timer(seconds, process.kill)
        guard.start()
        try:
            with os.fdopen(commands, "wb", buffering=0) as to, os.fdopen(answers, "rb") as back:
                yield Browser(to, back)
        finally:
            guard.cancel()
            process.kill()
            process.wait()
