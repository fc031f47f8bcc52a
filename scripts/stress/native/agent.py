"""Tamper with streams of frames that the agent reads in C, and compare with Python's reader.

    scripts/fuzz agent [--seed N] [--count 100000] [--case NUMBER] [--executions 1000000]

A stream is a session: a hello without a MAC, then frames with MACs, larger ones after the proof. Each is changed in its
hello or after it, and comes in pieces of one size. Both readers must take the same frames and end with the same name of
error; a frame that is not as it was sent must not be taken. If clang is installed, libFuzzer then changes streams by
itself, guided by what they reach, and the requests that a session answers after the proof. AddressSanitizer and
UndefinedBehaviorSanitizer watch all, and whether the reader reads what has not arrived.
"""

import argparse
import functools
import hashlib
import random
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import numpy as np

from c_tables import AGENT_RECORDS
from gputune.runtime import native
from gputune.server.agent import message_parts, messages
from gputune.server.protocol import codec, framing
from gputune.server.protocol.connection import HANDSHAKE_LIMITS
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.frame_mac import FrameMac
from gputune.server.protocol.messages import PROTOCOL_VERSION, Hello
from stress.fuzz import cases
from stress.fuzz.cases import Broken
from stress.fuzz.native import built, guided
from stress.native.reading import Answering
from tests.native.fake import NBYTES, doubling_context, fake_library
from tests.native.stateful import stateful_context
from tests.protocol.tampering import CUT, LIMITS, Recorded, tampered
from tests.strategies.changes import mutated_bytes

KEY = b"k" * 32
PARTS = (
    Path(__file__).with_name("agent.c"),
    *(native.FOLDER / "agent" / f"{name}.c" for name in ("blake2b", "frames")),
    native.FOLDER / "src" / "files" / "sha256.c",
)
OTHERS = ("main", "session", "listener", "check")
SESSION = (
    Path(__file__).with_name("agent_session.c"),
    *(path for path in sorted((native.FOLDER / "agent").glob("*.c")) if path.stem not in OTHERS),
    *sorted((native.FOLDER / "src").glob("*/*.c")),
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


class NativeFrames(Answering):
    """The agent's reader."""

    def read(self, stream: bytes, step: int) -> End:
        """Return how a stream in pieces of `step` bytes ends. Raises RuntimeError if the reader crashes."""
        sizes = b"".join(size.to_bytes(4, sys.byteorder) for size in (len(stream), step))
        taken, digest, name = self.ask(sizes + stream).split(" ", 2)
        return End(int(taken), digest, name)


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
        code = guided(PARTS, corpus, options, limits, (*FOLDERS, "-DFUZZING")) or code
        return _fuzz_sessions(folder, options) or code


def _fuzz_sessions(folder: Path, options: argparse.Namespace) -> int:
    """Runs libFuzzer on requests, and returns the exit code."""
    corpus = folder / "requests" / "corpus"
    corpus.mkdir(parents=True)
    for place, requests in enumerate(_sessions(folder)):
        (corpus / str(place)).write_bytes(b"".join(map(_input, requests)))
    kinds = [*messages.REPLIES, *AGENT_RECORDS]
    words = {kind.__name__ for kind in kinds} | {field.name for kind in kinds for field in fields(kind)}
    dictionary = folder / "words"
    dictionary.write_text("".join(f'"{word}"\n' for word in sorted(words)), encoding="ascii")
    limits = (f"-max_len={LARGEST_INPUT_BYTES}", f"-dict={dictionary}")
    return guided(SESSION, corpus, options, limits, FOLDERS, {"GPUTUNE_OPENCL_LIBRARY": str(fake_library())})


def _sessions(folder: Path) -> list[list[object]]:
    """Return good requests, for a fuzzer to begin with."""
    source = "__kernel void twice(__global float *from, __global float *to, int n) {}"
    whole, data = message_parts.Span(1, 0, 256), b"\1" * 256
    given = message_parts.Given(1, 0, 256, 0), message_parts.Given(2, 128, 128, 0), message_parts.Given(0, 0, 0, -3)
    zones = message_parts.Guarded(1, 0, 256, 64, 128, True), message_parts.Guarded(2, 128, 128, 0, 128, False)
    bounds = np.array([1e-3, 9.0, 1e-3, 1e-6]).tobytes()
    opened = [messages.Open(0, True, ("POCL_AFFINITY=0",)), messages.Allocate(1, 256), messages.Allocate(2, 256)]
    remembering = stateful_context(folder / "remembering.bin", {"one": 1})
    batches = message_parts.Batch((4,), 2, True), message_parts.Batch((4, 4), 1, False)
    return [
        [messages.ListDevices(), messages.Free((1, 2)), messages.Vote(True)],
        [
            *opened,
            messages.Write((whole,), (data,)),
            messages.Fill((whole, message_parts.Span(2, 0, 7)), (255, 0)),
            messages.Copy((whole,), (message_parts.Span(2, 0, 256),)),
            messages.Read((whole, message_parts.Span(2, 8, 8))),
        ],
        [
            *opened,
            messages.Build(3, source, "-DN=1", b""),
            messages.Bind(4, 3, "twice", (8, 4), (4, 2), given),
            messages.FirstLaunch(4, True),
            messages.TimePass(batches, 10**9),
            messages.Harvest(3),
            messages.Free((1, 3, 4)),
        ],
        [messages.Open(0, False, ()), messages.Build(1, "", "", b"__kernel void run()"), messages.TimePass((), 0)],
        *(
            [*opened, messages.Keep(5, b"\1" * 128), messages.Check(zones, (message_parts.Expected(5, dtype, bounds),))]
            for dtype in ("float32", "float16", "int8")
        ),
        [
            *opened,
            messages.LoadContext(6, doubling_context(folder / "doubling.bin").read_bytes(), "main", False, ()),
            messages.RunContext(6, (bytes(NBYTES),), False, True),
            messages.BeginProfile(6, "basic"),
            messages.RunContext(6, (bytes(NBYTES),), True, True),
            messages.EndProfile(),
        ],
        [
            messages.Open(0, True, ()),
            messages.LoadContext(1, remembering.read_bytes(), "one", False, ()),
            *(messages.OpenState(2, 1), messages.OpenState(3, 1, 2)),
            messages.RunContext(1, (bytes(NBYTES),), False, True, 2, 0),
            *(messages.ReadState(2, "a", NBYTES), messages.ResetState(2), messages.Free((1, 2, 3))),
        ],
    ]


def _input(request: object) -> bytes:
    """Return a request as agent_session.c has it."""
    packed = codec.pack(request, 1)
    header, blobs = packed.header, [bytes(blob) for blob in packed.blobs]
    lengths = b"".join(len(blob).to_bytes(2, "little") for blob in blobs)
    return len(header).to_bytes(2, "little") + bytes([len(blobs)]) + lengths + header + b"".join(blobs)
