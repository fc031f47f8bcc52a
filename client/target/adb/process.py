"""Run a target server or an agent in the shell of a device, for as long as this process keeps it."""

from __future__ import annotations

import queue
import re
import threading
from collections import deque
from collections.abc import Callable

from gputune.client.errors import TargetError
from gputune.client.target.adb.device import AdbDevice

START_SECONDS = 180.0  # the device's drivers are tried first, one after another
STOP_SECONDS = 5.0
DYING_SECONDS = 0.5  # a connection breaks off a moment before its server is gone
LAST_LINES = 3
_KEPT_LINES = 50
_ENDED = "gputune-ended "
_LISTENING = re.compile(r"gputune target server listening on \S+:(\d+) \(device: .*\)|listening on \S+:(\d+)")


class HeldServer:
    """The command's shell waits for a line or the end of its input, and then ends the server's input, which stops it:
    so the server ends with `stop`, with this process, and with the cable. (Newer shells of Android send no signal when
    their client is gone, older ones do; it is ignored, so that the server always stops in the same, orderly way.)

    what: it is, for messages; port: the one on the device that it listens on; lines: what it said before that.
    """

    def __init__(
        self, device: AdbDevice, command: str, seconds: float = START_SECONDS, what: str = "target server"
    ) -> None:
        """command: starts the server with --exit_with_parent; seconds: how long it may take to listen; what: it is
        called in messages.

        Raises TargetError: server_not_started, adb_failed when the device is lost meanwhile."""
        self.lines: tuple[str, ...] = ()
        self.what = f"the {what} on device {device.serial}"
        self._code: str | None = None  # of the ended server
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)
        self._port: queue.Queue[int | None] = queue.Queue()
        # A shell waits for all of a pipeline, so the end of the server must be told.
        self._stream = device.hold(f"trap '' HUP; read line | {{ {command} 2>&1; echo {_ENDED}$?; }}")
        self._reader = threading.Thread(target=self._read, name=f"adb {device.serial}", daemon=True)
        self._reader.start()
        try:
            self.port = self._wait(seconds)
        except BaseException:
            self.stop()
            raise

    def last_words(self) -> str:
        """Return how the server ended and what it wrote last; nothing while it runs."""
        self._reader.join(DYING_SECONDS)
        if self._reader.is_alive():
            return ""
        return f"{self.what} {self._how}: {self._last_lines(LAST_LINES)}".rstrip(": ")

    def when_ended(self, do: Callable[[], object]) -> None:
        """Do something, in a thread, when the server has ended or its device is out of reach."""

        def wait() -> None:
            self._reader.join()
            do()

        threading.Thread(target=wait, name=f"{self._reader.name} end", daemon=True).start()

    def stop(self) -> bool:
        """Stop the server and wait for its end, if the device is still there. May be called twice.

        Returns False when the server is still running although it was told to stop.
        """
        if self._reader.is_alive():
            self._stream.send_line()
            self._reader.join(STOP_SECONDS)
        ended = not self._reader.is_alive()
        self._stream.close()
        return ended

    def _wait(self, seconds: float) -> int:
        try:
            port = self._port.get(timeout=seconds)
        except queue.Empty:
            port, reason = None, f"it did not listen within {seconds:.0f} s"
        else:
            if port is None and self._code is None:
                raise TargetError("adb_failed", f"{self.what} was lost while it started")
            reason = self._last_lines(1).removeprefix("error: ") or f"it {self._how}"
        if port is None:
            raise TargetError("server_not_started", f"{self.what} did not start: {reason}")
        return port

    def _read(self) -> None:
        """Read to the end, so that the server never blocks on a full pipe."""
        for line in self._stream.lines():
            if line.startswith(_ENDED):
                self._code = line.removeprefix(_ENDED)
                break
            if not self.lines and (match := _LISTENING.fullmatch(line)):
                self.lines = tuple(self._said)
                self._port.put(int(match[1] or match[2]))
            self._said.append(line)
        self._port.put(None)

    @property
    def _how(self) -> str:
        return "is out of reach" if self._code is None else f"ended with exit code {self._code}"

    def _last_lines(self, count: int) -> str:
        return " | ".join([line for line in self._said if line.strip()][-count:])
