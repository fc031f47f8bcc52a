"""Represent one worker process for the daemon: started once, given one request at a time, ended at any moment."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gputune.core.quirks import quirks_of
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.memory.passing import WithDescriptor, send_with
from gputune.server.logs import LinesToLog
from gputune.server.protocol import codec, framing
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Progress
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.worker.link import AGENT_LOST, DEVICE_LOST, FROM_WORKER, LINK_LIMITS, WorkerReady

log = logging.getLogger("gputune.server.worker")

START_SECONDS = 60.0
STOP_SECONDS = 2.0  # for a process whose link is closed, and again for one that was killed

OnProgress = Callable[[Progress], None]
_HOW = {DEVICE_LOST: "a lost device", AGENT_LOST: "a lost agent"}


class DeviceUnavailable(Exception):
    """Report that a worker could not open the device. killed: by SIGKILL while it tried, which says nothing about the
    device."""

    def __init__(self, message: str, killed: bool = False) -> None:
        super().__init__(message)
        self.killed = killed


class WorkerEnded(Exception):
    """Report that the worker process has ended; `code` is its exit code, or minus the number of the signal. how: a
    phrase for that; agent_lost: whether it has lost its agent; ours: why we have ended it; empty when it was not us."""

    def __init__(self, code: int, ours: str = "") -> None:
        self.code = code
        self.ours = ours
        known = -code in set(signal.Signals)
        self.signal = signal.Signals(-code).name if known else f"signal {-code}" if code < 0 else ""
        self.agent_lost = code == AGENT_LOST
        self.how = self.signal or _HOW.get(code, f"exit code {code}")
        super().__init__(f"the worker was ended: {ours}" if ours else f"the worker ended with {self.how}")


class WorkerProcess:
    """Talk to a process that has opened the device. Make one with `start`.

    ready: what it has said about the device; page: what it does; ended: its exit code, once there is one;
    killed_for: why we have killed it, empty while we have not.
    """

    ready: WorkerReady

    def __init__(self, process: asyncio.subprocess.Process, link: socket.socket, page: HeartbeatPage) -> None:
        self.page = page
        self.killed_for = ""
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._process = process
        self._link = link
        self._asked: asyncio.Future[Any] | None = asyncio.get_running_loop().create_future()
        self._progress: OnProgress = _ignore
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(
        cls, report: DeviceReport, limits: Limits, compiled: Path | None = None, **environment: str
    ) -> WorkerProcess:
        """Start a process and wait until it has opened the device; `compiled` is a folder for what its driver
        compiles, `environment` more variables. Raises DeviceUnavailable."""
        worker = await cls._spawn(report, limits, compiled, environment)
        assert worker._asked is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                reply = await worker._asked
        except TimeoutError:
            worker.kill(late := f"the device was not open within {START_SECONDS:g} s")
            raise DeviceUnavailable(late) from None
        except WorkerEnded as ended:
            killed = ended.signal == "SIGKILL" and not ended.ours
            raise DeviceUnavailable(f"{ended} while it opened the device", killed) from None
        except asyncio.CancelledError:
            worker.kill("nothing waits for it any longer")
            await worker.stop()
            raise
        if isinstance(reply, WorkerReady):
            worker.ready = reply
            return worker
        await worker.stop()
        raise DeviceUnavailable(getattr(reply, "message", "the worker sent nonsense"))

    @classmethod
    async def _spawn(
        cls, report: DeviceReport, limits: Limits, compiled: Path | None, environment: Mapping[str, str]
    ) -> WorkerProcess:
        loop = asyncio.get_running_loop()
        try:
            with ExitStack() as kept, ExitStack() as given:  # what stays with us, and what is the process's only
                ours, theirs = socket.socketpair()
                kept.callback(ours.close)
                given.callback(theirs.close)
                ours.setblocking(False)
                page = HeartbeatPage.create()
                given.callback(page.detach)
                output, printed = os.pipe()
                given.callback(os.close, printed)
                pipe = kept.enter_context(os.fdopen(output, "rb", 0))
                lines, _ = await loop.connect_read_pipe(lambda: LinesToLog(log), pipe)
                kept.callback(lines.close)
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "gputune.server.worker"),
                    *("--link", str(theirs.fileno())),
                    *("--page", str(page.descriptor)),
                    *("--device", json.dumps(report.to_dict())),
                    *("--limits", json.dumps(asdict(limits))),
                    *(() if compiled is None else ("--compiled", str(compiled))),
                    pass_fds=[theirs.fileno(), page.descriptor],
                    env={**_measuring(report), **os.environ, **report.environment(), **environment},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=printed,  # what drivers print is logged; the daemon's own stdout is for its callers
                    stderr=printed,
                    start_new_session=True,  # Ctrl-C reaches the daemon only, which then stops the worker
                )
                kept.pop_all()
        except OSError as error:  # a process that has started nevertheless ends with its link
            raise DeviceUnavailable(f"the worker process cannot be started: {error}") from None
        return cls(process, ours, page)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, message: Any, progress: OnProgress = lambda message: None) -> Any:
        """Return the reply to a message of worker/link.py, which may be one WithDescriptor. Raises WorkerEnded."""
        if self.ended.done():
            raise WorkerEnded(self.ended.result(), self.killed_for)
        assert self._asked is None, "one thing at a time"
        loop = asyncio.get_running_loop()
        self._asked, self._progress = loop.create_future(), progress
        buffers = framing.encode(codec.pack(message.message if isinstance(message, WithDescriptor) else message, 0))
        try:
            if isinstance(message, WithDescriptor) and message.descriptor is not None:
                # never blocks: a worker that has answered has read all that was sent before
                buffers = framing.unsent(buffers, send_with(self._link, buffers, message.descriptor.fileno()))
            for buffer in buffers:
                await loop.sock_sendall(self._link, buffer)
        except OSError:
            pass  # it has ended; how comes with the future
        except BaseException:
            self.kill("half a message was sent to it")  # nothing after that would be understood
            raise
        try:
            return await self._asked
        except asyncio.CancelledError:
            self.kill("a request was given up")  # its answer would be taken for that to the next request
            raise

    def kill(self, why: str) -> None:
        """End the process by force, whatever it does; `why` is what people read about it."""
        if not self.ended.done():
            self.killed_for = self.killed_for or why
            self._hang_up()
            self._end_group()

    async def stop(self) -> None:
        """End the process by closing its link, else by force; return when it is gone."""
        if not self.ended.done():
            self._hang_up()
        await asyncio.shield(self._reading)

    def _hang_up(self) -> None:
        with suppress(OSError):  # it has hung up before us
            self._link.shutdown(socket.SHUT_RDWR)

    def _end_group(self) -> None:
        """End the process, if it is still there, and compilers that it has started: its session is its own."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def _read(self) -> None:
        exiting = asyncio.ensure_future(self._process.wait())
        receiving = asyncio.ensure_future(self._receive())
        await asyncio.wait({exiting, receiving}, return_when=asyncio.FIRST_COMPLETED)
        self._hang_up()  # a process that it has left behind may hold the other end; what was sent is still received
        await receiving
        code = await self._reap(exiting)
        self._end_group()
        self._link.close()
        self.ended.set_result(code)
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(WorkerEnded(code, self.killed_for))

    async def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        reader = framing.FrameReader(LINK_LIMITS)
        try:
            while count := await loop.sock_recv_into(self._link, reader.space()):
                for frame in reader.filled(count):
                    self._arrived(codec.unpack(frame.header, frame.blobs, FROM_WORKER)[1])
        except RemoteProtocolError as error:
            self.kill(f"it sent nonsense: {error}")
        except OSError:
            pass
        except Exception as error:
            log.exception("internal error while reading from the worker")
            self.kill(f"internal error while reading from it: {error}")

    def _arrived(self, message: Any) -> None:
        if self._asked is None:
            raise RemoteProtocolError("unexpected_message", f"{type(message).__name__} without a request")
        if isinstance(message, Progress):
            self._progress(message)
        else:
            if not self._asked.done():
                self._asked.set_result(message)
            self._asked = None

    async def _reap(self, exiting: asyncio.Future[int]) -> int:
        for _ in range(2):
            await asyncio.wait({exiting}, timeout=STOP_SECONDS)
            if exiting.done():
                return exiting.result()
            self._end_group()
        log.error("process %d does not end, not even by SIGKILL; it is left to itself", self.pid)
        return -signal.SIGKILL


def _measuring(report: DeviceReport) -> Mapping[str, str]:
    """Return the variables of a process that measures on a device."""
    return {} if report.identity is None else quirks_of(report.identity).measuring


def _ignore(message: Progress) -> None:
    """Ignore progress that is not passed on."""
