"""Keep a server some milliseconds away: hold back what goes through, each way.

python -m benchmarks.agents.relay HOST:PORT MILLISECONDS PORT
"""

import asyncio
import socket
import sys
from typing import Any

CHUNK_BYTES = 1 << 20


async def hold_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Pass bytes on, each so long after it came."""
    loop, held = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def pass_on() -> None:
        while True:
            due, data = await held.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    passing = asyncio.create_task(pass_on())
    try:
        while data := await reader.read(CHUNK_BYTES):
            held.put_nowait((loop.time() + seconds, data))
    except ConnectionError:
        pass
    held.put_nowait((loop.time() + seconds, b""))
    await asyncio.gather(passing, return_exceptions=True)


async def main() -> None:
    """Listen on a port of the loopback, say so, and relay until it is ended."""
    host, _, port = sys.argv[1].rpartition(":")
    seconds = float(sys.argv[2]) / 1e3

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        for each in (writer, back):
            connected: Any = each.get_extra_info("socket")
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(hold_back(reader, back, seconds), hold_back(there, writer, seconds))

    server = await asyncio.start_server(relay, "127.0.0.1", int(sys.argv[3]))
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
