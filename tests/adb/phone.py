"""Act as the device's end of adb, as small as possible: an ADB daemon that runs commands on this machine.

It has the services shell:, sync: (STAT, SEND, DATA, DONE, QUIT) and tcp:, in their plain forms. The daemon's /data is a
temporary folder, and its commands see few programs.
"""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shutil
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from tests.unused_ports import unused_port

from .transport import Stream, Transport

T = TypeVar("T")

PROGRAMS = ("chmod", "env", "find", "mkdir", "mv", "rm", "sha256sum", "test", "touch")
"""What Android's toybox has, too, and gputune uses."""

_DATA = re.compile(r"(?<![\w./-])/data/")


class Phone:
    """An ADB daemon on a free port of this machine, in a thread. `serial` is what adb calls it.

    root: stands for the root of its files; terminal: commands get a terminal, as before Android 7, else a socket;
    authorized: whether it accepts this computer; environment: of its shells; commands: what they were asked to run.
    """

    def __init__(
        self,
        root: Path,
        terminal: bool = False,
        authorized: bool = True,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.root, self.terminal, self.authorized = root, terminal, authorized
        self.environment = dict(environment)
        self.commands: list[str] = []
        self.bin = root / "system" / "bin"
        self.bin.mkdir(parents=True)
        (root / "data/local/tmp").mkdir(parents=True)
        for name in PROGRAMS:
            (self.bin / name).symlink_to(shutil.which(name) or f"/bin/{name}")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="phone", daemon=True)
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waits: set[asyncio.Task[int]] = set()  # for commands whose stream has ended
        self._server: asyncio.Server | None = None
        self._port = unused_port()
        self.plug()

    @property
    def serial(self) -> str:
        return f"127.0.0.1:{self._port}"

    def program(self, path: str, text: str) -> None:
        """Puts an executable file on the device; a path without a folder is where commands are looked for."""
        file = self.path(path) if path.startswith("/") else self.bin / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)

    def path(self, path: str) -> Path:
        """Where a file of the device lies."""
        return self.root / path.lstrip("/")

    def plug(self) -> None:
        """Lets adb servers connect, on the same port each time."""

        async def listen() -> None:
            self._server = await asyncio.start_server(self._client, "127.0.0.1", self._port)

        self._do(listen())

    def unplug(self) -> None:
        """Ends all connections, and with them what they hold, and takes no new ones."""

        async def close() -> None:
            if self._server is not None:
                self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._do(close())

    def stop(self) -> None:
        """Unplugs it for good."""
        self.unplug()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await Transport(reader, writer, self.service, self.authorized).serve()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def service(self, name: str, stream: Stream) -> None:
        """Serves one stream until either side closes it. OSError, ValueError: there is no such service."""
        kind, _, argument = name.partition(":")
        if kind == "shell":
            await self._shell(argument, stream)
        elif kind == "tcp":
            reader, writer = await asyncio.open_connection("127.0.0.1", int(argument))
            stream.accept()
            try:
                await _pump(stream, lambda: reader.read(1 << 16), writer.write)
            finally:
                writer.close()
        elif kind == "sync":
            stream.accept()
            await Sync(self, stream).serve()
        else:
            raise ValueError(name)

    async def _shell(self, command: str, stream: Stream) -> None:
        self.commands.append(command)
        path = os.pathsep.join([str(self.bin), *filter(None, [self.environment.get("PATH")])])
        ours, theirs = pty.openpty() if self.terminal else (end.detach() for end in socket.socketpair())
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _DATA.sub(f"{self.root}/data/", command)),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**self.environment, "PATH": path, "HOME": str(self.root), "TERM": "dumb"},
            cwd="/",
            start_new_session=True,
            preexec_fn=_take_terminal if self.terminal else None,
        )
        os.close(theirs)
        stream.accept()
        output: asyncio.Queue[bytes] = asyncio.Queue()

        def readable() -> None:
            with suppress(OSError):  # a terminal whose last program has ended reports an error
                if data := os.read(ours, 1 << 16):
                    output.put_nowait(data)
                    return
            self._loop.remove_reader(ours)
            output.put_nowait(b"")

        self._loop.add_reader(ours, readable)
        try:
            await _pump(stream, output.get, lambda data: os.write(ours, data))
        finally:
            self._loop.remove_reader(ours)
            os.close(ours)  # which ends the command's input, and hangs a terminal up
            self._waits.add(self._loop.create_task(process.wait()))


class Sync:
    """The sync: service, which writes files."""

    def __init__(self, phone: Phone, stream: Stream) -> None:
        self._phone, self._stream, self._buffer = phone, stream, b""

    async def serve(self) -> None:
        while True:
            command, number = struct.unpack("<4sI", await self._exactly(8))
            if command == b"QUIT":
                return
            text = (await self._exactly(number)).decode()
            if command == b"STAT":
                await self._stream.write(self._stat(self._phone.path(text)))
            elif command == b"SEND":
                path, _, mode = text.rpartition(",")
                await self._receive(self._phone.path(path), int(mode))
            else:
                await self._fail(f"unknown sync command {command!r}")

    def _stat(self, path: Path) -> bytes:
        try:
            found = path.stat()
        except OSError:
            return struct.pack("<4s3I", b"STAT", 0, 0, 0)
        return struct.pack("<4s3I", b"STAT", found.st_mode, found.st_size, int(found.st_mtime))

    async def _receive(self, path: Path, mode: int) -> None:
        content = b""
        while (head := struct.unpack("<4sI", await self._exactly(8)))[0] == b"DATA":
            content += await self._exactly(head[1])
        owner = mode & 0o700
        try:
            path.write_bytes(content)
            path.chmod(owner | owner >> 3 | owner >> 6)  # as Android does: the owner's rights for everyone
        except OSError as error:
            await self._fail(str(error))
        else:
            await self._stream.write(struct.pack("<4sI", b"OKAY", 0))

    async def _fail(self, message: str) -> None:
        await self._stream.write(struct.pack("<4sI", b"FAIL", len(message)) + message.encode())

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            data = await self._stream.read()
            if not data:
                raise EOFError
            self._buffer += data
        result, self._buffer = self._buffer[:count], self._buffer[count:]
        return result


async def _pump(stream: Stream, read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], object]) -> None:
    """Copies in both directions until either side has ended."""

    async def outwards() -> None:
        while data := await read():
            await stream.write(data)

    async def inwards() -> None:
        while data := await stream.read():
            write(data)

    tasks = [asyncio.create_task(outwards()), asyncio.create_task(inwards())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _take_terminal() -> None:
    """Makes standard input the terminal of the new session, so that its end reaches the session as a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
