"""Compare the protocol with plain sockets and MsgPack, turn by turn in one run (`scripts/bench rpc`).

The peer is as fast as asyncio gets without a protocol: a callback that unpacks a map, and packs and writes it
back. Its client is a blocking socket. For uploads it receives into memory of the right size at once.
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

import tool
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import choose_target
from gputune.core.launches import Launch, Variant, Work
from gputune.server.protocol.messages import ProfileKernel

BLOCK, BLOCKS = 128, 40  # pings in a row, and how often; whole windows
WINDOW = 64
MIB = 1 << 20
UPLOADS_MIB = (4, 16)
UPLOADED_MIB = 512  # in each round, so that slow and fast sizes weigh the same
VARIANTS, BATCHES = 8, 10


# --- the peer: run as a process of its own ------------------------------------------------------------


class PlainEcho(asyncio.BufferedProtocol):
    """MsgPack maps come back as they are; a map with "bytes" is followed by so many, and acknowledged after them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport = transport
        self._unpacker, self._fed = msgpack.Unpacker(), 0
        self._small = memoryview(bytearray(1 << 16))
        self._blob: memoryview | None = None
        self._have = 0
        self._ack = b""

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._small if self._blob is None else self._blob[self._have :]

    def buffer_updated(self, count: int) -> None:
        if self._blob is not None:
            self._have += count
            if self._have == self._blob.nbytes:
                self._blob = None
                self._transport.write(self._ack)
            return
        self._unpacker.feed(self._small[:count])
        self._fed += count
        for message in self._unpacker:
            if "bytes" in message:
                self._begin(message, self._small[count - (self._fed - self._unpacker.tell()) : count])
                break
            self._transport.write(msgpack.packb(message))

    def _begin(self, message: Any, first: memoryview) -> None:
        """The blob that was announced; its `first` bytes have come with the announcement."""
        self._blob, self._have = np.empty(message["bytes"], np.uint8).data, len(first)
        self._blob[: len(first)] = first
        self._ack = msgpack.packb({"id": message["id"]})
        self._unpacker, self._fed = msgpack.Unpacker(), 0


