"""Start a target server in its own process, and watch it through /proc: memory, descriptors, workers."""

import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from gputune.client.addresses import parse_address
from gputune.client.target.connecting import Target, choose_target
from gputune.client.target.transport.credentials import Credentials

MIB = 1 << 20
STOP_SECONDS = 20.0
RECONNECT_SECONDS = 5.0
_LISTENING = re.compile(r"gputune target server listening on (\S+) \(device: (.*)\)")


@dataclass(frozen=True)
class Usage:
    """What a process holds at a moment: resident memory, the most of it since the start, open descriptors, threads."""

    resident_bytes: int
    peak_bytes: int
    descriptors: int
    threads: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.resident_bytes + other.resident_bytes,
            self.peak_bytes + other.peak_bytes,
            self.descriptors + other.descriptors,
            self.threads + other.threads,
        )

    def __str__(self) -> str:
        return f"{self.resident_bytes / MIB:.1f} MiB, {self.descriptors} descriptors"


def usage(pid: int) -> Usage:
    """What the process holds now. Raises OSError when it is gone."""
    fields = dict(re.findall(r"^(\w+):\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))
    if "VmRSS" not in fields:
        raise ProcessLookupError(f"process {pid} has ended")
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Usage(int(fields["VmRSS"]) << 10, int(fields["VmHWM"]) << 10, descriptors, int(fields["Threads"]))


def target_of(address: str, token: str, notice: Callable[[str], None]) -> Target:
    """What a client connects to when it knows the token. notice: hears of connections that were lost."""
    target = choose_target(address, {}, credentials=Credentials(token=token), notice=notice)
    target.reconnect_seconds = RECONNECT_SECONDS
    return target


class ObservedServer:
    """`python -m gputune.server` on a free port of loopback, with a token of its own unless there shall be none. Ended
    by `stop`, `with` or the end of this process.

    Raises RuntimeError with what the server wrote when it does not start.
    """

    def __init__(self, device: str, *arguments: str, with_token: bool = True) -> None:
        self.token = secrets.token_hex(16)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the server)
        command = [sys.executable, "-m", "gputune.server", "--port", "0", "--exit_with_parent"]
        command += ["--device", device, *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "GPUTUNE_TOKEN"}
        self.process = subprocess.Popen(
            command,
            env=environment | {"GPUTUNE_TOKEN": self.token} if with_token else environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # Ctrl-C is for the script, which then ends the server
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if match := _LISTENING.fullmatch(line.strip()):
                self.address = match[1]
                self.host, self.port = parse_address(self.address, "the server")
                self.device = match[2]
                return
        self.stop()
        raise RuntimeError(f"the server did not start: {self.log().strip()}")

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the daemon runs."""
        return self.process.poll() is None

    def workers(self) -> list[int]:
        """The ids of the daemon's child processes; none when it has ended."""
        try:
            found = [path.read_text().split() for path in Path(f"/proc/{self.pid}/task").glob("*/children")]
        except OSError:
            return []
        return sorted(int(pid) for group in found for pid in group)

    def workers_usage(self) -> Usage:
        """What all workers together hold now."""
        found = []
        for pid in self.workers():
            try:
                found.append(usage(pid))
            except OSError:  # it has just been replaced
                continue
        return sum(found, Usage(0, 0, 0))

    def log(self) -> str:
        """What the server has written to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def stop(self) -> int:
        """Asks the server to end, by force when that takes too long; returns its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            assert self.process.stdin is not None and self.process.stdout is not None
            self.process.stdin.close()
            self.process.stdout.close()

    def __enter__(self) -> "ObservedServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
