"""Speak the transport protocol of Android's adbd, CNXN, AUTH, OPEN, OKAY, WRTE and CLSE, as over TCP (`adb connect`).

It announces no features, so that clients use the plain forms of the services.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

BANNER = b"device::ro.product.name=test;ro.product.model=Test;ro.product.device=test;\0"
VERSION, PAYLOAD = 0x01000001, 1 << 18
CHALLENGE, PUBLIC_KEY = 1, 3
Service: TypeAlias = "Callable[[str, Stream], Awaitable[None]]"


class Transport:
    """One connection of an adb server."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, service: Service, authorized: bool
    ) -> None:
        """service: serves a stream under the name that was asked for; OSError or ValueError say that it cannot.
        authorized: whether this computer is let in."""
        self._reader, self._writer, self._serve_stream, self._authorized = reader, writer, service, authorized
        self._streams: dict[int, Stream] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._last = 0

    def send(self, command: bytes, first: int, second: int, data: bytes = b"") -> None:
        number = int.from_bytes(command, "little")
        self._writer.write(struct.pack("<4s5I", command, first, second, len(data), 0, number ^ 0xFFFFFFFF) + data)

    async def serve(self) -> None:
        """Answers until the connection ends; then everything that runs for it is given up."""
        try:
            while True:
                command, first, second, length, _, _ = struct.unpack("<4s5I", await self._reader.readexactly(24))
                data = await self._reader.readexactly(length)
                if command in (b"CNXN", b"AUTH"):
                    if self._authorized:
                        self.send(b"CNXN", VERSION, PAYLOAD, BANNER)
                    elif first != PUBLIC_KEY:  # which waits for the user of the device
                        self.send(b"AUTH", CHALLENGE, 0, bytes(20))
                elif command == b"OPEN":
                    self._open(first, data.rstrip(b"\0").decode())
                elif stream := self._streams.get(second):
                    stream.arrived(command, data)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _open(self, remote: int, name: str) -> None:
        self._last += 1
        stream = self._streams[self._last] = Stream(self, self._last, remote)
        self._tasks[self._last] = asyncio.create_task(self._service(name, stream))

    async def _service(self, name: str, stream: Stream) -> None:
        with suppress(OSError, ValueError, EOFError):
            await self._serve_stream(name, stream)
        stream.close()
        del self._streams[stream.local], self._tasks[stream.local]


class Stream:
    """One open service of a transport. A side sends its next data when the other has taken the last."""

    def __init__(self, transport: Transport, local: int, remote: int) -> None:
        self.local, self._transport, self._remote = local, transport, remote
        self._incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self._taken = asyncio.Event()
        self._accepted = False

    def accept(self) -> None:
        """Tells the other side that the service is there."""
        self._accepted = True
        self._taken.set()
        self._transport.send(b"OKAY", self.local, self._remote)

    def arrived(self, command: bytes, data: bytes) -> None:
        if command == b"OKAY":
            self._taken.set()
        elif command == b"WRTE":
            self._incoming.put_nowait(data)
        elif command == b"CLSE":
            self._incoming.put_nowait(b"")

    async def read(self) -> bytes:
        """What the other side sent next; nothing when it has closed the stream."""
        data = await self._incoming.get()
        if data:
            self._transport.send(b"OKAY", self.local, self._remote)
        return data

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), PAYLOAD):
            await self._taken.wait()
            self._taken.clear()
            self._transport.send(b"WRTE", self.local, self._remote, data[start : start + PAYLOAD])

    def close(self) -> None:
        self._transport.send(b"CLSE", self.local if self._accepted else 0, self._remote)