async def serve_echo() -> None:
    server = await asyncio.get_running_loop().create_server(PlainEcho, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class PlainClient:
    """The blocking client of PlainEcho."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unpacker = msgpack.Unpacker()
        self._space = bytearray(1 << 16)

    def _receive(self, count: int) -> None:
        got = 0
        while got < count:
            size = self._socket.recv_into(self._space)
            self._unpacker.feed(memoryview(self._space)[:size])
            got += sum(1 for _ in self._unpacker)

    def ping(self) -> None:
        self._socket.sendall(msgpack.packb({"id": 1, "type": "Ping"}))
        self._receive(1)

    def pings(self, count: int) -> None:
        for start in range(0, count, WINDOW):
            messages = [msgpack.packb({"id": start + n, "type": "Ping"}) for n in range(min(WINDOW, count - start))]
            self._socket.sendall(b"".join(messages))
            self._receive(len(messages))

    def upload(self, data: Any) -> None:
        sent = self._socket.sendmsg([head := msgpack.packb({"id": 1, "bytes": data.nbytes}), data])
        self._socket.sendall(data[sent - len(head) :])
        self._receive(1)

    def close(self) -> None:
        self._socket.close()


# --- what is measured -----------------------------------------------------------------------------------


@dataclass
class Pair:
    """One figure, ours and the plain peer's, round by round; `better` says which way is good."""

    name: str
    unit: str
    ours: list[float]
    plain: list[float]
    mark: str

    def row(self) -> tuple[str, ...]:
        mine, other = statistics.median(self.ours), statistics.median(self.plain)
        ratios = [a / b for a, b in zip(self.ours, self.plain, strict=True)]
        return (
            self.name,
            f"{mine:.1f} {self.unit}",
            f"{other:.1f} {self.unit}",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            self.mark,
        )


def microseconds(what: Callable[[], object], count: int = 1) -> float:
    """The time of one of the `count` things that a call does."""
    start = time.perf_counter_ns()
    what()
    return (time.perf_counter_ns() - start) / count / 1e3


def compare(client: TargetClient, plain: PlainClient, rounds: int) -> list[Pair]:
    """Pings one by one, pings in windows, uploads by size. Ours and the peer's take turns in blocks of a few
    milliseconds, and a round's figure is the median of its blocks: where the system puts two processes on two busy
    cores changes a round trip by a factor of two from one moment to the next."""
    single = Pair("ping, round trip", "us", [], [], "at most 1.5")
    piped = Pair(f"ping, {WINDOW} under way", "us", [], [], "at most 2")
    uploads = {size: Pair(f"upload of {size} MiB", "MB/s", [], [], "at least 0.85") for size in UPLOADS_MIB}
    for number in range(rounds + 1):  # the first one warms up
        figures = [
            (single, *alternate(repeated(client.ping), repeated(plain.ping))),
            (piped, *alternate(partial(client.pings, BLOCK), partial(plain.pings, BLOCK))),
        ]
        for size, pair in uploads.items():
            data = np.ones(size * MIB, np.uint8)
            times = [
                (upload_microseconds(client, data), microseconds(partial(plain.upload, data.data)))
                for _ in range(UPLOADED_MIB // size)
            ]
            ours, peers = (statistics.median(values) for values in zip(*times, strict=True))
            figures.append((pair, data.nbytes / ours, data.nbytes / peers))
        if number:
            for pair, mine, other in figures:
                pair.ours.append(mine)
                pair.plain.append(other)
    return [single, piped, *uploads.values()]


def repeated(ping: Callable[[], None]) -> Callable[[], None]:
    """BLOCK pings, one after the other."""

    def block() -> None:
        for _ in range(BLOCK):
            ping()

    return block


def alternate(ours: Callable[[], None], plain: Callable[[], None]) -> tuple[float, float]:
    """The median microseconds of one ping, ours and the peer's."""
    times = [(microseconds(ours, BLOCK), microseconds(plain, BLOCK)) for _ in range(BLOCKS)]
    mine, other = (statistics.median(values) for values in zip(*times, strict=True))
    return mine, other


def upload_microseconds(client: TargetClient, data: npt.NDArray[np.uint8]) -> float:
    """Without freeing, which is a round trip of its own; the peer drops what it has received."""
    handles: list[int] = []
    took = microseconds(lambda: handles.append(client.upload(data)))
    client.free(*handles)
    return took


def overhead(client: TargetClient, rounds: int) -> list[float]:
    """Milliseconds per measured variant that are neither build, nor verification, nor measurement."""
    values = np.ones(1 << 16, np.float32)
    given, reference = client.upload(values), client.upload(values)
    results = []
    for number in range(rounds):
        for batch in range(BATCHES):
            variants = tuple(_copy(number, batch, place, values.size) for place in range(VARIANTS))
            request = ProfileKernel(
                task="copy",
                buffers={"input": given},
                output_bytes=values.nbytes,
                reference=reference,
                relative=0.0,
                absolute=0.0,
                dtype="float32",
                variants=variants,
                baseline=None,
                best_ns=0.0,
                work=Work(0, 2 * values.nbytes),
                samples=3,
                sample_ns=1_000_000,
                warm_up_ns=1_000_000,
                cold=False,
                together=True,
                harvest=True,
            )
            start = time.perf_counter_ns()
            measured = client.measure_kernel(request)
            wall_ns = time.perf_counter_ns() - start
            if any(trial.status != "ok" for trial in measured.trials):
                raise RuntimeError(f"a copy failed: {measured.trials}")
            results.append((wall_ns - sum(measured.spent_ns.values())) / VARIANTS / 1e6)
    client.free(given, reference)
    return results


def _copy(number: int, batch: int, place: int, size: int) -> Variant:
    source = (
        f"// {number} {batch} {place}\n"
        "__kernel void copy(__global const float *input, __global float *output) {\n"
        "    output[get_global_id(0)] = input[get_global_id(0)];\n}\n"
    )
    launch = Launch(source, "copy", "", (size,), (64,), ("input", "output"))
    return Variant({"PLACE": place}, (), launch, {}, number=place)


def run(options: argparse.Namespace) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """The figures for JSON, and the rows of the table: name, ours, plain, ratio, mark."""
    allowed = os.sched_getaffinity(0)
    # Waking a core that sleeps takes longer than all the rest, and where the system puts two processes is chance: both
    # pairs share one core, which what is started from here inherits.
    os.sched_setaffinity(0, {min(allowed)})
    echo = subprocess.Popen(tool.module("benchmarks.rpc"), stdout=subprocess.PIPE, text=True, env=tool.environment())
    try:
        assert echo.stdout is not None
        plain = PlainClient(int(echo.stdout.readline()))
        with choose_target(None, {}, "null") as target, target.connect() as client:
            pairs = compare(client, plain, options.rounds)
            nothing = overhead(client, options.rounds)
        plain.close()
    finally:
        os.sched_setaffinity(0, allowed)
        echo.kill()
        echo.wait()
    with choose_target(None, os.environ, options.device) as target, target.connect() as client:
        real = overhead(client, options.rounds)
        device = client.device["name"]
    overheads = {"null": nothing, str(device): real}
    figures = {
        "pairs": {pair.name: {"ours": pair.ours, "plain": pair.plain, "unit": pair.unit} for pair in pairs},
        "overhead_ms": overheads,
    }
    rows = [pair.row() for pair in pairs]
    for name, values in overheads.items():
        title = f"overhead per measured variant, {name[:40]}"
        spread = f"{min(values):.2f} to {max(values):.2f}"
        rows.append((title, f"{statistics.median(values):.2f} ms", "", spread, "at most 1 ms"))
    return figures, rows


if __name__ == "__main__":
    asyncio.run(serve_echo())
