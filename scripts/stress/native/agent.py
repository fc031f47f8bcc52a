"""Tamper with streams of frames that the agent reads in C, and compare with Python's reader.

    scripts/fuzz agent [--seed N] [--count 100000] [--case NUMBER] [--executions 1000000]

A stream is a session: a hello without a MAC, then frames with MACs, larger ones after the proof. Each is changed in its
hello or after it, and comes in pieces of one size. Both readers must take the same frames and end with the same name of
error; a frame that is not as it was sent must not be taken. If clang is installed, libFuzzer then changes streams by
itself, guided by what they reach. AddressSanitizer and UndefinedBehaviorSanitizer watch both, and whether the reader
reads what has not arrived.
"""

import argparse
import functools
import hashlib
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import tool
from gputune.runtime import native
from gputune.server.protocol import codec, framing
from gputune.server.protocol.connection import HANDSHAKE_LIMITS
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.frame_mac import FrameMac
from gputune.server.protocol.messages import PROTOCOL_VERSION, Hello
from stress.fuzz import cases
from stress.fuzz.cases import Broken
from stress.fuzz.mutations import mutated_bytes
from stress.fuzz.native import built, guided

sys.path.append(str(tool.ROOT))
from tests.protocol.tampering import CUT, LIMITS, Recorded, tampered

KEY = b"k" * 32
PARTS = (
    Path(__file__).with_name("agent.c"),
    *(native.FOLDER / "agent" / f"{name}.c" for name in ("blake2b", "frames")),
    native.FOLDER / "src" / "sha256.c",
)
FOLDERS = tuple(f"-I{native.FOLDER / name}" for name in ("agent", "src", "include"))
STEPS = (1 << 20, 1 << 20, 65_536, 1000, 97, 12, 1)
SMALL_FRAMES = 7  # of the recorded ones; streams without the others are quickly read
LARGEST_INPUT_BYTES = 1 << 17


class End(NamedTuple):
    """How a reader ends: frames that it takes, a digest of them, and a name of an error, "whole" or CUT."""

    taken: int
    digest: str
    name: str


class NativeFrames:
    """The agent's reader in a process of its own."""

    def __init__(self, program: Path) -> None:
        environment = {**os.environ, "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=1"}
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def read(self, stream: bytes, step: int) -> End:
        """Return how a stream in pieces of `step` bytes ends. Raises RuntimeError if the reader crashes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        sizes = b"".join(size.to_bytes(4, sys.byteorder) for size in (len(stream), step))
        self._process.stdin.write(sizes + stream)
        self._process.stdin.flush()
        taken, _, rest = self._process.stdout.readline().decode().rstrip().partition(" ")
        if not rest:
            raise RuntimeError(f"the agent's reader has crashed with code {self._process.wait()}")
        digest, _, name = rest.partition(" ")
        return End(int(taken), digest, name)

    def __enter__(self) -> "NativeFrames":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()
        if kind is None and self._process.returncode:
            raise RuntimeError(f"the agent's reader has ended with code {self._process.returncode}")


def read_by_python(stream: bytes) -> End:
    """Return how Python's reader ends, under the same keys and limits."""
    reader, name, count = framing.FrameReader(HANDSHAKE_LIMITS), "", 0
    digest = hashlib.blake2b(digest_size=32)
    try:
        for frame in reader.feed(stream):
            for part in (frame.header, *frame.blobs):
                digest.update(len(part).to_bytes(8, "little") + bytes(part))
            count += 1
            if count == 1:
                reader.mac = FrameMac(KEY)
            else:
                reader.limits = LIMITS
    except RemoteProtocolError as error:
        name = error.name
    return End(count, digest.hexdigest(), name or ("whole" if reader.between_frames else CUT))


def hello() -> bytes:
    """Return the frame that a client sends first."""
    return b"".join(framing.encode(codec.pack(Hello(PROTOCOL_VERSION, "gputune", "5" * 64, "token"), 0)))


def session(chance: random.Random, recorded: Recorded) -> tuple[bytes, int]:
    """Return a stream that was changed, and how many frames of it came as they were sent."""
    first = hello()
    if chance.random() < 0.25:
        return mutated_bytes(first, chance) + b"".join(recorded.frames[: chance.randrange(4)]), len(recorded.frames) + 1
    _, stream = tampered(chance, recorded)
    return first + stream, 1 + recorded.intact(stream)


def examine(chance: random.Random, recorded: Recorded, reader: NativeFrames) -> str:
    """Return how a changed stream ends. Raises Broken if the readers disagree, or take a frame that was changed."""
    stream, intact = session(chance, recorded)
    by_python, by_agent = read_by_python(stream), reader.read(stream, chance.choice(STEPS))
    if by_python != by_agent:
        raise Broken(f"Python's reader ends with {by_python}, the agent's with {by_agent}")
    if by_agent.taken > intact:
        raise Broken(f"{by_agent.taken} frames were taken, and {intact} came as they were sent")
    return by_agent.name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `scripts/fuzz agent`."""
    cases.add_arguments(parser, 100_000)
    parser.add_argument("--executions", type=int, default=1_000_000, help="of libFuzzer (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Runs the cases and libFuzzer, and returns the exit code."""
    recorded = Recorded.made()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = built("cc", folder / "frames", PARTS, "address,undefined", FOLDERS)
        with NativeFrames(program) as reader:
            one = functools.partial(examine, recorded=recorded, reader=reader)
            code = cases.explore("agent", options, one)
        if options.case is not None:
            return code
        corpus = folder / "corpus"
        corpus.mkdir()
        for count in (*range(SMALL_FRAMES + 1), len(recorded.frames)):
            (corpus / str(count)).write_bytes(b"\0" + hello() + b"".join(recorded.frames[:count]))
        limits = (f"-max_len={LARGEST_INPUT_BYTES}",)
        return guided(PARTS, corpus, options, limits, (*FOLDERS, "-DFUZZING")) or code
