"""Tamper with the frames of authenticated sessions, in memory and on the way to a target server on the null device.

    scripts/fuzz frames [--seed N] [--count 100000] [--sessions 300]

Exit code 1 when a frame was taken that did not come as it was sent, or when a session did not end.
"""

import argparse
import random
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import tool
from gputune.server.protocol.messages import Error, Ping, UploadBuffer
from stress.server.crew import Promises
from stress.server.observed import ObservedServer
from stress.server.wire import Closed, Wire

sys.path.append(str(tool.ROOT))
from tests.protocol.tampering import CUT, NAMES, Recorded, read, signed_frames, tampered

REQUESTS = (Ping(), UploadBuffer(b"content"), Ping(), UploadBuffer(bytes(5000)), UploadBuffer(bytes(100_000)), Ping())
HANG_SECONDS = 20.0
CLOSED = "closed"

Ends = Counter[tuple[str, str]]


def in_memory(count: int, seed: int, promises: Promises) -> Ends:
    """So many streams through a reader of frames: how often each kind ended how."""
    recorded, ends = Recorded.made(), Counter[tuple[str, str]]()
    headers = read(b"".join(recorded.frames))[0]
    wrong: list[str] = []
    for number in range(count):
        kind, stream = tampered(random.Random(f"{seed} {number}"), recorded)
        taken, end = read(stream)
        ends[kind, end] += 1
        if taken != headers[: recorded.intact(stream)] or end not in (*NAMES, CUT):
            wrong.append(f"number {number}, {kind}: {len(taken)} frames taken, {end}")
    promises.none_failed(wrong, "tampered streams in memory")
    return ends


def on_the_way(count: int, seed: int, promises: Promises) -> Ends:
    """So many sessions with a server whose requests were tampered with: how often each kind ended how."""
    ends, wrong = Counter[tuple[str, str]](), list[str]()
    with ObservedServer("null") as server:
        for number in range(count):
            with Wire(server.host, server.port, HANG_SECONDS) as wire:
                wire.authenticate(server.token)
                assert wire.mac is not None
                recorded = Recorded(signed_frames(wire.mac, REQUESTS), Recorded.made().others)
                kind, stream = tampered(random.Random(f"{seed} {number}"), recorded)
                answered, end = _answers(wire, stream)
            ends[kind, end] += 1
            if not answered <= set(range(1, recorded.intact(stream) + 1)):
                wrong.append(f"number {number}, {kind}: requests {sorted(answered)} were answered")
            if end not in (*NAMES, CLOSED):
                wrong.append(f"number {number}, {kind}: {end}")
        promises.none_failed(wrong, "tampered sessions with a server")
        promises.check(server.alive and "Traceback" not in server.log(), "the server is well")
    return ends


def _answers(wire: Wire, stream: bytes) -> tuple[set[int], str]:
    """(ids of the requests that were answered, what ended the connection) after a stream and its end."""
    answered = set[int]()
    try:
        with suppress(ConnectionError):
            wire.send(stream)
            wire.finish()
        while True:
            number, message = wire.receive()
            if number == 0:
                return answered, message.name if isinstance(message, Error) else type(message).__name__
            answered.add(number)
    except TimeoutError:
        return answered, f"it did not end within {HANG_SECONDS:g} s"
    except (Closed, ConnectionError):
        return answered, CLOSED


def _show(title: str, ends: Ends) -> None:
    names = sorted({end for _, end in ends})
    rows = [(kind, *(str(ends[kind, end]) for end in names)) for kind in sorted({kind for kind, _ in ends})]
    print("\n" + tool.table([title, *names], rows), flush=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `scripts/fuzz frames`."""
    parser.add_argument("--count", type=int, default=100_000, help="streams in memory (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=300, help="sessions with a server (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")


def run(options: argparse.Namespace) -> int:
    """Tampers as the options say and returns the exit code. Raises RuntimeError and OSError."""
    promises, figures = Promises(), dict[str, Any](seed=options.seed)
    for title, make, count in (
        ("in memory", in_memory, options.count),
        ("with a server", on_the_way, options.sessions),
    ):
        ends = make(count, options.seed, promises)
        _show(title, ends)
        figures[title] = {f"{kind}: {end}": number for (kind, end), number in sorted(ends.items())}
    return promises.report(figures, options.json)
